"""Cholesky whitening and coloring for the layers by the kernels of `kernels.layer`, in eager and in compiled code.

In eager code a pass is an autograd function, in compiled code an operator. A second derivative, or one for several
cotangents at once, is that of `normalize.whiten_color`, which is evaluated again.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from wcgan.functional._factorisations import FACTORISATIONS, RETRY_SHRINKAGE
from wcgan.functional._operators import (
    MOST_SLOTS,
    is_eager,
    kernels_for,
    layer_kernels,
    register,
    register_gradient,
    without_autocast,
)
from wcgan.functional.affine import Shared, add_shared, affine, as_slots, compose, derive_again, like
from wcgan.functional.normalize import whiten_color

Update = tuple[Any, tuple[Tensor, Tensor], float]
"""The running statistics, the counters and the momentum, as `kernels.layer` takes them."""


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


def whiten_color_by_kernels(
    x: Tensor,
    color: Tensor,
    shift: Tensor,
    index: Tensor | None,
    poison: Tensor | None,
    shared: Shared | None,
    eps: float,
    relu: bool,
    updates: Callable[[int], Update | None] | None,
    groups: int = 1,
) -> Result | None:
    """`_eager.whiten_color_eagerly` of a batch for which `kernels_for` has kernels, or None."""
    factorise = _factorisation_for(x, groups)
    if factorise is None or not _are_few(x, color):
        return None
    kept: list[Tensor] = []
    given = _as_read(x, color, shift, *(shared or (None, None)))
    if given is None:
        return None
    update = None if updates is None else updates(x.get_device())
    out = _ByKernels.apply(x, *given, index, poison, None, eps, relu, factorise, kept, update, groups)
    return Result(out, kept=kept[0], updated=update is not None)


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
    """`color_k w (x - mean) + shift_k` with constants w `(g, p, p)` and mean `(d,)`, or None: ask `affine`.

    The others are as in `_eager.whiten_color_eagerly`, the batch is not empty, and `is_eager` is True of all of them.
    """
    if kernels_for(x) is None or not _are_few(x, color):
        return None
    if w.requires_grad or mean.requires_grad or not (w.dtype == mean.dtype == torch.float32):
        return None
    given = _as_read(x, color, shift, *(shared or (None, None)), w, mean)
    if given is None:
        return None
    color, shift, shared_color, shared_shift, w, mean = given
    fixed, groups = (w, mean), w.shape[0]
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *given)):
        out: Tensor = _ByKernels.apply(x, *given[:4], index, poison, fixed, 0.0, relu, _fused, [], None, groups)
        return out
    shared = None if shared is None else (shared_color, shared_shift)
    options = (0.0, relu, _fused, None, False, groups)
    return layer_kernels().forward(x, color, shift, index, poison, shared, fixed, *options)[0]


def _are_few(x: Tensor, color: Tensor) -> bool:
    """Whether there are few enough colorings to multiply each by W, as in `whiten_color`, and for 32-bit offsets."""
    if color.dim() == 2:
        return True
    return color.numel() <= 2 * x.numel() and color.shape[0] <= MOST_SLOTS and color.numel() < 2**30


def _as_read(x: Tensor, *others: Tensor | None) -> tuple[Any, ...] | None:
    """All as the kernels read them, or None unless they are where the batch is.

    Kernels only get addresses, and elsewhere those are of something else.
    """
    place, plain = x.get_device(), True
    for t in others:
        if t is not None:
            if t.get_device() != place:
                return None
            plain = plain and t.dtype == torch.float32 and t.is_contiguous()
    return others if plain else tuple(None if t is None else _plain(t) for t in others)


def _plain(matrix: Tensor) -> Tensor:
    """Contiguous and in float32, as the kernels read it."""
    matrix = matrix if matrix.dtype == torch.float32 else matrix.float()
    return matrix if matrix.is_contiguous() else matrix.contiguous()


class _ByKernels(torch.autograd.Function):
    """Whitening and coloring, or with fixed statistics a map; appends what the kernels keep to a list."""

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
        groups: int,
    ) -> Any:
        shared = None if shared_color is None else (shared_color, shared_shift)
        options = (eps, relu, factorise, update, True, groups)
        out, kept = layer_kernels().forward(x, color, shift, index, poison, shared, fixed, *options)
        ctx.eps, ctx.groups = eps, groups
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
                        return whiten_color(x, *slots, index, groups=ctx.groups, eps=ctx.eps)[0]
                    w, mean = fixed
                    return affine(x, compose(slots[0], w), slots[1], index, mean)

                gradients: Any = derive_again(ctx, grad, plain, out is not None, 5)
            else:
                if out is not None:
                    grad = torch.where(out > 0, grad, 0)
                wanted = (ctx.needs_input_grad[0], any(ctx.needs_input_grad[1:5]))
                given = (x, grad, color, shift, index, shared_color is not None, tuple(fixed) or None)
                gradients = layer_kernels().backward(*given, kept, ctx.eps, wanted, ctx.groups)
            return (*gradients, *[None] * 9)


def _factorisation_for(x: Tensor, groups: int = 1) -> Callable[..., None] | None:
    """What adds the factorisation of this batch's covariance to a sequence; None if its GPU has no kernel for it."""
    return _by_operators if x.device.type == "cpu" else _factorisation_on(x.get_device(), x.shape[1], groups)


@functools.cache
def _factorisation_on(device: int, d: int, groups: int) -> Callable[..., None] | None:
    """The same for d channels on a GPU, found once: a layer asks at each call."""
    from wcgan.kernels import blocks, cholesky

    probe = torch.empty(1, 1, device=torch.device("cuda", device))
    fused = d // groups <= cholesky.LARGEST
    if groups > 1 and not fused:
        return None
    sizes = [d // groups] if fused else blocks.block_sizes(d)
    if not all(cholesky.supports(probe.expand(size, size), RETRY_SHRINKAGE) for size in sizes):
        return None
    return _fused if fused else _in_blocks


def _fused(s: Any, d: int, device: int, eps: float, groups: int) -> None:
    """Adds the factorisation as one kernel to a sequence."""
    from wcgan.kernels import cholesky

    kernel = cholesky.factorisation(d // groups, device, eps, RETRY_SHRINKAGE, groups)
    s.add(kernel, "covariance", "w", "retry", None)


def _in_blocks(s: Any, d: int, device: int, eps: float, groups: int) -> None:
    """The same for one matrix that is larger than that kernel's."""
    from wcgan.kernels import blocks, cholesky

    assert groups == 1

    def kernel_for(size: int, matrices: int) -> Any:
        return cholesky.factorisation(size, device, 0.0, RETRY_SHRINKAGE, matrices)

    blocks.add_factorisation(s, d, eps, RETRY_SHRINKAGE, kernel_for)


def _by_operators(s: Any, d: int, device: int, eps: float, groups: int) -> None:
    """The same by a library, where Triton interprets the other kernels."""

    def factorise(*tensors: Tensor) -> None:
        covariance, w, retry = tensors
        with without_autocast(covariance.device):
            whitening = FACTORISATIONS["cholesky"].factorise(covariance.view(groups, d // groups, -1), eps, 0)
        w.copy_(whitening.matrix.flatten())
        retry.copy_(whitening.retry)

    factorise.direct_for = lambda tensors: None  # type: ignore[attr-defined]
    s.add(factorise, "covariance", "w", "retry")


# Compiled code on a GPU: one operator each way, with the same kernels


def whiten_color_compiled(
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
    if not _is_compiled_by_kernels(x.device.type, x.device.index or 0, x.dtype, d):
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
    return kernels_for(probe) is not None and _factorisation_for(probe) is not None


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
    factorise = _factorisation_for(x)
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
    factorise, update = _factorisation_for(x), (running, (retried, nonfinite), step)
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
