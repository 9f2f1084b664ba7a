"""Merges constant maps into neighbouring convolutions and dense layers.

A map after a layer is merged into it (`M (W x + b) + c`) if every operation between the two acts on each channel
separately and keeps constants constant: upsampling, averaging, reshaping of the grid, and weighted sums. In a sum,
every term takes the map and one of them the offset. Nothing else may read the results in between. A map before a layer
is merged into it if the layer has no padding.
"""

import math
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.nn import functional as F  # noqa: N812

from wcgan.norm.fold.maps import AbsorbedMap, FoldedMap
from wcgan.norm.fold.plain import (
    PLAIN,
    UntraceableError,
    absorb_after,
    absorb_before,
    hooked,
    inputs_and_outputs,
    model_to_graphs,
    takes_map_after,
    takes_map_before,
)

_ALL = slice(None)
# Weight of the second tensor in a sum of two; weight of the tensor in a product with a number.
_SUMS: dict[Any, float] = {
    **dict.fromkeys((operator.add, operator.iadd, torch.add, "add", "add_"), 1.0),
    **dict.fromkeys((operator.sub, operator.isub, torch.sub, "sub", "sub_"), -1.0),
}
_PRODUCTS = (operator.mul, operator.imul, torch.mul, "mul", "mul_")
_SCALINGS: dict[Any, Callable[[float], float]] = {
    **dict.fromkeys(_PRODUCTS, float),
    **dict.fromkeys((operator.truediv, operator.itruediv, torch.div, "div", "div_"), lambda number: 1 / number),
}
_SHAPE = (len, "shape", "dtype", "device", "ndim", "size", "dim")
_VIEWS = ("view", "reshape", "unflatten", torch.reshape, torch.unflatten)
_SHAPELESS = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_CHANNEL_BY_CHANNEL = (
    *_SHAPELESS,
    *(nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
)


def _past_channels(node: fx.Node) -> bool:
    """Whether a reshape keeps the first two dimensions."""
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("start_dim", node.kwargs.get("dim"))
    return isinstance(dim, int) and dim >= 2


def _grid_index(node: fx.Node) -> bool:
    index = node.args[1]
    return isinstance(index, tuple) and index[:2] == (_ALL, _ALL)


def _always(_: fx.Node) -> bool:
    return True


# Calls that act on each channel separately and keep constants constant, each with its condition.
_PASSES: dict[Any, Callable[[fx.Node], bool]] = {
    operator.getitem: _grid_index,
    **dict.fromkeys((F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d), _always),
    **dict.fromkeys((F.interpolate, "contiguous", "clone"), _always),
    **dict.fromkeys((torch.flatten, torch.unflatten, "flatten", "unflatten"), _past_channels),
}


class _CannotMergeError(Exception):
    """The reason that a map cannot be merged."""


class _Source(NamedTuple):
    """A layer whose output is part of a map's input, its weight in it, and whether it gives features without a grid."""

    name: str
    weight: float
    flat: bool = False


class _Plan(NamedTuple):
    """Layers to merge a map into, whether they precede it, and the input rank for which that is right.

    The first layer takes the offset, multiplied by `share`. `kept` is the reason not to merge.
    """

    into: tuple[str, ...] = ()
    before: bool = False
    share: float = 1.0
    rank: int | None = None
    kept: str = ""


def absorb_maps(model: nn.Module) -> nn.Module:
    """Merges every unconditional map that it can, in place; sets `kept` of the others to the reason."""
    places = Counter(id(child) for parent in model.modules() for child in parent._modules.values())
    _absorb_in(model, "", {module for module, count in places.items() if count > 1})
    return model


def _absorb_in(scope: nn.Module, path: str, shared: set[int]) -> None:
    """Merges maps in a whole model; if torch.fx cannot trace the model, in each of its children."""
    maps = {name: m for name, m in scope.named_modules() if isinstance(m, FoldedMap)}
    if not maps or isinstance(scope, FoldedMap):
        return
    try:
        graphs = model_to_graphs(scope)
    except UntraceableError as error:
        for m in maps.values():
            m.kept = f"torch.fx cannot trace {path or 'the model'}: {error}"
        for name, child in scope.named_children():
            _absorb_in(child, f"{path}.{name}".lstrip("."), shared)
        return
    readers = [_Reader(scope, graph, shared) for graph in graphs]
    for name, mapping in maps.items():
        plans = {_plan(reader, mapping) for reader in readers}
        _carry_out(scope, name, mapping, plans.pop() if len(plans) == 1 else _Plan(kept="it has several neighbours"))


def _carry_out(scope: nn.Module, name: str, mapping: FoldedMap, plan: _Plan) -> None:
    mapping.kept = plan.kept
    if plan.kept:
        return
    for number, target in enumerate(plan.into):
        layer = scope.get_submodule(target)
        if plan.before:
            absorb_after(layer, mapping, 0.0 if number else plan.share)
        else:
            absorb_before(layer, mapping)
    parent, _, last = name.rpartition(".")
    setattr(scope.get_submodule(parent), last, AbsorbedMap(mapping.channels, plan.into, plan.rank).eval())


def _plan(reader: "_Reader", mapping: FoldedMap) -> _Plan:
    if mapping.conditional:
        return _Plan(kept="it depends on the class")
    calls = [n for n in reader.graph.nodes if n.op == "call_module" and reader.module(n) is mapping]
    if len(calls) != 1 or id(mapping) in reader.shared:
        return _Plan(kept=f"the model calls it {len(calls)} times")
    try:
        return reader.before(calls[0], mapping)
    except _CannotMergeError as error:
        reason = str(error)
    try:
        return reader.after(calls[0], mapping)
    except _CannotMergeError:
        return _Plan(kept=reason)


class _Reader:
    """Finds the neighbours of a map in a graph of its model."""

    def __init__(self, model: nn.Module, graph: fx.Graph, shared: set[int]) -> None:
        self.graph = graph
        self.shared = shared
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._targets = [str(n.target) for n in graph.nodes if n.op in ("call_module", "get_attr")]

    def module(self, node: fx.Node) -> nn.Module:
        return self._modules[str(node.target)]

    def before(self, call: fx.Node, mapping: FoldedMap) -> _Plan:
        """The layers whose weighted sum of outputs is the map's input."""
        found = self._sources(_first(call), call, mapping)
        rank = 2 if any(source.flat for source in found) else None
        return _Plan(tuple(source.name for source in found), before=True, share=1 / found[0].weight, rank=rank)

    def _sources(
        self, node: fx.Node, reader: fx.Node, mapping: FoldedMap, weight: float = 1.0, grid: bool = False
    ) -> list[_Source]:
        """Walks back from a node to the layers; `grid`: whether a later operation needs a grid of positions."""
        others = [self._describe(user) for user in node.users if user is not reader and not _reads_shape(user)]
        if others:
            raise _CannotMergeError(f"{', '.join(others)} also reads its input")
        if node.op == "call_module" and type(self.module(node)) in PLAIN:
            flat = type(self.module(node)) is nn.Linear
            if flat and (grid or 2 not in mapping.ranks):
                raise _CannotMergeError(f"{node.target} acts on another dimension")
            return [_Source(self._plain(node, mapping, inputs_and_outputs(self.module(node))[1]), weight, flat)]
        if self._passes(node):
            flat = node.op == "call_module" and type(self.module(node)) in _SHAPELESS
            return self._sources(_first(node), node, mapping, weight, grid or not flat)
        terms = [(term, weight * part) for term, part in _weighted_terms(node)]
        if terms:
            return [found for term, part in terms for found in self._sources(term, node, mapping, part, grid)]
        if _function(node) in _VIEWS:
            return [_Source(self._dense(node, mapping), weight)]
        raise _CannotMergeError(f"{self._describe(node)} comes before it")

    def _dense(self, view: fx.Node, mapping: FoldedMap) -> str:
        """A dense layer whose output is reshaped to a grid: `(N, d h w)` -> `(N, d, h, w)`."""
        node, grid = _first(view), _grid(view)
        alone = all(user is view or _reads_shape(user) for user in node.users)
        if (
            alone
            and node.op == "call_module"
            and type(self.module(node)) is nn.Linear
            and grid[:1] == (mapping.channels,)
        ):
            return self._plain(node, mapping, inputs_and_outputs(self.module(node))[1] // math.prod(grid[1:]))
        raise _CannotMergeError(f"{self._describe(view)} comes before it")

    def _plain(self, node: fx.Node, mapping: FoldedMap, channels: int) -> str:
        layer, name = self.module(node), str(node.target)
        self._require_single(layer, name)
        if channels != mapping.channels or not takes_map_after(layer, mapping):
            raise _CannotMergeError(f"{name} cannot absorb it")
        return name

    def _require_single(self, layer: nn.Module, name: str) -> None:
        uses = [t for t in self._targets if t == name or t.startswith(f"{name}.")]
        if len(uses) != 1 or id(layer) in self.shared or hooked(layer):
            raise _CannotMergeError(f"{name} is also used elsewhere")

    def after(self, call: fx.Node, mapping: FoldedMap) -> _Plan:
        """The one layer that reads the map's output."""
        readers = list(call.users)
        if len(readers) != 1 or readers[0].op != "call_module" or type(self.module(readers[0])) not in PLAIN:
            raise _CannotMergeError
        layer, name = self.module(readers[0]), str(readers[0].target)
        self._require_single(layer, name)
        rectified = call.kwargs.get("relu", (*call.args, None, False)[2]) is not False
        if rectified or not takes_map_before(layer, mapping):
            raise _CannotMergeError
        flat = isinstance(layer, nn.Linear)
        if flat and 2 not in mapping.ranks:
            raise _CannotMergeError
        return _Plan((name,), rank=2 if flat else None)

    def _passes(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            module = self.module(node)
            if type(module) in (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d):
                padded = any(module.padding) if isinstance(module.padding, tuple) else module.padding
                return not (padded or module.ceil_mode or getattr(module, "divisor_override", None))
            return type(module) in _CHANNEL_BY_CHANNEL and not hooked(module)
        holds = _PASSES.get(_function(node))
        return holds is not None and bool(node.args) and holds(node)

    def _describe(self, node: fx.Node) -> str:
        if node.op == "placeholder":
            return f"the input {node.target}"
        if node.op == "call_module":
            return f"{node.target} ({type(self.module(node)).__name__})"
        return getattr(node.target, "__name__", str(node.target))


def _first(node: fx.Node) -> fx.Node:
    """The tensor that a call works on."""
    found = node.args[0] if node.args else node.kwargs.get("x", node.kwargs.get("input"))
    if not isinstance(found, fx.Node):
        raise _CannotMergeError(f"{node} takes no single tensor")
    return found


def _weighted_terms(node: fx.Node) -> list[tuple[fx.Node, float]]:
    """Tensors and weights of a sum, or of a product with a number; empty for any other node."""
    function, operands = _function(node), node.args
    tensors = [operand for operand in operands if isinstance(operand, fx.Node)]
    if len(operands) != 2 or len({*tensors}) != len(tensors) or node.kwargs:
        return []
    if len(tensors) == 2 and function in _SUMS:
        return [(tensors[0], 1.0), (tensors[1], _SUMS[function])]
    if function in _PRODUCTS and isinstance(operands[1], fx.Node):
        operands = operands[::-1]
    tensor, number = operands
    if function in _SCALINGS and isinstance(tensor, fx.Node) and isinstance(number, int | float) and number:
        return [(tensor, _SCALINGS[function](number))]
    return []


def _grid(view: fx.Node) -> tuple[int, ...]:
    """The sizes after the batch dimension in a view; empty if they are not all given."""
    sizes: Any = view.args[1:]
    if "unflatten" in str(view.target):
        sizes = (None, *sizes[1]) if sizes[0] in (1, -1) else ()
    elif isinstance(sizes[0], tuple | list):
        sizes = sizes[0]
    return tuple(sizes[1:]) if all(isinstance(size, int) and size > 0 for size in sizes[1:]) else ()


def _function(node: fx.Node) -> Any:
    """The function or the name of the method that a node calls; None for a module or an input."""
    return node.target if node.op in ("call_function", "call_method") else None


def _reads_shape(node: fx.Node) -> bool:
    function = _function(node)
    return (node.args[1] if function is getattr else function) in _SHAPE
