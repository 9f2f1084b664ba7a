"""Datasets that come as arrays: the binary formats of MNIST, CIFAR and STL-10, validated, and the embedded digits."""

import gzip
import hashlib
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from wcgan.core.reading import open_file
from wcgan.data.cifar_pickle import read_batch
from wcgan.data.decode import fit
from wcgan.data.pack import Chunk, Pack, Recipe, content_fingerprint
from wcgan.data.sources import SOURCES, Source

Images = NDArray[np.uint8]  # (N, C, H, W)
Labels = NDArray[np.int64]  # (N,)

_IDX_DIMENSIONS = {0x0801: 1, 0x0803: 3}  # magic number of unsigned bytes -> dimensions
_MNIST_SIDE = 28
_CIFAR_PIXELS = 3 * 32 * 32
_STL10_PIXELS = 3 * 96 * 96
_MOST_UNPACKED = 1 << 28  # bytes; five times MNIST


def read_file(path: Path, checksum: str | None = None) -> NDArray[np.uint8]:
    """A file's bytes: memory-mapped, or decompressed up to a limit if its name ends in .gz.

    Args:
        path: the file.
        checksum: "algorithm:digest" that the bytes must have; None to take them as they are.
    """
    with open_file(path) as file:
        if path.suffix == ".gz":
            try:
                data = np.frombuffer(gzip.GzipFile(fileobj=file).read(_MOST_UNPACKED + 1), np.uint8)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise ValueError(f"{path} is not a whole gzip file ({error}); get it again") from error
            if len(data) > _MOST_UNPACKED:
                raise ValueError(f"{path} unpacks to more than {_MOST_UNPACKED:,} bytes; get it again")
        else:
            data = np.memmap(file, np.uint8, "r") if file.seek(0, 2) else np.empty(0, np.uint8)
    if checksum is not None:
        algorithm, expected = checksum.split(":")
        found = hashlib.new(algorithm, data.data, usedforsecurity=False).hexdigest()
        if found != expected:
            raise ValueError(
                f"{path} is not the official file ({algorithm} {found[:12]}..., not {expected[:12]}...); "
                "get it again, or pass verify=False to use it as it is"
            )
    return data


def read_idx(path: Path, dimensions: int, checksum: str | None = None) -> NDArray[np.uint8]:
    """An idx file of unsigned bytes: magic number, size of each dimension (big-endian), then the values."""
    data = read_file(path, checksum)
    magic = int.from_bytes(data[:4].tobytes(), "big")
    if _IDX_DIMENSIONS.get(magic) != dimensions:
        expected = next(number for number, d in _IDX_DIMENSIONS.items() if d == dimensions)
        raise ValueError(f"{path} begins with {magic:#06x} where such an idx file has {expected:#06x}; get it again")
    header = 4 + 4 * dimensions
    sizes = data[4:header].tobytes()
    shape = tuple(int.from_bytes(sizes[i : i + 4], "big") for i in range(0, len(sizes), 4))
    if len(data) < header or len(data) != header + math.prod(shape):
        raise ValueError(f"{path} has {len(data)} bytes where its header says {shape}; it was cut short, get it again")
    return data[header:].reshape(shape)


def read_mnist(images: Path, labels: Path, checksums: Mapping[str, str]) -> tuple[Images, Labels]:
    """A pair of idx files, plain or gzipped -> (N, 1, H, W) and (N,)."""
    pixels = read_idx(images, 3, checksums.get(images.name.removesuffix(".gz")))[:, None]
    if len(pixels) == 0 or pixels.shape[2:] != (_MNIST_SIDE, _MNIST_SIDE):
        count, _, height, width = pixels.shape
        raise ValueError(f"{images} has {count} images of {width}x{height}, where MNIST's are 28x28; get it again")
    values = read_idx(labels, 1, checksums.get(labels.name.removesuffix(".gz")))
    return pixels, check_labels(values, len(pixels), 10, labels)


def read_cifar_binary(path: Path, classes: int, label_bytes: int, checksum: str | None) -> tuple[Images, Labels]:
    """Records of one or two label bytes (coarse, fine) and 3 x 32 x 32 pixels -> (N, 3, 32, 32) and (N,)."""
    data = read_file(path, checksum)
    record = label_bytes + _CIFAR_PIXELS
    if len(data) == 0 or len(data) % record:
        raise ValueError(f"{path} has {len(data)} bytes, not whole records of {record} bytes; get it again")
    records = data.reshape(-1, record)
    images = records[:, label_bytes:].reshape(-1, 3, 32, 32)
    return images, check_labels(records[:, label_bytes - 1], len(images), classes, path)


def read_cifar_pickle(path: Path, classes: int, checksum: str | None) -> tuple[Images, Labels]:
    """The "python version": a pickled dictionary of `data` (N, 3072) and `labels` or `fine_labels`."""
    data = read_file(path, checksum).tobytes()
    try:
        content = read_batch(data)
    except ValueError as error:
        raise ValueError(f"{path} cannot be unpickled ({error}); get it again") from None
    pixels, labels = content.get("data"), content.get("fine_labels", content.get("labels"))
    if not isinstance(pixels, np.ndarray) or len(pixels) == 0 or pixels.shape[1:] != (_CIFAR_PIXELS,):
        raise ValueError(f"{path} holds no array of bytes (N, {_CIFAR_PIXELS}) under 'data'; get it again")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise ValueError(f"{path} holds no list of labels; get it again")
    return pixels.reshape(-1, 3, 32, 32), check_labels(np.array(labels), len(pixels), classes, path)


def read_stl10(images: Path, labels: Path | None, checksums: Mapping[str, str]) -> tuple[Images, Labels | None]:
    """96 x 96 images stored column by column, and labels from 1 -> (N, 3, 96, 96) and (N,) from 0."""
    data = read_file(images, checksums.get(images.name))
    if len(data) == 0 or len(data) % _STL10_PIXELS:
        raise ValueError(f"{images} has {len(data)} bytes, not whole images of {_STL10_PIXELS} bytes; get it again")
    pixels = data.reshape(-1, 3, 96, 96).transpose(0, 1, 3, 2)
    if labels is None:
        return pixels, None
    values = read_file(labels, checksums.get(labels.name)).astype(np.int64) - 1
    return pixels, check_labels(values, len(pixels), 10, labels)


def check_labels(labels: NDArray[Any], count: int, classes: int, path: Path) -> Labels:
    """`labels` as int64, if there are `count` of them and all are in [0, classes)."""
    labels = labels.astype(np.int64)
    if len(labels) != count:
        raise ValueError(f"{path} has {len(labels)} labels for {count} images; get both files again")
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise ValueError(
            f"image {wrong[0]} of {path} has label {labels[wrong[0]]}, where {classes} classes are numbered from 0; "
            "get it again"
        )
    return labels


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
