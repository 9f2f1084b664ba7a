"""The datasets themselves, where `WCGAN_DATA` names a folder that holds them."""

import os
from pathlib import Path

import pytest
import torch

from wcgan.data import load
from wcgan.data.sources import SOURCES

HOME = os.environ.get("WCGAN_DATA")  # read before each test is given a folder of its own

# Of the training images, as published with many implementations: mean of each channel, in [0, 1].
MEANS = {
    "mnist": (0.1307,),
    "fashion-mnist": (0.2860,),
    "cifar10": (0.4914, 0.4822, 0.4465),
    "cifar100": (0.5071, 0.4865, 0.4409),
}
SETS = [
    (name, split) for name, source in SOURCES.items() for split in source.counts if name not in ("digits", "imagenet")
]


def real(name: str) -> Path:
    if HOME is None or SOURCES[name].find(Path(HOME)) is None:
        pytest.skip(f"{name} is not here: `wcgan datasets --download {name} --folder DIR`, then WCGAN_DATA=DIR")
    return Path(HOME)


@pytest.mark.parametrize(("name", "split"), SETS)
def test_the_official_files_pass_their_checks(name: str, split: str) -> None:
    dataset = load(name, split, real(name))
    source = SOURCES[name]
    assert dataset.images.shape == (source.counts[split], source.channels, source.resolution, source.resolution)
    if split == "unlabeled":
        assert dataset.labels is None
    elif name != "mnist":
        assert set(dataset.labels.bincount().tolist()) == {source.counts[split] // source.class_count}
    assert dataset.skipped == ()


@pytest.mark.parametrize("name", MEANS)
def test_the_pixels_have_the_published_means(name: str) -> None:
    images = load(name, "train", real(name)).images
    mean = torch.stack([chunk.float().mean((0, 2, 3)) * len(chunk) for chunk in images.split(5000)]).sum(0)
    assert (mean / len(images) / 255).tolist() == pytest.approx(MEANS[name], abs=1e-4)
