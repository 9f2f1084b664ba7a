"""A run, or a folder with a sub-folder per class -> images of a class."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from wcgan.data.decode import decode, read_shape, reason
from wcgan.data.fit import fit
from wcgan.data.folder import list_classes
from wcgan.train.loading import load_generator
from wcgan.train.randomness import generator_for
from wcgan.train.sampling import Sampler


class Images(Protocol):
    """Where the images of one side of a study come from."""

    path: Path
    available: Mapping[str, int | None]
    """Classes by name, each with the number of its images; None for as many as one likes."""

    def draw(self, label: str, count: int, seed: int, resolution: int | None) -> Tensor:
        """`(count, C, H, W)` uint8, all different; the same seed gives the same ones."""


def open_images(path: Path, checkpoint: str = "last", device: str = "auto") -> Images:
    """The images of a run, or of a folder.

    Raises:
        ValueError: if it is neither, or has no classes.
    """
    if not path.is_dir():
        raise ValueError(f"{path} is not there; name the folder of a run, or one with a sub-folder per class")
    if (path / "config.yaml").is_file():
        return RunImages(path, load_generator(path, checkpoint, device))
    return FolderImages(path)


class RunImages:
    """Images that a conditional generator draws."""

    def __init__(self, path: Path, sampler: Sampler) -> None:
        number = sampler.config.classes
        if not sampler.conditional or number is None:
            raise ValueError(f"{path} has no classes (its generator has {sampler.config.normalization})")
        self.path, self.sampler = path, sampler
        names = sampler.class_names or tuple(map(str, range(number)))
        self.labels = {name: label for label, name in enumerate(names)}
        self.available: Mapping[str, int | None] = dict.fromkeys(names)

    def draw(self, label: str, count: int, seed: int, resolution: int | None) -> Tensor:
        """Images of a class from noise of its own."""
        images = self.sampler.sample(count, self.labels[label], seed)
        return images if resolution is None else torch.from_numpy(fit(images.numpy(), resolution, images.shape[1]))


class FolderImages:
    """Images that lie in a sub-folder per class."""

    def __init__(self, path: Path) -> None:
        files, labels, classes = list_classes(path)
        if labels is None:
            raise ValueError(f"{path} has images but no classes: put them in a sub-folder per class")
        self.path = path
        self.files: dict[str, list[str]] = {name: [] for name in classes}
        for file, label in zip(files, labels.tolist(), strict=True):
            self.files[classes[label]].append(file)
        self.available: Mapping[str, int | None] = {name: len(found) for name, found in self.files.items()}

    def draw(self, label: str, count: int, seed: int, resolution: int | None) -> Tensor:
        """Files of a class that the seed chooses, in colour if any of them is."""
        files = random.Random(seed).sample(self.files[label], count)
        try:
            channels = 1 if all(read_shape(self.path / file).grey for file in files) else 3
            images = [decode(self.path / file, resolution, channels) for file in files]
        except Exception as error:  # a damaged file can make a decoder raise anything
            raise ValueError(f"an image of {self.path / label} cannot be read: {reason(error)}") from None
        sizes = sorted({f"{image.shape[2]}x{image.shape[1]}" for image in images})
        if len(sizes) > 1:
            raise ValueError(f"images in {self.path / label} have several sizes, {' and '.join(sizes)}: {RESIZE}")
        return torch.from_numpy(np.stack(images))


RESIZE = "give --resolution, to which each is cropped and resized"


def seed_for(seed: int, *purpose: object) -> int:
    """A seed of its own for each purpose."""
    return generator_for(seed, "/".join(map(str, ("study", *purpose))), 0).initial_seed()
