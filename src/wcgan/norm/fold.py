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
    """A layer at rest: `z = M x + b`, or `z = M_y x + b_y` by label, with constant M `(K, g, p, p)` and b `(K, d)`."""

    matrix: Tensor
    offset: Tensor

    def __init__(self, matrix: Tensor, offset: Tensor, conditional: bool) -> None:
        super().__init__()
        self.conditional = conditional
        self.register_buffer("matrix", matrix.detach().clone())
        self.register_buffer("offset", offset.detach().clone())

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        if not self.conditional:
            return affine(x, self.matrix, self.offset)
        if labels is None:
            raise TypeError("this map depends on the class: call it with labels")
        classes = self.matrix.shape[0]
        check_label_shape(labels, x.shape[0], classes)
        if labels.is_floating_point():
            return affine(x, mix(labels, self.matrix), mix(labels, self.offset))
        if not torch.compiler.is_compiling():
            labels, poison = check_labels(labels, classes)
            return affine(x, self.matrix, self.offset + poison.to(x.device), labels.to(x.device))
        return affine(x, self.matrix, self.offset, labels.to(torch.int64))

    def extra_repr(self) -> str:
        slots, groups, p, _ = self.matrix.shape
        parts = {"classes": slots if self.conditional else None, "groups": groups if groups > 1 else None}
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
    color, shift, _ = layer.coloring_slots()
    matrix, offset, mean = layer.as_map(color, shift)
    if mean is not None:
        _, groups, p, _ = matrix.shape
        offset = offset - (matrix @ mean.view(groups, p, 1)).flatten(1)
    return FoldedMap(matrix, offset, isinstance(layer, ConditionalWhiteningColoring)).eval()
