"""A small classifier whose features and predictions stand in for Inception's."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from wcgan.data import Dataset
from wcgan.evaluate.frechet import Moments, RunningMoments
from wcgan.evaluate.network import ClassifierNetwork, images_to_predictions


@dataclass(frozen=True)
class ClassifierSettings:
    """How a classifier is made. The defaults suit small images, from the digits to CIFAR-10."""

    width: int = 24
    """Channels of the first convolution; there are twice as many features."""
    epochs: int = 10
    """Passes over the training images."""
    batch: int = 64
    """Images in a training step."""
    learning_rate: float = 5e-3
    """The highest rate: reached after 30% of the steps, and 0 after the last."""
    weight_decay: float = 1e-2
    """Of AdamW."""
    shift: int = 1
    """Each training image moves by up to this many pixels along either side."""
    seed: int = 0
    """Of the first weights, the order of the images and the shifts."""

    def __post_init__(self) -> None:
        for name, least in (("width", 1), ("epochs", 1), ("batch", 2), ("shift", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be more than 0, got {self.learning_rate!r}")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay must be 0 or more, got {self.weight_decay!r}")


@dataclass(frozen=True)
class ClassifierFacts:
    """What a classifier was trained on and how well it does."""

    trained_on: str
    """Dataset and split, as in "digits train"."""
    images: int
    """How many images it was trained on."""
    shape: tuple[int, int, int]
    """Channels, height and width of the images."""
    classes: tuple[str, ...]
    """Names of the classes."""
    tested_on: str
    """Dataset and split of the accuracy, as in "digits test"."""
    accuracy: float
    """Share of the test images given their own class."""
    weights: str
    """Fingerprint of the weights: scores are comparable where it is the same."""
    settings: ClassifierSettings
    """How it was made."""


class Classifier:
    """A trained classifier: uint8 images to features and logits.

    Args:
        network: its network.
        facts: what is known of it.
        device: where it runs.
    """

    def __init__(self, network: ClassifierNetwork, facts: ClassifierFacts, device: torch.device) -> None:
        self.network = network.to(device).eval().requires_grad_(False)
        self.facts = facts
        self.device = device
        self._moments: dict[str, Moments] = {}

    @property
    def size(self) -> int:
        """The number f of features."""
        return self.network.size

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features `(N, f)` and logits `(N, classes)` of uint8 images `(N, C, H, W)`, in float32.

        Raises:
            ValueError: for another type, size or mode than the classifier's.
        """
        self._check(images)
        return images_to_predictions(self.network, images, self.device)

    def features(self, images: Tensor) -> Tensor:
        """Features `(N, f)` of uint8 images `(N, C, H, W)`, in float32."""
        return self.predict(images)[0]

    def logits(self, images: Tensor) -> Tensor:
        """Logits `(N, classes)` of uint8 images `(N, C, H, W)`, in float32."""
        return self.predict(images)[1]

    def moments(self, dataset: Dataset, batch: int = 256) -> Moments:
        """Mean and covariance of the features of a dataset, kept for the next time it is asked for."""
        key = f"{dataset.fingerprint} {tuple(dataset.images.shape)}"
        if key not in self._moments:
            running = RunningMoments(self.size)
            for start in range(0, len(dataset), batch):
                running.update(self.features(dataset.images[start : start + batch]))
            self._moments[key] = running.moments()
        return self._moments[key]

    def _check(self, images: Tensor) -> None:
        if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.dim() != 4:
            what = f"{images.dtype} {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
            raise ValueError(f"images must be a uint8 tensor (N, C, H, W) with values from 0 to 255, got {what}")
        shape = tuple(images.shape[1:])
        if shape != self.facts.shape:
            raise ValueError(
                f"the images are {_shape_to_words(shape)}, but the classifier was trained on "
                f"{_shape_to_words(self.facts.shape)} images ({self.facts.trained_on}): bring the images to that size "
                "and mode, or train a classifier on a dataset that has theirs"
            )


def _shape_to_words(shape: tuple[int, ...]) -> str:
    """`(3, 32, 48)` -> "32x48 RGB"."""
    channels, height, width = shape
    mode = {1: "grey", 3: "RGB", 4: "RGBA"}.get(channels, f"{channels}-channel")
    return f"{height}x{width} {mode}"
