"""Whitening and coloring layers for PyTorch, drop-in replacements for batch normalisation.

The layers are in `wcgan.norm`, their maths in `wcgan.functional`, GAN networks in `wcgan.nets`.
"""

import os
from typing import TYPE_CHECKING

from wcgan import functional
from wcgan.norm import (
    VARIANTS,
    ConditionalWhiteningColoring1d,
    ConditionalWhiteningColoring2d,
    ConditionalWhiteningColoring3d,
    LazyConditionalWhiteningColoring1d,
    LazyConditionalWhiteningColoring2d,
    LazyConditionalWhiteningColoring3d,
    LazyWhiteningColoring1d,
    LazyWhiteningColoring2d,
    LazyWhiteningColoring3d,
    WhiteningColoring1d,
    WhiteningColoring2d,
    WhiteningColoring3d,
    convert_batchnorm,
    fold,
    freeze_statistics,
    normalization,
    update_statistics,
)

if TYPE_CHECKING:
    from wcgan.runs.sampler import Sampler

__version__ = "0.1.0"
__all__ = [
    "VARIANTS",
    "ConditionalWhiteningColoring1d",
    "ConditionalWhiteningColoring2d",
    "ConditionalWhiteningColoring3d",
    "LazyConditionalWhiteningColoring1d",
    "LazyConditionalWhiteningColoring2d",
    "LazyConditionalWhiteningColoring3d",
    "LazyWhiteningColoring1d",
    "LazyWhiteningColoring2d",
    "LazyWhiteningColoring3d",
    "WhiteningColoring1d",
    "WhiteningColoring2d",
    "WhiteningColoring3d",
    "__version__",
    "convert_batchnorm",
    "fold",
    "freeze_statistics",
    "functional",
    "load",
    "normalization",
    "update_statistics",
]


def load(path: str | os.PathLike[str], checkpoint: str = "last", device: str = "auto") -> "Sampler":
    """Loads the generator of a training run, ready to sample.

    Needs `pip install 'wcgan[train]'`, but not the training data.

    Args:
        path: the run folder.
        checkpoint: `"last"`, `"best"` (lowest FID, if the run was evaluated) or the number of an iteration.
        device: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:N"`.

    Returns:
        A `Sampler`; its `sample` method returns images.

    Shape:
        `sample(n)` returns `(n, channels, resolution, resolution)`, uint8.

    Raises:
        ImportError: if the packages of `wcgan[train]` are not installed.
        ValueError: if `path` is not a run folder, or has no such checkpoint.

    Example:
        ```python
        import wcgan

        generator = wcgan.load("runs/digits-cWC")
        images = generator.sample(64, classes=3, seed=1)  # (64, C, H, W) uint8
        ```
    """
    try:
        from wcgan.runs.sampler import load_generator
    except ImportError as error:
        raise ImportError(f"wcgan.load needs the training packages: pip install 'wcgan[train]' ({error})") from error
    return load_generator(os.fspath(path), checkpoint, device)
