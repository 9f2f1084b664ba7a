"""Cholesky whitening and coloring for the layers: in eager code one autograd function with few calls.

The time of a small batch is that of the calls, not of the arithmetic. On a GPU the calls are those of `kernels.layer`,
also in evaluation; on a CPU, evaluation is in `affine`. The results are those of `normalize.whiten_color` up to
rounding, and the statistics have no gradient. A second derivative, or one for several cotangents at once, is that of
`whiten_color`, which is evaluated again.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from wcgan.functional._factorisations import FACTORISATIONS, RETRY_SHRINKAGE
from wcgan.functional._operators import (
    MOST_SLOTS,
    cholesky_for,
    is_eager,
    kernels_for,
    layer_kernels,
    register,
    register_gradient,
    transformed,
    without_autocast,
)
from wcgan.functional._passes import as_positions, compute_dtype, features_of, is_flat
from wcgan.functional.affine import LARGEST_ON_CPU, affine, compose, derive_again, like
from wcgan.functional.normalize import whiten_color

Shared = tuple[Tensor, Tensor]
"""A matrix and a shift that are added to those of all slots."""
Update = tuple[Any, tuple[Tensor, Tensor], float]
"""The running statistics, the counters and the momentum, as `kernels.layer` takes them."""


def as_slots(color: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """A coloring that all samples share, as one slot."""
    return (color, shift) if shift.dim() == 2 else (color.unsqueeze(0), shift.unsqueeze(0))


class Result(NamedTuple):
    """What `whiten_color` returns, and what is known on the host.

    Attributes:
        out: the batch, whitened and colored.
        mean: `(d,)`; None if it is in `kept`.
        covariance: `(d, d)`; None if it is in `kept`.
        retry: `(1,)`; None if the covariance is known to be finite and was factorised at the first attempt.
        kept: the statistics as `kernels.layer` has them; None without kernels.
        updated: whether the running statistics have been updated already.
    """

    out: Tensor
    mean: Tensor | None = None
    covariance: Tensor | None = None
    retry: Tensor | None = None
    kept: Tensor | None = None
    updated: bool = False


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
) -> Result | None:
    """`whiten_color` with full matrices and without groups; None where this is not the way to compute it.

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
    """
    if color is None or shift is None:
        return None
    d, size = x.shape[1], x.numel()
    if d == 1 or not size or not is_flat(x):
        return None
    if torch.compiler.is_compiling():
        color, shift = add_shared(color, shift, shared)
        return _whiten_color_compiled(x, color, shift, index, poison, eps, relu, updates)
    if not is_eager((x, color, shift, index, *(shared or ()))):
        return None
    if kernels_for(x) is not None:
        fused = cholesky_for(color, RETRY_SHRINKAGE) is not None
        if not _are_few(x, color) or not (fused or x.device.type == "cpu"):
            return None
        kept: list[Tensor] = []
        given = (_plain(color), _plain(shift), *_plain_shared(shared))
        if not _share_device(x, *given):
            return None
        factorise, update = _fused if fused else _by_library, None if updates is None else updates(x.get_device())
        out = _ByKernels.apply(x, *given, index, poison, None, eps, relu, factorise, kept, update)
        return Result(out, kept=kept[0], updated=update is not None)
    if x.device.type != "cpu" or size > LARGEST_ON_CPU:
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


def map_by_kernels(
    x: Tensor,
    color: Tensor,
    shift: Tensor,
    index: Tensor | None,
    poison: Tensor | None,
    shared: Shared | None,
    w: Tensor,
    mean: Tensor,
    relu: bool,
) -> Tensor | None:
    """`color_k w (x - mean) + shift_k` with constants w `(1, d, d)` and mean `(d,)`, or None: ask `affine`.

    The others are as in `whiten_color_eagerly`, the batch is not empty, and `is_eager` is True of all of them.
    """
    if kernels_for(x) is None or w.shape[0] != 1 or not _are_few(x, color):
        return None
    if w.requires_grad or mean.requires_grad or not (w.dtype == mean.dtype == torch.float32) or not is_flat(x):
        return None
    fixed, given = (_plain(w), _plain(mean)), (_plain(color), _plain(shift), *_plain_shared(shared))
    if not _share_device(x, *given, *fixed):
        return None
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *given)):
        out: Tensor = _ByKernels.apply(x, *given, index, poison, fixed, 0.0, relu, _fused, [], None)
        return out
    shared = None if shared is None else given[2:]
    return layer_kernels().forward(x, *given[:2], index, poison, shared, fixed, 0.0, relu, _fused, keep=False)[0]


def add_shared(color: Tensor, shift: Tensor, shared: Shared | None) -> tuple[Tensor, Tensor]:
    """Matrices and shifts of all slots, with what they share."""
    return (color, shift) if shared is None else (color + shared[0], shift + shared[1])


def _are_few(x: Tensor, color: Tensor) -> bool:
    """Whether there are few enough colorings to multiply each by W, as in `whiten_color`, and for 32-bit offsets."""
    if color.dim() == 2:
        return True
    return color.numel() <= 2 * x.numel() and color.shape[0] <= MOST_SLOTS and color.numel() < 2**30


def _share_device(x: Tensor, *others: Tensor | None) -> bool:
    """Whether all are where the batch is. Kernels only get addresses, and elsewhere those are of something else."""
    return {t.get_device() for t in others if t is not None} == {x.get_device()}


def _plain(matrix: Tensor) -> Tensor:
    """Contiguous and in float32, as the kernels read it."""
    matrix = matrix if matrix.dtype == torch.float32 else matrix.float()
    return matrix if matrix.is_contiguous() else matrix.contiguous()


def _plain_shared(shared: Shared | None) -> tuple[Any, Any]:
    return (None, None) if shared is None else (_plain(shared[0]), _plain(shared[1]))


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


class _ByKernels(torch.autograd.Function):
    """The same on a GPU, or with fixed statistics a map; appends what the kernels keep to a list."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        color: Tensor,
        shift: Tensor,
        shared_color: Tensor | None,
        shared_shift: Tensor | None,
        index: Tensor | None,
        poison: Tensor | None,
        fixed: tuple[Tensor, Tensor] | None,
        eps: float,
        relu: bool,
        factorise: Callable[..., Any],
        statistics: list[Tensor],
        update: Update | None,
    ) -> Any:
        shared = None if shared_color is None else (shared_color, shared_shift)
        out, kept = layer_kernels().forward(x, color, shift, index, poison, shared, fixed, eps, relu, factorise, update)
        ctx.eps = eps
        result = out if relu else None
        ctx.save_for_backward(x, color, shift, shared_color, shared_shift, index, result, kept, *(fixed or ()))
        statistics.append(kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, color, shift, shared_color, shared_shift, index, out, kept, *fixed = ctx.saved_tensors
        with without_autocast(grad.device):
            plain_only = torch.is_grad_enabled() or not is_eager((grad,))  # of several cotangents, no layout is known
            grad = grad if plain_only else like(grad, x)
            if plain_only or kernels_for(x, grad) is None:

                def plain() -> Tensor:
                    shared = None if shared_color is None else (shared_color, shared_shift)
                    slots = as_slots(*add_shared(color, shift, shared))
                    if not fixed:
                        return whiten_color(x, *slots, index, eps=ctx.eps)[0]
                    w, mean = fixed
                    return affine(x, compose(slots[0], w), slots[1], index, mean)

                gradients: Any = derive_again(ctx, grad, plain, out is not None, 5)
            else:
                if out is not None:
                    grad = torch.where(out > 0, grad, 0)
                wanted = (ctx.needs_input_grad[0], any(ctx.needs_input_grad[1:5]))
                given = (x, grad, color, shift, index, shared_color is not None, tuple(fixed) or None)
                gradients = layer_kernels().backward(*given, kept, ctx.eps, wanted)
            return (*gradients, *[None] * 8)


def _fused(d: int, device: int, eps: float) -> Any:
    """The factorisation as a kernel of a sequence."""
    from wcgan.kernels import cholesky

    return cholesky.factorisation(d, device, eps, RETRY_SHRINKAGE)


def _by_library(d: int, device: int, eps: float) -> Any:
    """The same without that kernel, where Triton interprets the others."""

    def factorise(*tensors: Tensor) -> None:
        covariance, w, retry = tensors
        whitening = FACTORISATIONS["cholesky"].factorise(covariance.view(1, d, d), eps, 0)
        w.copy_(whitening.matrix.flatten())
        retry.copy_(whitening.retry)

    factorise.direct_for = lambda tensors: None  # type: ignore[attr-defined]
    return factorise


# Compiled code on a GPU: one operator each way, with the same kernels


def _whiten_color_compiled(
    x: Tensor,
    color: Tensor,
    shift: Tensor,
    index: Tensor | None,
    poison: Tensor | None,
    eps: float,
    relu: bool,
    updates: Callable[[int], Update | None] | None,
) -> Result | None:
    d = color.shape[-1]  # known to the compiler, which x.shape[1] may not be
    if not _is_compiled_by_kernels(x.device.type, x.device.index or 0, x.dtype, d) or transformed():
        return None
    if not _are_few(x, color) or not x.device == color.device == shift.device:
        return None
    given = (x, _plain(color), _plain(shift), index, poison, eps, relu)
    update = None if updates is None else updates(x.get_device())
    if update is not None:
        running, counters, step = update
        out, kept = _training_layer.operator(*given, *(running or (None, None, None)), *counters, step)
        return Result(out, kept=kept, updated=True)
    out, kept = _layer.operator(*given)
    retry, covariance = (-(-d // 32) + n for n in (0, 1))  # where `kernels.layer` has them, in blocks of 32
    return Result(out, kept[:d], kept[32 * covariance :][: d * d].view(d, d), kept[32 * retry :][:1])


def _is_compiled_by_kernels(kind: str, device: int, dtype: torch.dtype, d: int) -> bool:
    """Whether kernels and factorisation support such a batch."""
    if kind != "cuda":
        return False
    probe = torch.empty(2, d, dtype=dtype, device=torch.device(kind, device))
    matrix = torch.empty(d, d, device=probe.device)
    return kernels_for(probe) is not None and cholesky_for(matrix, RETRY_SHRINKAGE) is not None


_is_compiled_by_kernels._dynamo_marked_constant = True  # type: ignore[attr-defined]  # a fact of the machine


def _fake_layer(x, color, shift, index, poison, eps, relu, *_) -> tuple[Tensor, Tensor]:
    d, slots = x.shape[1], color.shape[0] if color.dim() == 3 else 1
    blocks = -(-d // 32) + 1 + 2 * -(-d * d // 32) + -(-slots * d * d // 32)
    return torch.empty_like(x), color.new_empty(32 * blocks)


@register("layer", fake=_fake_layer)
def _layer(
    x: Tensor,
    color: Tensor,
    shift: Tensor,
    index: Optional[Tensor],
    poison: Optional[Tensor],
    eps: float,
    relu: bool,
) -> tuple[Tensor, Tensor]:
    factorise = _fused if x.is_cuda else _by_library
    out, kept = layer_kernels().forward(x, color, shift, index, poison, None, None, eps, relu, factorise)
    return out, kept


@register(
    "training_layer",
    fake=_fake_layer,
    mutates=("running_mean", "running_second", "tracked", "retried", "nonfinite"),
)
def _training_layer(
    x: Tensor,
    color: Tensor,
    shift: Tensor,
    index: Optional[Tensor],
    poison: Optional[Tensor],
    eps: float,
    relu: bool,
    running_mean: Optional[Tensor],
    running_second: Optional[Tensor],
    tracked: Optional[Tensor],
    retried: Tensor,
    nonfinite: Tensor,
    step: float,
) -> tuple[Tensor, Tensor]:
    """The same, which also updates the running statistics: no operations for them are left to the compiler.

    Inductor runs it in place, on the buffers themselves. If one graph calls a layer twice and returns a `clone()` of a
    buffer made in between, Inductor leaves out the clone, as with any operator that changes its arguments.
    """
    running = None if running_mean is None else (running_mean, running_second, tracked)
    factorise, update = _fused if x.is_cuda else _by_library, (running, (retried, nonfinite), step)
    out, kept = layer_kernels().forward(x, color, shift, index, poison, None, None, eps, relu, factorise, update)
    return out, kept


def _layer_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, color, shift, index, _, ctx.eps, relu, *rest = inputs
    out, kept = output
    ctx.without_gradient = 4 + len(rest)
    ctx.save_for_backward(x, color, shift, index, kept, out if relu else None)
    ctx.mark_non_differentiable(kept)
    ctx.set_materialize_grads(False)


def _layer_backward(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    x, color, shift, index, kept, out = ctx.saved_tensors
    if grad is None:
        return (None,) * (3 + ctx.without_gradient)
    grad = like(grad, x)
    if out is not None:
        grad = torch.where(out > 0, grad, 0)
    wanted = ctx.needs_input_grad[0]
    grad_x, grad_color, grad_shift = _layer_gradients(x, grad, color, shift, index, kept, ctx.eps, wanted)
    return grad_x if wanted else None, grad_color, grad_shift, *[None] * ctx.without_gradient


def _fake_layer_gradients(x, grad, color, shift, index, kept, eps, wanted) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x) if wanted else x.new_empty(0), torch.empty_like(color), torch.empty_like(shift)


@register("layer_gradients", fake=_fake_layer_gradients)
def _layer_gradients(
    x: Tensor,
    grad: Tensor,
    color: Tensor,
    shift: Tensor,
    index: Optional[Tensor],
    kept: Tensor,
    eps: float,
    wanted: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    found = layer_kernels().backward(x, grad, color, shift, index, False, None, kept, eps, (wanted, True))
    grad_x, grad_color, grad_shift, *_ = found
    return grad_x if wanted else x.new_empty(0), grad_color, grad_shift


register_gradient(_layer, _layer_backward, _layer_context)
register_gradient(_training_layer, _layer_backward, _layer_context)


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
