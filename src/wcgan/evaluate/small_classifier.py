"""A small classifier whose features and predictions replace Inception's where that is not available."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wcgan.evaluate.protocol import check_pixels, shape_to_words


@dataclass(frozen=True)
class ClassifierSettings:
    """The size and training of a classifier. The defaults suit small images, from the digits to CIFAR-10."""

    width: int = 24
    """Channels of the first convolution; there are twice as many features."""
    epochs: int = 10
    """Passes over the training images."""
    batch: int = 64
    """Images in a training step."""
    learning_rate: float = 5e-3
    """The highest learning rate, reached after 30% of the steps; it is 0 after the last."""
    weight_decay: float = 1e-2
    """Weight decay of AdamW."""
    shift: int = 1
    """Each training image is shifted by up to this many pixels in either direction."""
    seed: int = 0
    """Seed for the initial weights, the order of the images and the shifts."""

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
    """Share of the test images that are classified correctly."""
    weights: str
    """Fingerprint of the weights: scores are comparable only if it is the same."""
    settings: ClassifierSettings
    """Its size and training."""


class Classifier:
    """A trained classifier: uint8 images to features and logits. Implements `Features`.

    Args:
        network: its network.
        facts: its training and accuracy.
        device: where it runs.
    """

    def __init__(self, network: ClassifierNetwork, facts: ClassifierFacts, device: torch.device) -> None:
        self.network = network.to(device).eval().requires_grad_(False)
        self.facts = facts
        self.device = device
        self.name = "classifier"
        self.batch = 256

    @property
    def size(self) -> int:
        """The number f of features."""
        return self.network.size

    @property
    def classes(self) -> int:
        """The length of a prediction."""
        return len(self.facts.classes)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the weights."""
        return self.facts.weights

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features `(N, f)` and logits `(N, classes)` of uint8 images `(N, C, H, W)`, in float32.

        Raises:
            ValueError: if the type, size or mode differs from the classifier's.
        """
        self._check(images)
        return images_to_predictions(self.network, images, self.device)

    def features(self, images: Tensor) -> Tensor:
        """Features `(N, f)` of uint8 images `(N, C, H, W)`, in float32."""
        return self.predict(images)[0]

    def logits(self, images: Tensor) -> Tensor:
        """Logits `(N, classes)` of uint8 images `(N, C, H, W)`, in float32."""
        return self.predict(images)[1]

    def _check(self, images: Tensor) -> None:
        check_pixels(images)
        shape = tuple(images.shape[1:])
        if shape != self.facts.shape:
            raise ValueError(
                f"the images are {shape_to_words(shape)}, but the classifier was trained on "
                f"{shape_to_words(self.facts.shape)} images ({self.facts.trained_on}): bring the images to that size "
                "and mode, or train a classifier on a dataset that has theirs"
            )


class ClassifierNetwork(nn.Module):
    """3x3 convolutions that halve the image down to 4 to 7 pixels, then the mean over positions, then a linear map.

    The features are those means, one per channel: `2 * width` of them.

    Args:
        channels: channels of the images.
        side: the shorter side of the images.
        classes: number of classes.
        width: channels of the first convolution; the others have twice as many.

    Shape:
        `(N, channels, H, W)` in [-1, 1] to features `(N, 2 * width)` and logits `(N, classes)`.

    Example:
        >>> features, logits = ClassifierNetwork(channels=1, side=16, classes=10)(torch.zeros(5, 1, 16, 16))
        >>> tuple(features.shape), tuple(logits.shape)
        ((5, 48), (5, 10))
    """

    def __init__(self, channels: int, side: int, classes: int, width: int = 24) -> None:
        super().__init__()
        halvings = max(1, int(math.log2(max(side, 4) / 4)))
        strides = (1, *[2] * halvings, 1)
        widths = (channels, width, *[2 * width] * (halvings + 1))
        self.size = 2 * width
        self.body = nn.Sequential(*(_block(widths[i], widths[i + 1], stride) for i, stride in enumerate(strides)))
        self.head = nn.Linear(self.size, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x).mean((2, 3))  # (N, f, h, w) -> (N, f)
        return features, self.head(features)


def _block(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


def pixels_to_input(images: Tensor) -> Tensor:
    """uint8 pixels to floats in [-1, 1]."""
    return images.float() / 127.5 - 1


def images_to_predictions(network: ClassifierNetwork, images: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Features `(N, f)` and logits `(N, classes)` of uint8 images, on the device; the network is in `eval` mode."""
    with torch.inference_mode(), torch.autocast(device.type, enabled=False), reproducible():
        return network(pixels_to_input(images.to(device)))


def reproducible() -> AbstractContextManager[None]:
    """A context with full float32 convolutions and deterministic algorithms on a GPU."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
