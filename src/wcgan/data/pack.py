"""Packs: decoded images on disk, memory-mapped.

A pack is a folder: `images.u8` ((N, C, H, W), row-major), `labels.i64` ((N,), absent without labels) and `pack.json`,
with the shape, the classes, the fingerprint, the broken files, a CRC per block, and a CRC of all these.
"""

import contextlib
import errno
import hashlib
import json
import logging
import mmap
import os
import re
import shutil
import sys
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wcgan.core.files import cache_folder, locked, sync_folder
from wcgan.core.reading import parse_json, read_bytes
from wcgan.core.terminal import OnProgress

_FORMAT = 2  # increase when the format changes, so that old packs are not read
_CLOCK_TICK = 0.05  # seconds; a file written twice within a tick of the file system keeps its time stamp


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
            stat = os.stat(os.path.join(root, name))  # an absolute name stays as it is
        except OSError as error:  # a dangling link: reported when it is read
            digest.update(os.fsencode(name) + b"\0%d\n" % (error.errno or 0))
            continue
        newest = max(newest, stat.st_mtime_ns, stat.st_ctime_ns)
        digest.update(os.fsencode(name) + b"\0%d %d %d\n" % (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    if abs(time.time() - newest / 1e9) < _CLOCK_TICK:
        time.sleep(_CLOCK_TICK)
        return recipe_to_key(recipe)
    return digest.hexdigest()[:24]


_log = logging.getLogger(__name__)
_BLOCK = 4 << 20  # bytes under one CRC
_MOST_CONTENTS = 1 << 30  # bytes of pack.json, which names every broken file
_MOST_BLOCKS_CHECKED = 64  # all of a pack up to 256 MiB; of a larger one this many, from the first to the last
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux's value; Python names it from 3.13


class DamagedPackError(Exception):
    """A pack whose files are inconsistent."""


@dataclass(frozen=True, eq=False)
class Pack:
    """Memory-mapped images and labels."""

    images: Tensor
    labels: Tensor | None
    classes: tuple[str, ...]
    fingerprint: str
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class _Contents:
    """The contents of pack.json."""

    shape: tuple[int, ...]
    labelled: bool
    classes: tuple[str, ...]
    fingerprint: str
    skipped: tuple[str, ...]
    image_crcs: tuple[int, ...]
    label_crcs: tuple[int, ...]


def content_fingerprint(
    images: "hashlib._Hash", labels: bytes, shape: tuple[int, ...], classes: tuple[str, ...]
) -> str:
    """A hash of what training sees: equal pixels, labels and classes give equal fingerprints, whatever the files.

    Args:
        images: SHA-256 of the pixels, fed so far.
        labels: the labels as little-endian int64, empty without labels.
        shape: (N, C, H, W).
        classes: names, in the order of the labels.
    """
    digest = images.copy()
    digest.update(labels)
    digest.update(json.dumps([shape, classes]).encode())
    return digest.hexdigest()


def open_or_write(recipe: Recipe, name: str, strict: bool = False, progress: OnProgress | None = None) -> Pack:
    """The pack of a recipe: the one on disk if it is complete and its files are unchanged, otherwise a new one.

    If several processes ask for the same pack, one writes it and the others wait.
    """
    key = recipe_to_key(recipe)
    stem = f"{re.sub(r'[^A-Za-z0-9.-]', '_', name)[:40]}-{recipe_to_slot(recipe)}"
    home = cache_folder() / "packs" / f"{stem}-{key}"
    if (pack := _open_if_whole(home)) is not None:
        return pack
    with _saying_what_to_do(home.parent):
        home.parent.mkdir(parents=True, exist_ok=True)
    with locked(home.parent / f"{stem}.lock") as exclusive:
        if (pack := _open_if_whole(home)) is not None:
            return pack
        if exclusive:  # nobody else is writing, so these are from killed processes
            for leftover in home.parent.glob(f"{stem}-*.part-*"):
                shutil.rmtree(leftover, ignore_errors=True)
        with _saying_what_to_do(home.parent):
            part = _new_part(home)
        try:
            _write(recipe, part, strict, progress)
            if recipe_to_key(recipe) != key:
                raise ValueError(
                    f"files in {recipe.root} changed while they were read; load them when they are at rest"
                )
            with _saying_what_to_do(home.parent):
                _publish(part, home)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        for outdated in home.parent.glob(f"{stem}-*"):
            if outdated != home and ".part-" not in outdated.name:
                shutil.rmtree(outdated, ignore_errors=True)  # packs of files that have changed since
        return open_pack(home)


def open_pack(home: Path) -> Pack:
    """Memory-map a pack.

    Raises:
        FileNotFoundError: if there is none.
        DamagedPackError: if a file is missing, cut short, or fails its CRC.
    """
    try:
        text = read_bytes(home / "pack.json", _MOST_CONTENTS)
    except ValueError as error:
        raise DamagedPackError(f"the pack {home} is damaged: {error}") from error
    try:
        fields: dict[str, Any] = parse_json(text)
        if fields.pop("crc") != _crc(fields):
            raise ValueError("pack.json fails its CRC")
        fields = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        contents = _Contents(**fields)
        images = _map(home / "images.u8", contents.image_crcs, torch.uint8).view(contents.shape)
        labels = _map(home / "labels.i64", contents.label_crcs, torch.int64) if contents.labelled else None
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError, OverflowError, OSError) as error:
        raise DamagedPackError(f"the pack {home} is damaged: {error}") from error
    if labels is not None and len(labels) != len(images):
        raise DamagedPackError(f"the pack {home} is damaged: {len(labels)} labels for {len(images)} images")
    return Pack(images, labels, contents.classes, contents.fingerprint, contents.skipped)


def _open_if_whole(home: Path) -> Pack | None:
    try:
        return open_pack(home)
    except FileNotFoundError:
        return None
    except DamagedPackError as error:
        _log.warning("%s; it is written anew", error)
        return None


def _map(path: Path, crcs: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A file as a tensor that shares the page cache; writing to the tensor does not change the file."""
    size = path.stat().st_size
    if len(crcs) != -(-size // _BLOCK):
        raise ValueError(f"{path.name} has {size} bytes, not the {len(crcs)} blocks it was written with")
    chosen = np.unique(np.linspace(0, len(crcs) - 1, min(len(crcs), _MOST_BLOCKS_CHECKED)).astype(int))
    with path.open("rb") as file:
        for block in chosen.tolist():
            file.seek(block * _BLOCK)
            if zlib.crc32(file.read(_BLOCK)) != crcs[block]:
                raise ValueError(f"block {block} of {path.name} fails its CRC")
        if sys.platform == "linux":  # without reserving memory: a pack may be larger than RAM and swap together
            flags, protection = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
            mapped = mmap.mmap(file.fileno(), size, flags=flags, prot=protection)
        else:
            mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    return torch.frombuffer(mapped, dtype=dtype)


class _CheckedFile:
    """Writes bytes, and records the CRC of every block."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.crcs, self._filled = file, [0], 0

    def write(self, data: memoryview) -> None:
        self.file.write(data)
        while len(data):
            if self._filled == _BLOCK:
                self.crcs.append(0)
                self._filled = 0
            piece = data[: _BLOCK - self._filled]
            self.crcs[-1] = zlib.crc32(piece, self.crcs[-1])
            self._filled += len(piece)
            data = data[len(piece) :]

    def finish(self) -> tuple[int, ...]:
        self.file.flush()
        os.fsync(self.file.fileno())
        return tuple(self.crcs)


def _write(recipe: Recipe, part: Path, strict: bool, progress: OnProgress | None) -> None:
    pixels, labels, skipped, seen = hashlib.sha256(), list[NDArray[np.int64]](), list[str](), 0
    shape: tuple[int, ...] = ()
    report = progress or (lambda what, done, total: None)
    what = f"packing {recipe.root.name}"
    report(what, 0, recipe.count)
    with _saying_what_to_do(part.parent):
        image_file = (part / "images.u8").open("wb")
    with image_file:
        image_writer = _CheckedFile(image_file)
        for chunk in recipe.chunks():
            if strict and chunk.broken:
                file, reason = chunk.broken[0]
                raise ValueError(f"{file} in {recipe.root} cannot be read ({reason}); mend or remove it")
            skipped.extend(file for file, _ in chunk.broken)
            seen += len(chunk.images) + len(chunk.broken)
            if len(chunk.images):
                shape = chunk.images.shape[1:]
                data = np.ascontiguousarray(chunk.images).data.cast("B")
                pixels.update(data)
                with _saying_what_to_do(part.parent):
                    image_writer.write(data)
            if chunk.labels is not None:
                labels.append(chunk.labels)
            report(what, seen, recipe.count)
        if not shape:
            first = f"; the first is {skipped[0]}" if skipped else ""
            raise ValueError(f"no image in {recipe.root} can be read, of {recipe.count}{first}")
        with _saying_what_to_do(part.parent):
            image_crcs = image_writer.finish()
    label_bytes = np.concatenate(labels).astype("<i8").tobytes() if labels else b""
    label_crcs: tuple[int, ...] = ()
    shape = (seen - len(skipped), *shape)
    fingerprint = content_fingerprint(pixels, label_bytes, shape, recipe.classes)
    with _saying_what_to_do(part.parent):
        if labels:
            with (part / "labels.i64").open("wb") as label_file:
                label_writer = _CheckedFile(label_file)
                label_writer.write(memoryview(label_bytes))
                label_crcs = label_writer.finish()
        contents = _Contents(shape, bool(labels), recipe.classes, fingerprint, tuple(skipped), image_crcs, label_crcs)
        with (part / "pack.json").open("w") as json_file:
            json.dump(asdict(contents) | {"crc": _crc(asdict(contents))}, json_file)
            json_file.flush()
            os.fsync(json_file.fileno())


def _crc(fields: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(fields).encode())


def _new_part(home: Path) -> Path:
    part = home.with_name(f"{home.name}.part-{uuid.uuid4().hex}")
    part.mkdir()
    return part


def _publish(part: Path, home: Path) -> None:
    """Rename the finished folder atomically; if another process has finished the same pack first, keep that one."""
    while True:
        try:
            os.rename(part, home)
            break
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if _open_if_whole(home) is not None:
            return
        aside = _new_part(home)
        with contextlib.suppress(FileNotFoundError):
            os.rename(home, aside)
        shutil.rmtree(aside, ignore_errors=True)
    sync_folder(home.parent)


@contextlib.contextmanager
def _saying_what_to_do(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        told = OSError(f"cannot write packed images to {folder} ({reason}); make room there or set WCGAN_CACHE")
        told.errno = error.errno
        raise told from error
