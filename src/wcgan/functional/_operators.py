"""How functions become PyTorch operators, when GPU kernels do their work, and checks of their arguments.

An operator is opaque to `torch.compile` and `torch.export`: its loops over blocks and its retries run as written,
nothing breaks the graph, and the fake function tells the compiler the shapes. Under `vmap` it runs once per element.

Forward-mode derivatives never reach an operator: PyTorch would take them for zero. `torch.func` refuses its gradient.
Where either is at work, `transformed()` is True and callers use plain differentiable operations (`_transformable`).
"""

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad


def transformed() -> bool:
    """Whether forward-mode differentiation or a transform of `torch.func` is at work."""
    return forward_ad._current_level >= 0 or within_transform()


def within_transform() -> bool:
    """Whether a transform of `torch.func` is at work."""
    return torch._C._are_functorch_transforms_active()


def register(name: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Registers a pure function as the operator `wcgan::name`, out of reach of autocast."""

    def decorate(function: Callable[..., Any]) -> Any:
        operator = torch.library.custom_op(f"wcgan::{name}", _without_autocast(function), mutates_args=())
        operator.register_fake(fake)
        operator.register_vmap(_one_by_one(operator))
        return operator

    return decorate


def register_gradient(operator: Any, backward: Callable[..., Any], setup_context: Callable[..., None]) -> None:
    """Gives an operator its derivative, which may be differentiated again."""
    operator.register_autograd(_without_autocast(backward), setup_context=setup_context)


def _one_by_one(operator: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for `vmap`: calls the operator for each element and stacks the results."""

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
    """Keeps an enclosing autocast from turning float32 statistics and products into half precision."""
    kind = device.type  # asked of the common kinds by name: older compilers cannot trace the question
    known = kind in ("cpu", "cuda") or torch.amp.is_autocast_available(kind)
    return torch.autocast(kind, enabled=False) if known and torch.is_autocast_enabled(kind) else nullcontext()


def _without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        device = next((a.device for a in args if isinstance(a, Tensor)), torch.device("cpu"))
        with without_autocast(device):
            return function(*args, **kwargs)

    return call


_state = {"kernels": True}


@contextmanager
def plain_passes() -> Iterator[None]:
    """Computes with PyTorch's operators alone, to compare the kernels with.

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
    """The kernels, which know full matrices, where they take these batches `(N, d, ...)`; else None."""
    first = batches[0]
    if not (_state["kernels"] and first.is_cuda and first.shape[1] > 1 and first.numel()):
        return None
    if any(x.dtype != first.dtype or not _is_view(x) for x in batches):
        return None
    kernels = _import_kernels()
    return kernels if kernels is not None and kernels.supports(first) else None


def cholesky_for(covariance: Tensor, levels: tuple[float, ...]) -> ModuleType | None:
    """The module of the fused factorisation, where it takes these covariances `(g, p, p)`; else None."""
    if not (_state["kernels"] and covariance.is_cuda and covariance.numel()):
        return None
    from wcgan.kernels import cholesky

    return cholesky if cholesky.supports(covariance, levels) else None


def jacobi_for(matrix: Tensor) -> ModuleType | None:
    """The module that finds eigenvalues without a wait for the GPU, where it takes these `(g, p, p)`; else None."""
    if not (_state["kernels"] and matrix.is_cuda and matrix.numel()) or _import_kernels() is None:
        return None
    from wcgan.kernels import jacobi

    return jacobi if jacobi.supports(matrix) else None


def _is_view(x: Tensor) -> bool:
    """Whether positions can be flattened without a copy."""
    return x.dim() < 4 or x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)


@functools.cache
def _import_kernels() -> ModuleType | None:
    try:
        from wcgan.kernels import batch
    except ImportError:
        warnings.warn("Triton is not installed: whitening runs on plain PyTorch operators, slower", stacklevel=2)
        return None
    return batch


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
