"""cWC and cWC_sa: whitening, then a coloring that depends on the class of the sample.

The coloring matrices are computed in `coloring_slots`: cWC has one per class, cWC_sa mixes those of a dictionary
(`_class_matrices`).
"""

import math
from numbers import Integral
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import normalize

from wcgan.functional._operators import is_eager, transformed, within_transform, without_autocast
from wcgan.functional.affine import Shared, add_shared
from wcgan.norm._base import WhiteningKind, WhiteningLayer, as_fx_node, check_types, is_fx_proxy
from wcgan.norm.labels import LabelReport, check_label_shape, check_labels, check_labels_on_cpu
from wcgan.norm.unconditional import (
    COLORINGS,
    INITS,
    ColoringKind,
    InitKind,
    check_choice,
    init_shared,
    register_parameters,
    same_argument,
)


def is_exporting() -> bool:
    """Whether torch.export records this call. PyTorch's own function was also True under torch.compile up to 2.11."""
    return torch.compiler._is_exporting_flag or (torch.compiler.is_dynamo_compiling() and _dynamo_is_exporting())


def _dynamo_is_exporting() -> bool:
    """The same for `strict=True`, which in PyTorch 2.7 only the tracer knows."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    return bool(getattr(InstructionTranslator.current_tx(), "export", False))


_dynamo_is_exporting._dynamo_marked_constant = True  # type: ignore[attr-defined]  # called while tracing


def is_compiled_inference() -> bool:
    """Whether torch.compile records this call, not torch.export, and no derivative or `torch.func` transform of it."""
    compiled = torch.compiler.is_compiling() and not is_exporting()
    return compiled and not torch.is_grad_enabled() and not transformed()


class ConditionalWhiteningColoring(WhiteningLayer):
    """Base class of the 1d, 2d and 3d layers. The public documentation is at `ConditionalWhiteningColoring2d`."""

    class_weight: Tensor | None
    dictionary: Tensor | None
    assignment: Tensor | None
    class_bias: Tensor | None
    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        num_features: int,
        classes: int | None = None,
        eps: float = 1e-3,
        momentum: float | None = 0.01,
        *,
        num_classes: int | None = None,
        dictionary: int | Literal["auto"] | None = None,
        whitening: WhiteningKind = "cholesky",
        coloring: Literal["full", "diagonal"] = "full",
        shared: ColoringKind = "full",
        normalize_assignment: bool = False,
        class_bias: bool = True,
        groups: int = 1,
        iterations: int = 5,
        init: InitKind = "glorot",
        track_running_stats: bool = True,
        sync: bool = False,
        process_group: "dist.ProcessGroup | None" = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        classes = same_argument("classes", classes, "num_classes", num_classes)
        if classes is None:
            raise TypeError("give the number of classes with classes= or num_classes=")
        check_types(Integral, "a whole number", classes=classes)
        if classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        check_choice("coloring", coloring, ("full", "diagonal"))
        check_choice("shared coloring", shared, COLORINGS)
        check_choice("init", init, INITS)
        size = math.ceil(math.sqrt(classes)) if dictionary == "auto" else dictionary
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(f"dictionary must be a positive number of filters, 'auto' or None, got {dictionary!r}")
        if size is not None and coloring != "full":
            raise ValueError(f"a dictionary consists of full matrices and cannot be used with coloring={coloring!r}")
        super().__init__(
            num_features,
            eps,
            momentum,
            whitening=whitening,
            groups=groups,
            iterations=iterations,
            track_running_stats=track_running_stats,
            sync=sync,
            process_group=process_group,
            device=device,
            dtype=dtype,
        )
        self.classes = classes
        self.coloring = coloring
        self.shared = shared
        self.normalize_assignment = normalize_assignment
        self.init = init
        self._labels = LabelReport()
        d = num_features
        shapes = {
            "class_weight": None if size else {"full": (classes, d, d), "diagonal": (classes, d)}[coloring],
            "dictionary": (size, d, d) if size else None,
            "assignment": (classes, size) if size else None,
            "class_bias": (classes, d) if class_bias else None,
            "weight": {"full": (d, d), "diagonal": (d,), "none": None}[shared],
            "bias": None if shared == "none" else (d,),
        }
        register_parameters(self, shapes, device, dtype)
        self.reset_parameters()

    @property
    def num_classes(self) -> int:
        """Another name for `classes`."""
        return self.classes

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Resets the running statistics and the coloring to their initial values."""
        self.reset_running_stats()
        init_shared(self.weight, self.bias, self.init)
        if self.class_bias is not None:
            nn.init.zeros_(self.class_bias)
        bank = self.class_weight if self.dictionary is None else self.dictionary
        assert bank is not None
        alone = self.shared == "none"
        if self.init == "identity":  # Gamma_y + Gamma = I: Gamma_y is 0 if there is a Gamma
            nn.init.zeros_(bank)
            scale = 1 / math.sqrt(bank.shape[0]) if self.assignment is not None and self.normalize_assignment else 1.0
            (bank if bank.dim() == 2 else bank.diagonal(dim1=1, dim2=2)).fill_(scale if alone else 0.0)
        elif self.coloring == "diagonal":
            nn.init.ones_(bank)
        else:
            bound = math.sqrt(3 / (bank.shape[0] * self.num_features))  # uniform with standard deviation 1 / sqrt(n d)
            nn.init.uniform_(bank, -bound, bound)
        if self.assignment is not None:
            nn.init.xavier_uniform_(self.assignment)
            if self.init == "identity" and alone:
                self.assignment.fill_(1 / self.assignment.shape[1])

    def coloring_slots(self, labels: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Coloring matrices `(K, d, d)` or `(K, d)`, shifts `(K, d)`, and the slot `(N,)` of each sample.

        K is the number of classes or of samples, whichever is smaller. Slots are None if there is one per sample.

        Args:
            labels: indices `(N,)` within range, or weights of the classes `(N, n)`; None for all classes in order.
        """
        matrices, shift, index, shared = self._slots_and_shared(labels)
        return *add_shared(matrices, shift, shared), index

    def _slots_and_shared(self, labels: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None, Shared | None]:
        """`coloring_slots` without the class-independent coloring, where that and the others are full matrices."""
        index = None
        if labels is not None and not labels.is_floating_point() and self._has_slot_per_class(labels.shape[0]):
            labels, index = None, labels
        # Eq. 5: (Gamma_y + Gamma) x + beta_y + beta
        matrices, class_bias = self._class_matrices(labels), self.class_bias
        weight, bias = self.weight, self.bias
        shift = matrices.new_zeros(matrices.shape[:2]) if class_bias is None else _pick(class_bias, labels)
        if weight is None or bias is None:
            return matrices, shift, index, None
        if matrices.dim() == 3 and weight.dim() == 2:
            return matrices, shift, index, (weight, bias)
        return _sum_of_matrices(matrices, weight), shift + bias, index, None

    def _class_matrices(self, labels: Tensor | None) -> Tensor:
        """Gamma_y of cWC, one matrix per class, or of cWC_sa, a soft assignment to a dictionary."""
        dictionary = self.dictionary
        if dictionary is None:
            matrices = self.class_weight
            assert matrices is not None
            return _pick(matrices, labels)
        # cWC_sa, Eq. 6: Gamma_y = y^T A D, a sum of the dictionary's matrices D with the weights in row y of A
        return mix(_pick(self.soft_assignment(), labels), dictionary)

    def soft_assignment(self) -> Tensor:
        """A of cWC_sa, `(n, s)`: the weight of each dictionary matrix in the matrix of each class."""
        assert self.assignment is not None
        return normalize(self.assignment, dim=1) if self.normalize_assignment else self.assignment

    def _has_slot_per_class(self, samples: int) -> bool:
        """Whether there is a slot for each class, or for each sample: whichever are fewer."""
        # The number of samples is unknown in an exported program, so that gets a slot for each sample.
        return not is_exporting() and self.classes <= samples

    def forward(self, x: Tensor, labels: Tensor, relu: bool = False) -> Tensor:
        """Whitens a batch and colors it by label; `relu=True` also applies a ReLU, on a GPU within the same pass."""
        if is_fx_proxy(x):
            return as_fx_node(self, x, labels, relu)
        self._check_input(x)
        check_label_shape(labels, x.shape[0], self.classes)
        poison = None
        if not labels.is_floating_point():
            if labels.is_cuda and not torch.compiler.is_compiling() and not within_transform():
                self._labels.raise_if_any(self.classes)
                labels, poison = self._labels.check(labels, self.classes)
            elif labels.device.type == "cpu" and is_eager((labels,)):
                labels = check_labels_on_cpu(labels, self.classes)
            else:
                labels, poison = check_labels(labels, self.classes)
        device = x.device
        if labels.device != device:
            labels, poison = labels.to(device), None if poison is None else poison.to(device)
        with without_autocast(device):
            matrices, shift, index, shared = self._slots_and_shared(labels)
            return self._normalize(x, matrices, shift, index, poison, relu, shared)

    def extra_repr(self) -> str:
        parts = [
            super().extra_repr(),
            *(f"{name}={getattr(self, name)!r}" for name in ("classes", "coloring", "shared")),
        ]
        if self.dictionary is not None:
            parts.append(f"dictionary={self.dictionary.shape[0]}")
        if self.normalize_assignment:
            parts.append("normalize_assignment=True")
        if self.class_bias is None:
            parts.append("class_bias=False")
        return ", ".join(parts)


def _pick(table: Tensor, labels: Tensor | None) -> Tensor:
    """Rows of a per-class table: by index `(N,)`, mixed by weights `(N, n)`, or all of them for None."""
    if labels is None:
        return table
    return mix(labels, table) if labels.is_floating_point() else table.index_select(0, labels)


def mix(weights: Tensor, table: Tensor) -> Tensor:
    """Weighted sums of a table's entries: `(N, K)` and `(K, ...)` -> `(N, ...)`."""
    return (weights.to(table.dtype) @ table.flatten(1)).view(-1, *table.shape[1:])


def _sum_of_matrices(classes: Tensor, shared: Tensor) -> Tensor:
    """Gamma_y + Gamma, each full or diagonal; the sum is diagonal only if both are."""
    if classes.dim() == 2 and shared.dim() == 2:
        classes = torch.diag_embed(classes)
    elif classes.dim() == 3 and shared.dim() == 1:
        shared = torch.diag(shared)
    return classes + shared


class ConditionalWhiteningColoring2d(ConditionalWhiteningColoring):
    r"""Whitening and class-conditional coloring of feature maps, in place of conditional batch normalisation.

    .. math:: z = (\Gamma_y + \Gamma)\, W (x - \mu) + \beta_y + \beta

    Whitening uses all samples of a batch together, whatever their class y. With a `dictionary` of s matrices D, each
    class matrix is a soft assignment to the dictionary, :math:`\Gamma_y = A_y D`. This is the paper's cWC_sa.

    Note:
        The default `momentum` is 0.01; see `WhiteningColoring2d` for how to get exact running statistics.

    Args:
        num_features: number of channels d.
        classes: number of classes n.
        num_classes: another name for `classes`.
        eps: the shrinkage, in [0, 1).
        momentum: weight of a new batch in the running averages, in [0, 1]; None for the average over all batches.
        dictionary: number of matrices s in the dictionary; `"auto"` for :math:`\lceil\sqrt n\,\rceil`; None for no
            dictionary, that is a separate matrix for each class.
        whitening: see `WhiteningColoring2d`.
        coloring: the class matrices :math:`\Gamma_y`: `"full"` or `"diagonal"`.
        shared: the class-independent :math:`\Gamma`: `"full"`, `"diagonal"` or `"none"`.
        normalize_assignment: divides each row of A by its L2 norm, as in the paper's code.
        class_bias: whether each class has a shift :math:`\beta_y`; soft assignment in the paper's code has none.
        groups: whitens within this many equal groups of channels.
        iterations: steps of Newton's iteration.
        init: initial coloring: `"glorot"` (as in the paper's code), `"orthogonal"` (the same, with an orthogonal shared
            matrix), or `"identity"` (whitening only).
        track_running_stats: if False, the layer uses batch statistics in evaluation too.
        sync: shares batch statistics between the processes of `torch.distributed`.
        process_group: the processes that share statistics; None for all.
        device: device of the parameters and buffers.
        dtype: type of the parameters; statistics are in float32 or wider.

    Shape:
        Input `(N, d, H, W)` and integer labels `(N,)`, or weights of the classes `(N, n)`, which mix their colorings.
        Output like the input.

    Attributes:
        class_weight: :math:`\Gamma_y`, `(n, d, d)`, or `(n, d)` if diagonal; None with a dictionary.
        class_bias: :math:`\beta_y`, `(n, d)`; None if `class_bias=False`.
        dictionary: D, `(s, d, d)`; None without one.
        assignment: A, `(n, s)`; None without a dictionary.
        weight: :math:`\Gamma`, `(d, d)`, or `(d,)` if diagonal; None if `shared="none"`.
        bias: :math:`\beta`, `(d,)`; None if `shared="none"`.

    Raises:
        TypeError: for an argument of another type, an input that is not floating-point, and labels that are neither
            integers nor weights.
        ValueError: for an argument out of range, an input of another rank or channel count, fewer than two positions in
            training, or a label out of range. On a GPU the error for a label comes at the layer's next call; the output
            is NaN until then.

    Example:
        >>> import torch, wcgan
        >>> layer = wcgan.ConditionalWhiteningColoring2d(16, classes=10)
        >>> layer(torch.randn(8, 16, 4, 4), torch.arange(8)).shape
        torch.Size([8, 16, 4, 4])

    Reference:
        Siarohin, Sangineto and Sebe, "Whitening and Coloring batch transform for GANs", ICLR 2019, Eq. 5 and 6.
    """

    _ranks = (4,)


class ConditionalWhiteningColoring1d(ConditionalWhiteningColoring):
    r"""Whitening and class-conditional coloring of features or sequences.

    .. math:: z = (\Gamma_y + \Gamma)\, W (x - \mu) + \beta_y + \beta

    Arguments, attributes and errors are those of `ConditionalWhiteningColoring2d`.

    Shape:
        Input `(N, d)` or `(N, d, L)` and labels as for `ConditionalWhiteningColoring2d`. Output like the input.

    Example:
        >>> import torch, wcgan
        >>> layer = wcgan.ConditionalWhiteningColoring1d(16, classes=200, dictionary="auto")
        >>> layer(torch.randn(32, 16), torch.randint(0, 200, (32,))).shape
        torch.Size([32, 16])
        >>> layer.dictionary.shape
        torch.Size([15, 16, 16])

    Reference:
        Siarohin, Sangineto and Sebe, "Whitening and Coloring batch transform for GANs", ICLR 2019, Eq. 5 and 6.
    """

    _ranks = (2, 3)


class ConditionalWhiteningColoring3d(ConditionalWhiteningColoring):
    r"""Whitening and class-conditional coloring of volumes or videos.

    .. math:: z = (\Gamma_y + \Gamma)\, W (x - \mu) + \beta_y + \beta

    Arguments, attributes and errors are those of `ConditionalWhiteningColoring2d`.

    Shape:
        Input `(N, d, D, H, W)` and labels as for `ConditionalWhiteningColoring2d`. Output like the input.

    Example:
        >>> import torch, wcgan
        >>> layer = wcgan.ConditionalWhiteningColoring3d(16, classes=10)
        >>> layer(torch.randn(8, 16, 2, 4, 4), torch.arange(8)).shape
        torch.Size([8, 16, 2, 4, 4])

    Reference:
        Siarohin, Sangineto and Sebe, "Whitening and Coloring batch transform for GANs", ICLR 2019, Eq. 5 and 6.
    """

    _ranks = (5,)
