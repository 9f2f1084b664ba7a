"""Images to score: sets named on the command line, such as `cifar10:test`, and images in chunks of a fixed size."""

from __future__ import annotations

import hashlib
import os
import typing
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from wcgan import data
from wcgan.core.device import random_generator
from wcgan.core.processes import Rank
from wcgan.core.terminal import OnProgress, counted
from wcgan.data import Dataset
from wcgan.evaluate.small_classifier import Classifier
from wcgan.evaluate.train_small_classifier import load_small_classifier
from wcgan.runs.config import DataConfig

_SPLITS = ("train", "test", "unlabeled")
CHUNK = 256
"""Images that are drawn at once: an image depends on its chunk's seed, not on the batch size or the processes."""
Sample = Callable[[int, "Tensor | None", int], Tensor]
"""`sample(n, labels, seed)`: n uint8 images `(n, C, H, W)`, for labels `(n,)` or None, from the seed alone."""


def training_split(name: str) -> str:
    """The split to train a GAN on: for STL-10 the unlabeled images, as in the paper."""
    return "unlabeled" if name == "stl10" else "train"


def reference_split(name: str, split: str) -> str:
    """The split of the real images, given the one that a protocol names; as in the authors' code.

    For STL-10 that is the unlabeled images, and for Tiny ImageNet the test images, which have no labels, instead of the
    validation images.
    """
    return "unlabeled" if name == "stl10" or (name, split) == ("tiny-imagenet", "test") else split


def name_to_parts(name: str) -> tuple[str, str | None]:
    """The dataset or folder that a name means, and its split or None.

    Example:
        >>> name_to_parts("cifar10:test"), name_to_parts("pictures/cats")
        (('cifar10', 'test'), ('pictures/cats', None))
    """
    before, colon, after = name.rpartition(":")
    return (before, after) if colon and after in _SPLITS and not Path(name).exists() else (name, None)


def load_image_set(
    name: str,
    split: str,
    folder: str | None = None,
    resolution: int | None = None,
    channels: int | None = None,
    progress: OnProgress | None = None,
    strict: bool = False,
) -> data.Dataset:
    """Load a set to score or compare with: `name:split`, or `name` with the given split.

    A folder without splits is loaded whole, whatever the split. Unreadable images are skipped, or errors if `strict`.
    """
    name, written = name_to_parts(name)
    chosen = written or reference_split(name, split)
    if written is None and name not in data.names() and Path(name).is_dir() and chosen not in data.splits(name):
        chosen = "train"
    return data.load(name, chosen, folder, resolution=resolution, channels=channels, strict=strict, progress=progress)


# The images of a run


HELD_OUT = 10
"""Of a folder without a test split, every tenth image can be kept out of training."""


def absolute_paths(chosen: DataConfig) -> DataConfig:
    """The same images with absolute paths, so that a run does not depend on the directory it was started from."""

    def absolute(path: str) -> str:
        return os.path.abspath(Path(path).expanduser())

    name = chosen.name if chosen.name in data.names() else absolute(chosen.name)
    return replace(chosen, name=name, folder=None if chosen.folder is None else absolute(chosen.folder))


def load_training_images(chosen: DataConfig) -> Dataset:
    """The images that a GAN is trained on; for STL-10 the unlabeled ones, as in the paper."""
    options = {"resolution": chosen.resolution, "strict": chosen.strict}
    images = data.load(chosen.name, training_split(chosen.name), chosen.folder, **options)  # type: ignore[arg-type]
    return hold_out(images, test=False) if chosen.held_out else images


def load_real_images(
    chosen: DataConfig,
    split: str,
    resolution: int | None = None,
    channels: int | None = None,
    progress: OnProgress | None = None,
) -> Dataset:
    """The real images that a run is scored against; the test split is the held-out images where there are any."""
    name = chosen.reference_name if split == "test" else chosen.name
    size = resolution or chosen.resolution
    images = load_image_set(name, split, chosen.folder, size, channels, progress, chosen.strict)
    if not chosen.held_out or chosen.reference is not None:
        return images
    return hold_out(images, test=split == "test")


def hold_out(images: Dataset, test: bool) -> Dataset:
    """Every tenth of some images, to test with, or the others, to learn from.

    Raises:
        ValueError: for fewer than 20 images.
    """
    if len(images) < 2 * HELD_OUT:
        raise ValueError(
            f"{images.name} has {counted(len(images), 'image')} and no test split, for which every tenth is kept out: "
            f"{2 * HELD_OUT} are needed at least"
        )
    chosen = (torch.arange(len(images)) % HELD_OUT == HELD_OUT - 1) == test
    labels = None if images.labels is None else images.labels[chosen]
    split = "train, every tenth" if test else "train, nine of ten"
    return replace(images, images=images.images[chosen], labels=labels, split=split)


def classifier_for(
    reference: data.Dataset,
    name: str,
    device: str,
    rank: Rank,
    folder: str | None = None,
    progress: OnProgress | None = None,
    held_out: bool = False,
) -> Classifier:
    """The small classifier for a set: trained on its training split, and tested on its test split if it has one.

    The first process trains it, and the others load it from the cache.

    Args:
        reference: the real images; the classifier takes images of their size and mode.
        name: the dataset or folder, without a split.
        device: where the classifier runs.
        rank: this process among all.
        folder: the folder of the named datasets.
        progress: called with a description, how much is done, and how much there is.
        held_out: whether every tenth image is kept out of its training, to test it with.
    """
    _, channels, height, width = reference.images.shape
    resolution = height if height == width else None

    def load(split: str) -> data.Dataset:
        if split == reference.split:
            return reference
        return data.load(name, split, folder, resolution=resolution, channels=channels, progress=progress)

    test: Dataset | None = None
    if held_out:
        whole = data.load(name, "train", folder, resolution=resolution, channels=channels)
        training, test = hold_out(whole, test=False), hold_out(whole, test=True)
    else:
        training, test = load("train"), load("test") if "test" in data.splits(name) else None
    epochs = None if progress is None else lambda done, of: progress("epochs of the classifier", done, of)
    with rank.first_goes_ahead():
        return load_small_classifier(training, test, device=device, progress=epochs)


class ChunkedImages(typing.Protocol):
    """A sequence of images in chunks."""

    def chunk(self, number: int) -> tuple[Tensor, Tensor | None]:
        """The images from number `CHUNK * number` on, and the labels they were generated for."""


class StoredImages:
    """The images of a dataset, in an order that depends on their pixels alone.

    Args:
        dataset: the images, in any order.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset, self.order = dataset, content_order(dataset.images)

    def chunk(self, number: int) -> tuple[Tensor, None]:
        """A chunk of images, without labels."""
        return self.dataset.images[self.order[CHUNK * number : CHUNK * (number + 1)]], None


class GeneratedImages:
    """Images from a generator; each depends on the seed and its own number alone.

    Args:
        sample: `sample(n, labels, seed)` gives n uint8 images from the seed alone. It is called for whole chunks.
        classes: number of classes, from which labels are drawn uniformly; None for a generator without labels.
        seed: seed for labels and images.
    """

    def __init__(self, sample: Sample, classes: int | None, seed: int) -> None:
        self.sample, self.classes, self.seed = sample, classes, seed

    def chunk(self, number: int) -> tuple[Tensor, Tensor | None]:
        """A chunk of images, and the labels they were generated for.

        Raises:
            ValueError: if `sample` returns another number of images.
        """
        generator = random_generator(self.seed, "evaluation", number)
        labels = None if self.classes is None else torch.randint(self.classes, (CHUNK,), generator=generator)
        images = self.sample(CHUNK, labels, generator.initial_seed())
        if len(images) != CHUNK:
            raise ValueError(f"sample must return the {CHUNK} images asked for, got {len(images)}")
        return images, labels


def batches(source: ChunkedImages, count: int, batch: int, rank: Rank) -> Iterator[tuple[int, Tensor, Tensor | None]]:
    """This process's share of `count` images in batches: the first image's number, the images, and their labels."""
    for number in range(rank.index, -(-count // CHUNK), rank.count):
        images, labels = source.chunk(number)
        here = min(CHUNK, count - CHUNK * number)
        for start in range(0, here, batch):
            stop = min(start + batch, here)
            yield CHUNK * number + start, images[start:stop], None if labels is None else labels[start:stop]


def content_order(images: Tensor) -> Tensor:
    """Indices `(N,)` that sort images by the SHA-256 of their pixels: a fair draw, independent of file names."""
    digests = [hashlib.sha256(image.numpy()).digest() for image in images]
    return torch.tensor(sorted(range(len(digests)), key=digests.__getitem__), dtype=torch.int64)
