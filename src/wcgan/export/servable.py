"""A model ready to be exported: folded, with named inputs, and the original to check the result against."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

import wcgan
from wcgan.core.terminal import OnProgress
from wcgan.norm import FoldedMap, WhiteningLayer
from wcgan.norm.convert import replace_modules
from wcgan.norm.fold import OneClass

CHECKED = 1000
_SIZES = (64, 1, 37)
_LOOSER_THAN_ROUNDING = 8
Draw = Callable[[int, int], tuple[Tensor, ...]]
"""The number of samples and a seed -> inputs of the model."""


@dataclass(frozen=True)
class Servable:
    """A folded model, and what is needed to check an export of it."""

    model: nn.Module
    """The folded model, with its maps as convolutions."""
    original: nn.Module
    """The trained model in evaluation mode, which takes the same inputs."""
    names: tuple[str, ...]
    """Names of the inputs, in order."""
    draw: Draw
    """Makes random inputs."""
    class_names: tuple[str, ...] = ()
    """Names of the classes, for the metadata of a format that has any."""


class _Convolution(nn.Module):
    """A constant map as a 1x1 convolution, which every runtime supports."""

    weight: Tensor
    bias: Tensor

    def __init__(self, mapping: FoldedMap) -> None:
        super().__init__()
        _, self.groups, p, _ = mapping.matrix.shape
        self.register_buffer("weight", mapping.matrix.reshape(mapping.channels, p, 1, 1))
        self.register_buffer("bias", mapping.offset[0])

    def forward(self, x: Tensor, labels: Tensor | bool | None = None, relu: bool = False) -> Tensor:
        out = conv2d(x, self.weight, self.bias, groups=self.groups)
        return out.relu() if relu or labels is True else out


def make_servable(model: nn.Module, names: tuple[str, ...], draw: Draw, label: int | None = None) -> Servable:
    """Folds a model and checks that it can be exported.

    Args:
        model: any module with layers of this library, in evaluation mode; it is not changed.
        names: names of its inputs, in order; without the labels if `label` is given.
        draw: the number of samples and a seed -> inputs of the model.
        label: the only class to keep; None for all.

    Raises:
        ValueError: for a model in training mode, a layer without statistics, and whatever `wcgan.fold` refuses.

    Example:
        >>> import torch, wcgan
        >>> from wcgan.export import make_servable
        >>> layer = wcgan.WhiteningColoring1d(4)
        >>> _ = layer(torch.randn(8, 4))
        >>> servable = make_servable(layer.eval(), ("features",), lambda count, seed: (torch.randn(count, 4),))
        >>> servable.model
        FoldedMap(4)
    """
    if any(module.training for module in model.modules()):
        raise ValueError("the model is in training mode, in which its output depends on the batch: call eval() first")
    for name, module in model.named_modules():
        if isinstance(module, WhiteningLayer) and _untouched(module):
            raise ValueError(f"{name or 'the model'} has no statistics yet: pass training batches through the model")
    folded = wcgan.fold(model, label).requires_grad_(False)
    grids = [m for m in folded.modules() if isinstance(m, FoldedMap) and m.ranks == (4,)]
    full = [m for m in grids if not m.conditional and not m.diagonal]
    original = OneClass(model, folded.label, folded.position).eval() if isinstance(folded, OneClass) else model
    return Servable(replace_modules(folded, {m: _Convolution(m).eval() for m in full}), original, names, draw)


def _untouched(layer: WhiteningLayer) -> bool:
    """Whether statistics are the initial ones. The number of batches does not tell: converted layers may count none."""
    if not layer.track_running_stats or layer.num_batches_tracked > 0:
        return False
    covariance = layer._covariance
    identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    return bool((layer.running_mean == 0).all()) and bool((covariance == identity).all())


@torch.no_grad()
def check_exact(servable: Servable, run: Callable[..., Tensor], progress: OnProgress, count: int = CHECKED) -> float:
    """Compares an exported model with the original, on random inputs in batches of several sizes.

    Returns:
        The largest difference.

    Raises:
        ValueError: if the difference is more than a few times the float32 rounding error of the original.
    """
    allowed = _LOOSER_THAN_ROUNDING * _rounding(servable)
    largest = 0.0
    done, sizes = 0, cycle(_SIZES)
    while done < count:
        size = min(next(sizes), count - done)
        inputs = servable.draw(size, done)
        error = float((run(*inputs) - servable.original(*inputs)).abs().max())
        largest = max(largest, error if math.isfinite(error) else math.inf)
        done += size
        progress("checking", done, count)
    if not largest <= allowed:
        raise ValueError(
            f"the written model differs by {largest:.1e} from the one that was trained, on {count} random inputs; "
            f"rounding explains {allowed:.1e}: it cannot be exported exactly"
        )
    return largest


def _rounding(servable: Servable) -> float:
    """The largest error of the original in float32, against float64; at least one unit in the last place."""
    inputs = servable.draw(_SIZES[0], 0)
    exact = copy.deepcopy(servable.original).double()
    expected = exact(*(x.double() if x.is_floating_point() else x for x in inputs))
    unit = torch.finfo(torch.float32).eps * float(expected.abs().max())
    return max(unit, float((servable.original(*inputs) - expected).abs().max()))
