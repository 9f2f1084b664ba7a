"""Turns a request into pictures. Requests come from the web, so every argument is checked here, within limits."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image, ImageChops
from torch import Tensor

from wcgan.core.images import (
    FRAME_COLUMNS,
    grid,
    image_to_png,
    pictures_to_animation,
    pixels_to_image,
    scale_to_fill,
    with_names,
)
from wcgan.core.terminal import counted, shown
from wcgan.runs.grids import COLUMNS, classes_to_show, draw_grid
from wcgan.runs.sampler import Sampler

MOST_IMAGES = 256
MOST_PATHS = 16
MOST_FRAMES = 48
MOST_ROWS = 20
MOST_SEED = 2**32 - 1
MOST_TRUNCATION = 2.0
MOST_BYTES = 64 * 1024
"""Size of the body of a request."""


def real(name: str, value: object, least: float, most: float) -> float:
    """A number within bounds, not NaN.

    Raises:
        ValueError: for anything else.

    Example:
        >>> real("truncation", 0.5, 0, 2)
        0.5
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{name} must be a number from {least:g} to {most:g}, got {shown(value)}")
    return float(value)


def whole(name: str, value: object, least: int, most: int) -> int:
    """A whole number within bounds.

    Raises:
        ValueError: for anything else.

    Example:
        >>> whole("count", 16.0, 1, 256)
        16
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most or value % 1:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {shown(value)}")
    return int(value)


WAYS = ("take turns", "are mixed")
"""What several classes do: every image has one of them, or every image has a weighted mix."""
BETWEEN = ("two noise vectors", "two classes", "both")


def class_to_text(sampler: Sampler, label: int) -> str:
    """The name of a class, after its number if the two differ."""
    name = sampler.class_names[label] if label < len(sampler.class_names) else ""
    return name if name == str(label) else f"{label} {name}".rstrip()


def checked_classes(sampler: Sampler, classes: object, most: int | None = None) -> list[int]:
    """The chosen classes, by number or name, as a list of numbers within range, without repetitions.

    Raises:
        ValueError: for anything else, or more than `most`.
    """
    given = [] if classes is None else list(classes) if isinstance(classes, list | tuple) else [classes]
    number = sampler.config.classes
    if not sampler.conditional or number is None:
        if given:
            raise ValueError(f"this generator ({sampler.config.normalization}) has no classes: leave them out")
        return []
    numbers = (sampler.class_number(label) if isinstance(label, str) else label for label in given)
    found = list(dict.fromkeys(whole("a class", label, 0, number - 1) for label in numbers))
    if most is not None and len(found) > most:
        raise ValueError(f"choose at most {counted(most, 'class')}, not {len(found)}")
    return found


def weights_to_label(sampler: Sampler, classes: Sequence[int], weights: object = "") -> Tensor:
    """A mix of classes as one label `(1, n)` whose weights add up to 1.

    Args:
        sampler: a conditional generator.
        classes: numbers of classes.
        weights: one per class, such as `"3, 1"`; empty for equal ones.

    Raises:
        ValueError: for weights that are not one number per class, negative or all 0.
    """
    assert sampler.config.classes is not None
    try:
        values = [float(part) for part in str(weights or "").replace(",", " ").split()] or [1.0] * len(classes)
    except ValueError:
        raise ValueError(f"weights are numbers such as 3, 1; got {shown(weights)}") from None
    given = torch.tensor(values, dtype=torch.float64)
    if len(values) != len(classes) or not bool(given.sum().isfinite()) or given.min() < 0 or given.sum() == 0:
        raise ValueError(
            f"give one weight of 0 or more for each of the {len(classes)} classes, not all 0; got {shown(weights)}"
        )
    label = torch.zeros(1, sampler.config.classes)
    label[0, list(classes)] = (given / given.sum()).float()
    return label


def sample_images(
    sampler: Sampler,
    classes: object = None,
    way: object = WAYS[0],
    weights: object = "",
    count: object = 64,
    seed: object = 0,
    truncation: object = 1.0,
) -> Tensor:
    """Images `(count, C, H, W)` uint8.

    Args:
        sampler: a generator.
        classes: a class or several; None or empty for all in turn.
        way: one of `WAYS`.
        weights: weights of a mix; empty for equal ones.
        count: number of images, at most `MOST_IMAGES`.
        seed: the same seed gives the same images.
        truncation: scales the noise.

    Raises:
        ValueError: for anything out of bounds.
    """
    number = whole("count", count, 1, MOST_IMAGES)
    start = whole("seed", seed, 0, MOST_SEED)
    scale = real("truncation", truncation, 0, MOST_TRUNCATION)
    chosen = checked_classes(sampler, classes)
    if way not in WAYS:
        raise ValueError(f"several classes {' or '.join(WAYS)}, got {shown(way)}")
    if way == WAYS[0] or not chosen:
        return sampler.sample(number, chosen or None, start, scale)
    labels = weights_to_label(sampler, chosen, weights).expand(number, -1)
    return sampler.from_noise(scale * sampler.noise(number, start), labels)


def images_to_picture(images: Tensor, columns: int | None = None) -> Image.Image:
    """Images `(N, C, H, W)` as one large grid, with transparent gaps for light and dark pages."""
    columns = columns or max(1, round(len(images) ** 0.5))
    scale = scale_to_fill(images, columns)
    picture = pixels_to_image(grid(images, columns), scale).convert("RGB")
    gaps = pixels_to_image(grid(torch.zeros_like(images[:, :1]), columns), scale)  # 255 between images of 0
    picture.putalpha(ImageChops.invert(gaps))
    return picture


def images_to_zip(images: Tensor) -> bytes:
    """A ZIP archive with a PNG of each image in its own size."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        for number, image in enumerate(images):
            files.writestr(f"{number:06d}.png", image_to_png(pixels_to_image(image)))
    return archive.getvalue()


def path_images(
    sampler: Sampler,
    position: object,
    between: object = BETWEEN[0],
    seeds: tuple[object, object] = (0, 1),
    classes: tuple[object, object] = (0, 1),
    count: object = 8,
    truncation: object = 1.0,
) -> Tensor:
    """Images `(count, C, H, W)` uint8 at a position between two ends, see `Sampler.between`.

    Args:
        sampler: a generator.
        position: from 0 to 1.
        between: what changes, one of `BETWEEN`; the rest stays at the first end.
        seeds: seeds of the noise at both ends.
        classes: classes at both ends. Unused without classes.
        count: number of images, at most `MOST_PATHS`.
        truncation: scales the noise.

    Raises:
        ValueError: for a value out of bounds, or a generator without classes where they are needed.
    """
    part = real("the position", position, 0, 1)
    number = whole("count", count, 1, MOST_PATHS)
    scale = real("truncation", truncation, 0, MOST_TRUNCATION)
    if between not in BETWEEN:
        raise ValueError(f"between takes {', '.join(BETWEEN)}; got {shown(between)}")
    if between != BETWEEN[0] and not sampler.conditional:
        raise ValueError(f"this generator ({sampler.config.normalization}) has no classes to interpolate between")
    noise = [whole("seed", seed, 0, MOST_SEED) for seed in seeds]
    ends = None
    if sampler.conditional:
        found = [checked_classes(sampler, label, 1) for label in classes]
        if not all(found):
            raise ValueError("choose a class at both ends")
        ends = [label for (label,) in found][: 1 if between == BETWEEN[0] else 2]
    return sampler.between(part, number, noise[: 1 if between == BETWEEN[1] else 2], ends, scale)


def path_picture(images: Tensor) -> Image.Image:
    """The images side by side."""
    return images_to_picture(images, min(FRAME_COLUMNS, len(images)))


def animation(sampler: Sampler, frames: object = 24, *options: Any) -> bytes:
    """An animation from one end to the other and back, as a lossless WebP; `options` as in `path_images`.

    Raises:
        ValueError: for a value out of bounds.
    """
    steps = whole("frames", frames, 2, MOST_FRAMES)
    there = [path_picture(path_images(sampler, k / (steps - 1), *options)) for k in range(steps)]
    return pictures_to_animation(there, "webp")


def fixed_z_picture(
    sampler: Sampler, classes: object = None, seed: object = 0, truncation: object = 1.0
) -> Image.Image:
    """The paper's figure: one noise vector per column, one class per row, with the names of the classes.

    Args:
        sampler: a conditional generator.
        classes: one per row, at most `MOST_ROWS`; None or empty for ten.
        seed: the same seed gives the same picture.
        truncation: scales the noise.

    Raises:
        ValueError: for anything out of bounds, or a generator without classes.
    """
    start = whole("seed", seed, 0, MOST_SEED)
    scale = real("truncation", truncation, 0, MOST_TRUNCATION)
    chosen = checked_classes(sampler, classes, MOST_ROWS)
    if not sampler.conditional:
        raise ValueError(f"this generator ({sampler.config.normalization}) has no classes for the rows")
    rows = classes_to_show(sampler, chosen or None, start)
    images = draw_grid(sampler, "fixed-z", rows, start, scale)
    return with_names(images_to_picture(images, COLUMNS), [class_to_text(sampler, label) for label, _ in rows])


def share_noise(samplers: Mapping[str, Sampler]) -> list[str]:
    """The names of the first two or more whose noise has the same length; empty if no two have that."""
    lengths = {name: sampler.config.noise for name, sampler in samplers.items()}
    groups = ([name for name in lengths if lengths[name] == length] for length in lengths.values())
    return next((names for names in groups if len(names) > 1), [])


def comparison(
    samplers: Mapping[str, Sampler],
    names: object,
    classes: object = None,
    count: object = 36,
    seed: object = 0,
    truncation: object = 1.0,
) -> dict[str, tuple[Image.Image, str]]:
    """For each run by name, a grid from the same noise and classes, and its caption.

    Args:
        samplers: the runs by name.
        names: at least two of them.
        classes: a class, or several that take turns; ignored by runs without classes.
        count: number of images of each run.
        seed: the same seed gives the same noise.
        truncation: scales the noise.

    Raises:
        ValueError: for fewer than two runs, unknown ones, or noise of different lengths.
    """
    chosen = [name for name in samplers if isinstance(names, list | tuple) and name in names]
    if len(chosen) < 2 or not isinstance(names, list | tuple) or len(set(names)) != len(chosen):
        raise ValueError(f"choose two or more of these runs: {', '.join(samplers)}; got {shown(names)}")
    lengths = {name: samplers[name].config.noise for name in chosen}
    if len(set(lengths.values())) > 1:
        each = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"these runs cannot be compared, since their noise has different lengths: {each}")
    pictures = {}
    for name in chosen:
        sampler = samplers[name]
        wanted = classes if sampler.conditional else None
        images = sample_images(sampler, wanted, count=count, seed=seed, truncation=truncation)
        facts = [f"{name}: {sampler.config.normalization}"]
        facts += [] if sampler.iteration is None else [f"iteration {sampler.iteration:,}"]
        facts += [] if sampler.conditional else ["no classes"]
        pictures[name] = images_to_picture(images), ", ".join(facts)
    return pictures
