"""Read any folder of images, with one sub-folder per class or none."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wcgan.core.terminal import OnProgress, printable
from wcgan.data.decode import Shape, decode_all, in_parallel, read_shape
from wcgan.data.pack import Chunk, Recipe

EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
_SPLIT_FOLDERS = {"train": ("train",), "test": ("test", "val", "valid", "validation")}
_PROBE_CHUNK = 256


def folder_splits(folder: Path) -> tuple[str, ...]:
    """The splits of a folder of images: several if it has a sub-folder `train`, otherwise one."""
    if not (folder / "train").is_dir():
        return ("train",)
    return tuple(split for split, names in _SPLIT_FOLDERS.items() if any((folder / name).is_dir() for name in names))


def folder_to_glance(folder: Path) -> tuple[list[tuple[int, int]], int]:
    """Height and width of at most 1,000 images, spread over all, and the number of classes; unreadable ones skipped.

    Raises:
        ValueError: if it has no images, none of these can be read, or not all are of one split or of classes.
    """
    folder = _split_folder(folder, "train")
    files, _, classes = list_classes(folder)
    seen = _read_shapes(folder, files[:: -(-len(files) // 1000)])
    if not seen:
        raise ValueError(f"no image in {folder} can be read, of {len(files)}; the first is {files[0]}")
    return [(shape.height, shape.width) for _, shape in seen], len(classes)


def folder_to_recipe(
    folder: Path, split: str, resolution: int | None, channels: int | None, progress: OnProgress | None = None
) -> Recipe:
    """List the images and their classes; a size or number of channels that is not given is read from the files.

    Raises:
        FileNotFoundError: if there is no such folder or split.
        ValueError: if it has no images, or images beside class folders.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    folder = _split_folder(folder, split)
    files, labels, classes = list_classes(folder)
    return Recipe(
        root=folder,
        files=files,
        count=len(files),
        classes=classes,
        options=("folder", resolution, channels),
        chunks=partial(_read, folder, files, labels, resolution, channels, progress),
    )


def _read(
    folder: Path,
    files: Sequence[str],
    labels: NDArray[np.int64] | None,
    resolution: int | None,
    channels: int | None,
    progress: OnProgress | None,
) -> Iterator[Chunk]:
    size = None if resolution is None else (resolution, resolution)
    if size is None or channels is None:
        found = _common_shape(folder, files, resolution, progress)
        size = size or (found.height, found.width)
        channels = channels or (1 if found.grey else 3)
    return decode_all(folder, files, labels, size, resolution, channels)


def list_classes(folder: Path) -> tuple[list[str], NDArray[np.int64] | None, tuple[str, ...]]:
    """Image files relative to `folder`, their labels (None without class folders) and the classes' names.

    A class is a sub-folder, with all images at any depth below it. Classes are in the order of their names, or of their
    numbers if all are numbers. Files that are not images are listed too, and reported when they cannot be decoded.
    """
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".") and entry.name != "__MACOSX"]
        folders = {entry.name for entry in visible if os.path.isdir(entry)}
        loose = sorted(entry.name for entry in visible if is_image(entry.name) and entry.name not in folders)
    classes = sorted(folders)
    if not classes:
        if not loose:
            raise ValueError(f"{folder} holds no images; it needs files that end in {', '.join(EXTENSIONS)}")
        return loose, None, ()
    if loose:
        raise ValueError(
            f"{folder} holds both images ({loose[0]}) and sub-folders ({classes[0]}); "
            "put every image in a sub-folder, one per class, or none"
        )
    if all(name.isdecimal() for name in classes):
        classes.sort(key=int)
    files: list[str] = []
    counts: list[int] = []
    for name in classes:
        found = list_images(folder, name)
        if not found:
            raise ValueError(f"{folder / name} holds no images; each sub-folder is a class, so fill it or remove it")
        files.extend(found)
        counts.append(len(found))
    return files, np.repeat(np.arange(len(classes)), counts), tuple(map(printable, classes))


def list_images(root: Path, below: str) -> list[str]:
    """Images at any depth under root/below, as sorted paths relative to `root`.

    Links are followed once, except links to a parent folder, which would list the whole disk.

    Raises:
        OSError: if a folder cannot be listed.
    """

    def refuse(error: OSError) -> None:
        raise error

    found: list[str] = []
    seen = {(stat.st_dev, stat.st_ino) for stat in map(os.stat, (root.resolve(), *root.resolve().parents))}
    try:
        for parent, folders, names in os.walk(root / below, onerror=refuse, followlinks=True):
            stat = os.stat(parent)
            if (stat.st_dev, stat.st_ino) in seen:
                folders.clear()
                continue
            seen.add((stat.st_dev, stat.st_ino))
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            relative = os.path.relpath(parent, root)
            found.extend(os.path.join(relative, name) for name in names if is_image(name))
    except RecursionError:
        raise ValueError(f"{root / below} has folders nested too deep to be listed") from None
    return sorted(found)


def is_image(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS) and not name.startswith(".")


def _split_folder(folder: Path, split: str) -> Path:
    available = folder_splits(folder)
    if split not in available:
        raise FileNotFoundError(
            f"{folder} has no split {split!r}, only {' and '.join(available)}; "
            "for both, put the images in sub-folders train and test"
        )
    if not (folder / "train").is_dir():
        return folder
    if "test" not in available and (other := _class_beside(folder, "train")):
        raise ValueError(
            f"{folder} has images in train and in {other}: if train is a class, rename it; if it is the training "
            f"split, name {folder / 'train'} or move {other} away"
        )
    return next(folder / name for name in _SPLIT_FOLDERS[split] if (folder / name).is_dir())


def _class_beside(folder: Path, name: str) -> str | None:
    """Another sub-folder with images than the one of this name; None if there is none."""
    for other in sorted(os.listdir(folder)):
        if other == name or other.startswith(".") or other == "__MACOSX" or not (folder / other).is_dir():
            continue
        try:
            if list_images(folder, other):
                return other
        except OSError:  # not ours to list, as lost+found at the root of a disk
            continue
    return None


def _common_shape(folder: Path, files: Sequence[str], resolution: int | None, progress: OnProgress | None) -> Shape:
    """The size that all images share (any, if they are to be resized), and whether all are grey."""
    first: tuple[str, Shape] | None = None
    grey, done = True, 0
    for shapes in in_parallel(partial(_read_shapes, folder), files, _PROBE_CHUNK):
        for file, shape in shapes:
            if first is None:
                first = file, shape
            elif resolution is None and shape[:2] != first[1][:2]:
                sizes = [f"{s.width}x{s.height} ({name})" for name, s in (first, (file, shape))]
                raise ValueError(
                    f"images in {folder} have several sizes, {' and '.join(sizes)}; "
                    "give a resolution (--resolution SIZE), to which each is cropped and resized"
                )
            grey = grey and shape.grey
        done += _PROBE_CHUNK
        if progress:
            progress(f"looking through {folder.name}", min(done, len(files)), len(files))
    if first is None:
        raise ValueError(f"no image in {folder} can be read, of {len(files)}; the first is {files[0]}")
    return Shape(first[1].height, first[1].width, grey)


def _read_shapes(folder: Path, files: Sequence[str]) -> list[tuple[str, Shape]]:
    shapes = []
    for file in files:
        try:
            shapes.append((file, read_shape(folder / file)))
        except MemoryError:
            raise
        except Exception:  # reported when it is decoded
            continue
    return shapes
