"""Sets of images by their names, as they are written on the command line: `cifar10:test`, or a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from wcgan import data
from wcgan.core.processes import Rank
from wcgan.core.randomness import generator_for
from wcgan.core.terminal import OnProgress
from wcgan.data import Dataset
from wcgan.evaluate.small_classifier import Classifier
from wcgan.evaluate.train_small_classifier import load_small_classifier

_SPLITS = ("train", "test", "unlabeled")


def training_split(name: str) -> str:
    """The split that a GAN learns from; of STL-10 the unlabeled images, as in the paper."""
    return "unlabeled" if name == "stl10" else "train"


def reference_split(name: str, split: str) -> str:
    """Where a protocol's real images come from: those of the authors' code.

    That takes the unlabeled images of STL-10, and in place of Tiny ImageNet's validation images its test images, which
    have no labels.
    """
    return "unlabeled" if name == "stl10" or (name, split) == ("tiny-imagenet", "test") else split


def name_to_parts(name: str) -> tuple[str, str | None]:
    """A set's name and its split, None where none is written.

    Example:
        >>> name_to_parts("cifar10:test"), name_to_parts("pictures/cats")
        (('cifar10', 'test'), ('pictures/cats', None))
    """
    before, colon, after = name.rpartition(":")
    return (before, after) if colon and after in _SPLITS and not Path(name).exists() else (name, None)


def load_set(
    name: str,
    split: str,
    folder: str | None = None,
    resolution: int | None = None,
    channels: int | None = None,
    progress: OnProgress | None = None,
) -> data.Dataset:
    """A set to measure with: `name:split`, or `name` with the split given here. Every file of it must be readable.

    A folder without splits has all its images in one, whatever the split given here.
    """
    name, written = name_to_parts(name)
    chosen = written or reference_split(name, split)
    if written is None and name not in data.names() and Path(name).is_dir() and chosen not in data.splits(name):
        chosen = "train"
    return data.load(name, chosen, folder, resolution=resolution, channels=channels, strict=True, progress=progress)


def classifier_of(
    reference: data.Dataset,
    name: str,
    device: str,
    rank: Rank,
    folder: str | None = None,
    progress: OnProgress | None = None,
) -> Classifier:
    """The classifier that learnt from the training split of a set, tested on the test split where it has one.

    The first process trains it, and the others find it in the cache.

    Args:
        reference: the real images; the classifier has their size and mode.
        name: of the set, without a split.
        device: where the classifier runs.
        rank: this process among all.
        folder: where the named sets lie.
        progress: called with what is being done, how much of it is done, and how much there is.
    """
    _, channels, height, width = reference.images.shape
    resolution = height if height == width else None

    def load(split: str) -> data.Dataset:
        if split == reference.split:
            return reference
        return data.load(name, split, folder, resolution=resolution, channels=channels, progress=progress)

    training = load("train")
    test = load("test") if "test" in data.splits(name) else None
    epochs = None if progress is None else lambda done, of: progress("epochs of the classifier", done, of)
    with rank.first_goes_ahead():
        return load_small_classifier(training, test, device=device, progress=epochs)


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
