"""How functions become PyTorch operators.

An operator is opaque to `torch.compile` and `torch.export`: its loops over blocks and its retries run as written,
nothing breaks the graph, and the fake function tells the compiler the shapes.
"""

import functools
from collections.abc import Callable
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


def _without_autocast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keeps an enclosing autocast from turning float32 statistics and products into half precision."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        device = next((a.device.type for a in args if isinstance(a, torch.Tensor)), "cpu")
        if not torch.amp.is_autocast_available(device):
            return function(*args, **kwargs)
        with torch.autocast(device, enabled=False):
            return function(*args, **kwargs)

    return call
