"""`load`: a dataset's name or a folder of images -> uint8 images and labels."""

import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from wcgan.core.terminal import OnProgress, counted, printable, shown
from wcgan.data.arrays import arrays_to_recipe, load_digits
from wcgan.data.folder import folder_splits, folder_to_glance, folder_to_recipe
from wcgan.data.imagenet import imagenet_to_recipe
from wcgan.data.pack import Pack, content_fingerprint, open_or_write
from wcgan.data.sources import SOURCES, Source, data_folder

_log = logging.getLogger(__name__)
_NAMED_WHEN_SKIPPED = 5
MOST_RESOLUTION = 4096


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images of one size, with labels if they have classes.

    The tensors are memory-mapped: they take no memory until read, and writing to them does not change the file.
    """

    images: Tensor
    """uint8, (N, C, H, W)."""
    labels: Tensor | None
    """int64, (N,), indices into `classes`; None without classes."""
    classes: tuple[str, ...]
    """Class names, in the order of the labels; empty without classes."""
    name: str
    split: str
    fingerprint: str
    """SHA-256 of pixels, labels and classes, independent of the files."""
    skipped: tuple[str, ...] = ()
    """Files that could not be read as images, relative to the folder."""

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        shape = tuple(self.images.shape)
        return f"Dataset({self.name!r}, {self.split!r}, images={shape}, classes={len(self.classes)})"


class DatasetStatus(NamedTuple):
    """Whether a named dataset is on this machine, and how to get it."""

    name: str
    present: bool
    what: str
    how_to_get: str
    folder: Path | None = None


def names() -> tuple[str, ...]:
    """The named datasets."""
    return tuple(SOURCES)


def splits(name_or_folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """The splits that `load` accepts: the published ones of a named dataset, or those that a folder has."""
    if name_or_folder in SOURCES:
        return tuple(SOURCES[str(name_or_folder)].counts)
    return folder_splits(_image_folder(name_or_folder))


class Glance(NamedTuple):
    """What the headers of some images tell, before any is decoded."""

    side: int
    """The median of their smaller sides."""
    alike: bool
    """Whether all are squares of that side."""
    classes: int


def glance(name_or_folder: str | os.PathLike[str]) -> Glance:
    """The size and number of classes of the training images of a dataset or folder, from at most 1,000 of them."""
    if name_or_folder in SOURCES:
        source = SOURCES[str(name_or_folder)]
        return Glance(source.resolution, True, source.class_count)
    sizes, classes = folder_to_glance(_image_folder(name_or_folder))
    side = sorted(map(min, sizes))[len(sizes) // 2]
    return Glance(side, set(sizes) == {(side, side)}, classes)


def describe(folder: str | os.PathLike[str] | None = None) -> list[DatasetStatus]:
    """Which named datasets are in the data folder (`folder`, or `$WCGAN_DATA`, or `~/.cache/wcgan/data`)."""
    root = data_folder(folder)
    listed = []
    for source in SOURCES.values():
        where = source.find(root)
        present = where is not None if source.folders else find_spec("sklearn") is not None
        listed.append(DatasetStatus(source.name, present, source.what, source.how_to_get(root), where))
    return listed


def check_present(name_or_folder: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> None:
    """Check that a named dataset or a folder of images exists, without reading or writing any file.

    Raises:
        FileNotFoundError: if it does not exist, with the way to get it.
    """
    if name_or_folder not in SOURCES:
        _image_folder(name_or_folder)
    elif SOURCES[str(name_or_folder)].folders:  # the digits have none: they come with scikit-learn
        _find_named(SOURCES[str(name_or_folder)], data_folder(folder))


def load(
    name_or_folder: str | os.PathLike[str],
    split: str = "train",
    folder: str | os.PathLike[str] | None = None,
    *,
    resolution: int | None = None,
    channels: int | None = None,
    strict: bool = False,
    verify: bool = True,
    progress: OnProgress | None = None,
) -> Dataset:
    """Load the images and labels of a named dataset, or of any folder of images.

    The first call decodes the images into a pack under `$WCGAN_CACHE` (`~/.cache/wcgan`); later calls map that pack as
    long as no file has changed.

    Args:
        name_or_folder: one of `names()`, or a folder of images with a sub-folder per class or none. A folder with the
            name of a dataset needs a slash: `./mnist`.
        split: `train`, `test`, or for `stl10` and `tiny-imagenet` `unlabeled`. A folder of images has a `test` split if
            it has sub-folders `train` and `test` (or `val`).
        folder: the folder of the named datasets; None for `$WCGAN_DATA`, or `~/.cache/wcgan/data`.
        resolution: height and width: each image is cropped to its central square and resized, bicubic with
            antialiasing. None for the dataset's own, which for a folder is the size that all its images share.
        channels: 1 for grey, 3 for colour; None for the dataset's own, which for a folder is 1 if every image is grey.
        strict: whether an unreadable image is an error; otherwise it is skipped and listed in `skipped`.
        verify: whether the files of a named dataset must be the official ones.
        progress: called with a description, how much is done, and how much there is.

    Raises:
        FileNotFoundError: if the dataset, the folder or the split does not exist.
        ValueError: for an argument out of range, or files that are damaged or not the official ones.

    Example:
        >>> from wcgan import data
        >>> digits = data.load("digits")
        >>> digits.images.shape, digits.classes[:3]
        (torch.Size([1438, 1, 16, 16]), ('0', '1', '2'))
    """
    if resolution is not None and (not isinstance(resolution, int) or not 1 <= resolution <= MOST_RESOLUTION):
        raise ValueError(f"resolution must be a whole number from 1 to {MOST_RESOLUTION}, got {shown(resolution)}")
    if channels not in (None, 1, 3):
        raise ValueError(f"channels must be 1 (grey) or 3 (colour), got {channels!r}")
    if name_or_folder in SOURCES:
        name = str(name_or_folder)
        pack = _load_named(name, split, data_folder(folder), resolution, channels, strict, verify, progress)
    else:
        images = _image_folder(name_or_folder)
        name = images.name
        recipe = folder_to_recipe(images, split, resolution, channels, progress)
        pack = open_or_write(recipe, f"{name}-{split}", strict, progress)
    if pack.skipped:
        listed = ", ".join(map(printable, pack.skipped[:_NAMED_WHEN_SKIPPED]))
        more = len(pack.skipped) - _NAMED_WHEN_SKIPPED
        listed += f" and {more} more" if more > 0 else ""
        unreadable = f"{counted(len(pack.skipped), 'image')} of {printable(name)}"
        if strict:
            raise ValueError(f"{unreadable} cannot be read: {listed}; mend or remove them")
        there = set() if pack.labels is None else set(pack.labels.unique().tolist())
        empty = [printable(each) for label, each in enumerate(pack.classes) if label not in there]
        if empty:
            listed += f"; none is left of class {', '.join(empty[:_NAMED_WHEN_SKIPPED])}"
        _warn_once(
            f"skipped {unreadable} that cannot be read: {listed}", os.path.abspath(name_or_folder), pack.fingerprint
        )
    return Dataset(pack.images, pack.labels, pack.classes, name, split, pack.fingerprint, pack.skipped)


def outline(name: str, split: str = "train", resolution: int | None = None) -> Dataset:
    """A named dataset as published, without its pixels: the tensors are on the meta device.

    Example:
        >>> outline("cifar100").images.shape
        torch.Size([50000, 3, 32, 32])
    """
    source = SOURCES[name]
    count, side = source.counts[split], resolution or source.resolution
    images = torch.empty((count, source.channels, side, side), dtype=torch.uint8, device="meta")
    if split == "unlabeled":
        return Dataset(images, None, (), name, split, "")
    classes = source.classes or tuple(map(str, range(source.class_count)))
    return Dataset(images, torch.empty(count, dtype=torch.int64, device="meta"), classes, name, split, "")


def from_tensors(images: Tensor, labels: Tensor | None = None, classes: Sequence[str] = ()) -> Dataset:
    """Make a dataset of images that are in memory.

    Args:
        images: uint8 pixels, `(N, C, H, W)`, with 1 or 3 channels.
        labels: integers `(N,)`; None without classes.
        classes: names of the classes in the order of the labels; by default their numbers.

    Raises:
        TypeError: for anything but tensors, such as NumPy's arrays.
        ValueError: for another shape or type, or a label without a class.

    Example:
        >>> import torch
        >>> from wcgan import data
        >>> images = torch.randint(0, 256, (20, 3, 16, 16), dtype=torch.uint8)
        >>> data.from_tensors(images, torch.arange(20) % 2, ["cat", "dog"]).classes
        ('cat', 'dog')
    """
    for name, given in (("images", images), ("labels", labels)):
        if given is not None and not isinstance(given, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(given).__name__}")
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] not in (1, 3) or not len(images):
        raise ValueError(
            f"images must be uint8 pixels (N, C, H, W) with 1 or 3 channels, got {images.dtype} {tuple(images.shape)}"
        )
    names = tuple(map(str, classes))
    if labels is None:
        if names:
            raise ValueError("classes need labels: give one for each image")
    else:
        if labels.is_floating_point() or labels.shape != (len(images),):
            raise ValueError(f"labels must be {len(images)} integers, got {labels.dtype} {tuple(labels.shape)}")
        labels = labels.to(torch.int64).cpu()
        names = names or tuple(map(str, range(int(labels.max()) + 1)))
        if labels.min() < 0 or labels.max() >= len(names):
            raise ValueError(
                f"labels of {counted(len(names), 'class')} are 0 to {len(names) - 1}, got {int(labels.min())} to "
                f"{int(labels.max())}"
            )
    images = images.cpu().contiguous()
    label_bytes = b"" if labels is None else labels.numpy().astype("<i8").tobytes()
    pixels = hashlib.sha256(images.numpy().data)
    fingerprint = content_fingerprint(pixels, label_bytes, tuple(images.shape), names)
    return Dataset(images, labels, names, "tensors", "train", fingerprint)


@cache
def _warn_once(text: str, source: str, fingerprint: str) -> None:
    """Training and its evaluation load the same images: they are warned about once."""
    _log.warning("%s", text)


def _load_named(
    name: str,
    split: str,
    root: Path,
    resolution: int | None,
    channels: int | None,
    strict: bool,
    verify: bool,
    progress: OnProgress | None,
) -> Pack:
    source = SOURCES[name]
    if split not in source.counts:
        raise ValueError(f"{name} has no split {split!r}; choose one of {', '.join(source.counts)}")
    resolution, channels = resolution or source.resolution, channels or source.channels
    if name == "digits":
        return load_digits(split, resolution, channels)
    where = _find_named(source, root)
    to_recipe = imagenet_to_recipe if "imagenet" in name else arrays_to_recipe
    recipe = to_recipe(source, where, split, resolution, channels, verify)
    return open_or_write(recipe, f"{name}-{split}", strict, progress)


def _find_named(source: Source, root: Path) -> Path:
    where = source.find(root)
    if where is None:
        looked = ", ".join(source.folders)
        raise FileNotFoundError(f"{source.name} is not in {root} (looked for {looked}); {source.how_to_get(root)}")
    return where


def _image_folder(folder: str | os.PathLike[str]) -> Path:
    path = Path(folder).expanduser().absolute()
    if not path.is_dir():
        raise FileNotFoundError(f"{folder} is neither a folder nor a dataset; the datasets are {', '.join(SOURCES)}")
    return path
