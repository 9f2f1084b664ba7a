"""Grids of a generator's images, one class per row where it has classes, each with a text beside it."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from wcgan.core.device import random_generator
from wcgan.core.files import write_atomically
from wcgan.core.images import grid, scale_to_show, write_png
from wcgan.runs.sampler import Classes, Sampler, load_generator

COLUMNS = ROWS = 10
# Name -> what its picture shows.
GRIDS = {
    "fixed-z": "one noise per column, one class per row",
    "class-rows": "one class per row, every noise different",
}
PLAIN = "samples"
_FEW = 100  # up to this many classes, the paper shows the first ten; otherwise ten at random


def write_grids(run: Path, folder: Path, seed: int = 0) -> list[Path]:
    """Draw both pictures of a conditional run, or one plain grid of an unconditional run -> the files.

    Args:
        run: the folder of a run.
        folder: where to write `fixed-z.png` and `class-rows.png`, or `samples.png`, each with a text beside it.
        seed: the same seed gives the same pictures.
    """
    sampler = load_generator(run)
    kinds = tuple(GRIDS) if sampler.conditional else (PLAIN,)
    return [write_picture(sampler, run, kind, folder / f"{kind}.png", seed=seed) for kind in kinds]


def write_grid(
    run: Path,
    kind: str,
    file: Path,
    classes: Classes | None = None,
    checkpoint: str = "last",
    seed: int = 0,
    truncation: float = 1.0,
    device: str = "auto",
) -> Path:
    """Draw one picture, and write a text file beside it with its caption and the class of each row.

    Args:
        run: a conditional generator, as `wcgan.load` takes it.
        kind: a key of `GRIDS`.
        file: a `.png`.
        classes: one per row; None for the first ten, or for ten random ones if there are more than a hundred.
        checkpoint: `"last"`, `"best"` or the number of an iteration.
        seed: the same seed gives the same picture.
        truncation: factor for the noise.
        device: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:N"`.

    Raises:
        ValueError: for an unknown kind, a file that is not a `.png`, or a run without classes.
    """
    if kind not in GRIDS:
        raise ValueError(f"--grid takes {' or '.join(GRIDS)}, got {kind!r}")
    if file.suffix.lower() != ".png":
        raise ValueError(f"a grid is one picture: name a .png file, not {file}")
    sampler = load_generator(run, checkpoint, device)
    if not sampler.conditional:
        raise ValueError(f"{run} has no classes (its generator has {sampler.config.normalization}): leave out --grid")
    return write_picture(sampler, run, kind, file, classes, seed, truncation)


def write_picture(
    sampler: Sampler,
    run: Path,
    kind: str,
    file: Path,
    classes: Classes | None = None,
    seed: int = 0,
    truncation: float = 1.0,
) -> Path:
    """Draw one picture, of a kind in `GRIDS` or `PLAIN`, and write a text file beside it; see `write_grid`."""
    shown = classes_to_show(sampler, classes, seed)
    picture = grid(draw_grid(sampler, kind, shown, seed, truncation), COLUMNS)
    write_png(picture, file, scale_to_show(sampler.config.resolution))
    lines = [
        f"{run.resolve().name} at iteration {sampler.iteration}, seed {seed}, truncation {truncation:g}",
        GRIDS.get(kind, "every noise different"),
        *(f"row {row}: class {label} {name}".rstrip() for row, (label, name) in enumerate(shown, 1)),
    ]
    write_atomically(file.with_name(f"{file.name}.txt"), "".join(f"{line}\n" for line in lines).encode())
    return file


def classes_to_show(sampler: Sampler, classes: Classes | None, seed: int) -> list[tuple[int, str]]:
    """The number and name of each row's class; empty for an unconditional generator."""
    number = sampler.config.classes
    if not sampler.conditional or number is None:
        return []
    if classes is None:
        order = torch.arange(number)
        if number > _FEW:
            order = torch.randperm(number, generator=random_generator(seed, "grid", 0))
        classes = order[:ROWS].sort().values.tolist()
    classes = [classes] if isinstance(classes, int | str) else classes
    labels = sampler.labels(len(classes), classes)
    assert labels is not None
    names = dict(enumerate(sampler.class_names))
    return [(label, names.get(label, "")) for label in labels.tolist()]


def draw_grid(
    sampler: Sampler, kind: str, classes: Sequence[tuple[int, str]], seed: int, truncation: float = 1.0
) -> Tensor:
    """A grid's images `(rows * columns, C, H, W)`, row by row."""
    rows = len(classes) or ROWS
    z = sampler.noise(COLUMNS, seed).repeat(rows, 1) if kind == "fixed-z" else sampler.noise(rows * COLUMNS, seed)
    labels = torch.tensor([label for label, _ in classes]).repeat_interleave(COLUMNS) if classes else None
    return sampler.from_noise(truncation * z, labels)
