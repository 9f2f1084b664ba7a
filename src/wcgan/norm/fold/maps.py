"""What a layer is at rest: a constant map, or nothing at all.

Both are called as the layer was: a layer without classes may have had `relu` where one with classes has labels.
"""

import torch
from torch import Tensor, nn

from wcgan.functional.affine import affine
from wcgan.norm._base import NotScriptable, as_one_node, is_stand_in
from wcgan.norm.conditional import mix
from wcgan.norm.labels import check_label_shape, check_labels


class FoldedMap(NotScriptable, nn.Module):
    """A layer at rest: `z = M x + b`, or `z = M_y x + b_y` by label, with constant M `(K, g, p, p)` and b `(K, d)`.

    Where labels are weights of the classes, they mix what the classes add to the map that all share. With `assignment`
    `(K, s)`, the matrices are a dictionary `(s, g, p, p)` of what is added, fewer than the classes. `ranks` are those
    that the layer took; `kept` says why the map is not part of a layer beside it.
    """

    matrix: Tensor
    offset: Tensor
    assignment: Tensor | None
    shared_matrix: Tensor | None
    shared_offset: Tensor | None

    def __init__(
        self,
        matrix: Tensor,
        offset: Tensor,
        shared: tuple[Tensor, Tensor] | None = None,
        assignment: Tensor | None = None,
        ranks: tuple[int, ...] = (2, 3, 4),
    ) -> None:
        super().__init__()
        self.kept = ""
        self.ranks = ranks
        tensors = (matrix, offset, *(shared or (None, None)), assignment)
        names = ("matrix", "offset", "shared_matrix", "shared_offset", "assignment")
        for name, value in zip(names, tensors, strict=True):
            self.register_buffer(name, None if value is None else value.detach().clone())

    @property
    def channels(self) -> int:
        return self.offset.shape[1]

    @property
    def conditional(self) -> bool:
        return self.shared_matrix is not None

    @property
    def diagonal(self) -> bool:
        return self.matrix.shape[-1] == 1

    def of_class(self, label: int) -> "FoldedMap":
        """The map of one class, which no label changes."""
        index = torch.tensor([label], device=self.offset.device)
        return FoldedMap(self._matrices(index), self.offset[index], ranks=self.ranks).eval()

    def _matrices(self, labels: Tensor) -> Tensor:
        """Indices `(N,)` of classes, or their weights `(N, K)` -> `(N, g, p, p)`."""
        assert self.shared_matrix is not None
        weighted = labels.is_floating_point()
        if self.assignment is not None:
            rows = mix(labels, self.assignment) if weighted else self.assignment.index_select(0, labels)
            return mix(rows, self.matrix) + self.shared_matrix
        return mix(labels, self.matrix - self.shared_matrix) + self.shared_matrix if weighted else self.matrix[labels]

    def forward(self, x: Tensor, labels: Tensor | bool | None = None, relu: bool = False) -> Tensor:
        if is_stand_in(x):
            return as_one_node(self, x, labels, relu)
        out = self._map(x, labels)
        return out.relu() if relu or labels is True else out

    def _map(self, x: Tensor, labels: Tensor | bool | None) -> Tensor:
        if self.shared_matrix is None or self.shared_offset is None:
            return affine(x, self.matrix, self.offset)
        if labels is None or isinstance(labels, bool):
            raise TypeError("this map depends on the class: call it with labels")
        check_label_shape(labels, x.shape[0], self.offset.shape[0])
        if labels.is_floating_point():
            offset = mix(labels, self.offset - self.shared_offset) + self.shared_offset
            return affine(x, self._matrices(labels), offset)
        if torch.compiler.is_compiling():
            index, offset = labels.to(torch.int64), self.offset
        else:
            index, poison = check_labels(labels, self.offset.shape[0])
            index, offset = index.to(x.device), self.offset + poison.to(x.device)
        if self.assignment is None:
            return affine(x, self.matrix, offset, index)
        return affine(x, self._matrices(index), offset.index_select(0, index))

    def extra_repr(self) -> str:
        slots, groups, _, _ = self.matrix.shape
        parts = {
            "classes": self.offset.shape[0] if self.conditional else None,
            "dictionary": None if self.assignment is None else slots,
            "groups": groups if groups > 1 else None,
            "kept": repr(self.kept) if self.kept else None,
        }
        return ", ".join([f"{self.channels}"] + [f"{name}={value}" for name, value in parts.items() if value])


class AbsorbedMap(nn.Module):
    """A layer whose map is now part of the layers beside it: what is left is the rectifier, where it is asked for.

    Args:
        channels: of the batch.
        into: names of the layers that hold the map.
        rank: dimensions of the batch, where the layers beside it took another rank for granted; else None.
    """

    def __init__(self, channels: int, into: tuple[str, ...], rank: int | None = None) -> None:
        super().__init__()
        self.channels = channels
        self.into = into
        self.rank = rank

    def forward(self, x: Tensor, labels: Tensor | bool | None = None, relu: bool = False) -> Tensor:
        if self.rank is not None and x.dim() != self.rank:
            raise ValueError(
                f"this layer was folded into {', '.join(self.into)} for inputs of {self.rank} dimensions, got shape "
                f"{tuple(x.shape)}: fold with neighbours=False"
            )
        return x.relu() if relu or labels is True else x

    def extra_repr(self) -> str:
        return f"{self.channels}, into={', '.join(self.into)}"
