"""The normalisation layers, and tools for networks that contain them: convert, fold, freeze and re-estimate."""

from wcgan.norm._base import WhiteningLayer
from wcgan.norm.conditional import (
    ConditionalWhiteningColoring1d,
    ConditionalWhiteningColoring2d,
    ConditionalWhiteningColoring3d,
)
from wcgan.norm.convert import convert_batchnorm
from wcgan.norm.fold import FoldedMap, fold
from wcgan.norm.lazy import (
    LazyConditionalWhiteningColoring1d,
    LazyConditionalWhiteningColoring2d,
    LazyConditionalWhiteningColoring3d,
    LazyWhiteningColoring1d,
    LazyWhiteningColoring2d,
    LazyWhiteningColoring3d,
)
from wcgan.norm.statistics import freeze_statistics, sub_batches, update_statistics, use_batch_statistics
from wcgan.norm.unconditional import WhiteningColoring1d, WhiteningColoring2d, WhiteningColoring3d
from wcgan.norm.variants import VARIANTS, Variant, normalization

__all__ = [
    "VARIANTS",
    "ConditionalWhiteningColoring1d",
    "ConditionalWhiteningColoring2d",
    "ConditionalWhiteningColoring3d",
    "FoldedMap",
    "LazyConditionalWhiteningColoring1d",
    "LazyConditionalWhiteningColoring2d",
    "LazyConditionalWhiteningColoring3d",
    "LazyWhiteningColoring1d",
    "LazyWhiteningColoring2d",
    "LazyWhiteningColoring3d",
    "Variant",
    "WhiteningColoring1d",
    "WhiteningColoring2d",
    "WhiteningColoring3d",
    "WhiteningLayer",
    "convert_batchnorm",
    "fold",
    "freeze_statistics",
    "normalization",
    "sub_batches",
    "update_statistics",
    "use_batch_statistics",
]
