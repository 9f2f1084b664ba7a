"""Images to score, in chunks of fixed size, so that neither batches nor processes change what an image is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Protocol

import torch
from torch import Tensor

from wcgan.data import Dataset
from wcgan.train.parallel import Rank
from wcgan.train.randomness import generator_for

CHUNK = 256
Sample = Callable[[int, "Tensor | None", int], Tensor]
"""`sample(n, labels, seed)`: n uint8 images `(n, C, H, W)`, for labels `(n,)` or None, from the seed alone."""


class Source(Protocol):
    """A set of images."""

    def chunk(self, number: int) -> tuple[Tensor, Tensor | None]:
        """Images number `CHUNK * number` and on, and the labels that were asked for."""


class StoredImages:
    """The images of a dataset or a folder, in an order that their content alone decides.

    Args:
        dataset: where they are; its order does not matter.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset, self.order = dataset, content_order(dataset.images)

    def chunk(self, number: int) -> tuple[Tensor, None]:
        """Some images, without labels."""
        return self.dataset.images[self.order[CHUNK * number : CHUNK * (number + 1)]], None


class GeneratedImages:
    """Images from a generator: each is decided by the seed and its number.

    Args:
        sample: `sample(n, labels, seed)` gives n uint8 images from the seed alone. It is asked for whole chunks.
        classes: of the labels, which are drawn uniformly; None for a generator that takes none.
        seed: of labels and images.
    """

    def __init__(self, sample: Sample, classes: int | None, seed: int) -> None:
        self.sample, self.classes, self.seed = sample, classes, seed

    def chunk(self, number: int) -> tuple[Tensor, Tensor | None]:
        """Some images, and the labels they were made for.

        Raises:
            ValueError: for another number of images than asked for.
        """
        generator = generator_for(self.seed, "evaluation", number)
        labels = None if self.classes is None else torch.randint(self.classes, (CHUNK,), generator=generator)
        images = self.sample(CHUNK, labels, generator.initial_seed())
        if len(images) != CHUNK:
            raise ValueError(f"sample must return the {CHUNK} images asked for, got {len(images)}")
        return images, labels


def batches(source: Source, count: int, batch: int, rank: Rank) -> Iterator[tuple[int, Tensor, Tensor | None]]:
    """The number of its first image, images and labels, for each batch of this process's share of `count` images."""
    for number in range(rank.index, -(-count // CHUNK), rank.count):
        images, labels = source.chunk(number)
        here = min(CHUNK, count - CHUNK * number)
        for start in range(0, here, batch):
            stop = min(start + batch, here)
            yield CHUNK * number + start, images[start:stop], None if labels is None else labels[start:stop]


def content_order(images: Tensor) -> Tensor:
    """The places `(N,)` of the images by the SHA-256 of their pixels: an even draw that no file name decides."""
    digests = [hashlib.sha256(image.numpy()).digest() for image in images]
    return torch.tensor(sorted(range(len(digests)), key=digests.__getitem__), dtype=torch.int64)
