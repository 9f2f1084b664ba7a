"""Tables of tiny runs."""

from __future__ import annotations

import os
from pathlib import Path

from tests.data.cases import random_images, save

from wcgan.runs.folder import Run

ITERATIONS = 12
TINY = (
    "generator.widths=[4, 4]",
    "generator.noise=6",
    "discriminator.widths=[4, 4, 4]",
    "train.batch=4",
    "train.generator_batch=4",
    "train.log_every=1",
    "train.sample_every=6",
    "train.checkpoint_every=4",
    "train.evaluate_images=20",
    "train.device=cpu",
)

TINY_CLASSIFIER = (  # six iterations
    "classifier.depth=8",
    "classifier.width=4",
    "train.iterations=6",
    "train.drops=[4]",
    "train.batch=8",
    "train.crop=1",
    "train.log_every=1",
    "train.checkpoint_every=2",
    "train.evaluate_every=3",
    "train.device=cpu",
)


def tiny(iterations: int = ITERATIONS, *more: str, pictures: Path | None = None) -> tuple[str, ...]:
    """Settings of runs that take a second each; with pictures, on these in place of the digits."""
    data = () if pictures is None else (f"data.name={pictures}",)
    return (*TINY, f"train.iterations={iterations}", *data, *more)


def write_pictures(folder: Path) -> Path:
    """Grey images of the digits' size and number of classes, of which a classifier is trained in a moment."""
    for split, count in (("train", 40), ("test", 20)):
        for number, image in enumerate(random_images(count, 1, 16)):
            save(folder / split / f"class {number % 10}" / f"{number}.png", image)
    return folder


def lines_of(folder: Path, kind: str) -> list[dict]:
    return [line for line in Run(folder).lines() if line["kind"] == kind]


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def holders(file: Path) -> list[int]:
    """The processes that have a file open."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                opened = [os.readlink(link) for link in (process / "fd").iterdir()]
            except OSError:  # it has ended, or is not ours
                continue
            if str(file.resolve()) in opened:
                found.append(int(process.name))
    return found
