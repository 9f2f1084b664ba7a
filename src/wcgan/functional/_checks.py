"""Errors that name the value and what is allowed, raised before anything changes."""

import torch
from torch import Tensor


def check_batch(x: Tensor, groups: int = 1, minimum: int = 2, empty: bool = False) -> None:
    """A floating-point batch `(N, d, ...)` of channels that `groups` divides.

    It has at least `minimum` positions, or none where `empty` is allowed.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"expected a floating-point tensor, got {x.dtype}")
    if x.dim() < 2:
        raise ValueError(f"expected a batch (N, channels, ...), got {x.dim()} dimension(s): shape {tuple(x.shape)}")
    if x.shape[1] == 0:
        raise ValueError(f"expected at least one channel, got shape {tuple(x.shape)}")
    check_groups(x.shape[1], groups)
    positions = x.numel() // x.shape[1]
    if positions < minimum and not (empty and positions == 0):
        raise ValueError(
            f"batch statistics need at least {minimum} positions (samples x height x width), got {positions}: "
            f"shape {tuple(x.shape)}"
        )


def check_groups(channels: int, groups: int) -> None:
    if groups < 1 or channels % groups:
        raise ValueError(f"groups must be a positive divisor of the {channels} channels, got {groups}")


def check_slots(x: Tensor, matrix: Tensor, offset: Tensor, index: Tensor | None) -> None:
    """A map `(K, g, p, p)` and offset `(K, d)` that fit a batch, with a slot for each sample."""
    d = x.shape[1]
    if matrix.dim() != 4 or matrix.shape[2] != matrix.shape[3] or matrix.shape[1] * matrix.shape[2] != d:
        raise ValueError(f"matrix must be (K, g, p, p) with g p = {d} channels, got shape {tuple(matrix.shape)}")
    slots = matrix.shape[0]
    if offset.shape != (slots, d):
        raise ValueError(f"offset must be ({slots}, {d}), got shape {tuple(offset.shape)}")
    if index is None:
        if slots not in (1, x.shape[0]):
            raise ValueError(f"without an index, the {slots} maps must be 1 or one for each of {x.shape[0]} samples")
    elif index.shape != (x.shape[0],) or index.dtype != torch.int64:
        raise ValueError(f"index must be int64 of shape ({x.shape[0]},), got {index.dtype} {tuple(index.shape)}")
