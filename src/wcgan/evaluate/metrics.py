"""Scores of generated images: the Inception Score of predictions, and KID, precision and recall of features.

FID, which needs statistics of whole sets, is in `fid`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from wcgan.core.device import random_generator
from wcgan.core.processes import Rank

SUBSETS, SUBSET_SIZE = 100, 1000  # of KID, torch-fidelity's
NEIGHBOURS = 3  # those of Kynkäänniemi et al. (2019), and torch-fidelity's
CHUNK = 500  # rows of distances that precision and recall take at once


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


# KID


def kernel_distance(
    first: Tensor,
    second: Tensor,
    subsets: int = SUBSETS,
    size: int = SUBSET_SIZE,
    seed: int = 0,
    rank: Rank | None = None,
) -> tuple[float, float]:
    r"""Mean and standard deviation, over random subsets, of the unbiased estimate of

    .. math:: \operatorname{E} k(x, x') + \operatorname{E} k(y, y') - 2 \operatorname{E} k(x, y), \qquad
              k(x, y) = (x^\top y / f + 1)^3.

    It is unbiased: two sets from one distribution give 0 on average, and sometimes less.

    Args:
        first: features `(n, f)` of one set.
        second: features `(m, f)` of the other.
        subsets: number of pairs of subsets.
        size: images per subset.
        seed: seed for the subsets.
        rank: the processes that share the subsets; each has all features.

    Raises:
        ValueError: for fewer images than a subset has, or features that do not match or are not finite.

    Example:
        >>> import torch
        >>> ones = torch.ones(4, 2)
        >>> kernel_distance(ones, 0 * ones, subsets=1, size=4)
        (7.0, 0.0)
    """
    _check_features(first, second, "distance")
    if subsets < 1 or size < 2:
        raise ValueError(f"KID needs at least 1 subset of at least 2 images, got {subsets} of {size}")
    fewest = min(len(first), len(second))
    if fewest < size:
        raise ValueError(
            f"KID draws subsets of {size} images and one of the sets has {fewest}: score more images, "
            f"or give --kid-subset-size {fewest} or less"
        )
    rank = rank or Rank()
    values = torch.zeros(subsets, dtype=torch.float64, device=first.device)
    for number in range(rank.index, subsets, rank.count):
        generator = random_generator(seed, "kernel distance", number)
        chosen = [torch.randperm(len(each), generator=generator)[:size].to(each.device) for each in (first, second)]
        values[number] = unbiased_discrepancy(first[chosen[0]].double(), second[chosen[1]].to(first.device).double())
    values = rank.total(values)
    return float(values.mean()), float(values.std(correction=0))


def unbiased_discrepancy(x: Tensor, y: Tensor) -> Tensor:
    """The unbiased estimate from two sets `(n, f)` of one size."""
    n, features = x.shape

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return (a @ b.mT / features + 1) ** 3  # (n, f) (f, n) -> (n, n)

    def mean_of_others(k: Tensor) -> Tensor:  # an image is not compared with itself
        return (k.sum() - k.trace()) / (n * (n - 1))

    return mean_of_others(kernel(x, x)) + mean_of_others(kernel(y, y)) - 2 * kernel(x, y).mean()


# Precision and recall


def precision_recall(
    generated: Tensor, real: Tensor, neighbours: int = NEIGHBOURS, rank: Rank | None = None
) -> tuple[float, float]:
    """Precision is the share of generated images in the neighbourhood of a real image, and recall the share of real
    images in the neighbourhood of a generated image. A neighbourhood is a ball whose radius is the distance to the
    `neighbours`-th nearest image of the same set (Kynkäänniemi et al., 2019).

    Args:
        generated: features `(n, f)`.
        real: features `(m, f)` of the same network.
        neighbours: rank of the neighbour at which a ball ends.
        rank: the processes that share the work; each has all features.

    Raises:
        ValueError: for too few images, or features that do not match or are not finite.

    Example:
        >>> import torch
        >>> line = torch.arange(8.0)[:, None]
        >>> precision_recall(line[:4], line, neighbours=1)
        (1.0, 0.625)
    """
    _check_features(generated, real, "neighbourhood")
    fewest = min(len(generated), len(real))
    if neighbours < 1:
        raise ValueError(f"a neighbourhood reaches to at least 1 neighbour, got {neighbours}")
    if fewest <= neighbours:
        raise ValueError(f"precision and recall need more than {neighbours} images of each set, got {fewest}")
    rank = rank or Rank()
    own, other = generated.double(), real.to(generated.device).double()
    reach, reach_of_real = (_reach(each, neighbours, rank) for each in (own, other))
    near_real = torch.zeros(len(own), dtype=torch.float64, device=own.device)
    near_generated = torch.zeros(len(other), dtype=torch.float64, device=own.device)
    for start, distances in _rows(own, other, rank):
        rows = slice(start, start + len(distances))
        near_real[rows] = (distances <= reach_of_real).any(1).double()
        near_generated += (distances <= reach[rows, None]).any(0)
    return float(rank.total(near_real).mean()), float((rank.total(near_generated) > 0).double().mean())


def _reach(images: Tensor, neighbours: int, rank: Rank) -> Tensor:
    """Of each image, the squared distance to one of its nearest; a little more, so that rounding leaves no copy out."""
    reach = torch.zeros(len(images), dtype=torch.float64, device=images.device)
    for start, distances in _rows(images, images, rank):
        # The nearest of all is the image itself. On a GPU, `kthvalue` refuses deterministic mode; `topk` does not.
        reach[start : start + len(distances)] = distances.topk(neighbours + 1, largest=False).values.amax(1)
    return rank.total(reach) + 1e-12 * images.square().sum(1).max()


def _rows(first: Tensor, second: Tensor, rank: Rank) -> Iterator[tuple[int, Tensor]]:
    """This process's share of the squared distances `(n, m)`: where some rows begin, and the rows."""
    squares = second.square().sum(1)
    for start in range(rank.index * CHUNK, len(first), rank.count * CHUNK):
        chunk = first[start : start + CHUNK]
        sums = chunk.square().sum(1)[:, None] + squares
        yield start, torch.addmm(sums, chunk, second.mT, alpha=-2).clamp_(min=0)


def _check_features(first: Tensor, second: Tensor, wanted: str) -> None:
    """Raises a ValueError unless two sets of features match and are finite."""
    if first.dim() != 2 or second.dim() != 2 or first.shape[1] != second.shape[1]:
        shapes = f"{tuple(first.shape)} and {tuple(second.shape)}"
        raise ValueError(f"features must be (n, f) and (m, f) of one network, got shapes {shapes}")
    if not bool(first.isfinite().all() and second.isfinite().all()):
        raise ValueError(f"the features contain NaN or infinite values: no {wanted} can be computed from them")
