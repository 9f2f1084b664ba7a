"""Decode image files into arrays in parallel, crop and resize them.

Threads are enough: Pillow releases the interpreter's lock while it decodes and resizes. Nothing is copied between
processes, and a script needs no `if __name__ == "__main__"`.
"""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from wcgan.core.reading import open_file
from wcgan.data.pack import Chunk

T = TypeVar("T")
_GREY_MODES = {"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"}
_SIDEWAYS = {5, 6, 7, 8}  # EXIF orientations that exchange width and height
_ORIENTATION = 0x0112
_CHUNK_BYTES, _MOST_IN_CHUNK = 8 << 20, 64
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")  # Pillow passes others to programs
MOST_PIXELS = 1 << 26  # per image: 8192 x 8192. A small file can decode to an image that fills the memory.
# Pillow decodes run-length encoded BMPs in Python, a pixel at a time, and lets them skip 255 rows at once.
_RUN_LENGTH, _MOST_RUN_LENGTH = (1, 2), 1 << 20
_MOST_BYTES = 1 << 29  # per file: as many pixels without compression
_ROWS = 256  # rows of a 16-bit image to scale at once


class Shape(NamedTuple):
    """The size and mode in a file's header."""

    height: int
    width: int
    grey: bool


def read_shape(path: Path) -> Shape:
    """Read the header of a file."""
    with open_image(path) as image:
        width, height = image.size
        if _orientation(image) in _SIDEWAYS:
            width, height = height, width
        return Shape(height, width, image.mode in _GREY_MODES)


def decode(path: Path, resolution: int | None, channels: int, upright: bool = True) -> NDArray[np.uint8]:
    """Decode an image, or its first frame if it has several, as (channels, H, W).

    Transparency becomes white, 16-bit grey is scaled to 8 bits, and every other mode is converted to grey or RGB.

    Args:
        path: the file.
        resolution: crop to the central square and resize to this; None leaves the size alone.
        channels: 1 or 3.
        upright: whether to apply the EXIF orientation.
    """
    with open_image(path) as opened:
        image: Image.Image = opened
        if resolution is not None:  # JPEG can shrink by 2, 4 or 8 as it decodes; stay at twice the size, or above
            opened.draft(None, (2 * resolution, 2 * resolution))
        if upright and _orientation(opened) != 1:
            image = ImageOps.exif_transpose(image)
        image = _to_mode(image, "L" if channels == 1 else "RGB")
        pixels = np.asarray(image if resolution is None else fit_image(image, resolution))  # (H, W) or (H, W, 3)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


@contextlib.contextmanager
def open_image(path: Path) -> Iterator[Image.Image]:
    """Open an image and read its header, but not its pixels.

    Raises:
        ValueError: for anything but a regular file, an image of more than `MOST_PIXELS`, and a run-length encoded
            one of more than `_MOST_RUN_LENGTH`.
    """
    with open_file(path, _MOST_BYTES) as file, Image.open(file, formats=_FORMATS) as image:
        pixels = image.width * image.height
        if pixels > MOST_PIXELS:
            most = MOST_PIXELS // 10**6
            raise ValueError(f"it has {pixels / 1e6:,.0f} megapixels, and at most {most} are decoded")
        if pixels > _MOST_RUN_LENGTH and image.format == "BMP" and image.info.get("compression") in _RUN_LENGTH:
            raise ValueError(
                f"it has {pixels:,} pixels in run-length encoding, and at most {_MOST_RUN_LENGTH:,} are decoded; "
                "save it as PNG"
            )
        yield image


def _orientation(image: Image.Image) -> int:
    # For a PNG without EXIF, Pillow would decode the whole image to look for it.
    return image.getexif().get(_ORIENTATION, 1) if "exif" in image.info else 1


def _to_mode(image: Image.Image, mode: str) -> Image.Image:
    if image.mode == "F" or image.mode.startswith("I"):  # 16 bits; Pillow would clip them to 8
        deep = np.asarray(image)
        scaled = np.empty(deep.shape, np.uint8)
        for start in range(0, len(deep), _ROWS):  # in float64 all at once would take eight times the memory
            rows = slice(start, start + _ROWS)
            scaled[rows] = np.rint(deep[rows].astype(np.float64) * (255 / 65535)).clip(0, 255)
        image = Image.fromarray(scaled)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image if image.mode == mode else image.convert(mode)


def workers() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parallel(function: Callable[[Sequence[str]], T], items: Sequence[str], size: int) -> Iterator[T]:
    """Apply `function` to each `size` consecutive items, in order, only a few calls ahead of the reader."""
    with ThreadPoolExecutor(workers()) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for start in range(0, len(items), size):
                waiting.append(pool.submit(function, items[start : start + size]))
                if len(waiting) > 2 * workers():
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def decode_all(
    root: Path,
    files: Sequence[str],
    labels: NDArray[np.int64] | None,
    size: tuple[int, int],
    resolution: int | None,
    channels: int,
    upright: bool = True,
) -> Iterator[Chunk]:
    """Decode files in order; unreadable ones are left out, and listed in their chunk.

    Args:
        root: the folder that `files` are relative to.
        files: image files.
        labels: (N,), or None.
        size: height and width of the results.
        resolution: as for `decode`.
        channels: as for `decode`.
        upright: as for `decode`.
    """
    shape = (channels, *size)
    chunk_size = max(1, min(_MOST_IN_CHUNK, _CHUNK_BYTES // (channels * size[0] * size[1])))
    decode_chunk = partial(_decode_chunk, root, shape, resolution, upright)
    start = 0
    for images, kept, broken in in_parallel(decode_chunk, files, chunk_size):
        chosen = None if labels is None else labels[start : start + chunk_size][kept]
        yield Chunk(images, chosen, broken)
        start += chunk_size


def _decode_chunk(
    root: Path, shape: tuple[int, int, int], resolution: int | None, upright: bool, files: Sequence[str]
) -> tuple[NDArray[np.uint8], list[int], tuple[tuple[str, str], ...]]:
    images = np.empty((len(files), *shape), np.uint8)
    kept: list[int] = []
    broken: list[tuple[str, str]] = []
    for i, file in enumerate(files):
        try:
            image = decode(root / file, resolution, shape[0], upright)
            if image.shape != shape:
                raise ValueError(f"it is {image.shape[2]}x{image.shape[1]}, not {shape[2]}x{shape[1]}")
        except MemoryError:
            raise
        except Exception as error:  # a damaged file can make a decoder raise anything
            broken.append((file, reason(error)))
        else:
            images[len(kept)] = image
            kept.append(i)
    return images[: len(kept)], kept, tuple(broken)


def reason(error: Exception) -> str:
    """An error as one line without the path, which the caller adds."""
    if isinstance(error, OSError) and error.strerror:  # from the system
        return error.strerror.lower()
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return "not an image" if text.startswith("cannot identify image file") else text


def fit_image(image: Image.Image, resolution: int) -> Image.Image:
    """Crop to the central square and resize it: bicubic, with antialiasing."""
    if image.size == (resolution, resolution):
        return image
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    box = (left, top, left + side, top + side)
    return image.resize((resolution, resolution), Image.Resampling.BICUBIC, box=box)


def fit(images: NDArray[np.uint8], resolution: int, channels: int) -> NDArray[np.uint8]:
    """Crop and resize images as `fit_image` does, and convert them to grey or colour.

    A grey image becomes three equal channels; a colour image becomes its luma (ITU-R 601).

    Args:
        images: (n, C, H, W), C = 1 or 3.
        resolution: height and width of the result.
        channels: 1 or 3.

    Returns:
        (n, channels, resolution, resolution).
    """
    if images.shape[1:] == (channels, resolution, resolution):
        return images
    if images.shape[1] == 1 and channels == 3:
        return np.repeat(fit(images, resolution, 1), 3, axis=1)
    fitted = np.empty((len(images), channels, resolution, resolution), np.uint8)
    for i, planes in enumerate(images):
        image = Image.fromarray(planes[0] if len(planes) == 1 else np.ascontiguousarray(planes.transpose(1, 2, 0)))
        pixels = np.asarray(fit_image(image.convert("L") if channels == 1 else image, resolution))
        fitted[i] = pixels if channels == 1 else pixels.transpose(2, 0, 1)  # (R, R) or (R, R, 3)
    return fitted
