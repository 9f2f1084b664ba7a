"""Applying a known map, as a layer does at inference: plain PyTorch operations only, so that anything can export it."""

import math

import torch
from torch import Tensor
from torch.nn.functional import conv1d, conv2d, linear

from wcgan.functional._checks import check_batch, check_slots
from wcgan.functional._registration import without_autocast


def affine(
    x: Tensor, matrix: Tensor, offset: Tensor, index: Tensor | None = None, mean: Tensor | None = None
) -> Tensor:
    r"""One affine map per sample: :math:`z_n = M_{k(n)} (x_n - \mu) + b_{k(n)}`.

    Args:
        x: `(N, d, ...)`.
        matrix: `(K, g, p, p)` with `g p = d`: K maps, each of g diagonal blocks. `p = 1` is a diagonal matrix.
        offset: `(K, d)`.
        index: `(N,)`, which of the K maps a sample takes; None where K is 1 or N.
        mean: `(d,)`, or None for zero.

    Returns:
        A tensor like `x`.

    Example:
        >>> import torch, wcgan
        >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> wcgan.functional.affine(x, swap.view(1, 1, 2, 2), torch.zeros(1, 2))
        tensor([[2., 1.],
                [4., 3.]])
    """
    check_batch(x, minimum=0)
    check_slots(x, matrix, offset, index)
    with without_autocast(x.device):
        return _affine(x, matrix, offset, index, mean)


def _affine(x: Tensor, matrix: Tensor, offset: Tensor, index: Tensor | None, mean: Tensor | None) -> Tensor:
    slots, groups, p, _ = matrix.shape
    n, d = x.shape[:2]
    if mean is not None:
        if x.dtype in (torch.float16, torch.bfloat16):
            # A rounded M times a large mean would not cancel against the offset.
            x = (x - mean.view(-1, *[1] * (x.dim() - 2))).to(x.dtype)
        else:
            offset = offset - (matrix @ mean.view(groups, p, 1)).flatten(1)
    if index is not None and slots > 1:
        matrix, offset = matrix.index_select(0, index), offset.index_select(0, index)
    matrix, offset = matrix.to(x.dtype), offset.to(x.dtype)
    if p == 1:
        per_channel = (-1, d, *[1] * (x.dim() - 2))
        return torch.addcmul(offset.reshape(per_channel), x, matrix.reshape(per_channel))
    if matrix.shape[0] == 1:
        return _shared(x, matrix[0], offset[0])
    places = math.prod(x.shape[2:])
    if x.dim() > 2 and x.stride(1) == 1:  # channels_last stays channels_last
        rows = x.movedim(1, -1)
        mapped = (rows.reshape(n, places, groups, p).transpose(1, 2) @ matrix.mT).transpose(1, 2)  # (N, L, g, p)
        return (mapped + offset.view(n, 1, groups, p)).reshape(rows.shape).movedim(-1, 1)
    mapped = matrix @ x.reshape(n, groups, p, places)
    return (mapped + offset.view(n, groups, p, 1)).reshape(x.shape)


def _shared(x: Tensor, matrix: Tensor, offset: Tensor) -> Tensor:
    """One map `(g, p, p)` for all samples: a 1x1 convolution, or the same product in a form that runs faster."""
    groups, p, _ = matrix.shape
    d = groups * p
    if groups == 1 and (x.dim() == 2 or x.stride(1) == 1):
        return linear(x.movedim(1, -1), matrix[0], offset).movedim(-1, 1)
    if x.dim() == 2:
        return (matrix @ x.view(-1, groups, p, 1)).flatten(1) + offset
    differentiated = torch.is_grad_enabled() and matrix.requires_grad
    if groups == 1 and x.device.type == "cpu" and not differentiated:
        return torch.baddbmm(offset.view(1, d, 1), matrix.expand(x.shape[0], d, d), x.flatten(2)).view(x.shape)
    if x.dim() == 4:
        return conv2d(x, matrix.reshape(d, p, 1, 1), offset, groups=groups)
    return conv1d(x.flatten(2), matrix.reshape(d, p, 1), offset, groups=groups).view(x.shape)
