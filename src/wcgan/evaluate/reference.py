"""Statistics of the real images for a feature network: computed once and cached on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from wcgan.core.processes import Rank
from wcgan.core.tensor_files import load_cached, save_cached
from wcgan.core.terminal import OnProgress
from wcgan.data import Dataset
from wcgan.evaluate.fid import Moments, RunningMoments, covariance_to_factor
from wcgan.evaluate.image_sets import StoredImages, batches
from wcgan.evaluate.metrics import RunningInceptionScore
from wcgan.evaluate.protocol import KEEPING, Features, Plan

_FORMAT = 1  # increase when the computation changes, so that old statistics are not loaded


@dataclass(frozen=True)
class Reference:
    """Statistics of the real images, on the network's device."""

    moments: Moments | None
    """Mean and covariance, for FID."""
    factor: Tensor | None
    """F with F F^T = the covariance."""
    features: Tensor | None
    """All features `(n, f)`, for KID, precision and recall."""


def load_reference(
    dataset: Dataset,
    count: int,
    features: Features,
    metrics: Sequence[str],
    *,
    rank: Rank | None = None,
    batch: int | None = None,
    cache: Path | None = None,
    progress: OnProgress | None = None,
) -> Reference:
    """The statistics of `count` images of a dataset: loaded from the cache, or computed now and stored there.

    If the dataset has more images, those with the lowest SHA-256 of their pixels are used.

    Args:
        dataset: the real images.
        count: how many of them.
        features: the network.
        metrics: the metrics in `METRICS` that need the statistics.
        rank: the processes that share the work.
        batch: batch size for the network.
        cache: the cache folder; by default `WCGAN_CACHE`, else `~/.cache/wcgan`.
        progress: called with a description, how much is done, and how much there is.
    """
    rank = rank or Rank()
    needs = {"fid": {"fid"}, "kid": KEEPING}  # features are stored under KID, whichever metric needs them
    wanted = [metric for metric, users in needs.items() if users & set(metrics)]
    names = {metric: _name(dataset, count, features, metric) for metric in wanted}
    stored = {metric: load_cached("statistics", name, cache) for metric, name in names.items()}
    missing = [metric for metric in wanted if rank.any(stored[metric] is None)]
    tensors = {metric: found[0] for metric, found in stored.items() if found is not None}
    if missing:
        tensors |= _compute(dataset, count, features, missing, rank, batch, progress)
        if rank.first:
            facts = {"dataset": dataset.name, "split": dataset.split, "images": count, "network": features.fingerprint}
            for metric in missing:
                save_cached("statistics", names[metric], tensors[metric], facts, cache)
    placed = {m: {key: value.to(features.device) for key, value in group.items()} for m, group in tensors.items()}
    fid, kid = placed.get("fid"), placed.get("kid")
    return Reference(
        moments=None if fid is None else Moments(fid["mean"], fid["covariance"]),
        factor=None if fid is None else fid["factor"],
        features=None if kid is None else kid["features"],
    )


def _compute(
    dataset: Dataset,
    count: int,
    features: Features,
    metrics: Sequence[str],
    rank: Rank,
    batch: int | None,
    progress: OnProgress | None,
) -> dict[str, dict[str, Tensor]]:
    meter = Meter(features, Plan("", count, count, 1, 0), metrics)
    what = f"{dataset.name} {dataset.split} through the {features.name}"
    for start, images, _ in batches(StoredImages(dataset), count, batch or features.batch, rank):
        meter.update(start, images, None)
        if progress is not None:
            progress(what, min(count, start + len(images)), count)
    meter.share(rank)
    tensors: dict[str, dict[str, Tensor]] = {}
    if meter.moments is not None:
        mean, covariance = meter.moments.moments()
        tensors["fid"] = {"mean": mean, "covariance": covariance, "factor": covariance_to_factor(covariance)}
    if meter.kept is not None:
        tensors["kid"] = {"features": meter.kept}
    return tensors


def _name(dataset: Dataset, count: int, features: Features, metric: str) -> str:
    """The name in the cache, which depends on the pixels, the network and the type of device."""
    key = [_FORMAT, metric, dataset.fingerprint, list(dataset.images.shape), count]
    key += [features.name, features.fingerprint, features.device.type]
    return f"{metric}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}"


class Meter:
    """Accumulates what the metrics need: sums for FID and IS, and all features for KID, precision and recall.

    Args:
        features: the network.
        plan: the numbers of images.
        metrics: the metrics to prepare, some of `METRICS`.
    """

    def __init__(self, features: Features, plan: Plan, metrics: Sequence[str]) -> None:
        size, device = features.size, features.device
        self.features, self.generated, self.scored = features, plan.generated, plan.scored
        self.moments = RunningMoments(size, device) if "fid" in metrics else None
        self.kept = torch.zeros(plan.generated, size, device=device) if KEEPING & set(metrics) else None
        self.score = None
        if "is" in metrics and features.classes is not None:
            self.score = RunningInceptionScore(plan.scored, features.classes, plan.sets, device)
        self.matches = torch.zeros(2, dtype=torch.float64, device=device)  # correct predictions, and all

    def update(self, start: int, images: Tensor, labels: Tensor | None) -> None:
        """Add the images from number `start` on; labels are the classes they were generated for."""
        values, logits = self.features.predict(images)
        near = values[: max(0, self.generated - start)]
        if self.moments is not None:
            self.moments.update(near)
        if self.kept is not None:
            self.kept[start : start + len(near)] = near
        if logits is None:
            return
        if self.score is not None:
            self.score.update(start, logits[: max(0, self.scored - start)])
        if labels is not None:
            right = (logits.argmax(1) == labels.to(logits.device)).sum()
            self.matches += torch.stack([right, torch.full_like(right, len(labels))])

    def share(self, rank: Rank) -> None:
        """Sum over all processes."""
        if self.moments is not None:
            self.moments.share(rank)
        if self.score is not None:
            self.score.share(rank)
        if self.kept is not None:
            self.kept = rank.total(self.kept)
        self.matches = rank.total(self.matches)

    @property
    def accuracy(self) -> float | None:
        """Share of the images classified as the class they were generated for; None without labels."""
        right, all_of_them = self.matches.tolist()
        return right / all_of_them if all_of_them else None
