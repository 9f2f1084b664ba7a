"""Cholesky whitening and coloring in eager code: one autograd function with few calls, for the layers.

The time of a small batch is that of the calls, not of the arithmetic. The results are those of `normalize.whiten_color`
up to rounding, and the statistics have no gradient. A second derivative, or one for several cotangents at once, is that
of `whiten_color`, which is evaluated again.
"""

import math
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wcgan.functional._factorisations import FACTORISATIONS, RETRY_SHRINKAGE
from wcgan.functional._operators import cholesky_for, is_eager, kernels_for, without_autocast
from wcgan.functional._passes import as_positions, compute_dtype, features_of, is_flat
from wcgan.functional.affine import LARGEST_ON_CPU, derive_again, like
from wcgan.functional.normalize import whiten_color


def as_slots(color: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """A coloring that all samples share, as one slot."""
    return (color, shift) if shift.dim() == 2 else (color.unsqueeze(0), shift.unsqueeze(0))


class Result(NamedTuple):
    """What `whiten_color` returns, and what is known on the host.

    Attributes:
        out: the batch, whitened and colored.
        mean: `(d,)`.
        covariance: `(d, d)`.
        retry: `(1,)`; None if the covariance is known to be finite and was factorised at the first attempt.
    """

    out: Tensor
    mean: Tensor
    covariance: Tensor
    retry: Tensor | None


def whiten_color_eagerly(
    x: Tensor, color: Tensor | None, shift: Tensor | None, index: Tensor | None, eps: float, relu: bool
) -> Result | None:
    """`whiten_color` with full matrices and without groups; None where this is not the way to compute it.

    Args:
        x: as in `whiten_color`.
        color: `(K, d, d)`, or `(d, d)` for one that all samples share.
        shift: `(K, d)`, or `(d,)`.
        index: as in `whiten_color`.
        eps: as in `whiten_color`.
        relu: as in `whiten_color`.
    """
    if color is None or shift is None or not is_eager((x, color, shift, index)):
        return None
    d, size = x.shape[1], x.numel()
    if d == 1 or not size or not is_flat(x):
        return None
    kernels, on_cpu = kernels_for(x), x.device.type == "cpu"
    if kernels is None:
        possible = on_cpu and size <= LARGEST_ON_CPU
    else:
        few = color.dim() == 2 or color.shape[0] * d * d <= 2 * size  # as in `whiten_color`
        possible = few and (on_cpu or cholesky_for(color, RETRY_SHRINKAGE) is not None)
    if not possible:
        return None
    dtype = compute_dtype(x)
    if not (color.dtype == shift.dtype == dtype):
        color, shift = color.to(dtype), shift.to(dtype)
    statistics: list[Tensor | None] = []
    out = _WhitenColor.apply(x, color, shift, index, eps, relu, kernels, statistics)
    return Result(out, *statistics)  # type: ignore[arg-type]


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
        kernels: ModuleType | None,
        statistics: list[Tensor | None],
    ) -> Any:
        forward: Callable[..., Any] = _forward_shared if color.dim() == 2 else _forward_slots
        ctx.eps, ctx.by_kernels = eps, kernels is not None
        if kernels is not None:
            forward = partial(_forward_by_kernels, kernels)
        out, mean, covariance, w, retry, product = forward(x, color, shift, index, eps, relu)
        ctx.save_for_backward(x, color, shift, index, out if relu else None, mean, w, retry, product)
        statistics += (mean, covariance, retry)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, color, shift, index, out, mean, w, retry, product = ctx.saved_tensors
        with without_autocast(grad.device):
            kernels = kernels_for(x, grad := like(grad, x)) if ctx.by_kernels else None
            unusual = kernels is None if ctx.by_kernels else retry is not None
            if torch.is_grad_enabled() or unusual or not is_eager((grad,)):
                plain = lambda: whiten_color(x, *as_slots(color, shift), index, eps=ctx.eps)[0]  # noqa: E731
                return (*derive_again(ctx, grad, plain, out is not None), None, None, None, None, None)
            if out is not None:
                grad = torch.where(out > 0, grad, 0)
            wanted = ctx.needs_input_grad[0]
            if kernels is not None:
                rest = (color, index, mean, w, retry, product, ctx.eps, wanted)
                gradients = _backward_by_kernels(kernels, x, grad, *rest)
            elif color.dim() == 2:
                gradients = _backward_shared(x, grad, color, mean, w, product, ctx.eps, wanted)
            else:
                gradients = _backward_slots(x, grad, color, index, w, product, ctx.eps, wanted)
            return (*gradients, None, None, None, None, None)


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
    eye = torch.eye(len(covariance), dtype=covariance.dtype)
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


# Any number of colorings, by kernels


def _forward_by_kernels(
    kernels: ModuleType, x: Tensor, color: Tensor, shift: Tensor, index: Tensor | None, eps: float, relu: bool
) -> Any:
    positions, out = as_positions(x), torch.empty_like(x)
    d = positions.shape[1]
    mean, covariance = kernels.mean_and_covariance(positions)
    w, retry = _factorise_by_kernel(covariance, eps)
    mapping = torch.mm(color.reshape(-1, d), w)
    term = (positions, mapping.view(-1, d, d), mean.view(1, d))
    kernels.apply_maps(as_positions(out), shift.reshape(-1, d), [term], index, relu)
    return out, mean, covariance, w, retry, mapping


def _factorise_by_kernel(covariance: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    fused = cholesky_for(covariance, RETRY_SHRINKAGE)
    if fused is not None:
        matrix, retry = fused.factorise(covariance, eps, RETRY_SHRINKAGE)
        return matrix, retry
    whitening = FACTORISATIONS["cholesky"].factorise(covariance.unsqueeze(0), eps, 0)
    return whitening.matrix[0], whitening.retry


def _backward_by_kernels(
    kernels: ModuleType,
    x: Tensor,
    grad: Tensor,
    color: Tensor,
    index: Tensor | None,
    mean: Tensor,
    w: Tensor,
    retry: Tensor,
    mapping: Tensor,
    eps: float,
    wanted: bool,
) -> tuple[Tensor | None, ...]:
    positions, z = as_positions(x), as_positions(grad)
    n, d, size = positions.shape
    maps, transposed = mapping.view(-1, d, d), w.mT
    products, sums = kernels.cross(z, positions, mean, maps.shape[0], index)
    grad_color = torch.mm(products.view(-1, d), transposed)
    grad_x = None
    if wanted:
        inner = kernels.mirror(torch.mm(color.reshape(-1, d).mT, grad_color))  # as in `_curvature`
        curvature, grad_x = torch.mm(torch.mm(transposed, inner), w), torch.empty_like(x)
        factor = -(1 - eps) / (n * size - 1)
        kernels.map_back(as_positions(grad_x), z, maps, sums, index, positions, mean, curvature, retry, factor)
    return grad_x, grad_color.view(color.shape), sums.view(color.shape[:-1])
