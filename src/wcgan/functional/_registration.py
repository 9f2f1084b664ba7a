"""How functions become PyTorch operators.

An operator is opaque to `torch.compile` and `torch.export`: its loops over blocks and its retries run as written,
nothing breaks the graph, and the fake function tells the compiler the shapes.
"""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def register(name: str, fake: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Registers a pure function as the operator `wcgan::name`, out of reach of autocast."""

    def decorate(function: Callable[..., Any]) -> Any:
        operator = torch.library.custom_op(f"wcgan::{name}", _without_autocast(function), mutates_args=())
        operator.register_fake(fake)
        return operator

    return decorate


def register_gradient(operator: Any, backward: Callable[..., Any], setup_context: Callable[..., None]) -> None:
    """Gives an operator its derivative, which may be differentiated again."""
    operator.register_autograd(_without_autocast(backward), setup_context=setup_context)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Keeps an enclosing autocast from turning float32 statistics and products into half precision."""
    kind = device.type  # asked of the common kinds by name: older compilers cannot trace the question
    known = kind in ("cpu", "cuda") or torch.amp.is_autocast_available(kind)
    return torch.autocast(kind, enabled=False) if known and torch.is_autocast_enabled(kind) else nullcontext()


def _without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        device = next((a.device for a in args if isinstance(a, torch.Tensor)), torch.device("cpu"))
        with without_autocast(device):
            return function(*args, **kwargs)

    return call
