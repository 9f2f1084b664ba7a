"""Whitening and coloring layers for PyTorch, drop-in replacements for batch normalisation.

The layers are in `wcgan.norm`, their maths in `wcgan.functional`, GAN networks in `wcgan.nets`.
"""

from wcgan import functional
from wcgan._load import load
from wcgan._version import __version__
from wcgan.norm import (
    VARIANTS,
    ConditionalWhiteningColoring1d,
    ConditionalWhiteningColoring2d,
    WhiteningColoring1d,
    WhiteningColoring2d,
    convert_batchnorm,
    fold,
    freeze_statistics,
    normalization,
    update_statistics,
)

__all__ = [
    "VARIANTS",
    "ConditionalWhiteningColoring1d",
    "ConditionalWhiteningColoring2d",
    "WhiteningColoring1d",
    "WhiteningColoring2d",
    "__version__",
    "convert_batchnorm",
    "fold",
    "freeze_statistics",
    "functional",
    "load",
    "normalization",
    "update_statistics",
]
