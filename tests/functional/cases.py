"""Batches and colorings that the tests of this folder share."""

from __future__ import annotations

import torch
from tests.reference import oracle
from torch import Tensor

WHITENINGS = ("cholesky", "zca", "newton", "standardize")
COLORINGS = ("none", "shift", "diagonal", "full", "class diagonal", "class full", "sample full")
CLASSES = 3


def make_batch(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """A batch with correlated channels of different means and scales."""
    generator = torch.Generator().manual_seed(seed)
    d = shape[1]
    mixing = torch.randn(d, d, generator=generator, dtype=torch.float64) + torch.eye(d, dtype=torch.float64)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    mean = torch.randn(d, generator=generator, dtype=torch.float64)
    x = torch.einsum("cd,nd...->nc...", mixing, noise) + mean.reshape(-1, *[1] * (len(shape) - 2))
    return x.to(dtype).contiguous()  # as einsum leaves it, eager layers would not take their own way


def make_coloring(
    kind: str, samples: int, d: int, seed: int = 1, dtype: torch.dtype = torch.float64
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """`color`, `shift` and `index` of `whiten_color`; one class is used twice and, given samples enough, one never."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    if kind == "none":
        return None, None, None
    if kind == "shift":
        return None, random(1, d), None
    if kind == "sample full":
        return random(samples, d, d), random(samples, d), None
    slots = CLASSES if kind.startswith("class") else 1
    color = random(slots, d) if kind.endswith("diagonal") else random(slots, d, d)
    index = torch.arange(samples) % (slots - 1) * 2 if kind.startswith("class") else None  # 0, 2, 0, 2, ...
    return color, random(slots, d), index


def oracle_coloring(color: Tensor | None, shift: Tensor | None, index: Tensor | None, samples: int) -> oracle.Coloring:
    """The same coloring for the oracle: one label per sample."""
    slots = max(len(t) for t in (color, shift) if t is not None) if color is not None or shift is not None else 1
    if index is None:
        index = torch.arange(samples) if slots == samples else torch.zeros(samples, dtype=torch.long)
    return oracle.conditional_coloring(index, color, shift)


def differentiable(*tensors: Tensor | None) -> list[Tensor]:
    """Those that are there, each a leaf that asks for its gradient."""
    return [t.detach().requires_grad_() for t in tensors if t is not None]
