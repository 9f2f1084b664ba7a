"""A trained generator by the folder of its run."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wcgan.runs.sampler import Sampler


def load(path: str | Path, checkpoint: str = "last", device: str = "auto") -> "Sampler":
    """The generator of a run, ready to sample; needs `wcgan[train]`, but none of the training data.

    Args:
        path: the folder of a run.
        checkpoint: `"last"`, `"best"` (by FID, where the run was evaluated) or the number of an iteration.
        device: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:N"`.

    Raises:
        ValueError: if that is not the folder of a run, or it has no such checkpoint.

    Example:
        ```python
        generator = wcgan.load("runs/digits-cWC")
        images = generator.sample(64, classes=3, seed=1)  # (64, C, H, W) uint8
        ```
    """
    try:
        from wcgan.runs.sampler import load_generator
    except ImportError as error:
        raise ImportError(f"wcgan.load needs more than the layers do: pip install 'wcgan[train]' ({error})") from error
    return load_generator(path, checkpoint, device)
