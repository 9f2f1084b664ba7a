"""Read the binary formats of MNIST, CIFAR and STL-10 into arrays; every file is validated first."""

import gzip
import hashlib
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wcgan.core.reading import open_file
from wcgan.data.cifar_pickle import read_batch

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
