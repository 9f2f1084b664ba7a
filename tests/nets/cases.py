"""Tiny networks and their inputs, shared by the tests of this folder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import wcgan
from wcgan.nets import (
    Discriminator,
    DiscriminatorConfig,
    Generator,
    GeneratorConfig,
    build_discriminator,
    build_generator,
)

NOISE = 6
CLASSES = 3
SAMPLES = 5
KINDS = ("resnet", "dcgan")
VARIANTS = tuple(wcgan.VARIANTS)
CONDITIONAL = tuple(name for name, variant in wcgan.VARIANTS.items() if variant.conditional)


def make_generator(normalization: str = "WC", seed: int = 0, **fields: Any) -> Generator:
    """Two blocks to 16 x 16, unless said otherwise."""
    torch.manual_seed(seed)
    classes = CLASSES if normalization in CONDITIONAL else None
    fields = {"widths": (8, 6), "noise": NOISE, "classes": classes, **fields}
    return build_generator(GeneratorConfig(normalization=normalization, **fields))


def make_discriminator(head: str = "plain", seed: int = 0, **fields: Any) -> Discriminator:
    """Three widths on 16 x 16, unless said otherwise."""
    torch.manual_seed(seed)
    classes = None if head == "plain" else CLASSES
    fields = {"widths": (6, 6, 8), "resolution": 16, "classes": classes, **fields}
    return build_discriminator(DiscriminatorConfig(head=head, **fields))


def make_noise(samples: int = SAMPLES, size: int = NOISE, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(samples, size, generator=torch.Generator().manual_seed(1), dtype=dtype)


def make_images(
    samples: int = SAMPLES, channels: int = 3, side: int = 16, dtype: torch.dtype = torch.float32
) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.rand(samples, channels, side, side, generator=generator, dtype=dtype) * 2 - 1


def make_labels(samples: int = SAMPLES) -> Tensor:
    return torch.arange(samples) % CLASSES


def labels_for(generator: Generator, samples: int = SAMPLES) -> tuple[Tensor, ...]:
    """What a generator takes beside noise."""
    return (make_labels(samples),) if generator.config.conditional else ()


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@torch.no_grad()
def randomize(module: nn.Module, seed: int = 3) -> None:
    """Draws every parameter anew, so that no bias is 0."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 2)
