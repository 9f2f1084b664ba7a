"""Tools that read a module's source or call it with stand-ins: one node for torch.fx, a clear error for TorchScript."""

from typing import Any, NoReturn

from torch import fx, nn


def is_stand_in(x: Any) -> bool:
    """Whether torch.fx is recording."""
    return isinstance(x, fx.Proxy)


def as_one_node(module: nn.Module, *args: Any) -> Any:
    """A call of the module as one node of the graph that torch.fx is recording, as PyTorch's own layers are."""
    tracer = args[0].tracer
    path = tracer.path_of_module(module)
    if not path:
        raise TypeError(
            f"torch.fx cannot trace a {type(module).__name__} by itself: trace a network that has it as a node"
        )
    return tracer.create_proxy("call_module", path, args, {})


class NotScriptable:
    """A mixin for modules that TorchScript cannot compile."""

    def __prepare_scriptable__(self) -> NoReturn:  # called by torch.jit.script
        raise NotImplementedError(
            f"TorchScript cannot compile {type(self).__name__}: use torch.export or torch.jit.trace(model, inputs)"
        )
