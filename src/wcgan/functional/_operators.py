"""Around every function of this folder: registration as a PyTorch operator, choice of GPU kernel, argument checks.

A registered operator is opaque to `torch.compile` and `torch.export`: its loops and retries run as written, it causes
no graph break, and its fake function gives the compiler the shapes. Under `vmap` it runs once per element.

Operators support neither forward-mode derivatives (PyTorch would silently take them as zero) nor gradients inside
`torch.func`. In both cases `transformed()` is True, and callers use the plain operations of `_primitives` instead.
"""

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._library.autograd import Info, make_autograd_impl
from torch.autograd import forward_ad
from torch.nn import Parameter

_NOTHING = nullcontext()
_is_legacy_batched = torch._C._functorch.is_legacy_batchedtensor
_COMPLIANT = torch.Tag.pt2_compliant_tag  # the operator keeps the compiler's rules, which `opcheck` tests

# Registration

_LIBRARIES: dict[str, torch.library.Library] = {}
_GRADIENTS: dict[str, type[torch.autograd.Function]] = {}


def register(name: str, fake: Callable[..., Any], mutates: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Decorator: makes a function the operator `wcgan::name`, which autocast does not affect.

    The function is pure, or changes the arguments named by `mutates`, which have no derivative and no rule for `vmap`.

    The dispatcher takes longer than a small batch. In eager code, where nobody looks at operators, the function is
    called directly, with its derivative as an autograd function. A compiled graph does call the operator, which is
    therefore registered without `torch.library.custom_op`: its checks at each call take longer than a layer's passes.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        function = _without_autocast(function)
        library = _LIBRARIES[name] = torch.library.Library("wcgan", "FRAGMENT")
        library.define(name + torch.library.infer_schema(function, mutates_args=mutates), tags=(_COMPLIANT,))
        operator = getattr(torch.ops.wcgan, name).default
        library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(operator, fake, lib=library)
        if not mutates:
            torch.library.register_vmap(operator, _one_by_one(operator), lib=library)
        derivative = Info(None, None)
        differentiable = make_autograd_impl(operator, derivative)
        library.impl(name, differentiable, "Autograd", with_keyset=True)
        for device in ("CPU", "CUDA"):
            kernel = _past_autograd(function, differentiable, device)
            library.impl(name, kernel, f"Autograd{device}", with_keyset=True)

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            if not is_eager(args):
                return operator(*args)
            if name in _GRADIENTS and torch.is_grad_enabled() and any(map(_requires_grad, args)):
                return _GRADIENTS[name].apply(*args)
            return function(*args)

        call.operator, call.name, call.derivative = operator, name, derivative  # type: ignore[attr-defined]
        return call

    return decorate


def _past_autograd(function: Callable[..., Any], differentiable: Callable[..., Any], device: str) -> Callable[..., Any]:
    """An operator's kernel at the key of autograd, where a compiled graph enters, with gradients turned off.

    If only plain tensors of the device are given, what the dispatcher would do next is to call the function.
    """
    below, here = (getattr(torch._C.DispatchKey, key) for key in (device, f"Autograd{device}"))
    plain_keys = torch._C.DispatchKeySet(below).add(here).raw_repr()

    def kernel(keys: Any, *args: Any) -> Any:
        if keys.raw_repr() == plain_keys and not torch.is_grad_enabled():
            return function(*args)
        return differentiable(keys, *args)

    return kernel


def register_gradient(call: Any, backward: Callable[..., Any], setup_context: Callable[..., None]) -> None:
    """Sets an operator's derivative, which may itself be differentiated."""
    backward, function = _without_autocast(backward), call.__wrapped__
    call.derivative._backward_fn, call.derivative._setup_context_fn = backward, setup_context

    def forward(ctx: Any, *args: Any) -> Any:
        output = function(*args)
        setup_context(ctx, args, output)
        return output

    name = call.name
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    _GRADIENTS[name] = type(f"wcgan_{name}", (torch.autograd.Function,), members)


def is_eager(args: tuple[Any, ...]) -> bool:
    """Whether a call runs here and now: on plain tensors, not compiled, traced, transformed or watched by a mode."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state():
        return False
    if transformed():
        return False
    for value in args:
        kind = type(value)
        if kind is Tensor or kind is Parameter:
            if value.is_meta or _is_legacy_batched(value):  # of is_grads_batched=True
                return False
        elif isinstance(value, Tensor):
            return False
    return True


def _requires_grad(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _one_by_one(operator: Callable[..., Any]) -> Callable[..., Any]:
    """The `vmap` rule: calls the operator for each element and stacks the results."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        calls = [
            operator(*(a if d is None else a.select(d, i) for a, d in zip(args, in_dims, strict=True)))
            for i in range(info.batch_size)
        ]
        if isinstance(calls[0], Tensor):
            return torch.stack(calls), 0
        return tuple(torch.stack(column) for column in zip(*calls, strict=True)), (0,) * len(calls[0])

    return rule


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Turns off an enclosing autocast, which would compute statistics and products in half precision."""
    kind = device.type
    known = kind in ("cpu", "cuda") and not torch.compiler.is_compiling()  # the next call does not ask for all others
    if known and not torch._C._is_any_autocast_enabled():
        return _NOTHING
    return torch.autocast(kind, enabled=False) if is_autocast(device) else _NOTHING


def is_autocast(device: torch.device) -> bool:
    """Whether autocast is on for this device."""
    kind = device.type  # common devices are compared by name: older compilers cannot trace is_autocast_available
    known = kind in ("cpu", "cuda") or torch.amp.is_autocast_available(kind)
    return known and torch.is_autocast_enabled(kind)


def _without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if not torch._C._is_any_autocast_enabled():
            return function(*args)
        device = next((a.device for a in args if isinstance(a, Tensor)), torch.device("cpu"))
        if not is_autocast(device):
            return function(*args)
        with torch.autocast(device.type, enabled=False):
            return function(*args)

    return call


def transformed() -> bool:
    """Whether forward-mode differentiation or a `torch.func` transform is active."""
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def within_transform() -> bool:
    """Whether a `torch.func` transform is active."""
    return torch._C._are_functorch_transforms_active()


# Choice of GPU kernel: `..._for(tensors)` returns the module of a kernel that supports them, or None

_state = {"kernels": True}
MOST_SLOTS = 2**16 - 1  # of a map by kernels: programs along the second and third axis of a grid


@contextmanager
def plain_passes() -> Iterator[None]:
    """Context manager that disables the GPU kernels: everything runs on PyTorch's own operators.

    Use it to compare the kernels with plain PyTorch. It has no effect on a CPU.

    Example:
        >>> import torch, wcgan
        >>> with wcgan.functional.plain_passes():
        ...     z = wcgan.functional.whiten(torch.randn(8, 4))
    """
    before = _state["kernels"]
    _state["kernels"] = False
    try:
        yield
    finally:
        _state["kernels"] = before


def kernels_for(*batches: Tensor) -> ModuleType | None:
    """The kernels over a batch, with full matrices only, if they support these batches `(N, d, ...)`."""
    first = batches[0]
    if not (_state["kernels"] and first.is_cuda and first.shape[1] > 1 and first.numel()):
        return None
    for x in batches:
        if x.dtype != first.dtype or not _is_view(x):
            return None
    kernels = _import_kernels()
    return kernels if kernels is not None and kernels.supports(first) else None


@functools.cache
def layer_kernels() -> ModuleType:
    """The passes of a layer by kernels, where `kernels_for` has them."""
    from wcgan.kernels import layer

    return layer


def label_kernels_for(labels: Tensor) -> ModuleType | None:
    """The kernels, if they check these labels `(N,)`: in eager code only."""
    there = _state["kernels"] and labels.is_cuda and labels.numel() and is_eager((labels,))
    return _import_kernels() if there else None


def cholesky_for(covariance: Tensor, levels: tuple[float, ...]) -> ModuleType | None:
    """The fused Cholesky whitening, if it supports these covariances `(g, p, p)`."""
    if not (_state["kernels"] and covariance.is_cuda and covariance.numel()):
        return None
    from wcgan.kernels import cholesky

    return cholesky if cholesky.supports(covariance, levels) else None


def jacobi_for(matrix: Tensor) -> ModuleType | None:
    """The eigendecomposition without a host sync, if it supports these matrices `(g, p, p)`."""
    if not (_state["kernels"] and matrix.is_cuda and matrix.numel()) or _import_kernels() is None:
        return None
    from wcgan.kernels import jacobi

    return jacobi if jacobi.supports(matrix) else None


def _is_view(x: Tensor) -> bool:
    """Whether the positions can be flattened without a copy, and read as they are in memory."""
    flat = x.dim() < 4 or x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)
    return flat and not x.is_neg() and (x.numel() < 2**31 or _offsets_fit(x))


def _offsets_fit(x: Tensor) -> bool:
    """Whether the number of positions and the offsets within a sample are 32-bit, as the kernels compute them."""
    extent = sum((size - 1) * stride for size, stride in zip(x.shape[1:], x.stride()[1:], strict=True))
    return extent < 2**31 and x.numel() // x.shape[1] < 2**30


@functools.cache
def _import_kernels() -> ModuleType | None:
    if torch.version.hip is not None:  # a GPU of AMD, which calls itself CUDA: nobody has tried the kernels on one
        return None
    try:
        from wcgan.kernels import batch
    except ImportError:
        warnings.warn(
            "Triton is not installed: whitening falls back to plain PyTorch operators, which are slower", stacklevel=2
        )
        return None
    return batch


# Argument checks


def check_batch(x: Tensor, groups: int = 1, minimum: int = 2, empty: bool = False) -> None:
    """Raises an error unless `x` is a floating-point batch `(N, d, ...)` whose channels `groups` divides.

    It must have at least `minimum` positions; if `empty`, a batch without positions passes too.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"expected a floating-point tensor, got {x.dtype}")
    if x.dim() < 2:
        raise ValueError(f"expected a batch (N, channels, ...), got {x.dim()} dimension(s): shape {tuple(x.shape)}")
    channels = x.shape[1]
    if channels == 0:
        raise ValueError(f"expected at least one channel, got shape {tuple(x.shape)}")
    if groups != 1:
        check_groups(channels, groups)
    if not minimum:
        return
    positions = x.numel() // channels
    if positions < minimum and not (empty and positions == 0):
        raise ValueError(
            f"batch statistics need at least {minimum} positions, over all samples and pixels, got {positions}: "
            f"shape {tuple(x.shape)}"
        )


def check_groups(channels: int, groups: int) -> None:
    """Raises an error unless `groups` divides the channels."""
    if groups < 1 or channels % groups:
        raise ValueError(f"groups must be a positive divisor of the {channels} channels, got {groups}")
