"""Convolutions and dense layers with constant weights, and their products with a map."""

from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from wcgan.norm.fold.maps import FoldedMap
from wcgan.norm.fold.tracing import UntraceableError, model_to_graphs

_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_CALLS: dict[Any, tuple[type[nn.Module], tuple[str, ...]]] = {
    F.linear: (nn.Linear, _CONVOLUTION[:3]),
    F.conv1d: (nn.Conv1d, _CONVOLUTION),
    F.conv2d: (nn.Conv2d, _CONVOLUTION),
    F.conv_transpose1d: (nn.ConvTranspose1d, _TRANSPOSED),
    F.conv_transpose2d: (nn.ConvTranspose2d, _TRANSPOSED),
}
PLAIN = tuple(layer for layer, _ in _CALLS.values())
_TRANSPOSED_LAYERS = (nn.ConvTranspose1d, nn.ConvTranspose2d)


def settle(model: nn.Module) -> dict[nn.Module, nn.Module]:
    """Makes spectrally or weight-normalised weights constant, in place; returns plain replacements for subclasses."""
    for module in model.modules():
        if parametrize.is_parametrized(module):
            _settle_parametrizations(module)
        for key, hook in list(module._forward_pre_hooks.items()):
            if isinstance(hook, SpectralNorm | WeightNorm):
                hook.remove(module)
                del module._forward_pre_hooks[key]
    found = {m: _constant(m) for m in model.modules() if isinstance(m, PLAIN) and type(m) not in PLAIN}
    return {module: layer for module, layer in found.items() if layer is not None}


def _settle_parametrizations(module: nn.Module) -> None:
    """Replaces parametrisations by their values. PyTorch's own function would change the class, which a copy shares."""
    values = {name: getattr(module, name).detach().clone() for name in cast(nn.ModuleDict, module.parametrizations)}
    module.__class__ = parametrize.type_before_parametrizations(module)
    del module.parametrizations
    for name, value in values.items():
        module.register_parameter(name, nn.Parameter(value))


def _constant(module: nn.Module) -> nn.Module | None:
    """A plain layer equal to a module whose forward is one call with weights made from its parameters; else None."""
    try:
        (graph,) = model_to_graphs(module)
    except (UntraceableError, ValueError):
        return None
    source, *_, output = graph.nodes
    call = output.args[0]
    if not isinstance(call, fx.Node) or call.target not in _CALLS or list(source.users) != [call] or hooked(module):
        return None
    kind, names = _CALLS[call.target]
    arguments = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    if arguments.pop("input") is not source:
        return None
    output.args = ((arguments.pop("weight"), arguments.pop("bias", None)),)
    graph.erase_node(call)
    weight, bias = fx.GraphModule(module, graph)(None)
    return _build(kind, weight, bias, arguments).train(module.training)


def _build(kind: type[nn.Module], weight: Tensor, bias: Tensor | None, arguments: dict[str, Any]) -> nn.Module:
    rows, columns = weight.shape[0], weight.shape[1] * arguments.get("groups", 1)
    sizes = (rows, columns) if kind in _TRANSPOSED_LAYERS else (columns, rows)
    if kind is not nn.Linear:
        arguments = {**arguments, "kernel_size": tuple(weight.shape[2:])}
    with torch.device("meta"):
        layer = kind(*sizes, bias=bias is not None, **arguments)
    for name, value in (("weight", weight), ("bias", bias)):
        setattr(layer, name, None if value is None else nn.Parameter(value.detach().contiguous().clone()))
    return layer


def hooked(module: nn.Module) -> bool:
    """Whether a call of the module does more than its class: it has hooks or its own forward."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def inputs_and_outputs(layer: nn.Module) -> tuple[int, int]:
    """Input and output channels, or features, of a plain layer."""
    names = ("in_features", "out_features") if isinstance(layer, nn.Linear) else ("in_channels", "out_channels")
    return getattr(layer, names[0]), getattr(layer, names[1])


def takes_map_after(layer: nn.Module, mapping: FoldedMap) -> bool:
    """Whether a map after the layer can be merged: a full matrix would mix the groups of a grouped convolution."""
    grouped = getattr(layer, "groups", 1) > 1
    return not grouped or (mapping.diagonal and not isinstance(layer, _TRANSPOSED_LAYERS))


def takes_map_before(layer: nn.Module, mapping: FoldedMap) -> bool:
    """Whether a map before the layer can be merged: its offset would not apply to padding."""
    padded = any(getattr(layer, "padding", (0,)))
    fits = inputs_and_outputs(layer)[0] == mapping.channels and getattr(layer, "groups", 1) == 1
    return fits and not padded and not isinstance(layer, _TRANSPOSED_LAYERS)


def absorb_after(layer: nn.Module, mapping: FoldedMap, share: float) -> None:
    """`M (W x + b) + share * offset` as the layer's own `W x + b`; a dense layer may have several rows per channel."""
    transposed = isinstance(layer, _TRANSPOSED_LAYERS)
    weight, bias = _weight_and_bias(layer)
    rows = weight.transpose(0, 1) if transposed else weight
    rows, bias = (_times(mapping, t.reshape(mapping.channels, -1)).view(t.shape) for t in (rows, bias))
    bias = (bias.view(mapping.channels, -1) + share * mapping.offset[0].double()[:, None]).flatten()
    _assign(layer, rows.transpose(0, 1) if transposed else rows, bias)


def absorb_before(layer: nn.Module, mapping: FoldedMap) -> None:
    """`W (M x + offset) + b` as the layer's own `W x + b`."""
    weight, bias = _weight_and_bias(layer)
    columns = weight.flatten(2) if weight.dim() > 2 else weight.unsqueeze(2)  # (out, in, taps)
    bias = bias + columns.sum(2) @ mapping.offset[0].double()
    matrix = torch.block_diag(*mapping.matrix[0].double())
    _assign(layer, (matrix.mT @ columns).view(weight.shape), bias)


def _times(mapping: FoldedMap, rows: Tensor) -> Tensor:
    """M `(d, d)` times `(d, n)`, in float64."""
    matrix = mapping.matrix[0].double()
    return (matrix @ rows.unflatten(0, matrix.shape[:2])).flatten(0, 1)  # block by block


def _weight_and_bias(layer: nn.Module) -> tuple[Tensor, Tensor]:
    weight, bias = cast(Tensor, layer.weight).double(), cast(Tensor | None, layer.bias)
    return weight, weight.new_zeros(inputs_and_outputs(layer)[1]) if bias is None else bias.double()


def _assign(layer: nn.Module, weight: Tensor, bias: Tensor) -> None:
    old = cast(Tensor, layer.weight)
    for name, value in (("weight", weight), ("bias", bias)):
        setattr(layer, name, nn.Parameter(value.to(old.dtype).contiguous(), requires_grad=old.requires_grad))
