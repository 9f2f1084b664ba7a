"""The interface of the networks that score images, and the names of scores."""

from __future__ import annotations

import typing

import torch
from torch import Tensor


class Features(typing.Protocol):
    """A network that turns images into features and, where it has classes, predictions."""

    @property
    def name(self) -> str:
        """`inception`, or `classifier`."""

    @property
    def size(self) -> int:
        """The number f of features."""

    @property
    def classes(self) -> int | None:
        """Number of classes; None for a network without predictions, which gives no Inception Score."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the weights: scores are comparable only if it is the same."""

    @property
    def device(self) -> torch.device:
        """The device that it runs on."""

    @property
    def batch(self) -> int:
        """A suitable batch size."""

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Features `(N, f)` and logits `(N, classes)` or None, of uint8 images `(N, C, H, W)`, in float32."""


def score_name(metric: str, features: Features) -> str:
    """The name of a score: plain for the Inception network, and with the network's name for any other.

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
    """An image's size and mode, given its shape `(C, H, W)`.

    Example:
        >>> shape_to_words((3, 32, 48))
        '32x48 RGB'
    """
    channels, height, width = shape
    mode = {1: "grey", 3: "RGB", 4: "RGBA"}.get(channels, f"{channels}-channel")
    return f"{height}x{width} {mode}"
