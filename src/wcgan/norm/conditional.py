"""cWC and cWC_sa: whitening, then a coloring that depends on the sample's class."""

import math

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import normalize

from wcgan.functional._operators import within_transform, without_autocast
from wcgan.norm._base import WhiteningLayer, as_one_node, is_stand_in
from wcgan.norm.labels import LabelReport, check_label_shape, check_labels
from wcgan.norm.unconditional import COLORINGS, INITS, check_choice, init_shared, register_parameters

is_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)  # PyTorch 2.6 has the latter only


class ConditionalWhiteningColoring(WhiteningLayer):
    """What the 1d and the 2d layer share."""

    class_weight: Tensor | None
    dictionary: Tensor | None
    assignment: Tensor | None
    class_bias: Tensor | None
    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        num_features: int,
        classes: int,
        eps: float = 1e-3,
        momentum: float | None = 0.01,
        *,
        dictionary: int | str | None = None,
        whitening: str = "cholesky",
        coloring: str = "full",
        shared: str = "full",
        normalize_assignment: bool = False,
        class_bias: bool = True,
        groups: int = 1,
        iterations: int = 5,
        init: str = "glorot",
        track_running_stats: bool = True,
        sync: bool = False,
        process_group: "dist.ProcessGroup | None" = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if classes < 1:
            raise ValueError(f"classes must be at least 1, got {classes}")
        check_choice("coloring", coloring, ("full", "diagonal"))
        check_choice("shared coloring", shared, COLORINGS)
        check_choice("init", init, INITS)
        size = math.ceil(math.sqrt(classes)) if dictionary == "auto" else dictionary
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(f"dictionary must be a positive number of filters, 'auto' or None, got {dictionary!r}")
        if size is not None and coloring != "full":
            raise ValueError(f"a dictionary holds full matrices; it does not go with coloring={coloring!r}")
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

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Statistics and coloring as at construction."""
        self.reset_running_stats()
        init_shared(self.weight, self.bias, self.init)
        if self.class_bias is not None:
            nn.init.zeros_(self.class_bias)
        bank = self.class_weight if self.dictionary is None else self.dictionary
        assert bank is not None
        alone = self.shared == "none"
        if self.init == "identity":  # both terms together are I: the class term is 0 beside a shared one
            nn.init.zeros_(bank)
            scale = 1 / math.sqrt(bank.shape[0]) if self.assignment is not None and self.normalize_assignment else 1.0
            (bank if bank.dim() == 2 else bank.diagonal(dim1=1, dim2=2)).fill_(scale if alone else 0.0)
        elif self.coloring == "diagonal":
            nn.init.ones_(bank)
        else:
            bound = math.sqrt(3 / (bank.shape[0] * self.num_features))  # uniform, of std 1 / sqrt(n d)
            nn.init.uniform_(bank, -bound, bound)
        if self.assignment is not None:
            nn.init.xavier_uniform_(self.assignment)
            if self.init == "identity" and alone:
                self.assignment.fill_(1 / self.assignment.shape[1])

    def coloring_slots(self, labels: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Coloring matrices `(K, d, d)` or `(K, d)`, shifts `(K, d)`, and the index of each sample's slot.

        Args:
            labels: indices `(N,)` within range, or weights of the classes `(N, n)`; None for all classes in order.
        """
        index = None
        if labels is not None and not labels.is_floating_point() and self._slot_for_each_class(labels.shape[0]):
            labels, index = None, labels

        def pick(table: Tensor) -> Tensor:
            if labels is None:
                return table
            return mix(labels, table) if labels.is_floating_point() else table.index_select(0, labels)

        if self.assignment is None or self.dictionary is None:
            assert self.class_weight is not None
            weight = pick(self.class_weight)
        else:  # Eq. 6: Gamma_y = y^T A D
            assignment = normalize(self.assignment, dim=1) if self.normalize_assignment else self.assignment
            weight = mix(pick(assignment), self.dictionary)
        if self.weight is not None:  # Eq. 5: Gamma_y x + beta_y + Gamma x + beta
            weight = _sum_of_matrices(weight, self.weight)
        shift = weight.new_zeros(weight.shape[:2]) if self.class_bias is None else pick(self.class_bias)
        if self.bias is not None:
            shift = shift + self.bias
        return weight, shift, index

    def _slot_for_each_class(self, samples: int) -> bool:
        """Whether each class has a slot, or each sample: whichever are fewer."""
        # An exported program is for any number of samples, so that it cannot ask how many there are.
        return not is_exporting() and self.classes <= samples

    def forward(self, x: Tensor, labels: Tensor, relu: bool = False) -> Tensor:
        """The batch, colored by label; with `relu`, what is negative replaced by 0, at no cost on a GPU."""
        if is_stand_in(x):
            return as_one_node(self, x, labels, relu)
        self._check_input(x)
        check_label_shape(labels, x.shape[0], self.classes)
        poison = None
        if not labels.is_floating_point():
            if labels.is_cuda and not torch.compiler.is_compiling() and not within_transform():
                self._labels.raise_if_any(self.classes)
                self._labels.send(labels, self.classes)
            labels, poison = check_labels(labels, self.classes)
            poison = poison.to(x.device)
        with without_autocast(x.device):
            return self._normalize(x, *self.coloring_slots(labels.to(x.device)), poison, relu)

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


def mix(weights: Tensor, table: Tensor) -> Tensor:
    """Weighted sums of a table's entries: `(N, K)` and `(K, ...)` -> `(N, ...)`."""
    return (weights.to(table.dtype) @ table.flatten(1)).view(-1, *table.shape[1:])


def _sum_of_matrices(classes: Tensor, shared: Tensor) -> Tensor:
    """Per-class and shared matrices, each full or diagonal -> per-class; diagonal only where both are."""
    if classes.dim() == 2 and shared.dim() == 2:
        classes = torch.diag_embed(classes)
    elif classes.dim() == 3 and shared.dim() == 1:
        shared = torch.diag(shared)
    return classes + shared


class ConditionalWhiteningColoring2d(ConditionalWhiteningColoring):
    r"""Whitening and class-conditional coloring of feature maps, in place of conditional batch normalisation.

    .. math:: z = (\Gamma_y + \Gamma)\, W (x - \mu) + \beta_y + \beta

    Whitening takes all samples together, whatever their class. With a `dictionary` of s filters, the class matrices are
    soft assignments to it, :math:`\Gamma_y = A_y D` (the paper's cWC_sa).

    Args:
        num_features: channels d.
        classes: number of classes n.
        eps: the shrinkage, in [0, 1).
        momentum: weight of a new batch in the running averages; None for the average over all batches.
        dictionary: number of filters s in the dictionary; `"auto"` for :math:`\lceil\sqrt n\,\rceil`; None for a matrix
            of its own for each class.
        whitening: see `WhiteningColoring2d`.
        coloring: the class matrices :math:`\Gamma_y`: `"full"` or `"diagonal"`.
        shared: the class-agnostic :math:`\Gamma`: `"full"`, `"diagonal"` or `"none"`.
        normalize_assignment: divides each row of A by its L2 norm, as the authors' code does.
        class_bias: whether each class has a shift :math:`\beta_y`; the authors' soft assignment has none.
        groups: whitens within this many equal groups of channels.
        iterations: steps of Newton's iteration.
        init: `"glorot"` (as the paper's authors) or `"identity"`, with which the layer starts as whitening alone.
        track_running_stats: if False, evaluation uses the batch's statistics too.
        sync: shares batch statistics between the processes of `torch.distributed`.
        process_group: which processes; all by default.
        device: where parameters and buffers are made.
        dtype: their type.

    Shape:
        Input `(N, d, H, W)` and integer labels `(N,)`, or weights of the classes `(N, n)`, which mix their colorings.
        Output like the input.

    Attributes:
        class_weight: :math:`\Gamma_y`, `(n, d, d)` or `(n, d)`; None with a dictionary.
        class_bias: :math:`\beta_y`, `(n, d)`; None without one.
        dictionary: D, `(s, d, d)`.
        assignment: A, `(n, s)`.
        weight: :math:`\Gamma`, `(d, d)` or `(d,)`.
        bias: :math:`\beta`, `(d,)`.

    Raises:
        TypeError: if the input is not floating-point, or the labels are neither integers nor weights.
        ValueError: for another rank or channel count, fewer than two positions in training, or a label out of range
            (on a GPU: at the layer's next call, the output until then being NaN).

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
    """Whitening and class-conditional coloring of features `(N, d)` or `(N, d, L)`.

    Arguments and attributes are those of `ConditionalWhiteningColoring2d`.

    Example:
        >>> import torch, wcgan
        >>> layer = wcgan.ConditionalWhiteningColoring1d(16, classes=200, dictionary="auto")
        >>> layer(torch.randn(32, 16), torch.randint(0, 200, (32,))).shape
        torch.Size([32, 16])
        >>> layer.dictionary.shape
        torch.Size([15, 16, 16])
    """

    _ranks = (2, 3)
