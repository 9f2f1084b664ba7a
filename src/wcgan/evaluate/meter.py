"""A network that watches images go by and keeps what its scores need, and no more."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from wcgan.evaluate.features import Features
from wcgan.evaluate.frechet import RunningMoments
from wcgan.evaluate.inception_score import RunningInceptionScore
from wcgan.evaluate.protocol import KEEPING, Plan
from wcgan.train.parallel import Rank


class Meter:
    """Sums for FID and IS; for KID, precision and recall the features themselves.

    Args:
        features: the network.
        plan: how many images each score takes.
        metrics: the scores to prepare, of `METRICS`.
    """

    def __init__(self, features: Features, plan: Plan, metrics: Sequence[str]) -> None:
        size, device = features.size, features.device
        self.features, self.generated, self.scored = features, plan.generated, plan.scored
        self.moments = RunningMoments(size, device) if "fid" in metrics else None
        self.kept = torch.zeros(plan.generated, size, device=device) if KEEPING & set(metrics) else None
        self.score = None
        if "is" in metrics and features.classes is not None:
            self.score = RunningInceptionScore(plan.scored, features.classes, plan.sets, device)
        self.matches = torch.zeros(2, dtype=torch.float64, device=device)  # predictions that are as asked for, and all

    def update(self, start: int, images: Tensor, labels: Tensor | None) -> None:
        """Look at images number `start` and on; labels are the classes that they were asked to show."""
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
        """What each process saw becomes what all saw."""
        if self.moments is not None:
            self.moments.share(rank)
        if self.score is not None:
            self.score.share(rank)
        if self.kept is not None:
            self.kept = rank.total(self.kept)
        self.matches = rank.total(self.matches)

    @property
    def accuracy(self) -> float | None:
        """Share of the images taken for the class asked for; None where none was."""
        right, all_of_them = self.matches.tolist()
        return right / all_of_them if all_of_them else None
