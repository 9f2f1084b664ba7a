"""Copies of a model for inference: whitening layers become constant maps, merged into their neighbours if possible."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from wcgan.norm._base import WhiteningLayer, check_module
from wcgan.norm.conditional import ConditionalWhiteningColoring, mix
from wcgan.norm.convert import replace_modules
from wcgan.norm.fold.maps import AbsorbedMap, FoldedMap
from wcgan.norm.fold.neighbours import absorb_maps
from wcgan.norm.fold.plain import UntraceableError, model_to_graphs, settle
from wcgan.norm.labels import out_of_range
from wcgan.norm.lazy import LazyLayer

__all__ = ["AbsorbedMap", "FoldedMap", "OneClass", "fold"]


class OneClass(nn.Module):
    """Wraps a conditional model so that it is called without labels: all samples are of one class.

    Args:
        model: the conditional model.
        label: the class.
        position: position of the labels among the model's arguments.
    """

    def __init__(self, model: nn.Module, label: int, position: int) -> None:
        super().__init__()
        self.model = model
        self.label = label
        self.position = position

    def forward(self, *inputs: Any) -> Any:
        labels = torch.full((inputs[0].shape[0],), self.label, device=inputs[0].device)
        return self.model(*inputs[: self.position], labels, *inputs[self.position :])

    def extra_repr(self) -> str:
        return f"label={self.label}"


@torch.no_grad()
def fold(model: nn.Module, label: int | None = None, neighbours: bool = True) -> nn.Module:
    r"""Copies a model for inference and replaces each whitening layer by a constant affine map.

    .. math:: z = M x + b, \qquad M = \Gamma\, W_E,\; b = \beta - M \mu_E

    A map that follows a convolution or a dense layer, with only upsampling, reshaping and sums in between, is merged
    into that layer. It leaves an `AbsorbedMap`, which costs nothing. Other maps stay as `FoldedMap`, and their `kept`
    attribute gives the reason. The copy is in evaluation mode, equals `model.eval()` up to rounding, and contains no
    factorisation.

    Args:
        model: any module; it is not changed.
        label: keeps this class only; the copy is then called without labels. None keeps a matrix for each class.
        neighbours: if False, no map is merged into another layer.

    Returns:
        The copy.

    Raises:
        TypeError: if the model is not a module.
        ValueError: for a layer with `track_running_stats=False`, which has no constants to fold, or a lazy layer that
            has not seen a batch; for a label that is out of range, or given to a model without conditional layers; and
            if the labels cannot be traced through the model.

    Example:
        >>> import torch, wcgan
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), wcgan.WhiteningColoring2d(8))
        >>> wcgan.fold(model)[1]
        AbsorbedMap(8, into=0)
        >>> wcgan.fold(model, neighbours=False)[1]
        FoldedMap(8)
    """
    check_module("model", model)
    for name, module in model.named_modules():
        if isinstance(module, LazyLayer):
            raise ValueError(f"{name or 'the model'} is a lazy layer: run a batch through it first")
        if isinstance(module, WhiteningLayer) and module.whitening != "none" and not module.track_running_stats:
            raise ValueError(f"{name or 'the model'} has no running statistics to fold: track_running_stats is False")
    _check_label(model, label)
    copied = _copy(model).eval()
    folded = replace_modules(copied, {m: _constant(m) for m in copied.modules() if isinstance(m, WhiteningLayer)})
    if label is not None:
        folded = _keep_class(folded, label)
    if not neighbours:
        return folded
    return absorb_maps(replace_modules(folded, settle(folded)))


def _copy(model: nn.Module) -> nn.Module:
    """A deep copy, including the non-leaf weights of `torch.nn.utils.spectral_norm`, which deepcopy refuses."""
    kept = [value for module in model.modules() for value in vars(module).values() if isinstance(value, Tensor)]
    return copy.deepcopy(model, {id(tensor): tensor.detach().clone() for tensor in kept})


def _check_label(model: nn.Module, label: int | None) -> None:
    if label is None:
        return
    classes = [m.classes for m in model.modules() if isinstance(m, ConditionalWhiteningColoring)]
    if not classes:
        raise ValueError(f"label={label} was given, but the model has no conditional layer")
    if not 0 <= label < min(classes):
        raise ValueError(out_of_range(label, min(classes)))


def _keep_class(model: nn.Module, label: int) -> nn.Module:
    position = None if isinstance(model, FoldedMap) else _labels_position(model, label)
    maps = [m for m in model.modules() if isinstance(m, FoldedMap) and m.conditional]
    model = replace_modules(model, {m: m.of_class(label) for m in maps})
    return model if position is None else OneClass(model, label, position).eval()


def _labels_position(model: nn.Module, label: int) -> int:
    """Position of the argument that the conditional maps receive as labels."""
    try:
        graphs = model_to_graphs(model)
    except UntraceableError as error:
        raise ValueError(f"label={label} cannot be fixed, because torch.fx cannot trace the model: {error}") from None
    inputs = [node for node in graphs[0].nodes if node.op == "placeholder"]
    modules = dict(model.named_modules(remove_duplicate=False))
    taken = {
        node.args[1] if len(node.args) > 1 else node.kwargs.get("labels")
        for node in graphs[0].nodes
        if node.op == "call_module" and getattr(modules[str(node.target)], "conditional", False)
    }
    if len(taken) != 1 or not taken <= {*inputs}:
        raise ValueError(f"label={label} cannot be fixed: the labels of the layers are not an argument of the model")
    return inputs.index(taken.pop())


def _constant(layer: WhiteningLayer) -> FoldedMap:
    """The map of a layer at inference. A dictionary with fewer matrices than classes stays a dictionary."""
    if not isinstance(layer, ConditionalWhiteningColoring):
        return FoldedMap(*_map(layer, *layer.coloring_slots()[:2]), ranks=layer._ranks).eval()
    no_class = next(layer.parameters()).new_zeros(1, layer.classes)
    shared = _map(layer, *layer.coloring_slots(no_class)[:2])
    if layer.dictionary is None or len(layer.dictionary) >= layer.classes:
        return FoldedMap(*_map(layer, *layer.coloring_slots()[:2]), shared, ranks=layer._ranks).eval()
    assignment = layer.soft_assignment()
    matrix, offset = _map(layer, layer.dictionary, None)
    offset = shared[1] + mix(assignment, offset)
    if layer.class_bias is not None:
        offset = offset + layer.class_bias
    return FoldedMap(matrix, offset, shared, assignment, layer._ranks).eval()


def _map(layer: WhiteningLayer, color: Tensor | None, shift: Tensor | None) -> tuple[Tensor, Tensor]:
    """A coloring and the layer's whitening -> M and b of `z = M x + b`."""
    matrix, offset, mean = layer.as_map(color, shift)
    if mean is not None:
        _, groups, p, _ = matrix.shape
        offset = offset - (matrix @ mean.view(groups, p, 1)).flatten(1)
    return matrix, offset
