"""Read datasets that come as arrays: MNIST, Fashion-MNIST, CIFAR, STL-10, and the embedded digits."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from wcgan.data.decode import fit
from wcgan.data.formats import Images, Labels, read_cifar_binary, read_cifar_pickle, read_mnist, read_stl10
from wcgan.data.pack import Pack, content_fingerprint
from wcgan.data.recipe import Chunk, Recipe
from wcgan.data.sources import SOURCES, Source

_IMAGES_IN_CHUNK = 1000


class _Part(NamedTuple):
    """Files that are read together."""

    files: tuple[Path, ...]
    read: Callable[[], tuple[Images, Labels | None]]


def arrays_to_recipe(source: Source, folder: Path, split: str, resolution: int, channels: int, verify: bool) -> Recipe:
    """Find the files of a split, and return the recipe for its pack.

    Args:
        source: the dataset.
        folder: the folder of its files.
        split: a key of `source.counts`.
        resolution: height and width of the result.
        channels: channels of the result, 1 or 3.
        verify: whether files must have the official checksums, or the official counts if there are none.

    Raises:
        FileNotFoundError: if a file is missing.
    """
    parts = _PARTS[source.name](folder, split, source.checksums if verify else {})
    return Recipe(
        root=folder,
        files=[file.name for part in parts for file in part.files],
        count=source.counts[split],
        classes=() if split == "unlabeled" else source.classes,
        options=(source.name, split, resolution, channels, verify),
        chunks=partial(_read, source, split, parts, resolution, channels, verify),
    )


def _read(
    source: Source, split: str, parts: Sequence[_Part], resolution: int, channels: int, verify: bool
) -> Iterator[Chunk]:
    total, per_class = 0, np.zeros(source.class_count, np.int64)
    for part in parts:
        images, labels = part.read()
        total += len(images)
        if labels is not None:
            per_class += np.bincount(labels, minlength=source.class_count)
        for start in range(0, len(images), _IMAGES_IN_CHUNK):
            piece = slice(start, start + _IMAGES_IN_CHUNK)
            yield Chunk(fit(images[piece], resolution, channels), None if labels is None else labels[piece])
    if verify and total != source.counts[split]:
        raise ValueError(
            f"{source.name} {split} in {parts[0].files[0].parent} has {total:,} images where the official set has "
            f"{source.counts[split]:,}; get it again, or pass verify=False to use it as it is"
        )
    balanced = source.name != "mnist" and split != "unlabeled"
    if verify and balanced and len(set(per_class.tolist())) > 1:
        raise ValueError(
            f"{source.name} {split} in {parts[0].files[0].parent} has from {per_class.min():,} to {per_class.max():,} "
            "images per class where the official set has as many of each; get it again, or pass verify=False"
        )


def _existing(folder: Path, *names: str) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{folder} lacks {' or '.join(names)}; get the dataset again")


def _mnist_parts(folder: Path, split: str, checksums: Mapping[str, str]) -> list[_Part]:
    prefix = "train" if split == "train" else "t10k"
    names = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
    images, labels = (_existing(folder, name, f"{name}.gz") for name in names)
    return [_Part((images, labels), partial(read_mnist, images, labels, checksums))]


def _cifar10_parts(folder: Path, split: str, checksums: Mapping[str, str]) -> list[_Part]:
    names = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    return [_cifar_part(_existing(folder, f"{name}.bin", name), 10, 1, checksums) for name in names]


def _cifar100_parts(folder: Path, split: str, checksums: Mapping[str, str]) -> list[_Part]:
    return [_cifar_part(_existing(folder, f"{split}.bin", split), 100, 2, checksums)]


def _cifar_part(path: Path, classes: int, label_bytes: int, checksums: Mapping[str, str]) -> _Part:
    checksum = checksums.get(path.name)
    if path.suffix == ".bin":
        return _Part((path,), partial(read_cifar_binary, path, classes, label_bytes, checksum))
    return _Part((path,), partial(read_cifar_pickle, path, classes, checksum))


def _stl10_parts(folder: Path, split: str, checksums: Mapping[str, str]) -> list[_Part]:
    images = _existing(folder, f"{split}_X.bin")
    labels = None if split == "unlabeled" else _existing(folder, f"{split}_y.bin")
    files = (images,) if labels is None else (images, labels)
    return [_Part(files, partial(read_stl10, images, labels, checksums))]


_PARTS: Mapping[str, Callable[[Path, str, Mapping[str, str]], list[_Part]]] = {
    "mnist": _mnist_parts,
    "fashion-mnist": _mnist_parts,
    "cifar10": _cifar10_parts,
    "cifar100": _cifar100_parts,
    "stl10": _stl10_parts,
}


def load_digits(split: str, resolution: int, channels: int) -> Pack:
    """scikit-learn's 1,797 digits of 8 x 8 pixels; every fifth of each class, in their order, is a test image."""
    try:
        from sklearn import datasets  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install 'wcgan[train]'") from error
    published = datasets.load_digits()
    labels = published.target.astype(np.int64)
    chosen = _is_test(labels) == (split == "test")
    pixels = np.rint(published.images[chosen] * (255 / 16)).astype(np.uint8)  # 0..16 -> 0..255
    images, labels = np.ascontiguousarray(fit(pixels[:, None], resolution, channels)), labels[chosen]
    classes = SOURCES["digits"].classes
    label_bytes = labels.astype("<i8").tobytes()
    fingerprint = content_fingerprint(hashlib.sha256(images.data), label_bytes, images.shape, classes)
    return Pack(torch.tensor(images), torch.tensor(labels), classes, fingerprint, ())


def _is_test(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    place = np.empty_like(labels)  # index of each digit within its class
    for label in np.unique(labels):
        members = labels == label
        place[members] = np.arange(members.sum())
    return place % 5 == 2
