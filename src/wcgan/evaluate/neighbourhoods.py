"""Precision and recall of a set of images: how much of it looks real, and how much of what is real it has."""

from __future__ import annotations

import torch
from torch import Tensor

from wcgan.train.parallel import Rank

NEIGHBOURS = 3  # those of Kynkäänniemi et al. (2019), and torch-fidelity's
CHUNK = 1000  # rows of distances at once


def precision_recall(
    generated: Tensor, real: Tensor, neighbours: int = NEIGHBOURS, rank: Rank | None = None
) -> tuple[float, float]:
    """Precision: the share of generated images that lie in the neighbourhood of a real one. Recall: the share of real
    images that lie in that of a generated one. A neighbourhood is a ball that reaches to the image's `neighbours`-th
    nearest of its own set (Kynkäänniemi et al., 2019).

    Args:
        generated: features `(n, f)`.
        real: features `(m, f)` of the same network.
        neighbours: which of the nearest images of its own set a ball reaches to.
        rank: the processes that share the work; each holds all the features.

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
        raise ValueError("the features hold NaN or infinite values: no neighbourhood can be computed from them")
    rank = rank or Rank()
    own, other = generated.double(), real.to(generated.device).double()
    return _share_inside(own, other, neighbours, rank), _share_inside(other, own, neighbours, rank)


def _share_inside(points: Tensor, centres: Tensor, neighbours: int, rank: Rank) -> float:
    """How many of the points lie in the neighbourhood of a centre."""
    reach = torch.zeros(len(centres), dtype=torch.float64, device=centres.device)
    for start in _starts(len(centres), rank):
        chunk = centres[start : start + CHUNK]
        # The nearest of all is the image itself.
        reach[start : start + len(chunk)] = squared_distances(chunk, centres).kthvalue(neighbours + 1, dim=1).values
    reach = rank.total(reach)
    inside = torch.zeros((), dtype=torch.float64, device=points.device)
    for start in _starts(len(points), rank):
        inside += (squared_distances(points[start : start + CHUNK], centres) <= reach).any(1).sum()
    return float(rank.total(inside)) / len(points)


def _starts(count: int, rank: Rank) -> range:
    return range(rank.index * CHUNK, count, rank.count * CHUNK)


def squared_distances(first: Tensor, second: Tensor) -> Tensor:
    """Between each of `(n, f)` and each of `(m, f)`."""
    squares = first.square().sum(1)[:, None] + second.square().sum(1)  # (n, m)
    return torch.addmm(squares, first, second.mT, alpha=-2).clamp_(min=0)
