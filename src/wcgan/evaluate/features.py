"""What every network that scores images has in common."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Features(Protocol):
    """A network that turns images into features and, where it has classes, predictions."""

    @property
    def name(self) -> str:
        """`inception`, or `classifier`."""

    @property
    def size(self) -> int:
        """The number f of features."""

    @property
    def classes(self) -> int | None:
        """The length of a prediction; None where there is none, and no Inception Score."""

    @property
    def fingerprint(self) -> str:
        """Of the weights: scores are comparable where it is the same."""

    @property
    def device(self) -> torch.device:
        """Where it runs."""

    @property
    def batch(self) -> int:
        """How many images suit it at a time."""

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Features `(N, f)` and logits `(N, classes)` or None, of uint8 images `(N, C, H, W)`, in float32."""


def score_name(metric: str, features: Features) -> str:
    """The name of a figure: plain for the Inception network, with the network's name for any other.

    Example:
        >>> from types import SimpleNamespace
        >>> [score_name("fid", SimpleNamespace(name=name)) for name in ("inception", "classifier")]
        ['FID', 'FID(classifier)']
    """
    name = metric if metric in ("accuracy", "precision", "recall") else metric.upper()
    return name if features.name == "inception" else f"{name}({features.name})"


def check_pixels(images: Tensor) -> None:
    """Raises a ValueError for anything but uint8 images `(N, C, H, W)`."""
    if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.dim() != 4:
        what = f"{images.dtype} {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"images must be a uint8 tensor (N, C, H, W) with values from 0 to 255, got {what}")


def shape_to_words(shape: tuple[int, ...]) -> str:
    """A size and a mode.

    Example:
        >>> shape_to_words((3, 32, 48))
        '32x48 RGB'
    """
    channels, height, width = shape
    mode = {1: "grey", 3: "RGB", 4: "RGBA"}.get(channels, f"{channels}-channel")
    return f"{height}x{width} {mode}"
