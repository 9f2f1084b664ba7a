"""WC: whitening, then a learnt coloring that is the same for all samples."""

from collections.abc import Mapping
from typing import Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from wcgan.functional._operators import without_autocast
from wcgan.norm._base import WhiteningKind, WhiteningLayer, as_fx_node, is_fx_proxy

ColoringKind = Literal["full", "diagonal", "none"]
InitKind = Literal["glorot", "orthogonal", "identity"]
COLORINGS: tuple[str, ...] = get_args(ColoringKind)
INITS: tuple[str, ...] = get_args(InitKind)


class WhiteningColoring(WhiteningLayer):
    """Base class of the 1d, 2d and 3d layers. The public documentation is at `WhiteningColoring2d`."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-3,
        momentum: float | None = 0.01,
        *,
        whitening: WhiteningKind = "cholesky",
        coloring: ColoringKind = "full",
        affine: bool = True,
        groups: int = 1,
        iterations: int = 5,
        init: InitKind = "glorot",
        track_running_stats: bool = True,
        sync: bool = False,
        process_group: "dist.ProcessGroup | None" = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_choice("coloring", coloring, COLORINGS)
        check_choice("init", init, INITS)
        if not affine:
            coloring = "none"
        if coloring == whitening == "none":
            raise ValueError("whitening='none' with coloring='none' would do nothing: choose at least one")
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
        self.coloring = coloring
        self.affine = coloring != "none"
        self.init = init
        d = num_features
        shapes = {
            "weight": {"full": (d, d), "diagonal": (d,), "none": None}[coloring],
            "bias": None if coloring == "none" else (d,),
        }
        register_parameters(self, shapes, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets the running statistics and the coloring to their initial values."""
        self.reset_running_stats()
        init_shared(self.weight, self.bias, self.init)

    def coloring_slots(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        if self.weight is None or self.bias is None:
            return None, None, None
        return self.weight.unsqueeze(0), self.bias.unsqueeze(0), None

    def forward(self, x: Tensor, relu: bool = False) -> Tensor:
        """Whitens and colors a batch; `relu=True` also applies a ReLU, on a GPU within the same pass."""
        if is_fx_proxy(x):
            return as_fx_node(self, x, relu)
        if not isinstance(relu, bool):
            raise TypeError(
                f"{type(self).__name__} takes no labels: use ConditionalWhiteningColoring1d, 2d or 3d "
                f"(relu must be True or False, not a {type(relu).__name__})"
            )
        self._check_input(x)
        with without_autocast(x.device):
            return self._normalize(x, self.weight, self.bias, None, relu=relu)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, coloring={self.coloring!r}"


def same_argument(name: str, value: int | None, other_name: str, other: int | None) -> int | None:
    """The value of an argument that has two names; a TypeError if both are given and differ."""
    if None not in (value, other) and value != other:
        raise TypeError(f"{name}={value} and {other_name}={other} are the same argument: give one of them")
    return other if value is None else value


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raises a ValueError that names the value and the allowed ones."""
    if value not in allowed:
        raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(allowed)}")


def register_parameters(
    module: nn.Module,
    shapes: Mapping[str, tuple[int, ...] | None],
    device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> None:
    """Registers one uninitialised parameter per name; None for a name without a shape."""
    for name, shape in shapes.items():
        parameter = None if shape is None else nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        module.register_parameter(name, parameter)


@torch.no_grad()
def init_shared(weight: Tensor | None, bias: Tensor | None, init: str) -> None:
    """Initialises the class-independent coloring: full as `init` says, diagonal with ones, bias with zeros."""
    if weight is None or bias is None:
        return
    nn.init.zeros_(bias)
    if weight.dim() == 1:
        nn.init.ones_(weight)
    elif init == "identity":
        nn.init.eye_(weight)
    elif init == "orthogonal":
        nn.init.orthogonal_(weight)
    else:
        nn.init.xavier_uniform_(weight)


class WhiteningColoring2d(WhiteningColoring):
    r"""Whitening and coloring of feature maps, a drop-in replacement for `torch.nn.BatchNorm2d`.

    .. math:: z = \Gamma\, W (x - \mu) + \beta, \qquad W^\top W = ((1-\epsilon)\hat\Sigma + \epsilon I)^{-1}

    In training, :math:`\mu` and :math:`\hat\Sigma` are the mean and covariance of the channels over the batch and all
    positions. The layer keeps running averages of both and uses them in evaluation.

    Note:
        The default `momentum` is 0.01, as in the paper's code, where `torch.nn.BatchNorm2d` has 0.1. After few batches
        the running statistics are therefore still close to their initial values, mean 0 and covariance I. For exact
        averages over all batches, set `momentum=None`, or call `wcgan.update_statistics` after training.

    Args:
        num_features: number of channels d.
        eps: the shrinkage :math:`\epsilon`, in [0, 1).
        momentum: weight of a new batch in the running averages, in [0, 1]; None for the average over all batches.
        whitening: `"cholesky"` (as in the paper), `"zca"`, `"zca-decomposition"`, `"newton"`, `"standardize"` (as in
            batch normalisation) or `"none"`; see `wcgan.functional.covariance_to_whitening`.
        coloring: `"full"` (:math:`\Gamma` is a d x d matrix), `"diagonal"` (as in batch normalisation) or `"none"`.
        affine: False means `coloring="none"`, as for `torch.nn.BatchNorm2d`.
        groups: whitens within this many equal groups of channels.
        iterations: steps of Newton's iteration.
        init: initial :math:`\Gamma`: `"glorot"` (as in the paper's code), `"orthogonal"`, or `"identity"` (whitening
            only).
        track_running_stats: if False, the layer uses batch statistics in evaluation too.
        sync: shares batch statistics between the processes of `torch.distributed`.
        process_group: the processes that share statistics; None for all.
        device: device of the parameters and buffers.
        dtype: type of the parameters; statistics are in float32 or wider.

    Shape:
        `(N, d, H, W)` -> the same, in the same memory format.

    Attributes:
        weight: :math:`\Gamma`, `(d, d)`, or `(d,)` if diagonal; None without coloring.
        bias: :math:`\beta`, `(d,)`; None without coloring.
        running_mean: `(d,)`.
        running_covariance: `(d, d)`, or `(groups, d / groups, d / groups)` if groups > 1; not shrunk.
        running_var: `(d,)`, replaces `running_covariance` if `whitening` is `"standardize"`.
        num_batches_tracked: number of batches in the running averages.
        num_retried: number of training batches whose covariance needed extra shrinkage to be factorised.
        num_nonfinite: number of training batches with NaN or Inf; they are not in the running averages.

    Raises:
        TypeError: for an argument of another type, or an input that is not a floating-point tensor.
        ValueError: for an argument out of range, an input of another rank or channel count, or fewer than two positions
            if batch statistics are used.

    Example:
        >>> import torch, wcgan
        >>> layer = wcgan.WhiteningColoring2d(16)
        >>> layer(torch.randn(8, 16, 4, 4)).shape
        torch.Size([8, 16, 4, 4])
        >>> batches = [torch.randn(8, 16, 4, 4) for _ in range(5)]
        >>> wcgan.update_statistics(batches, layer)  # exact running statistics of these batches
        >>> layer.num_batches_tracked
        tensor(5)

    Reference:
        Siarohin, Sangineto and Sebe, "Whitening and Coloring batch transform for GANs", ICLR 2019, Eq. 2 and 3.
    """

    _ranks = (4,)


class WhiteningColoring1d(WhiteningColoring):
    r"""Whitening and coloring of features or sequences, a drop-in replacement for `torch.nn.BatchNorm1d`.

    .. math:: z = \Gamma\, W (x - \mu) + \beta

    Arguments, attributes and errors are those of `WhiteningColoring2d`.

    Shape:
        `(N, d)` or `(N, d, L)` -> the same.

    Example:
        >>> import torch, wcgan
        >>> wcgan.WhiteningColoring1d(16)(torch.randn(32, 16)).shape
        torch.Size([32, 16])

    Reference:
        Siarohin, Sangineto and Sebe, "Whitening and Coloring batch transform for GANs", ICLR 2019, Eq. 2 and 3.
    """

    _ranks = (2, 3)


class WhiteningColoring3d(WhiteningColoring):
    r"""Whitening and coloring of volumes or videos, a drop-in replacement for `torch.nn.BatchNorm3d`.

    .. math:: z = \Gamma\, W (x - \mu) + \beta

    Arguments, attributes and errors are those of `WhiteningColoring2d`.

    Shape:
        `(N, d, D, H, W)` -> the same, in the same memory format.

    Example:
        >>> import torch, wcgan
        >>> wcgan.WhiteningColoring3d(16)(torch.randn(8, 16, 2, 4, 4)).shape
        torch.Size([8, 16, 2, 4, 4])

    Reference:
        Siarohin, Sangineto and Sebe, "Whitening and Coloring batch transform for GANs", ICLR 2019, Eq. 2 and 3.
    """

    _ranks = (5,)
