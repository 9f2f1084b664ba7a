"""Small datasets and a stand-in for a generator, shared by the tests of this folder."""

from __future__ import annotations

import torch
from torch import Tensor

from wcgan.data import Dataset, load


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
