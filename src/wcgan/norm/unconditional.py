"""WC: whitening, then a learnt coloring."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from wcgan.functional._operators import without_autocast
from wcgan.norm._base import WhiteningLayer, as_one_node, is_stand_in

COLORINGS = ("full", "diagonal", "none")
INITS = ("glorot", "identity")


class WhiteningColoring(WhiteningLayer):
    """What the 1d and the 2d layer share."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-3,
        momentum: float | None = 0.01,
        *,
        whitening: str = "cholesky",
        coloring: str = "full",
        groups: int = 1,
        iterations: int = 5,
        init: str = "glorot",
        track_running_stats: bool = True,
        sync: bool = False,
        process_group: "dist.ProcessGroup | None" = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_choice("coloring", coloring, COLORINGS)
        check_choice("init", init, INITS)
        if coloring == whitening == "none":
            raise ValueError("whitening='none' with coloring='none' leaves nothing to do")
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
        self.init = init
        d = num_features
        shapes = {
            "weight": {"full": (d, d), "diagonal": (d,), "none": None}[coloring],
            "bias": None if coloring == "none" else (d,),
        }
        register_parameters(self, shapes, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Statistics and coloring as at construction."""
        self.reset_running_stats()
        init_shared(self.weight, self.bias, self.init)

    def coloring_slots(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        if self.weight is None or self.bias is None:
            return None, None, None
        return self.weight.unsqueeze(0), self.bias.unsqueeze(0), None

    def forward(self, x: Tensor, relu: bool = False) -> Tensor:
        """The normalised batch; with `relu`, what is negative in it replaced by 0, at no cost on a GPU."""
        if is_stand_in(x):
            return as_one_node(self, x, relu)
        self._check_input(x)
        with without_autocast(x.device):
            return self._normalize(x, *self.coloring_slots(), relu=relu)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, coloring={self.coloring!r}"


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(allowed)}")


def register_parameters(
    module: nn.Module,
    shapes: Mapping[str, tuple[int, ...] | None],
    device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> None:
    """One parameter a name, uninitialised; None where there is no shape."""
    for name, shape in shapes.items():
        parameter = None if shape is None else nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        module.register_parameter(name, parameter)


@torch.no_grad()
def init_shared(weight: Tensor | None, bias: Tensor | None, init: str) -> None:
    """Full: glorot-uniform, or the identity. Diagonal: ones. Bias: zeros."""
    if weight is None or bias is None:
        return
    nn.init.zeros_(bias)
    if weight.dim() == 1:
        nn.init.ones_(weight)
    elif init == "identity":
        nn.init.eye_(weight)
    else:
        nn.init.xavier_uniform_(weight)


class WhiteningColoring2d(WhiteningColoring):
    r"""Whitening and coloring of feature maps, in place of `torch.nn.BatchNorm2d`.

    .. math:: z = \Gamma\, W (x - \mu) + \beta, \qquad W^\top W = ((1-\epsilon)\hat\Sigma + \epsilon I)^{-1}

    In training, :math:`\mu` and :math:`\hat\Sigma` are the mean and covariance of the channels over the batch and all
    positions; running averages of both are kept. In evaluation the averages take their place.

    Args:
        num_features: channels d.
        eps: the shrinkage :math:`\epsilon`, in [0, 1).
        momentum: weight of a new batch in the running averages; None for the average over all batches.
        whitening: `"cholesky"` (the paper's), `"zca"`, `"zca-decomposition"` (the same with another gradient, see
            `covariance_to_whitening`), `"newton"`, `"standardize"` (batch normalisation's) or `"none"`.
        coloring: `"full"` (:math:`\Gamma` is d x d), `"diagonal"` (batch normalisation's) or `"none"`.
        groups: whitens within this many equal groups of channels.
        iterations: steps of Newton's iteration.
        init: `"glorot"` (as the paper's authors) or `"identity"`, with which the layer starts as whitening alone.
        track_running_stats: if False, evaluation uses the batch's statistics too.
        sync: shares batch statistics between the processes of `torch.distributed`.
        process_group: which processes; all by default.
        device: where parameters and buffers are made.
        dtype: their type.

    Shape:
        `(N, d, H, W)` -> the same, in the same memory format.

    Attributes:
        weight: :math:`\Gamma`, `(d, d)` or `(d,)`.
        bias: :math:`\beta`, `(d,)`.
        running_mean: `(d,)`.
        running_covariance: `(d, d)`, not shrunk; `(groups, p, p)` with groups.
        running_var: `(d,)`, in place of `running_covariance` for `"standardize"`.
        num_batches_tracked: batches in the running averages.
        num_retried: training batches whose covariance needed more shrinkage to be factorised.
        num_nonfinite: training batches with NaN or Inf, kept out of the running averages.

    Raises:
        TypeError: if the input is not a floating-point tensor.
        ValueError: for another rank or channel count, or fewer than two positions where batch statistics are taken.

    Example:
        >>> import torch, wcgan
        >>> layer = wcgan.WhiteningColoring2d(16)
        >>> layer(torch.randn(8, 16, 4, 4)).shape
        torch.Size([8, 16, 4, 4])

    Reference:
        Siarohin, Sangineto and Sebe, "Whitening and Coloring batch transform for GANs", ICLR 2019.
    """

    _ranks = (4,)


class WhiteningColoring1d(WhiteningColoring):
    """Whitening and coloring of features, in place of `torch.nn.BatchNorm1d`.

    Arguments and attributes are those of `WhiteningColoring2d`.

    Shape:
        `(N, d)` or `(N, d, L)` -> the same.

    Example:
        >>> import torch, wcgan
        >>> wcgan.WhiteningColoring1d(16)(torch.randn(32, 16)).shape
        torch.Size([32, 16])
    """

    _ranks = (2, 3)
