"""How functions become PyTorch operators.

An operator is opaque to `torch.compile` and `torch.export`: its loops over blocks and its retries run as written,
nothing breaks the graph, and the fake function tells the compiler the shapes. Under `vmap` it runs once per element.

Forward-mode derivatives never reach an operator: PyTorch would take them for zero. `torch.func` refuses its gradient.
Where either is at work, `transformed()` is True and callers use plain differentiable operations (`_transformable`).
"""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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
