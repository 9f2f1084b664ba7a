"""The seventeen normalisation layers of the paper and of related work, by name."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

from wcgan.norm._base import WhiteningKind, WhiteningLayer, check_types
from wcgan.norm.conditional import (
    ConditionalWhiteningColoring,
    ConditionalWhiteningColoring1d,
    ConditionalWhiteningColoring2d,
    ConditionalWhiteningColoring3d,
)
from wcgan.norm.unconditional import (
    ColoringKind,
    WhiteningColoring,
    WhiteningColoring1d,
    WhiteningColoring2d,
    WhiteningColoring3d,
    same_argument,
)

LAYERS: dict[int, type[WhiteningColoring]] = {1: WhiteningColoring1d, 2: WhiteningColoring2d, 3: WhiteningColoring3d}
CONDITIONAL_LAYERS: dict[int, type[ConditionalWhiteningColoring]] = {
    1: ConditionalWhiteningColoring1d,
    2: ConditionalWhiteningColoring2d,
    3: ConditionalWhiteningColoring3d,
}


@dataclass(frozen=True)
class Variant:
    """A combination of whitening and coloring.

    Attributes:
        whitening: the `whitening` argument of the layer.
        coloring: the `coloring` argument of the layer; for a conditional variant, the class matrices.
        shared: the `shared` argument of a conditional layer; None for an unconditional variant.
        soft: whether the class matrices are soft assignments to a dictionary (`_sa`).
        group_size: the largest number of channels that are whitened together; None for all.
    """

    whitening: WhiteningKind
    coloring: ColoringKind
    shared: ColoringKind | None = None
    soft: bool = False
    group_size: int | None = None

    @property
    def conditional(self) -> bool:
        """Whether the layer takes labels."""
        return self.shared is not None

    def options(self, channels: int) -> dict[str, Any]:
        """The arguments of a layer with so many channels."""
        options: dict[str, Any] = {"whitening": self.whitening, "coloring": self.coloring}
        if self.group_size is not None:
            options["groups"] = _fewest_groups(channels, self.group_size)
        if self.conditional:
            options |= {"shared": self.shared, "dictionary": "auto" if self.soft else None}
        return options


VARIANTS = {
    "BN": Variant("standardize", "diagonal"),
    "W-only": Variant("cholesky", "none"),
    "WC-diag": Variant("cholesky", "diagonal"),
    "C-only": Variant("none", "full"),
    "std-C": Variant("standardize", "full"),
    "WzcaC": Variant("zca", "full"),
    "WC": Variant("cholesky", "full"),
    "DBN": Variant("zca", "diagonal", group_size=16),
    "IterNorm": Variant("newton", "diagonal", group_size=64),
    "cBN": Variant("standardize", "diagonal", shared="none"),
    "c-std-C": Variant("standardize", "full", shared="full"),
    "c-std-C_sa": Variant("standardize", "full", shared="full", soft=True),
    "cWC-cls-only": Variant("cholesky", "full", shared="none"),
    "cWC_sa-cls-only": Variant("cholesky", "full", shared="none", soft=True),
    "cWC-diag": Variant("cholesky", "diagonal", shared="full"),
    "cWC": Variant("cholesky", "full", shared="full"),
    "cWC_sa": Variant("cholesky", "full", shared="full", soft=True),
}


def normalization(
    name: str,
    channels: int | None = None,
    classes: int | None = None,
    dim: Literal[1, 2, 3] = 2,
    *,
    num_features: int | None = None,
    num_classes: int | None = None,
    **options: Any,
) -> WhiteningLayer:
    """Builds a normalisation layer by its name in the paper.

    Args:
        name: a key of `VARIANTS`, such as `"WC"`, `"cWC"`, `"cWC_sa"` or `"BN"`.
        channels: number of channels d.
        classes: number of classes, for conditional variants only (names that begin with c).
        dim: 2 for feature maps, 1 for features or sequences, 3 for volumes.
        num_features: another name for `channels`, as PyTorch's layers call it.
        num_classes: another name for `classes`.
        **options: further arguments of the layer, such as `eps`, `momentum`, `groups`, `dictionary` or `sync`. They
            override those of the variant.

    Returns:
        A `WhiteningColoring1d`, `WhiteningColoring2d` or `WhiteningColoring3d`, or the conditional layer of the same
        dimension.

    Shape:
        `(N, d, H, W)` if `dim` is 2, `(N, d)` or `(N, d, L)` if it is 1, `(N, d, D, H, W)` if it is 3.

    Raises:
        TypeError: if the number of channels is missing, or not a whole number.
        ValueError: for an unknown name or dim, fewer than one channel, missing `classes`, or `classes` for a variant
            that is not conditional.

    Example:
        >>> import wcgan
        >>> wcgan.normalization("cWC_sa", 64, classes=100).dictionary.shape
        torch.Size([10, 64, 64])

    Reference:
        Siarohin, Sangineto and Sebe, "Whitening and Coloring batch transform for GANs", ICLR 2019.
    """
    variant = find_variant(name)
    if dim not in LAYERS:
        raise ValueError(f"dim must be 1, 2 or 3, got {dim}")
    channels = same_argument("channels", channels, "num_features", num_features)
    classes = same_argument("classes", classes, "num_classes", num_classes)
    if channels is None:
        raise TypeError("give the number of channels with channels= or num_features=")
    check_types(Integral, "a whole number", channels=channels)
    if channels < 1:
        raise ValueError(f"channels must be at least 1, got {channels}")
    choices = variant.options(channels)
    if not variant.conditional:
        if classes is not None:
            raise ValueError(f"{name} does not depend on a class; leave out classes={classes}")
        return LAYERS[dim](channels, **{**choices, **options})
    if classes is None:
        raise ValueError(f"{name} depends on the class; give the number of classes with classes=")
    return CONDITIONAL_LAYERS[dim](channels, classes, **{**choices, **options})


def find_variant(name: str) -> Variant:
    """The variant of a name; a ValueError lists the names if there is none."""
    if not isinstance(name, str) or name not in VARIANTS:
        raise ValueError(f"unknown normalization {name!r}; choose one of {', '.join(VARIANTS)}")
    return VARIANTS[name]


def _fewest_groups(channels: int, group_size: int) -> int:
    """The smallest number of equal groups of at most `group_size` channels."""
    return next(g for g in range(1, channels + 1) if channels % g == 0 and channels // g <= group_size)
