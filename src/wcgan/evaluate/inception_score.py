"""The Inception Score's formula, on the predictions of any classifier."""

from __future__ import annotations

import torch
from torch import Tensor

from wcgan.core.processes import Rank


def inception_score(logits: Tensor, splits: int = 10) -> tuple[float, float]:
    r"""How confident the predictions are, and how evenly they spread over the classes.

    .. math:: \exp \operatorname{E}_x \operatorname{KL}(p(y|x) \,\|\, p(y))
              = \exp \big( H[\operatorname{E}_x p(y|x)] - \operatorname{E}_x H[p(y|x)] \big)

    Between 1 (every image gets the same prediction) and the number of classes (each image gets one class, all
    classes equally often).

    Args:
        logits: `(n, classes)`, in the order in which the images were made.
        splits: consecutive sets of (almost) equal size; each gets a score.

    Returns:
        The mean of the scores and their standard deviation (that of these scores, 1 / splits).

    Raises:
        ValueError: for fewer than 2 images, splits that cannot be filled, or NaN.

    Example:
        >>> import torch
        >>> inception_score(1000 * torch.eye(4), splits=1)
        (4.0, 0.0)
    """
    if logits.dim() != 2:
        raise ValueError(f"logits must be (n, classes), got shape {tuple(logits.shape)}")
    running = RunningInceptionScore(len(logits), logits.shape[1], splits)
    running.update(0, logits)
    return running.score()


class RunningInceptionScore:
    """The score of predictions that arrive batch by batch, in any order: a few sums for each set, in float64.

    Args:
        images: how many there will be.
        classes: the length of a prediction.
        splits: consecutive sets of (almost) equal size; each gets a score.
        device: where the sums are kept.
    """

    def __init__(self, images: int, classes: int, splits: int = 10, device: torch.device | str = "cpu") -> None:
        if images < 2:
            raise ValueError(f"a score needs at least 2 images, got {images}")
        if not 1 <= splits <= images:
            raise ValueError(f"splits must be from 1 to the number of images, {images}, got {splits}")
        self.images, self.splits = images, splits
        # of each set: the sum of its predictions (classes), of their entropies (1), and how many they are (1)
        self.sums = torch.zeros(splits, classes + 2, dtype=torch.float64, device=device)

    def update(self, start: int, logits: Tensor) -> None:
        """Add the predictions `(n, classes)` for images number `start` and on.

        Raises:
            ValueError: for NaN; nothing is added then.
        """
        n = len(logits)
        broken = int(logits.isnan().any(1).sum())
        if broken:
            raise ValueError(f"the predictions for {broken} of {n} images are NaN: no score can be computed from them")
        probabilities = logits.detach().to(self.sums.device, torch.float64).softmax(1)
        entropies = torch.special.entr(probabilities).sum(1, keepdim=True)
        rows = torch.cat([probabilities, entropies, torch.ones_like(entropies)], 1)
        numbers = torch.arange(start, start + n, device=rows.device)
        # set k holds the images from k images // splits up to (k + 1) images // splits
        self.sums.index_add_(0, ((numbers + 1) * self.splits - 1) // self.images, rows)

    def share(self, rank: Rank) -> None:
        """Every process's predictions become those of all processes."""
        self.sums = rank.total(self.sums)

    def score(self) -> tuple[float, float]:
        """Mean and standard deviation over the sets."""
        means = self.sums[:, :-1] / self.sums[:, -1:]  # (splits, classes + 1)
        scores = (torch.special.entr(means[:, :-1]).sum(1) - means[:, -1]).exp()
        return float(scores.mean()), float(scores.std(correction=0))
