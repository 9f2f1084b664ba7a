"""What a network makes of a set of real images: computed once, and kept on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from wcgan.data import Dataset
from wcgan.evaluate import _store
from wcgan.evaluate.features import Features
from wcgan.evaluate.frechet import Moments, covariance_to_factor
from wcgan.evaluate.meter import Meter
from wcgan.evaluate.protocol import KEEPING, Plan
from wcgan.evaluate.sources import StoredImages, batches
from wcgan.train.parallel import Rank
from wcgan.train.progress import OnProgress

_FORMAT = 1  # of the statistics: another way to compute them needs another number, so that no old ones are taken


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
    """The statistics of `count` images of a dataset: from the cache, or computed now and put there.

    Fewer images than the dataset has are those with the lowest SHA-256 of their pixels, whatever their order.

    Args:
        dataset: the real images.
        count: how many of them.
        features: the network.
        metrics: the scores that the statistics are for, of `METRICS`.
        rank: the processes that share the work.
        batch: how many images go through the network at once.
        cache: the cache folder; by default `WCGAN_CACHE`, else `~/.cache/wcgan`.
        progress: called with what is being done, how much of it is done, and how much there is.
    """
    rank = rank or Rank()
    needs = {"fid": {"fid"}, "kid": KEEPING}  # all features are stored as KID's, whichever score they are for
    wanted = [metric for metric, users in needs.items() if users & set(metrics)]
    names = {metric: _name(dataset, count, features, metric) for metric in wanted}
    stored = {metric: _store.load("statistics", name, cache) for metric, name in names.items()}
    missing = [metric for metric in wanted if rank.any(stored[metric] is None)]
    tensors = {metric: found[0] for metric, found in stored.items() if found is not None}
    if missing:
        tensors |= _compute(dataset, count, features, missing, rank, batch, progress)
        if rank.first:
            facts = {"dataset": dataset.name, "split": dataset.split, "images": count, "network": features.fingerprint}
            for metric in missing:
                _store.save("statistics", names[metric], tensors[metric], facts, cache)
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
    """The name under which the cache knows them: the same for the same pixels, network and kind of device only."""
    key = [_FORMAT, metric, dataset.fingerprint, list(dataset.images.shape), count]
    key += [features.name, features.fingerprint, features.device.type]
    return f"{metric}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}"
