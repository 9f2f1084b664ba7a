"""The small classifier's network: images in, features and class scores out."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn


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
    with torch.inference_mode(), reproducible():
        return network(pixels_to_input(images.to(device)))


def reproducible() -> AbstractContextManager[None]:
    """On a GPU, convolutions in full float32 by algorithms that give the same bits each time."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)


def resolve_device(device: torch.device | str | None) -> torch.device:
    """The device meant: by default the GPU, if there is one.

    Raises:
        ValueError: for a GPU that is not there.
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    resolved = torch.device(device)
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {str(device)!r} asks for a GPU and none is to be found here: use 'cpu'")
    return resolved
