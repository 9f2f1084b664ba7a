"""Precision and recall: how many generated images look real, and how many real images are covered."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from wcgan.core.processes import Rank

NEIGHBOURS = 3  # those of Kynkäänniemi et al. (2019), and torch-fidelity's
CHUNK = 500  # rows of distances at once


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
    if generated.dim() != 2 or real.dim() != 2 or generated.shape[1] != real.shape[1]:
        shapes = f"{tuple(generated.shape)} and {tuple(real.shape)}"
        raise ValueError(f"features must be (n, f) and (m, f) of one network, got shapes {shapes}")
    fewest = min(len(generated), len(real))
    if neighbours < 1:
        raise ValueError(f"a neighbourhood reaches to at least 1 neighbour, got {neighbours}")
    if fewest <= neighbours:
        raise ValueError(f"precision and recall need more than {neighbours} images of each set, got {fewest}")
    if not bool(generated.isfinite().all() and real.isfinite().all()):
        raise ValueError("the features contain NaN or infinite values: no neighbourhood can be computed from them")
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
