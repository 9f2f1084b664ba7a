"""Images to learn from and images to test with, and a network that fits them."""

from dataclasses import replace
from functools import partial

import torch

from wcgan import data
from wcgan.classify.config import ClassifyConfig
from wcgan.data import Dataset
from wcgan.nets.classifier import SMALLEST_SIDE

KEPT_OUT = 10  # of a folder without a test split, every tenth image is kept out of training


def load_splits(config: ClassifyConfig) -> tuple[Dataset, Dataset]:
    """The training and the test split; of a folder that has none, every tenth image is the test split."""
    chosen = config.data
    load = partial(data.load, chosen.name, folder=chosen.folder, resolution=chosen.resolution, strict=chosen.strict)
    training = load("train")
    if "test" in data.splits(chosen.name):
        test = load("test", channels=training.images.shape[1])
        if test.classes != training.classes:
            raise ValueError(
                f"{chosen.name} has other classes in its test split than in its training split: give both the same "
                f"sub-folders"
            )
        return training, test
    if len(training) < 2 * KEPT_OUT:
        raise ValueError(
            f"{chosen.name} has {len(training)} images and no test split, for which every tenth is kept out: "
            f"{2 * KEPT_OUT} are needed at least"
        )
    out = torch.arange(len(training)) % KEPT_OUT == KEPT_OUT - 1
    return _part(training, ~out, "train, nine of ten"), _part(training, out, "train, every tenth")


def _part(dataset: Dataset, chosen: torch.Tensor, split: str) -> Dataset:
    labels = None if dataset.labels is None else dataset.labels[chosen]
    return replace(dataset, images=dataset.images[chosen], labels=labels, split=split)


def fit_classifier(config: ClassifyConfig, training: Dataset) -> ClassifyConfig:
    """The config with the network's sizes taken from the data.

    Raises:
        ValueError: for images without classes, with one class only, or too small.
    """
    if training.labels is None or len(training.classes) < 2:
        raise ValueError(
            f"a classifier needs several classes; {training.name} has {len(training.classes) or 'none'}: "
            f"give each class a sub-folder"
        )
    _, channels, *sides = training.images.shape
    if min(sides) < SMALLEST_SIDE:
        raise ValueError(
            f"the images of {training.name} are {sides[0]}x{sides[1]}; a classifier needs {SMALLEST_SIDE} pixels each "
            f"way: --set data.resolution=SIZE enlarges them"
        )
    network = replace(config.classifier, channels=channels, classes=len(training.classes))
    return replace(config, classifier=network)
