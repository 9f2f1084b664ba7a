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
    WhiteningColoring1d,
    WhiteningColoring2d,
    convert_batchnorm,
    fold,
    freeze_statistics,
    normalization,
    update_statistics,
)

if TYPE_CHECKING:
    from wcgan.runs.pretrained import Model
    from wcgan.runs.sampler import Sampler

__version__ = "0.1.0"
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
    "models",
    "normalization",
    "update_statistics",
]


def load(source: str | os.PathLike[str], checkpoint: str = "last", device: str = "auto") -> "Sampler":
    """Loads a trained generator, ready to sample.

    Needs `pip install 'wcgan[train]'`, but not the training data.

    Args:
        source: the folder of a run, a file in its `checkpoints`, a folder that `wcgan export` wrote in the format
            `safetensors` or `hub`, the name of a shipped generator (see `models`), or `OWNER/NAME` of one on the
            Hugging Face hub, which needs `wcgan[export]`. A path that exists comes first.
        checkpoint: for a run, `"last"`, `"best"` (lowest FID, if the run was evaluated) or the number of an iteration.
        device: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:N"`.

    Returns:
        A `Sampler`, whose `sample` and `interpolate` return images.

    Shape:
        `sample(n)` returns `(n, channels, resolution, resolution)`, uint8.

    Raises:
        ImportError: if the packages of `wcgan[train]` are not installed.
        ValueError: if there is no such generator, or no such checkpoint.

    Example:
        ```python
        import wcgan

        generator = wcgan.load("cifar10-cWC")
        images = generator.sample(64, classes="cat", seed=1)  # (64, 3, 32, 32) uint8
        film = generator.interpolate(24, classes=("cat", "dog"))  # (24, 8, 3, 32, 32) uint8
        ```
    """
    try:
        from wcgan.runs.sampler import load_generator
    except ImportError as error:
        raise ImportError(f"wcgan.load needs the training packages: pip install 'wcgan[train]' ({error})") from error
    return load_generator(os.fspath(source), checkpoint, device)


def models() -> "tuple[Model, ...]":
    """Lists the generators that come with the package: classes, size, FID, licence, and the command that made each.

    Needs `pip install 'wcgan[train]'`.

    Raises:
        ImportError: if the packages of `wcgan[train]` are not installed.

    Example:
        >>> import wcgan
        >>> [(model.name, model.image, round(model.fid or 0, 1)) for model in wcgan.models()]
        [('cifar10-cWC', (3, 32, 32), 14.8), ('digits-cWC_sa', (1, 16, 16), 0)]
    """
    try:
        from wcgan.runs.pretrained import shipped_models
    except ImportError as error:
        raise ImportError(f"wcgan.models needs the training packages: pip install 'wcgan[train]' ({error})") from error
    return shipped_models()
