"""A batch as equal consecutive parts, each normalised with its own statistics: whitening, and batch normalisation.

The layers call these functions in training; without `sub_batches` the whole batch is one part.
"""

from typing import Optional

import torch
from torch import Tensor
from torch.nn.functional import batch_norm

from wcgan.functional import _passes
from wcgan.functional._factorisations import FACTORISATIONS, WhiteningKind
from wcgan.functional._operators import kernels_for, register, transformed
from wcgan.functional._passes import compute_dtype
from wcgan.functional.normalize import Statistics, biased_if_standardize, whiten_color


def whiten_color_parts(
    x: Tensor,
    color: Tensor | None = None,
    shift: Tensor | None = None,
    index: Tensor | None = None,
    *,
    parts: int,
    whitening: WhiteningKind = "cholesky",
    groups: int = 1,
    eps: float = 1e-3,
    iterations: int = 5,
    process_group: str = "",
    relu: bool = False,
) -> tuple[Tensor, list[Statistics]]:
    r"""Applies `whiten_color` to equal consecutive parts of a batch, each with its own statistics.

    .. math:: z_n = C_{k(n)} W_{j(n)} (x_n - \mu_{j(n)}) + b_{k(n)}, \qquad j(n) \text{ the part of sample } n

    On a GPU and without gradients, all parts are processed together, in as many kernel launches as one part needs.

    Args:
        x: as in `whiten_color`; N must be a multiple of `parts`.
        color: as in `whiten_color`.
        shift: as in `whiten_color`.
        index: as in `whiten_color`.
        parts: number of parts.
        whitening: as in `whiten_color`.
        groups: as in `whiten_color`.
        eps: as in `whiten_color`.
        iterations: as in `whiten_color`.
        process_group: as in `whiten_color`.
        relu: as in `whiten_color`.

    Returns:
        z, a tensor like `x`, and the `Statistics` of each part.

    Shape:
        As in `whiten_color`.

    Example:
        >>> import torch, wcgan
        >>> z, statistics = wcgan.functional.whiten_color_parts(torch.randn(8, 4, 5, 5), parts=2)
        >>> z.shape, len(statistics)
        (torch.Size([8, 4, 5, 5]), 2)
    """
    dtype = _passes.compute_dtype(x)
    color, shift = (None if t is None else t.to(dtype) for t in (color, shift))
    arguments = (x, color, shift, index, parts, whitening, groups, eps, iterations, process_group, relu)
    if parts == 1 or torch.is_grad_enabled() or transformed():
        outs, statistics = _one_after_another(*arguments)
        return outs[0] if parts == 1 else torch.cat(outs), statistics
    out, mean, covariance, retry = _whiten_color_parts(*arguments)
    return out, [Statistics(*part) for part in zip(mean, covariance, retry, strict=True)]


def _one_after_another(
    x, color, shift, index, parts, whitening, groups, eps, iterations, process_group, relu
) -> tuple[list[Tensor], list[Statistics]]:
    """`whiten_color` of each part in a loop."""
    options = {
        "whitening": whitening,
        "groups": groups,
        "eps": eps,
        "iterations": iterations,
        "process_group": process_group,
    }
    results = [whiten_color(*part, **options, relu=relu) for part in _cut(x, color, shift, index, parts)]
    return [out for out, _ in results], [statistics for _, statistics in results]


def _cut(
    x: Tensor, color: Tensor | None, shift: Tensor | None, index: Tensor | None, parts: int
) -> list[tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]]:
    """The arguments of each part. A coloring per sample is cut like the samples."""
    if parts == 1:
        return [(x, color, shift, index)]
    own = index is None and color is not None and color.shape[0] == x.shape[0] > 1
    size = x.shape[0] // parts
    slices = [slice(part * size, (part + 1) * size) for part in range(parts)]
    return [
        (x[part], _rows(color, part) if own else color, _rows(shift, part) if own else shift, _rows(index, part))
        for part in slices
    ]


def _rows(values: Tensor | None, rows: slice) -> Tensor | None:
    return None if values is None else values[rows]


def _fake_parts(
    x, color, shift, index, parts, whitening, groups, eps, iterations, process_group, relu
) -> tuple[Tensor, ...]:
    d, dtype = x.shape[1], _passes.compute_dtype(x)
    shapes = ((parts, d), (parts, groups, d // groups, d // groups), (parts, groups))
    return torch.empty_like(x), *(x.new_empty(shape, dtype=dtype) for shape in shapes)


@register("whiten_color_parts", fake=_fake_parts)
def _whiten_color_parts(
    x: Tensor,
    color: Optional[Tensor],
    shift: Optional[Tensor],
    index: Optional[Tensor],
    parts: int,
    whitening: str,
    groups: int,
    eps: float,
    iterations: int,
    process_group: str,
    relu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n, d = x.shape[:2]
    kernels = kernels_for(x)
    shared = color is None or index is not None or color.shape[0] == 1
    if kernels is None or process_group or not shared:
        arguments = (x, color, shift, index, parts, whitening, groups, eps, iterations, process_group, relu)
        outs, statistics = _one_after_another(*arguments)
        mean, covariance, retry = (torch.stack(column) for column in zip(*statistics, strict=True))
        return torch.cat(outs, out=torch.empty_like(x)), mean, covariance, retry
    positions = _passes.as_positions(x)
    mean, scatter = kernels.moments(positions, parts)
    count = x.numel() // d // parts
    covariance = _passes.full_to_blocks(scatter, groups) / (count - 1)
    sigma = biased_if_standardize(covariance, whitening, count).flatten(0, 1)  # (parts g, p, p)
    w = FACTORISATIONS[whitening].factorise(sigma, eps, iterations)
    matrix = _passes.blocks_to_full(w.matrix.unflatten(0, (parts, groups))).unsqueeze(1)
    if color is not None:
        matrix = color @ matrix if color.dim() == 3 else color.unsqueeze(2) * matrix
    mapping = matrix.flatten(0, 1)  # (parts K, d, d)
    slots = mapping.shape[0] // parts
    slot = None if index is None else index + torch.arange(n, device=x.device) // (n // parts) * slots
    offset = mean.new_zeros(1, d) if shift is None else shift.repeat(parts, 1)
    out = torch.empty_like(x)
    kernels.apply_maps(_passes.as_positions(out), offset, [(positions, mapping, mean)], slot, relu)
    return out, mean, covariance, w.retry.unflatten(0, (parts, groups))


def batch_norm_parts(
    x: Tensor, color: Tensor | None, shift: Tensor | None, index: Tensor | None, eps: float, parts: int
) -> tuple[Tensor, list[Statistics]]:
    """`whiten_color_parts` for standardisation with diagonal colorings, on PyTorch's own batch normalisation.

    Args:
        x: `(N, d, ...)`, N a multiple of `parts`.
        color: diagonal matrices `(K, d)`, or `(d,)` for one that all samples share; None for none.
        shift: like `color`.
        index: `(N,)`, the slot of each sample; None if K is 1 (shared) or N (one per sample).
        eps: added to the variance.
        parts: number of parts.

    Returns:
        A tensor like `x`, and the `Statistics` of each part.
    """
    d, dtype = x.shape[1], compute_dtype(x)
    if color is not None and shift is not None and color.shape[0] == 1 and color.dim() == 2:
        color, shift = color[0], shift[0]
    shared = color is not None and color.dim() == 1
    scale, bias = (t.to(dtype) if shared and t is not None else None for t in (color, shift))
    outs, statistics = [], []
    # chunk needs a fixed batch size, which an exported program has not
    for part in x.chunk(parts) if parts > 1 else (x,):
        mean, variance = torch.zeros(2, d, dtype=dtype, device=x.device).unbind()
        outs.append(batch_norm(part, mean, variance, scale, bias, training=True, momentum=1.0, eps=eps))  # fills both
        statistics.append(Statistics(mean, variance.view(d, 1, 1), mean.new_zeros(1)))
    out = torch.cat(outs) if parts > 1 else outs[0]
    if color is None or shift is None or shared:
        return out, statistics
    return color_diagonally(out, color, shift, index), statistics


def color_diagonally(x: Tensor, color: Tensor, shift: Tensor, index: Tensor | None) -> Tensor:
    """`color_k x + shift_k`, with color and shift `(K, d)`, and index as in `batch_norm_parts`."""
    if index is not None:
        color, shift = color.index_select(0, index), shift.index_select(0, index)
    shape = (*color.shape, *[1] * (x.dim() - 2))
    return torch.addcmul(shift.view(shape), x, color.view(shape)).to(x.dtype)
