"""Inference copies: every layer a constant map."""

import copy

import torch
from torch import Tensor, nn

from wcgan.functional.affine import affine
from wcgan.norm._base import WhiteningLayer
from wcgan.norm.conditional import ConditionalWhiteningColoring, mix
from wcgan.norm.convert import replace_modules
from wcgan.norm.labels import check_label_shape, check_labels


class FoldedMap(nn.Module):
    """A layer at rest: `z = M x + b`, or `z = M_y x + b_y` by label, with constant M `(K, g, p, p)` and b `(K, d)`.

    Where labels are weights of the classes, they mix what the classes add to the map that all share.
    """

    matrix: Tensor
    offset: Tensor
    shared_matrix: Tensor | None
    shared_offset: Tensor | None

    def __init__(self, matrix: Tensor, offset: Tensor, shared: tuple[Tensor, Tensor] | None = None) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix.detach().clone())
        self.register_buffer("offset", offset.detach().clone())
        for name, value in zip(("shared_matrix", "shared_offset"), shared or (None, None), strict=True):
            self.register_buffer(name, None if value is None else value.detach().clone())

    def forward(self, x: Tensor, labels: Tensor | None = None, relu: bool = False) -> Tensor:
        out = self._map(x, labels)
        return out.relu() if relu else out

    def _map(self, x: Tensor, labels: Tensor | None) -> Tensor:
        if self.shared_matrix is None or self.shared_offset is None:
            return affine(x, self.matrix, self.offset)
        if labels is None:
            raise TypeError("this map depends on the class: call it with labels")
        check_label_shape(labels, x.shape[0], self.matrix.shape[0])
        if labels.is_floating_point():
            parts = ((self.matrix, self.shared_matrix), (self.offset, self.shared_offset))
            return affine(x, *(mix(labels, classes - shared) + shared for classes, shared in parts))
        if torch.compiler.is_compiling():
            return affine(x, self.matrix, self.offset, labels.to(torch.int64))
        labels, poison = check_labels(labels, self.matrix.shape[0])
        return affine(x, self.matrix, self.offset + poison.to(x.device), labels.to(x.device))

    def extra_repr(self) -> str:
        slots, groups, p, _ = self.matrix.shape
        parts = {"classes": slots if self.shared_matrix is not None else None, "groups": groups if groups > 1 else None}
        return ", ".join([f"{groups * p}"] + [f"{name}={value}" for name, value in parts.items() if value is not None])


@torch.no_grad()
def fold(model: nn.Module) -> nn.Module:
    """A copy of a model for inference, in which every layer of this library is a constant affine map.

    The copy is in evaluation mode, equals `model.eval()` to rounding, and factorises nothing.

    Args:
        model: any module; it is not changed.

    Raises:
        ValueError: for a layer with `track_running_stats=False`, which has no constants to fold.

    Example:
        >>> import torch, wcgan
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), wcgan.WhiteningColoring2d(8))
        >>> wcgan.fold(model)[1]
        FoldedMap(8)
    """
    for name, module in model.named_modules():
        if isinstance(module, WhiteningLayer) and module.whitening != "none" and not module.track_running_stats:
            raise ValueError(f"{name or 'the model'} keeps no running statistics, so there is nothing constant to fold")
    folded = copy.deepcopy(model).eval()
    return replace_modules(folded, {m: _constant(m) for m in folded.modules() if isinstance(m, WhiteningLayer)})


def _constant(layer: WhiteningLayer) -> FoldedMap:
    if not isinstance(layer, ConditionalWhiteningColoring):
        return FoldedMap(*_map(layer, *layer.coloring_slots()[:2])).eval()
    no_class = layer.class_bias.new_zeros(1, layer.classes)
    shared = _map(layer, *layer.coloring_slots(no_class)[:2])
    return FoldedMap(*_map(layer, *layer.coloring_slots()[:2]), shared).eval()


def _map(layer: WhiteningLayer, color: Tensor | None, shift: Tensor | None) -> tuple[Tensor, Tensor]:
    """A coloring with the layer's whitening -> M and b of `z = M x + b`."""
    matrix, offset, mean = layer.as_map(color, shift)
    if mean is not None:
        _, groups, p, _ = matrix.shape
        offset = offset - (matrix @ mean.view(groups, p, 1)).flatten(1)
    return matrix, offset
