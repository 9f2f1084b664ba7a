"""Classifier: pixels to its input, and the ResNets for CIFAR with a normalisation of choice in one layer or in all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from wcgan.nets.blocks import MakeNorm, normalize_relu
from wcgan.nets.config import OPTIONS, _check_choice, _check_positive, _check_size, _is_int, _require
from wcgan.norm import VARIANTS, normalization

UNCONDITIONAL = tuple(name for name, variant in VARIANTS.items() if not variant.conditional)
SMALLEST_SIDE, MOST_DEPTH = 8, 1202
BATCH_NORM: Mapping[str, Any] = {"eps": 1e-5, "momentum": 0.1}
"""PyTorch's defaults."""
WHITENING: Mapping[str, Any] = {"init": "identity", "momentum": 0.1}
"""As batch normalisation: the coloring starts as the identity, and running averages are as fast."""


@dataclass(frozen=True)
class ClassifierConfig:
    """Config of a classifier: a convolution, three stages of residual blocks, global averages, a dense layer.

    Raises:
        ValueError: for a field that is not as described; the message names the field, its value and what is allowed.

    Example:
        >>> from wcgan.nets import ClassifierConfig
        >>> ClassifierConfig(depth=56).blocks
        9
        >>> ClassifierConfig().widths
        (16, 32, 64)
    """

    depth: int = 32
    """Layers with weights, 6n + 2 for n blocks per stage. He et al. use 20, 32, 44, 56 and 110."""
    width: int = 16
    """Channels of the first stage; doubled in each of the other two."""
    normalization: str = "WC"
    """An unconditional key of `wcgan.VARIANTS`."""
    where: Literal["first", "all"] = "first"
    """Layers with this normalisation: after the first convolution only, with BN elsewhere, or all."""
    channels: int = 3
    """Channels of an image."""
    classes: int = 10
    """Number of classes."""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further arguments of the layers that `normalization` names: `eps`, `momentum`, `groups`, `init` and so on."""

    def __post_init__(self) -> None:
        _check_fields(self)
        object.__setattr__(self, "options", dict(self.options))
        if self.options:
            _check_options(self)

    @property
    def blocks(self) -> int:
        """Number of blocks per stage, n."""
        return (self.depth - 2) // 6

    @property
    def widths(self) -> tuple[int, int, int]:
        """Channels of each stage."""
        return self.width, 2 * self.width, 4 * self.width

    def normalization_layer(self, width: int, first: bool = False) -> nn.Module:
        """Builds the layer after the first convolution, or after another one."""
        if self.where == "first" and not first:
            return normalization("BN", width, **BATCH_NORM)
        defaults = BATCH_NORM if self.normalization == "BN" else WHITENING
        return normalization(self.normalization, width, **{**defaults, **self.options})


def _check_fields(config: ClassifierConfig) -> None:
    fits = _is_int(config.depth, least=8) and config.depth % 6 == 2 and config.depth <= MOST_DEPTH
    _require(
        config, "depth", fits, f"6n + 2 with n at least 1, such as 20, 32, 44, 56 or 110, and at most {MOST_DEPTH}"
    )
    _check_positive(config, "width", "channels", "classes")
    widths = [width for width in config.widths for _ in range(2 * config.blocks)]
    _check_size(config, (config.channels, *widths), config.classes * widths[-1])
    _check_choice(config, "normalization", UNCONDITIONAL)
    _check_choice(config, "where", ("first", "all"))
    _require(config, "options", isinstance(config.options, Mapping), "a mapping")


def _check_options(config: ClassifierConfig) -> None:
    """Builds a layer on the meta device, so that a wrong option is reported here and not by a network.

    Options that are valid for the first width are valid for its multiples.
    """
    for name in config.options:
        _require(config, "options", name in OPTIONS, f"a mapping with keys among {', '.join(OPTIONS)}")
    try:
        with torch.device("meta"):
            config.normalization_layer(config.width, first=True)
    except (ValueError, TypeError) as error:
        _require(config, "options", False, f"right for {config.normalization} of width {config.width}: {error}")


class Pixels(nn.Module):
    """uint8 images to a classifier's input: augmented, each channel with mean 0 and variance 1.

    Windows that reach beyond the image are padded with the channels' means.

    Args:
        channels: of the images; `measure` takes their means and deviations from images.

    Shape:
        `(N, C, H, W)` uint8 to the same in float32.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("std", torch.ones(channels))

    def measure(self, images: Tensor) -> None:
        """Takes mean and deviation of each channel from all of the images."""
        counts = torch.stack(
            [
                torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in part.unbind(1)])
                for part in images.split(4096)
            ]
        ).sum(0)  # (C, 256): how often each value is there
        values, total = torch.arange(256, dtype=torch.float64, device=counts.device), counts[0].sum()
        mean = (counts * values).sum(1) / total
        variance = (counts * (values - mean[:, None]).square()).sum(1) / total
        self.mean.copy_(mean)
        self.std.copy_(variance.sqrt().clamp(min=1.0))  # a channel of one value stays finite

    def forward(self, images: Tensor, moved: Tensor | None = None, mirrored: Tensor | None = None) -> Tensor:
        out = (images.permute(0, 2, 3, 1) - self.mean) / self.std  # (N, H, W, C)
        if moved is not None or mirrored is not None:
            out = _cut(out, moved, mirrored)
        return out.permute(0, 3, 1, 2)


def _cut(x: Tensor, moved: Tensor | None, mirrored: Tensor | None) -> Tensor:
    """Windows of `(N, H, W, C)`, each of its image's size, with zeros beyond the image."""
    n, height, width, _ = x.shape
    rows = torch.arange(height, device=x.device).expand(n, -1)
    columns = torch.arange(width, device=x.device).expand(n, -1)
    if mirrored is not None:
        columns = torch.where(mirrored[:, None], width - 1 - columns, columns)
    if moved is not None:
        rows, columns = rows + moved[:, :1], columns + moved[:, 1:]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    sample = torch.arange(n, device=x.device)[:, None, None]
    found = x[sample, rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None, :]]
    return found * inside[..., None]


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 3x3 convolution without bias, initialised normally with variance 2 / (9 cout)."""
    layer = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def subsample_and_widen(x: Tensor, stride: int, more: int) -> Tensor:
    """He et al.'s shortcut A: every `stride`-th position of `(N, c, H, W)`, and `more` channels of zeros appended."""
    return pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, 0, more))


class BasicBlock(nn.Module):
    """3x3 convolution, norm, ReLU, 3x3 convolution, norm, plus a shortcut without parameters, ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int, make_norm: MakeNorm) -> None:
        super().__init__()
        self.stride = stride
        self.more = outputs - inputs
        self.conv1 = convolution(inputs, outputs, stride)
        self.norm1 = make_norm(outputs)
        self.conv2 = convolution(outputs, outputs)
        self.norm2 = make_norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = normalize_relu(self.norm1, self.conv1(x), None)  # (N, cin, s, s) -> (N, cout, s / stride, s / stride)
        h = self.norm2(self.conv2(h))
        return relu(h + (subsample_and_widen(x, self.stride, self.more) if self.stride > 1 else x))


class ResidualClassifier(nn.Module):
    """A ResNet for small images. Create one with `build_classifier`.

    Args:
        config: the architecture; available as the attribute `config`.

    Shape:
        Images `(N, channels, H, W)`, H and W at least 8. Output: logits `(N, classes)` in the type of the images.

    Raises:
        ValueError: for images of another shape.

    Reference:
        He, Zhang, Ren and Sun, "Deep residual learning for image recognition", CVPR 2016, section 4.2.
    """

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.conv = convolution(config.channels, config.width)
        self.norm = config.normalization_layer(config.width, first=True)
        self.blocks = nn.Sequential(*_stages(config))
        self.dense = nn.Linear(config.widths[-1], config.classes)

    def forward(self, images: Tensor) -> Tensor:
        channels, side = self.config.channels, SMALLEST_SIDE
        if images.dim() != 4 or images.shape[1] != channels or images.shape[2] < side or images.shape[3] < side:
            wanted = f"(N, {channels}, H, W) with H and W at least {side}"
            raise ValueError(f"images must be {wanted}, got shape {tuple(images.shape)}")
        h = self.blocks(normalize_relu(self.norm, self.conv(images), None))
        logits: Tensor = self.dense(h.mean((2, 3)))  # (N, 4w, H / 4, W / 4) -> (N, 4w) -> (N, classes)
        return logits.to(images.dtype)  # full precision even under autocast


def _stages(config: ClassifierConfig) -> list[nn.Module]:
    """n blocks of each width; the first of the second and third stage halves the side."""
    outputs = [width for width in config.widths for _ in range(config.blocks)]
    return [
        BasicBlock(i, o, 1 if i == o else 2, config.normalization_layer)
        for i, o in zip((config.width, *outputs[:-1]), outputs, strict=True)
    ]


def build_classifier(config: ClassifierConfig) -> ResidualClassifier:
    """Builds a classifier with He et al.'s initialisation, and PyTorch's for the dense layer.

    Args:
        config: the architecture.

    Returns:
        A `ResidualClassifier`; see there for shapes, errors and the reference.

    Example:
        >>> import torch
        >>> from wcgan.nets import ClassifierConfig, build_classifier
        >>> build_classifier(ClassifierConfig(depth=8, width=4))(torch.randn(6, 3, 32, 32)).shape
        torch.Size([6, 10])
    """
    return ResidualClassifier(config)
