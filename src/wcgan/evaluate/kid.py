"""Kernel distance between two sets of features (KID): the squared maximum mean discrepancy."""

from __future__ import annotations

import torch
from torch import Tensor

from wcgan.core.device import random_generator
from wcgan.core.processes import Rank

SUBSETS, SUBSET_SIZE = 100, 1000  # torch-fidelity's


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
    if first.dim() != 2 or second.dim() != 2 or first.shape[1] != second.shape[1]:
        shapes = f"{tuple(first.shape)} and {tuple(second.shape)}"
        raise ValueError(f"features must be (n, f) and (m, f) of one network, got shapes {shapes}")
    if subsets < 1 or size < 2:
        raise ValueError(f"KID needs at least 1 subset of at least 2 images, got {subsets} of {size}")
    fewest = min(len(first), len(second))
    if fewest < size:
        raise ValueError(
            f"KID draws subsets of {size} images and one of the sets has {fewest}: score more images, "
            f"or give --kid-subset-size {fewest} or less"
        )
    if not bool(first.isfinite().all() and second.isfinite().all()):
        raise ValueError("the features contain NaN or infinite values: no distance can be computed from them")
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
