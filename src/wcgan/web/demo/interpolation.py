"""Interpolates between two noise vectors, along the great circle, and between the colorings of two classes."""

from __future__ import annotations

import io

import torch
from PIL import Image
from torch import Tensor

from wcgan.core.terminal import shown
from wcgan.runs.sampler import Sampler
from wcgan.web.demo.pictures import (
    MOST_FRAMES,
    MOST_PATHS,
    MOST_SEED,
    MOST_TRUNCATION,
    checked_classes,
    images_to_picture,
    real,
    whole,
)

BETWEEN = ("two noise vectors", "two classes", "both")
_COLUMNS = 4
_MILLISECONDS = 80  # per frame
_STRAIGHT = 1e-4  # radians; noise vectors closer than this are interpolated on a line


def great_circle(start: Tensor, end: Tensor, t: float) -> Tensor:
    r"""Points between noise vectors `(N, n)`, on the great circle rather than on the straight line.

    .. math:: \frac{\sin((1-t)\,\omega)}{\sin\omega}\,z_0 + \frac{\sin(t\,\omega)}{\sin\omega}\,z_1

    with :math:`\omega` the angle between them. Noise in many dimensions is near a sphere;
    the middle of the line is not.

    Example:
        >>> import torch
        >>> great_circle(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 2.0]]), 0.5)
        tensor([[1.4142, 1.4142]])
    """
    cosine = torch.nn.functional.cosine_similarity(start.double(), end.double(), dim=1).clamp(-1, 1)
    omega = cosine.arccos().unsqueeze(1)  # (N, 1)
    line = omega.sin() < _STRAIGHT
    sine = torch.where(line, 1.0, omega.sin())
    first = torch.where(line, torch.full_like(omega, 1 - t), ((1 - t) * omega).sin() / sine)
    second = torch.where(line, torch.full_like(omega, t), (t * omega).sin() / sine)
    return (first * start + second * end).to(start.dtype)


def path_images(
    sampler: Sampler,
    t: object,
    between: object = BETWEEN[0],
    seeds: tuple[object, object] = (0, 1),
    classes: tuple[object, object] = (0, 1),
    count: object = 8,
    truncation: object = 1.0,
) -> Tensor:
    """Images `(count, C, H, W)` uint8 at position `t` between the two ends.

    Args:
        sampler: a generator.
        t: the position, from 0 to 1.
        between: what changes, one of `BETWEEN`; the rest stays at the first end.
        seeds: seeds of the noise at both ends.
        classes: classes at both ends; weights (1 - t, t) mix their coloring matrices. Unused without classes.
        count: number of images, at most `MOST_PATHS`.
        truncation: scales the noise.

    Raises:
        ValueError: for a value out of bounds, or a generator without classes where they are needed.
    """
    part = real("the position", t, 0, 1)
    number = whole("count", count, 1, MOST_PATHS)
    scale = real("truncation", truncation, 0, MOST_TRUNCATION)
    if between not in BETWEEN:
        raise ValueError(f"between takes {', '.join(BETWEEN)}; got {shown(between)}")
    if between != BETWEEN[0] and not sampler.conditional:
        raise ValueError(f"this generator ({sampler.config.normalization}) has no classes to interpolate between")
    ends = [sampler.noise(number, whole("seed", seed, 0, MOST_SEED)) for seed in seeds]
    z = ends[0] if between == BETWEEN[1] else great_circle(ends[0], ends[1], part)
    return sampler.from_noise(scale * z, _labels(sampler, classes, part if between != BETWEEN[0] else 0.0, number))


def _labels(sampler: Sampler, classes: tuple[object, object], t: float, count: int) -> Tensor | None:
    if not sampler.conditional or sampler.config.classes is None:
        return None
    found = [checked_classes(sampler, label, 1) for label in classes]
    if not all(found):
        raise ValueError("choose a class at both ends")
    (first,), (last,) = found
    weights = torch.zeros(count, sampler.config.classes)
    weights[:, first] += 1 - t
    weights[:, last] += t
    return weights


def path_picture(images: Tensor) -> Image.Image:
    """The images side by side."""
    return images_to_picture(images, min(_COLUMNS, len(images)))


def animation(sampler: Sampler, frames: object = 24, **options: object) -> bytes:
    """An animation from one end to the other and back, as a lossless WebP; `options` are those of `path_images`.

    Raises:
        ValueError: for a value out of bounds.
    """
    steps = whole("frames", frames, 2, MOST_FRAMES)
    there = [path_picture(path_images(sampler, k / (steps - 1), **options)) for k in range(steps)]  # type: ignore[arg-type]
    film, content = [*there, *there[-2:0:-1]], io.BytesIO()
    film[0].save(content, "WEBP", save_all=True, append_images=film[1:], duration=_MILLISECONDS, loop=0, lossless=True)
    return content.getvalue()
