"""The seventeen normalisations of the paper and its peers, by name."""

from dataclasses import dataclass
from typing import Any

from wcgan.norm._base import WhiteningLayer
from wcgan.norm.conditional import ConditionalWhiteningColoring1d, ConditionalWhiteningColoring2d
from wcgan.norm.unconditional import WhiteningColoring1d, WhiteningColoring2d


@dataclass(frozen=True)
class Variant:
    """A choice of the two parts.

    Attributes:
        whitening: the map in.
        coloring: the map out; for a conditional variant, its class-specific term.
        shared: a conditional variant's class-agnostic term; None for an unconditional variant.
        soft: whether the class matrices are soft assignments to a dictionary.
        group_size: the most channels that are whitened together; None for all.
    """

    whitening: str
    coloring: str
    shared: str | None = None
    soft: bool = False
    group_size: int | None = None

    @property
    def conditional(self) -> bool:
        return self.shared is not None


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


def normalization(name: str, channels: int, classes: int | None = None, dim: int = 2, **options: Any) -> WhiteningLayer:
    """A layer by its name in the paper.

    Args:
        name: a key of `VARIANTS`.
        channels: channels d of the input.
        classes: number of classes, for the conditional variants (those whose name begins with c).
        dim: 2 for feature maps `(N, d, H, W)`, 1 for `(N, d)` or `(N, d, L)`.
        **options: further arguments of the layer, in place of the variant's own: `eps`, `momentum`, `groups`,
            `dictionary`, `sync` and so on.

    Raises:
        ValueError: for an unknown name or dim, or classes missing or superfluous.

    Example:
        >>> import wcgan
        >>> wcgan.normalization("cWC_sa", 64, classes=100).dictionary.shape
        torch.Size([10, 64, 64])
    """
    if name not in VARIANTS:
        raise ValueError(f"unknown normalization {name!r}; choose one of {', '.join(VARIANTS)}")
    if dim not in (1, 2):
        raise ValueError(f"dim must be 1 or 2, got {dim}")
    if channels < 1:
        raise ValueError(f"channels must be at least 1, got {channels}")
    variant = VARIANTS[name]
    choices: dict[str, Any] = {"whitening": variant.whitening, "coloring": variant.coloring}
    if variant.group_size is not None:
        choices["groups"] = _fewest_groups(channels, variant.group_size)
    if not variant.conditional:
        if classes is not None:
            raise ValueError(f"{name} does not depend on a class; leave out classes={classes}")
        return (WhiteningColoring1d if dim == 1 else WhiteningColoring2d)(channels, **{**choices, **options})
    if classes is None:
        raise ValueError(f"{name} depends on the class; say how many there are with classes=")
    choices |= {"shared": variant.shared, "dictionary": "auto" if variant.soft else None}
    layer = ConditionalWhiteningColoring1d if dim == 1 else ConditionalWhiteningColoring2d
    return layer(channels, classes, **{**choices, **options})


def _fewest_groups(channels: int, group_size: int) -> int:
    """The fewest equal groups of at most `group_size` channels."""
    return next(g for g in range(1, channels + 1) if channels % g == 0 and channels // g <= group_size)
