"""Standardisation with a diagonal coloring is batch normalisation: PyTorch's own does it."""

import torch
from torch import Tensor
from torch.nn.functional import batch_norm

from wcgan.functional._passes import compute_dtype
from wcgan.functional.normalize import Statistics


def batch_norm_parts(
    x: Tensor, color: Tensor | None, shift: Tensor | None, index: Tensor | None, eps: float, parts: int
) -> tuple[Tensor, list[Statistics]]:
    """Standardises equal consecutive parts of a batch, each with its own statistics, and colors them.

    Args:
        x: `(N, d, ...)`, N a multiple of `parts`.
        color: diagonal matrices `(K, d)`, or None.
        shift: `(K, d)`, or None.
        index: `(N,)`, the slot of each sample; None where K is 1 (shared) or N (one a sample).
        eps: added to the variance.
        parts: how many.

    Returns:
        A tensor like `x`, and the `Statistics` of each part.
    """
    d, dtype = x.shape[1], compute_dtype(x)
    shared = color is not None and color.shape[0] == 1
    scale, bias = (t[0].to(dtype) if shared and t is not None else None for t in (color, shift))
    outs, statistics = [], []
    for part in x.chunk(parts) if parts > 1 else (x,):  # chunk asks for the size, which an export leaves open
        mean, variance = torch.zeros(d, dtype=dtype, device=x.device), torch.zeros(d, dtype=dtype, device=x.device)
        outs.append(batch_norm(part, mean, variance, scale, bias, training=True, momentum=1.0, eps=eps))  # fills both
        statistics.append(Statistics(mean, variance.view(d, 1, 1), mean.new_zeros(d)))
    out = torch.cat(outs) if parts > 1 else outs[0]
    if color is None or shift is None or shared:
        return out, statistics
    if index is not None:
        color, shift = color.index_select(0, index), shift.index_select(0, index)
    shape = (*color.shape, *[1] * (x.dim() - 2))
    return torch.addcmul(shift.view(shape), out, color.view(shape)).to(x.dtype), statistics
