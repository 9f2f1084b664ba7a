"""Cholesky whitening and coloring for the layers: in eager code one autograd function with few calls.

The time of a small batch is that of the calls, not of the arithmetic. On a GPU, and in compiled code there, the calls
are those of `_by_kernels`; on a CPU they are here, and evaluation is in `affine`. The results are those of
`normalize.whiten_color` up to rounding, and the statistics have no gradient. A second derivative, or one for several
cotangents at once, is that of `whiten_color`, which is evaluated again.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from wcgan.functional._by_kernels import Result, Update, whiten_color_by_kernels, whiten_color_compiled
from wcgan.functional._factorisations import FACTORISATIONS
from wcgan.functional._operators import is_eager, kernels_for, transformed, without_autocast
from wcgan.functional._passes import as_positions, compute_dtype, features_of, is_flat
from wcgan.functional.affine import LARGEST_ON_CPU, Shared, add_shared, as_slots, derive_again, like
from wcgan.functional.normalize import whiten_color


def whiten_color_eagerly(
    x: Tensor,
    color: Tensor | None,
    shift: Tensor | None,
    index: Tensor | None,
    poison: Tensor | None,
    shared: Shared | None,
    eps: float,
    relu: bool,
    updates: Callable[[int], Update | None] | None,
    groups: int = 1,
) -> Result | None:
    """`whiten_color` with full colorings; None where this is not the way to compute it.

    Args:
        x: as in `whiten_color`.
        color: `(K, d, d)`, or `(d, d)` for one that all samples share.
        shift: `(K, d)`, or `(d,)`.
        index: as in `whiten_color`.
        poison: a scalar that is added to the output: 0 or NaN.
        shared: `(d, d)` and `(d,)`, or None.
        eps: as in `whiten_color`.
        relu: as in `whiten_color`.
        updates: the number of a device -> what kernels there can update, if they can; None for nothing to update.
        groups: as in `whiten_color`; with more than one, only by kernels in eager code.
    """
    if color is None or shift is None or (groups > 1 and torch.compiler.is_compiling()):
        return None
    d, size = x.shape[1], x.numel()
    if d == 1 or not size:
        return None
    compiling = torch.compiler.is_compiling()
    elsewhere = transformed() if compiling else not is_eager((x, color, shift, index, *(shared or ())))
    if elsewhere or not is_flat(x):  # in this order: a tensor inside `vmap` cannot tell whether it is flat
        return None
    if compiling:
        color, shift = add_shared(color, shift, shared)
        return whiten_color_compiled(x, color, shift, index, poison, eps, relu, updates)
    if kernels_for(x) is not None:
        return whiten_color_by_kernels(x, color, shift, index, poison, shared, eps, relu, updates, groups)
    if groups > 1 or x.device.type != "cpu" or size > LARGEST_ON_CPU:
        return None
    dtype = compute_dtype(x)
    color, shift = add_shared(color, shift, shared)
    if not (color.dtype == shift.dtype == dtype):
        color, shift = color.to(dtype), shift.to(dtype)
    shift = shift if poison is None else shift + poison
    statistics: list[Tensor | None] = []
    out = _WhitenColor.apply(x, color, shift, index, eps, relu, statistics)
    mean, covariance, retry = statistics
    return Result(out, mean, covariance, retry)


class _WhitenColor(torch.autograd.Function):
    """Returns the output; appends what `Result` has beside it to a list, since outputs without a gradient cost time."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        color: Tensor,
        shift: Tensor,
        index: Tensor | None,
        eps: float,
        relu: bool,
        statistics: list[Tensor | None],
    ) -> Any:
        forward: Callable[..., Any] = _forward_shared if color.dim() == 2 else _forward_slots
        out, mean, covariance, w, retry, product = forward(x, color, shift, index, eps, relu)
        ctx.eps = eps
        ctx.save_for_backward(x, color, shift, index, out if relu else None, mean, w, retry, product)
        statistics += (mean, covariance, retry)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, color, shift, index, out, mean, w, retry, product = ctx.saved_tensors
        with without_autocast(grad.device):
            if torch.is_grad_enabled() or retry is not None or not is_eager((grad,)):
                plain = lambda: whiten_color(x, *as_slots(color, shift), index, eps=ctx.eps)[0]  # noqa: E731
                return (*derive_again(ctx, grad, plain, out is not None), None, None, None, None)
            grad = like(grad, x) if out is None else torch.where(out > 0, like(grad, x), 0)
            wanted = ctx.needs_input_grad[0]
            if color.dim() == 2:
                gradients = _backward_shared(x, grad, color, mean, w, product, ctx.eps, wanted)
            else:
                gradients = _backward_slots(x, grad, color, index, w, product, ctx.eps, wanted)
            return (*gradients, None, None, None, None)


# One coloring for all samples, without kernels: the batch is a matrix (d, m)


def _forward_shared(x: Tensor, color: Tensor, shift: Tensor, _: Any, eps: float, relu: bool) -> tuple[Any, ...]:
    mean, features, covariance = _features_and_moments(x)
    w, retry = _factorise_on_cpu(covariance, eps)
    mapping = torch.mm(color, w)
    out = torch.addmm(shift.unsqueeze(1), mapping, features)
    out = _features_to_batch(out.relu_() if relu else out, x)
    return out, mean, covariance, w, retry, mapping


def _factorise_on_cpu(covariance: Tensor, eps: float) -> tuple[Tensor, Tensor | None]:
    """W `(d, d)`, in few calls if the first attempt succeeds, and else retry `(1,)`."""
    eye = torch.eye(len(covariance), dtype=covariance.dtype, device=covariance.device)
    lower, failed = torch.linalg.cholesky_ex(torch.lerp(covariance, eye, eps))  # Eq. 7
    if not failed.item() and math.isfinite(lower.sum().item()):
        w = torch.linalg.solve_triangular(lower, eye, upper=False, left=False)
        return w.contiguous(), None
    whitening = FACTORISATIONS["cholesky"].factorise(covariance.unsqueeze(0), eps, 0)
    return whitening.matrix[0], whitening.retry


def _features_and_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean `(d,)`, centred features `(d, m)`, covariance `(d, d)`."""
    features = _batch_to_features(x)
    mean = features.mean(1)
    features = features - mean.unsqueeze(1)
    scatter = torch.mm(features, features.mT)
    return mean, features, (scatter + scatter.mT).mul_(0.5 / (features.shape[1] - 1))


def _batch_to_features(x: Tensor) -> Tensor:
    """`(N, d, ...)` -> `(d, m)`, in the type of the statistics; may be a view."""
    if not x.is_contiguous():
        return features_of(as_positions(x), None, compute_dtype(x))
    features = x.transpose(0, 1).reshape(x.shape[1], -1)
    return features if x.dtype == torch.float32 else features.to(compute_dtype(x))


def _features_to_batch(features: Tensor, x: Tensor) -> Tensor:
    """`(d, m)` -> a tensor like `x`. Not a view, which what follows could not change in place."""
    n, d = x.shape[:2]
    if x.is_contiguous() and x.dtype == features.dtype:
        return features.view(d, n, *x.shape[2:]).transpose(0, 1).clone(memory_format=torch.contiguous_format)
    out = torch.empty_like(x)
    as_positions(out).copy_(features.view(d, n, -1).transpose(0, 1))
    return out


def _backward_shared(
    x: Tensor, grad: Tensor, color: Tensor, mean: Tensor, w: Tensor, mapping: Tensor, eps: float, wanted: bool
) -> tuple[Tensor | None, ...]:
    features, z = _batch_to_features(x) - mean.unsqueeze(1), _batch_to_features(grad)
    m, transposed = features.shape[1], mapping.mT
    sums = z.sum(1)
    grad_color = torch.mm(torch.mm(z, features.mT), w.mT)
    if not wanted:
        return None, grad_color, sums
    curvature = _curvature(color, grad_color, w)
    grad_x = torch.addmm(torch.mv(transposed, sums).unsqueeze(1), transposed, z, beta=-1 / m)
    grad_x.addmm_(curvature, features, alpha=-(1 - eps) / (m - 1))
    return _features_to_batch(grad_x, x), grad_color, sums


def _curvature(color: Tensor, grad_color: Tensor, w: Tensor) -> Tensor:
    # Appendix B, as in `_factorisations`, with inner = Wbar W^T = C^T Cbar
    return torch.mm(torch.mm(w.mT, _mirrored(torch.mm(color.mT, grad_color))), w)


def _mirrored(matrix: Tensor) -> Tensor:
    """The symmetric matrix with this lower triangle."""
    return matrix.tril() + matrix.tril(-1).mT


# A coloring for each class or sample, without kernels: the batch is whitened first, so that few matrices are multiplied


def _forward_slots(x: Tensor, color: Tensor, shift: Tensor, index: Tensor | None, eps: float, relu: bool) -> Any:
    mean, features, covariance = _features_and_moments(x)
    w, retry = _factorise_on_cpu(covariance, eps)
    whitened = torch.mm(w, features)
    n, d = x.shape[:2]
    samples = whitened.view(d, n, -1).transpose(0, 1)  # (N, d, L)
    out = torch.empty_like(x)
    target, operands = as_positions(out), (_rows(shift, index).unsqueeze(2), _rows(color, index), samples)
    if out.dtype == w.dtype and out.is_contiguous():
        torch.baddbmm(*operands, out=target)
    else:
        target.copy_(torch.baddbmm(*operands))
    return out.relu_() if relu else out, mean, covariance, w, retry, whitened


def _backward_slots(
    x: Tensor, grad: Tensor, color: Tensor, index: Tensor | None, w: Tensor, whitened: Tensor, eps: float, wanted: bool
) -> tuple[Tensor | None, ...]:
    z = as_positions(grad).to(w.dtype)
    n, d, _ = z.shape
    samples = whitened.view(d, n, -1).transpose(0, 1)
    grad_color, sums = torch.bmm(z, samples.mT), z.sum(2)
    if index is not None:
        slots = color.shape[0]
        grad_color = grad_color.new_zeros(slots, d, d).index_add_(0, index, grad_color)
        sums = sums.new_zeros(slots, d).index_add_(0, index, sums)
    if not wanted:
        return None, grad_color, sums
    # With Y = W (X - mu) and Ybar = C^T Zbar:  inner = Wbar W^T = Ybar Y^T, and W^T is common to all terms of Xbar
    grad_whitened = _batch_to_features(torch.bmm(_rows(color, index).mT, z))
    inner, m = torch.mm(grad_whitened, whitened.mT), grad_whitened.shape[1]
    grad_whitened = grad_whitened - grad_whitened.mean(1, keepdim=True)
    grad_whitened.addmm_(_mirrored(inner), whitened, alpha=-(1 - eps) / (m - 1))
    return _features_to_batch(torch.mm(w.mT, grad_whitened), x), grad_color, sums


def _rows(table: Tensor, index: Tensor | None) -> Tensor:
    return table if index is None else table.index_select(0, index)
