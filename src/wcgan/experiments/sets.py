"""Sets of images by their names, as they are written on the command line: `cifar10:test`, or a folder."""

from __future__ import annotations

from pathlib import Path

from wcgan import data
from wcgan.evaluate import Classifier, OnProgress, load_classifier
from wcgan.train.parallel import Rank

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
    if not rank.first:
        rank.any(False)  # waits for the first process
    classifier = load_classifier(training, test, device=device, progress=epochs)
    if rank.first:
        rank.any(False)
    return classifier
