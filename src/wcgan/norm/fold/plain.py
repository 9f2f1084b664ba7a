"""The paths through a model, as torch.fx graphs, and the plain layers on them that a map can be merged into."""

import ast
import inspect
import linecache
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.fx.proxy import TraceError
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from wcgan.norm.fold.maps import AbsorbedMap, FoldedMap

_MOST_BRANCHES = 32
_FX = {fx.proxy.__file__, fx._symbolic_trace.__file__, __file__}
_REFUSALS = (ValueError, AssertionError)


class UntraceableError(Exception):
    """torch.fx cannot trace the model."""


class _BranchError(Exception):
    """The model branches on its input, and no answer is given."""


class _Tracer(fx.Tracer):
    """Traces into everything except layers of PyTorch and of this library, and takes branches as given by `answers`."""

    def __init__(self, answers: tuple[bool, ...]) -> None:
        super().__init__()
        self._answers = iter(answers)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, FoldedMap | AbsorbedMap) or super().is_leaf_module(m, module_qualified_name)

    def to_bool(self, obj: fx.Proxy) -> bool:
        answer = next(self._answers, None)
        if answer is None:
            raise _BranchError
        return answer


def model_to_graphs(model: nn.Module) -> list[fx.Graph]:
    """One graph for each way to call a model: with its optional arguments, and without.

    A branch that depends on the input is traced only if one side raises an error: then it is a check.

    Raises:
        UntraceableError: for any other branch on the input, or anything else that torch.fx cannot trace.
    """
    parameters = inspect.signature(model.forward).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
    graphs = []
    for given in ({}, defaults) if defaults else ({},):
        try:
            graphs.append(_follow(model, given, ()))
        except _REFUSALS as error:
            refusal = str(error)
    if not graphs:
        raise UntraceableError(refusal)
    return graphs


def _about_to_raise(error: Exception) -> bool:
    """Whether the error came from building the message of a `raise` statement in the model."""
    # Not with `extract_tb`: Python 3.11 fails on code that torch.compile generated, which has no line numbers.
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    file, line = next((place for place in reversed(places) if place[0] not in _FX), ("", 0))
    raises = [node for node in ast.walk(ast.parse("".join(linecache.getlines(file)))) if isinstance(node, ast.Raise)]
    return any(node.lineno <= (line or 0) <= (node.end_lineno or 0) for node in raises)


def _follow(model: nn.Module, given: Mapping[str, Any], answers: tuple[bool, ...]) -> fx.Graph:
    try:
        with _len_of_proxies(model):
            return _Tracer(answers).trace(model, dict(given) or None)
    except _BranchError:
        pass
    except Exception as error:  # the model's own code may fail on a proxy in any way
        if isinstance(error, _REFUSALS) and not isinstance(error, TraceError):
            raise
        reason = str(error).partition(". ")[0].splitlines()[:1]
        if _about_to_raise(error):
            raise ValueError(*reason) from None
        raise UntraceableError(*reason) from None
    found: list[fx.Graph] = []
    refusals: list[Exception] = []
    for answer in (False, True) if len(answers) < _MOST_BRANCHES else ():
        try:
            found.append(_follow(model, given, (*answers, answer)))
        except _REFUSALS as error:
            refusals.append(error)
    if len(refusals) == 2:
        raise refusals[0]
    if len(found) != 1:
        raise UntraceableError("it branches on its input")
    return found[0]


def _length(x: Any) -> Any:
    """`len` that torch.fx can record; Python's own must return a number at once."""
    return x.tracer.create_proxy("call_function", len, (x,), {}) if isinstance(x, fx.Proxy) else len(x)


@contextmanager
def _len_of_proxies(model: nn.Module) -> Iterator[None]:
    """Lets `len(x)` be recorded in the files that define the model's modules."""
    functions = [inspect.unwrap(type(module).forward) for module in model.modules()]
    files = {id(names): names for f in functions if "len" not in (names := getattr(f, "__globals__", {"len": len}))}
    for names in files.values():
        names["len"] = _length
    try:
        yield
    finally:
        for names in files.values():
            del names["len"]


_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_CALLS: dict[Any, tuple[type[nn.Module], tuple[str, ...]]] = {
    F.linear: (nn.Linear, _CONVOLUTION[:3]),
    F.conv1d: (nn.Conv1d, _CONVOLUTION),
    F.conv2d: (nn.Conv2d, _CONVOLUTION),
    F.conv3d: (nn.Conv3d, _CONVOLUTION),
    F.conv_transpose1d: (nn.ConvTranspose1d, _TRANSPOSED),
    F.conv_transpose2d: (nn.ConvTranspose2d, _TRANSPOSED),
    F.conv_transpose3d: (nn.ConvTranspose3d, _TRANSPOSED),
}
PLAIN = tuple(layer for layer, _ in _CALLS.values())
_TRANSPOSED_LAYERS = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


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
