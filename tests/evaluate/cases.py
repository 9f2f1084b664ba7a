"""Small datasets and a stand-in for a generator, shared by the tests of this folder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from tests.data.cases import save
from torch import Tensor

from wcgan.data import Dataset, load
from wcgan.evaluate.inception import empty_network
from wcgan.evaluate.protocol import Plan


def digits(split: str = "train") -> Dataset:
    return load("digits", split)


def stripes(count: int = 40, size: int = 8, channels: int = 1, split: str = "train", seed: int = 0) -> Dataset:
    """Two classes, bright lines across or down on noise, that a convolution tells apart in a few steps."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    images = torch.randint(60, (count, channels, size, size), generator=generator)
    images[labels == 0, :, ::2] += 180
    images[labels == 1, :, :, ::2] += 180
    name = f"stripes{size}x{channels}"
    return Dataset(images.to(torch.uint8), labels, ("across", "down"), name, split, f"{name}-{split}-{count}-{seed}")


class Replay:
    """Stands in for a generator: draws real images, of the class asked for where one is."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.calls: list[tuple[int, Tensor | None, int]] = []

    def __call__(self, n: int, labels: Tensor | None, seed: int) -> Tensor:
        self.calls.append((n, labels, seed))
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self.dataset), generator=generator)
        if labels is None:
            return self.dataset.images[order[torch.arange(n) % len(order)]]
        assert self.dataset.labels is not None
        of_class = {int(label): order[self.dataset.labels[order] == label] for label in labels.unique()}
        chosen = [int(of_class[int(label)][i % len(of_class[int(label)])]) for i, label in enumerate(labels)]
        return self.dataset.images[chosen]


@cache
def random_weights() -> dict[str, Tensor]:
    """Complete weights of the Inception network's shapes, of a scale that keeps images apart."""
    generator = torch.Generator().manual_seed(0)
    state = empty_network(("2048",)).state_dict()
    for name, value in state.items():
        if name.endswith("conv.weight"):
            fan = value[0].numel()
            state[name] = torch.randn(value.shape, generator=generator) * (2 / fan) ** 0.5
        elif name.endswith("fc.weight"):
            state[name] = torch.randn(value.shape, generator=generator) * 0.1
    return state


def pictures(count: int, seed: int = 0, size: int = 8, brightness: int = 0) -> Tensor:
    """Colour images, each of few random colours, so that they differ as a whole."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randint(0, 200, (count, 3, 2, 2), generator=generator)
    return (coarse + brightness).repeat_interleave(size // 2, 2).repeat_interleave(size // 2, 3).to(torch.uint8)


def write_pictures(folder: Path, images: Tensor, names: Sequence[str] | None = None) -> Path:
    """One PNG for each image."""
    for number, image in enumerate(images):
        save(folder / f"{names[number] if names else number}.png", image.numpy())
    return folder


def pictures_of(images: Tensor, name: str = "pictures", split: str = "train") -> Dataset:
    digest = hashlib.sha256(images.numpy()).hexdigest()
    return Dataset(images, None, (), name, split, digest)


def plan(reference: int, generated: int, sets: int = 1, scored: int | None = None) -> Plan:
    return Plan("test", reference, generated, sets, generated if scored is None else scored)
