"""Small datasets, written in their official formats."""

import gzip
import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[np.uint8]


def random_images(count: int, channels: int, side: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (count, channels, side, side), np.uint8)


def cycling_labels(count: int, classes: int) -> NDArray[np.int64]:
    return np.arange(count) % classes


def idx(values: Array) -> bytes:
    """The idx format: two zero bytes, type (8: unsigned byte), dimensions, big-endian sizes, values."""
    return struct.pack(">HBB", 0, 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def write_mnist(folder: Path, split: str, images: Array, labels: NDArray[np.int64], compress: bool = False) -> None:
    """`images` (N, 1, 28, 28)."""
    folder.mkdir(parents=True, exist_ok=True)
    prefix = {"train": "train", "test": "t10k"}[split]
    for name, values in (("images-idx3", images[:, 0]), ("labels-idx1", labels.astype(np.uint8))):
        data = idx(values)
        path = folder / f"{prefix}-{name}-ubyte{'.gz' if compress else ''}"
        path.write_bytes(gzip.compress(data) if compress else data)


def cifar_records(images: Array, *label_columns: NDArray[np.int64]) -> bytes:
    columns = [labels.astype(np.uint8)[:, None] for labels in label_columns]
    return np.concatenate([*columns, images.reshape(len(images), 3072)], 1).tobytes()


def write_cifar10(root: Path, images: Array, labels: NDArray[np.int64]) -> Path:
    """Five training batches and a test batch with the same images, divided over the five."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for i, part in enumerate(np.array_split(np.arange(len(images)), 5), 1):
        (folder / f"data_batch_{i}.bin").write_bytes(cifar_records(images[part], labels[part]))
    (folder / "test_batch.bin").write_bytes(cifar_records(images, labels))
    return folder


def python2_pickle(images: Array, labels: NDArray[np.int64], label_key: str) -> bytes:
    """The bytes that Python 2's cPickle gives, as in the published "python version"; module names are of that time."""
    pixels = images.reshape(len(images), -1)

    def string(text: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(text)) + text

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n" + b"(" + string(b"u1") + integer(0) + integer(1) + b"tR"
    dtype += b"(" + integer(3) + string(b"|") + b"NNN" + integer(-1) + integer(-1) + integer(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n"
    array += b"(cnumpy\nndarray\n" + b"(" + integer(0) + b"t" + string(b"b") + b"tR"
    shape = b"(" + b"".join(map(integer, pixels.shape)) + b"t"
    array += b"(" + integer(1) + shape + dtype + b"\x89" + string(pixels.tobytes()) + b"tb"
    listed = b"](" + b"".join(integer(int(label)) for label in labels) + b"e"
    return b"\x80\x02}(" + string(b"data") + array + string(label_key.encode()) + listed + b"u."


def unpickle_cifar(data: bytes) -> tuple[Array, NDArray[np.int64]]:
    """Images and labels by Python's own machine, in Python: safe for what `read_cifar_pickle` has accepted."""
    content = pickle._Unpickler(io.BytesIO(data), encoding="bytes").load()  # type: ignore[attr-defined]
    content = {key if isinstance(key, str) else key.decode("latin1"): value for key, value in content.items()}
    found = content.get("fine_labels", content.get("labels"))
    return content["data"].reshape(-1, 3, 32, 32), np.array(found)


def write_stl10(root: Path, split: str, images: Array, labels: NDArray[np.int64] | None) -> Path:
    """Images (N, 3, 96, 96) stored column by column; labels from 1."""
    folder = root / "stl10_binary"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{split}_X.bin").write_bytes(images.transpose(0, 1, 3, 2).tobytes())
    if labels is not None:
        (folder / f"{split}_y.bin").write_bytes((labels + 1).astype(np.uint8).tobytes())
    return folder


def save(path: Path, pixels: Array, **options: object) -> Path:
    """`pixels` (C, H, W), in the format that the name ends with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(path, **options)
    return path


def smooth(seed: int, height: int, width: int, channels: int = 3) -> Array:
    """A smooth image, which JPEG keeps almost as it is."""
    coarse = np.random.default_rng(seed).integers(40, 216, (5, 5, 3), np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    pixels = np.asarray(image).transpose(2, 0, 1)
    return pixels[:channels]


def write_tiny_imagenet(root: Path) -> Path:
    """Two classes, not in alphabetical order, with three training and two validation images each; five test images."""
    folder = root / "tiny-imagenet-200"
    wnids = ["n02124075", "n01443537"]
    for label, wnid in enumerate(wnids):
        for i in range(3):
            save(folder / f"train/{wnid}/images/{wnid}_{i}.JPEG", smooth(10 * label + i, 64, 64), quality=95)
        (folder / f"train/{wnid}/{wnid}_boxes.txt").write_text("0\t0\t10\t10\n")
    lines = []
    for i in range(4):
        save(folder / f"val/images/val_{i}.JPEG", smooth(50 + i, 64, 64), quality=95)
        lines.append(f"val_{i}.JPEG\t{wnids[i % 2]}\t0\t0\t62\t62\n")
    for i in range(5):
        save(folder / f"test/images/test_{i}.JPEG", smooth(70 + i, 64, 64), quality=95)
    (folder / "val/val_annotations.txt").write_text("".join(lines))
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    (folder / "words.txt").write_text(
        "n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn02124075\tEgyptian cat\n"
    )
    return folder


def write_imagenet(root: Path, wnids: tuple[str, ...] = ("n01440764", "n02012849", "n03126707")) -> Path:
    folder = root / "imagenet"
    for label, wnid in enumerate(wnids):
        for i in range(2):
            save(folder / f"train/{wnid}/{wnid}_{i}.JPEG", smooth(10 * label + i, 150, 200), quality=95)
    return folder


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files decoded so far."""
    from wcgan.data import decode as module

    seen: list[str] = []
    original: Callable[..., Array] = module.decode

    def counting(path: Path, *arguments: object) -> Array:
        seen.append(path.name)
        return original(path, *arguments)

    monkeypatch.setattr(module, "decode", counting)
    return seen
