"""Damaged files of every format: each is read as an independent reader reads it, or refused by name."""

import gzip
import hashlib
import io
import pickle
import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from tests.attack.tally import Attack, quick_and_long, require_named
from tests.data.cases import (
    cifar_records,
    cycling_labels,
    idx,
    python2_pickle,
    random_images,
    save,
    smooth,
    unpickle_cifar,
    write_tiny_imagenet,
)
from tests.mutations import mutated

from wcgan.data import load
from wcgan.data.arrays import read_cifar_binary, read_cifar_pickle, read_mnist, read_stl10
from wcgan.data.decode import MOST_PIXELS

counts = quick_and_long(250, 8_000)
fewer = quick_and_long(125, 1_500)  # those that take long
A_FOLDER = 250  # images that are loaded together
Read = tuple[NDArray[np.uint8], NDArray[np.int64] | None]


def hold_against(
    attack: Attack,
    cases: int,
    original: bytes,
    file: Path,
    read: Callable[[], Read],
    independent: Callable[[bytes], Read],
) -> None:
    """Reads damaged copies; an error must name the file, and what is read must be what the other reader reads."""
    chance, taken = random.Random(0), 0
    for _ in range(cases):
        data = mutated(original, chance)
        file.write_bytes(data)
        with attack.case():
            try:
                images, labels = read()
            except ValueError as error:  # anything else is a bug
                require_named(error, file.parent)
                continue
            taken += 1
            for found, expected in zip((images, labels), independent(data), strict=True):
                assert expected is None or np.array_equal(found, expected)
            assert images.dtype == np.uint8
            assert len(images) >= 1
    assert 0 < taken < cases  # both happened


@counts
def test_idx_files(tmp_path: Path, attack: Attack, cases: int) -> None:
    images, labels = random_images(4, 1, 28), cycling_labels(4, 10)
    pixels, classes = tmp_path / "train-images-idx3-ubyte", tmp_path / "train-labels-idx1-ubyte"
    classes.write_bytes(idx(labels.astype(np.uint8)))

    def independent(data: bytes) -> Read:
        magic, n, height, width = struct.unpack_from(">4I", data)
        assert (magic, height, width) == (0x803, 28, 28)
        return np.frombuffer(data[16:], np.uint8).reshape(n, 1, 28, 28), labels

    hold_against(attack, cases, idx(images[:, 0]), pixels, lambda: read_mnist(pixels, classes, {}), independent)

    def independent_labels(data: bytes) -> Read:
        assert struct.unpack_from(">2I", data) == (0x801, 4)
        return images, np.frombuffer(data[8:], np.uint8).astype(np.int64)

    pixels.write_bytes(idx(images[:, 0]))
    original = idx(labels.astype(np.uint8))
    hold_against(attack, cases, original, classes, lambda: read_mnist(pixels, classes, {}), independent_labels)


@counts
def test_gzipped_idx_files(tmp_path: Path, attack: Attack, cases: int) -> None:
    images, labels = random_images(4, 1, 28), cycling_labels(4, 10)
    pixels, classes = tmp_path / "train-images-idx3-ubyte.gz", tmp_path / "train-labels-idx1-ubyte"
    classes.write_bytes(idx(labels.astype(np.uint8)))

    def independent(data: bytes) -> Read:
        return np.frombuffer(gzip.decompress(data)[16:], np.uint8).reshape(-1, 1, 28, 28), labels

    original = gzip.compress(idx(images[:, 0]))
    hold_against(attack, cases, original, pixels, lambda: read_mnist(pixels, classes, {}), independent)


@counts
@pytest.mark.parametrize("label_bytes", [1, 2])
def test_cifar_binary_files(tmp_path: Path, attack: Attack, cases: int, label_bytes: int) -> None:
    file, labels = tmp_path / "train.bin", cycling_labels(3, 10)
    original = cifar_records(random_images(3, 3, 32), *[labels] * label_bytes)

    def independent(data: bytes) -> Read:
        size = label_bytes + 3072
        records = [data[start : start + size] for start in range(0, len(data), size)]
        images = [np.frombuffer(record[label_bytes:], np.uint8).reshape(3, 32, 32) for record in records]
        return np.stack(images), np.array([record[label_bytes - 1] for record in records])

    hold_against(attack, cases, original, file, lambda: read_cifar_binary(file, 10, label_bytes, None), independent)


@counts
@pytest.mark.parametrize("protocol", [2, 4])
def test_cifar_pickles(tmp_path: Path, attack: Attack, cases: int, protocol: int) -> None:
    file, images, labels = tmp_path / "data_batch_1", random_images(2, 3, 32), cycling_labels(2, 10)
    original = python2_pickle(images, labels, "labels")
    if protocol == 4:
        original = pickle.dumps({"data": images.reshape(2, -1), "labels": labels.tolist()}, protocol)

    hold_against(attack, cases, original, file, lambda: read_cifar_pickle(file, 10, None), unpickle_cifar)


@counts
def test_stl10_files(tmp_path: Path, attack: Attack, cases: int) -> None:
    file, original = tmp_path / "unlabeled_X.bin", random_images(1, 3, 96).tobytes()

    def independent(data: bytes) -> Read:
        return np.stack([image.swapaxes(1, 2) for image in np.frombuffer(data, np.uint8).reshape(-1, 3, 96, 96)]), None

    hold_against(attack, cases, original, file, lambda: read_stl10(file, None, {}), independent)


def test_no_damage_passes_a_checksum(tmp_path: Path) -> None:
    original, file = cifar_records(random_images(2, 3, 32), cycling_labels(2, 10)), tmp_path / "a.bin"
    checksum = "sha256:" + hashlib.sha256(original).hexdigest()
    chance = random.Random(1)
    for _ in range(250):
        data = mutated(original, chance)
        file.write_bytes(data)
        if data != original:
            with pytest.raises(ValueError, match="is not the official file"):
                read_cifar_binary(file, 10, 1, checksum)


def sources(folder: Path) -> list[Path]:
    """An image of each format and kind."""
    colour, grey = smooth(0, 12, 12), smooth(1, 12, 12, 1)
    files = [save(folder / f"colour.{kind}", colour) for kind in ("png", "jpg", "webp", "bmp", "gif")]
    files += [save(folder / f"grey.{kind}", grey) for kind in ("png", "jpg")]
    clear = Image.fromarray(np.concatenate([colour, grey]).transpose(1, 2, 0))
    clear.save(folder / "clear.png")
    clear.save(folder / "clear.webp", lossless=True)
    clear.quantize(16).save(folder / "palette.gif", transparency=3)
    Image.fromarray(np.arange(144, dtype=np.uint16).reshape(12, 12) * 400).save(folder / "deep.png")
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(colour.transpose(1, 2, 0)).save(folder / "turned.jpg", exif=turned)
    return [*files, *(folder / name for name in ("clear.png", "clear.webp", "palette.gif", "deep.png", "turned.jpg"))]


def decode_plainly(data: bytes) -> NDArray[np.uint8] | None:
    """(3, 8, 8) by the obvious steps; None where Pillow cannot."""
    try:
        with Image.open(io.BytesIO(data), formats=["PNG", "JPEG", "WEBP", "BMP", "GIF"]) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                return None
            opened.draft(None, (16, 16))
            image = ImageOps.exif_transpose(opened) if opened.info.get("exif") else opened.copy()
        if image.mode.startswith("I"):
            image = Image.fromarray(np.rint(np.asarray(image) / 65535 * 255).clip(0, 255).astype(np.uint8))
        if "A" in image.mode.upper() or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image)
        image = image.convert("RGB")
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        box = (left, top, left + side, top + side)
        if image.size != (8, 8):
            image = image.resize((8, 8), Image.Resampling.BICUBIC, box=box)
        return np.asarray(image).transpose(2, 0, 1)
    except Exception:  # whatever Pillow raises for a damaged file
        return None


@quick_and_long(1_000, 10_000)
def test_images(tmp_path: Path, attack: Attack, cases: int) -> None:
    chance, originals = random.Random(2), [file.read_bytes() for file in sources(tmp_path / "originals")]
    for first in range(0, cases, A_FOLDER):
        expected: dict[str, NDArray[np.uint8] | None] = {}
        folder = tmp_path / f"damaged-{first}"
        folder.mkdir()
        for case in range(first, first + A_FOLDER):
            data = mutated(chance.choice(originals), chance)
            name = f"{case:06d}{chance.choice(('.png', '.jpg', '.webp', '.bmp', '.gif'))}"  # need not be what it is
            (folder / name).write_bytes(data)
            expected[name] = decode_plainly(data)
        with attack.case(count=A_FOLDER):
            dataset = load(folder, resolution=8, channels=3)
            kept = [pixels for _, pixels in sorted(expected.items()) if pixels is not None]
            assert 0 < len(kept) < A_FOLDER
            assert set(dataset.skipped) == {name for name, pixels in expected.items() if pixels is None}
            np.testing.assert_array_equal(dataset.images.numpy(), np.stack(kept))


@fewer
def test_packs(tmp_path: Path, own_folders: Path, attack: Attack, cases: int) -> None:
    """A damaged pack is noticed and written anew: what is loaded never changes."""
    for name in ("cat", "dog"):
        save(tmp_path / name / "0.png", random_images(1, 3, 8, ord(name[0]))[0])
    first, chance = load(tmp_path), random.Random(3)
    images, labels = first.images.clone(), first.labels.clone()  # the others are mapped from what is damaged below
    (home,) = own_folders.glob("packs/*-*[0-9a-f]")
    whole = {file: file.read_bytes() for file in home.iterdir()}
    for _ in range(cases):
        file = chance.choice(sorted(whole))
        file.write_bytes(mutated(whole[file], chance))
        with attack.case():
            found = load(tmp_path)
            assert (found.classes, found.fingerprint) == (first.classes, first.fingerprint)
            assert torch.equal(found.images, images)
            assert torch.equal(found.labels, labels)


@fewer
def test_lists_of_tiny_imagenet(tmp_path: Path, attack: Attack, cases: int) -> None:
    """Damaged lists of names and classes give images of the folder or a sentence."""
    folder = write_tiny_imagenet(tmp_path)
    lists = [folder / name for name in ("wnids.txt", "val/val_annotations.txt", "words.txt")]
    chance, whole, loaded = random.Random(4), {file: file.read_bytes() for file in lists}, 0
    for case in range(cases):
        file = lists[case % 3]
        file.write_bytes(mutated(whole[file], chance))
        with attack.case():
            try:
                dataset = load("tiny-imagenet", "test", tmp_path, resolution=4, verify=False)
            except (ValueError, OSError):  # anything else is a bug
                continue
            finally:
                file.write_bytes(whole[file])
            loaded += 1
            assert int(dataset.labels.max()) < len(dataset.classes)
    assert 0 < loaded < cases
