"""A recipe for a pack: its files, and a function that reads them as chunks of images of one size."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_FORMAT = 2  # of the packs: a higher number leaves those of an earlier version unread
_CLOCK_TICK = 0.05  # seconds; a file written again within a file system's tick keeps its time stamp


class Chunk(NamedTuple):
    """Consecutive images of a dataset."""

    images: NDArray[np.uint8]  # (n, C, H, W)
    labels: NDArray[np.int64] | None  # (n,)
    broken: tuple[tuple[str, str], ...] = ()  # (file, reason) of images that could not be read


@dataclass(frozen=True)
class Recipe:
    """Everything known about a dataset before its images are decoded."""

    root: Path
    files: Sequence[str]
    """Everything that the pack depends on, relative to `root` or absolute."""
    count: int
    """Number of images to read, including broken ones."""
    classes: tuple[str, ...]
    """Class names; empty without labels."""
    options: tuple[object, ...]
    """Everything else that the pack depends on: split, resolution, channels and so on."""
    chunks: Callable[[], Iterator[Chunk]]


def recipe_to_slot(recipe: Recipe) -> str:
    """A name for the dataset and its options, independent of the contents of its files."""
    described = json.dumps([_FORMAT, str(recipe.root.resolve()), recipe.options])
    return hashlib.sha256(described.encode(errors="surrogateescape")).hexdigest()[:12]


def recipe_to_key(recipe: Recipe) -> str:
    """A name for the current contents of the files: a pack is used only while this is unchanged.

    Hashes each file's path, size, modification time and change time. Programs can set the modification time back (an
    archive's does); the change time moves whenever content or name do, and cannot be set. Reading every byte instead
    would cost as much as packing again. A file written within the last clock tick could change once more without its
    times moving, so that case waits for the tick to pass.
    """
    digest = hashlib.sha256(recipe_to_slot(recipe).encode())
    digest.update(json.dumps(recipe.classes).encode())
    root, newest = os.fspath(recipe.root), 0
    for name in recipe.files:
        try:
            stat = os.stat(os.path.join(root, name))  # an absolute name stands for itself
        except OSError as error:  # a link that leads nowhere: whoever reads it says so
            digest.update(os.fsencode(name) + b"\0%d\n" % (error.errno or 0))
            continue
        newest = max(newest, stat.st_mtime_ns, stat.st_ctime_ns)
        digest.update(os.fsencode(name) + b"\0%d %d %d\n" % (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    if abs(time.time() - newest / 1e9) < _CLOCK_TICK:
        time.sleep(_CLOCK_TICK)
        return recipe_to_key(recipe)
    return digest.hexdigest()[:24]
