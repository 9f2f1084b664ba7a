"""What `fold` puts in place of a layer: a constant map, or nothing if a neighbouring layer absorbed the map.

Both accept the arguments of the layer they replace. The second positional argument is labels for a conditional layer
and `relu` for an unconditional one.
"""

import torch
from torch import Tensor, nn

from wcgan.functional._operators import without_autocast
from wcgan.functional.affine import affine
from wcgan.norm._base import NotScriptable, as_fx_node, is_fx_proxy
from wcgan.norm.conditional import is_compiled_inference, mix
from wcgan.norm.labels import check_label_shape, check_labels


class FoldedMap(NotScriptable, nn.Module):
    """A constant map: `z = M x + b`, or `z = M_y x + b_y` by label.

    Labels may be weights of the classes, which then mix the class-specific terms.

    Args:
        matrix: M, `(K, g, p, p)`; with `assignment`, a dictionary `(s, g, p, p)` of class-specific terms.
        offset: b, `(K, d)`.
        shared: matrix `(1, g, p, p)` and offset `(1, d)` without class-specific terms; None if not conditional.
        assignment: weights of the dictionary in each class, `(K, s)`.
        ranks: input ranks that the layer accepted.

    Attributes:
        kept: the reason that the map was not merged into a neighbouring layer.
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
        """The unconditional map of one class."""
        index = torch.tensor([label], device=self.offset.device)
        return FoldedMap(self._matrices(index), self.offset[index], ranks=self.ranks).eval()

    def _matrices(self, labels: Tensor) -> Tensor:
        """Class indices `(N,)` or weights of the classes `(N, K)` -> matrices `(N, g, p, p)`."""
        assert self.shared_matrix is not None
        weighted = labels.is_floating_point()
        if self.assignment is not None:
            rows = mix(labels, self.assignment) if weighted else self.assignment.index_select(0, labels)
            return mix(rows, self.matrix) + self.shared_matrix
        return mix(labels, self.matrix - self.shared_matrix) + self.shared_matrix if weighted else self.matrix[labels]

    def forward(self, x: Tensor, labels: Tensor | bool | None = None, relu: bool = False) -> Tensor:
        if is_fx_proxy(x):
            return as_fx_node(self, x, labels, relu)
        rectified = relu or labels is True
        if rectified and is_compiled_inference() and self._is_product_of_rows(x):
            return self._map_rectified(x)
        out = self._map(x, labels)
        return out.relu() if rectified else out

    def _is_product_of_rows(self, x: Tensor) -> bool:
        """Whether the map is one full matrix, and the channels of a position lie side by side in memory."""
        single = not self.conditional and self.matrix.shape[:2] == (1, 1) and not self.diagonal
        rows = x.dim() == 2 or (x.dim() > 2 and x.stride(1) == 1)
        return single and rows and x.shape[1] == self.channels and x.numel() > 0 and x.is_floating_point()

    def _map_rectified(self, x: Tensor) -> Tensor:
        """The map and its ReLU in one kernel on a GPU, where the compiler would make the ReLU a pass over the batch.

        The operator has no gradient and no equivalent in ONNX.
        """
        rows = x.movedim(1, -1)  # (N, d, ...) -> (N, ..., d)
        matrix, offset = self.matrix[0, 0].to(x.dtype), self.offset[0].to(x.dtype)
        with without_autocast(x.device):
            out = torch._addmm_activation(offset, rows.flatten(0, -2), matrix.mT)
        return out.view(rows.shape).movedim(-1, 1)

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
    """The rest of a layer whose map was merged into neighbouring layers: the identity, or a ReLU if called with one.

    Args:
        channels: number of channels.
        into: names of the layers that absorbed the map.
        rank: the only input rank for which the merge is right; None for any.
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
