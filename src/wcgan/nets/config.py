"""Configs of generators and discriminators: frozen dataclasses, checked when created."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch

from wcgan.functional._factorisations import ZCA
from wcgan.norm import VARIANTS, WhiteningLayer, normalization

KINDS = ("resnet", "dcgan")
HEADS = ("plain", "projection", "acgan")
EMBEDDING_INITS = ("glorot", "uniform")
OPTIONS = ("eps", "momentum", "track_running_stats", "groups", "iterations", "init", "sync")
CONDITIONAL_OPTIONS = ("class_bias",)
SOFT_OPTIONS = ("dictionary", "normalize_assignment")
ZCA_OPTIONS = ("whitening",)
IN_FOLDERS = "; images have classes if each is in the sub-folder of its class"
MOST, MOST_WIDTHS, MOST_WEIGHTS = 1 << 16, 12, 2e9  # limits of any number, of blocks, and of weights


@dataclass(frozen=True)
class GeneratorConfig:
    """Config of a generator: noise, a dense layer, one upsampling block for each width, a last convolution, tanh.

    Raises:
        ValueError: for a field that is not as described; the message names the field, its value and what is allowed.

    Example:
        >>> from wcgan.nets import GeneratorConfig
        >>> GeneratorConfig(widths=(64, 32), base=7, channels=1).resolution
        28
        >>> GeneratorConfig(normalization="cWC", classes=10).final_normalization
        'WC'
    """

    kind: str = "resnet"
    """`"resnet"` or `"dcgan"`."""
    base: int = 4
    """Side of the feature map that the dense layer outputs."""
    widths: tuple[int, ...] = (256, 256, 256)
    """Output channels of each block; each block doubles the side. The dense layer outputs `widths[0]` channels."""
    noise: int = 128
    """Length of the noise vector."""
    normalization: str = "WC"
    """Normalisation before each convolution of the blocks: a key of `wcgan.VARIANTS`."""
    last_normalization: str | None = None
    """Normalisation before the last convolution. None: that of the blocks, without its class dependence."""
    channels: int = 3
    """Channels of an image."""
    classes: int | None = None
    """Number of classes, for a conditional normalisation; otherwise unused."""
    depth: int = 1
    """ResNet: blocks for each width; those after the first keep the side."""
    attention: int = 0
    """Side of the feature maps that get a self-attention layer; 0 for none."""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further arguments of every normalisation layer: `eps`, `momentum`, `groups`, `init`, `sync` and so on. ZCA's
    `whitening` chooses its gradient: `"zca"` or `"zca-decomposition"`."""

    def __post_init__(self) -> None:
        _check_widths(self)
        _require(self, "options", isinstance(self.options, Mapping), "a mapping")
        object.__setattr__(self, "options", dict(self.options))
        _check_choice(self, "kind", KINDS)
        _check_positive(self, "base", "noise", "channels")
        _require(self, "depth", _is_int(self.depth, 1) and self.depth <= MOST_WIDTHS, f"from 1 to {MOST_WIDTHS}")
        _check_classes(self)
        _require(self, "depth", self.kind == "resnet" or self.depth == 1, "1 for DCGAN")
        _check_attention(self)
        _check_choice(self, "normalization", tuple(VARIANTS))
        if self.last_normalization is not None:
            _check_choice(self, "last_normalization", tuple(VARIANTS))
        for name in ("normalization", "last_normalization"):
            variant = VARIANTS.get(getattr(self, name))
            known = variant is None or not variant.conditional or self.classes is not None
            why = f"since {name} is {getattr(self, name)!r}{IN_FOLDERS}"
            _require(self, "classes", known, f"the number of classes, {why}")
        widths = [width for width in self.widths for _ in range(self.depth)]
        colorings = self._class_matrices() * sum(2 * width**2 for width in widths)
        _check_size(self, (widths[0], *widths), self.noise * widths[0] * self.base**2 + colorings)
        if self.options:  # otherwise nothing can be wrong, and PyTorch is slow to build its first layer
            self._check_options()

    def _class_matrices(self) -> int:
        """Full matrices that each conditional layer learns: one for each class, or those of a dictionary."""
        names = (self.normalization, self.final_normalization)
        full = [v for v in map(VARIANTS.__getitem__, names) if v.conditional and v.coloring == "full"]
        size: Any = self.options.get("dictionary", "auto" if any(variant.soft for variant in full) else None)
        size = math.ceil(math.sqrt(self.classes or 0)) if size == "auto" else self.classes if size is None else size
        return int(size) if full and _is_int(size) else 0

    def _check_options(self) -> None:
        """Builds each layer on the meta device, so that a wrong option is reported here and not by a network."""
        allowed = options_of(self.normalization)
        for name in self.options:
            _require(self, "options", name in allowed, f"a mapping with keys among {', '.join(allowed)}")
        # `whitening` may choose the gradient, but not another whitening than the variant's.
        same = self.options.get("whitening", "zca") in ZCA
        _require(self, "options", same, f"a mapping whose whitening is one of {', '.join(ZCA)}")
        layers = {(self.normalization, width) for width in self.widths} | {(self.final_normalization, self.widths[-1])}
        for name, width in sorted(layers):
            try:
                with torch.device("meta"):
                    self.normalization_layer(name, width)
            except (ValueError, TypeError) as error:
                _require(self, "options", False, f"right for {name} of width {width}: {error}")

    @property
    def resolution(self) -> int:
        """Side of an image."""
        return self.base * 2 ** len(self.widths)

    @property
    def sides(self) -> tuple[int, ...]:
        """Side of the feature maps after the blocks of each width."""
        return tuple(self.base * 2 ** (k + 1) for k in range(len(self.widths)))

    @property
    def conditional(self) -> bool:
        """Whether the generator is called with labels."""
        return any(VARIANTS[name].conditional for name in (self.normalization, self.final_normalization))

    @property
    def final_normalization(self) -> str:
        """Name of the normalisation before the last convolution."""
        return self.last_normalization or unconditional_partner(self.normalization)

    def normalization_layer(self, name: str, width: int) -> WhiteningLayer:
        """Builds a layer with those `options` that it supports: the last layer may be unconditional."""
        options = {k: v for k, v in self.options.items() if k in options_of(name)}
        return normalization(name, width, classes=self.classes if VARIANTS[name].conditional else None, **options)


@dataclass(frozen=True)
class DiscriminatorConfig:
    """Config of a discriminator: blocks of convolutions, and a head that scores their features.

    Raises:
        ValueError: for a field that is not as described; the message names the field, its value and what is allowed.

    Example:
        >>> from wcgan.nets import DiscriminatorConfig
        >>> DiscriminatorConfig(kind="dcgan", widths=(64, 128, 256)).halvings
        2
    """

    kind: str = "resnet"
    """`"resnet"` or `"dcgan"`."""
    widths: tuple[int, ...] = (128, 128, 128, 128)
    """ResNet: channels of each block. DCGAN: of the first convolution, then of each pair that halves the side."""
    downsample: int = 2
    """Number of ResNet blocks, from the first, that halve the side; unused by DCGAN."""
    head: str = "plain"
    """`"plain"`, `"projection"` (the score depends on the label) or `"acgan"` (class logits in addition)."""
    spectral_norm: bool = True
    """Whether every layer is spectrally normalised, except ACGAN's class logits."""
    channels: int = 3
    """Channels of an image."""
    classes: int | None = None
    """Number of classes, for the projection and ACGAN heads; unused by the plain head."""
    embedding_init: str = "glorot"
    """Initial embedding of the projection head: `"glorot"`, or `"uniform"` in [-0.05, 0.05] as in the paper's code."""
    slope: float = 0.1
    """Negative slope of DCGAN's LeakyReLU; unused by ResNet."""
    resolution: int = 32
    """Side of an image."""
    attention: int = 0
    """Side of the feature maps that get a self-attention layer; 0 for none, as DCGAN must have."""

    def __post_init__(self) -> None:
        _check_widths(self)
        _check_choice(self, "kind", KINDS)
        _check_choice(self, "head", HEADS)
        _check_choice(self, "embedding_init", EMBEDDING_INITS)
        _check_positive(self, "channels", "resolution")
        _check_classes(self)
        _require(self, "spectral_norm", isinstance(self.spectral_norm, bool), "True or False")
        _require(self, "slope", isinstance(self.slope, int | float) and 0 <= self.slope < 1, "a number in [0, 1)")
        possible = _is_int(self.downsample) and (self.kind == "dcgan" or self.downsample <= len(self.widths))
        _require(self, "downsample", possible, f"an integer from 0 to {len(self.widths)}, the number of widths")
        known = self.head == "plain" or self.classes is not None
        _require(self, "classes", known, f"the number of classes, since head is {self.head!r}{IN_FOLDERS}")
        step = 2**self.halvings
        _require(self, "resolution", self.resolution % step == 0, f"a multiple of {step}, so that it can be halved")
        side = 1 if self.kind == "resnet" else self.resolution // step
        scores = 1 if self.head == "plain" else 1 + (self.classes or 0)
        _check_size(self, (self.channels, *self.widths), scores * self.widths[-1] * side**2)
        _check_attention(self)

    @property
    def halvings(self) -> int:
        """Number of times that the side is halved."""
        return self.downsample if self.kind == "resnet" else len(self.widths) - 1

    @property
    def sides(self) -> tuple[int, ...]:
        """ResNet: side of the feature maps after each block; empty for DCGAN."""
        blocks = range(len(self.widths)) if self.kind == "resnet" else ()
        return tuple(self.resolution // 2 ** min(k + 1, self.downsample) for k in blocks)


def options_of(name: str) -> tuple[str, ...]:
    """The arguments of a normalisation layer that `GeneratorConfig.options` may set."""
    variant = VARIANTS[name]
    special = CONDITIONAL_OPTIONS * variant.conditional + SOFT_OPTIONS * variant.soft
    return OPTIONS + special + ZCA_OPTIONS * (variant.whitening in ZCA)


def unconditional_partner(name: str) -> str:
    """The variant with the same whitening and coloring but without classes: cWC -> WC, cBN -> BN.

    An unconditional variant is its own partner.
    """
    variant = VARIANTS[name]
    if not variant.conditional:
        return name
    coloring = variant.coloring if variant.shared == "none" else variant.shared
    parts = (variant.whitening, coloring)
    return next(n for n, v in VARIANTS.items() if not v.conditional and (v.whitening, v.coloring) == parts)


def _require(config: object, name: str, holds: bool, allowed: str) -> None:
    if not holds:
        raise ValueError(f"{type(config).__name__}.{name} is {getattr(config, name)!r}; it must be {allowed}") from None


def _is_int(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check_choice(config: object, name: str, allowed: tuple[str, ...]) -> None:
    _require(config, name, getattr(config, name) in allowed, f"one of {', '.join(allowed)}")


def _check_positive(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        _require(config, name, _is_int(value, least=1) and value <= MOST, f"a positive integer of at most {MOST}")


def _check_classes(config: "GeneratorConfig | DiscriminatorConfig") -> None:
    classes = config.classes
    known = classes is None or (_is_int(classes, least=1) and classes <= MOST)
    _require(config, "classes", known, f"a positive integer of at most {MOST}, or None")


def _check_widths(config: "GeneratorConfig | DiscriminatorConfig") -> None:
    """Requires at least one width; converts a list, as read from a file, to a tuple."""
    widths = config.widths
    some = isinstance(widths, list | tuple) and len(widths) > 0 and all(_is_int(width, least=1) for width in widths)
    _require(config, "widths", some, "a sequence of at least one positive integer")
    _require(config, "widths", len(widths) <= MOST_WIDTHS, f"a sequence of at most {MOST_WIDTHS}")
    object.__setattr__(config, "widths", tuple(widths))


def _check_attention(config: "GeneratorConfig | DiscriminatorConfig") -> None:
    sides = sorted({side for side in config.sides if side % 2 == 0})
    _require(config, "attention", config.attention in (0, *sides), f"0, or a side of its maps: {sides}")


def _check_size(config: object, channels: tuple[int, ...], others: int) -> None:
    """Limits the memory of a network, since a config may come from an untrusted file.

    Args:
        config: of the network.
        channels: of its 3x3 convolutions, one after another.
        others: how many weights it has beside these.
    """
    weights = others + sum(9 * first * second for first, second in pairwise(channels))
    _require(config, "widths", weights <= MOST_WEIGHTS, f"for a network of at most {MOST_WEIGHTS:.0e} weights")
