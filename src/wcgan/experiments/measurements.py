"""What `wcgan reproduce` makes that is no table of runs: times, and pictures of runs that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wcgan.experiments.grids import write_grids
from wcgan.experiments.overhead import measure_and_write
from wcgan.experiments.tables import EXPERIMENTS, folders_of

Make = Callable[[Path, Sequence[str], Callable[[str], None]], Path]
"""From the folder of all tables, settings, and a function that says what is being done, to what was made."""


@dataclass(frozen=True)
class Measurement:
    """Made by a function of its own."""

    title: str
    make: Make


def make_overhead(out: Path, settings: Sequence[str], say: Callable[[str], None]) -> Path:
    """Times of iterations and of whitening, in `OUT/overhead`."""
    return measure_and_write(out / "overhead", settings, say)


def make_grids(out: Path, settings: Sequence[str], say: Callable[[str], None]) -> Path:
    """The pictures of every row that has a run with a checkpoint, of its first seed, in `OUT/grids`.

    Raises:
        ValueError: where no row has one, or for settings: the runs have their own.
    """
    if settings:
        raise ValueError(f"grids are of runs as they were trained: leave out --set {settings[0]}")
    keys = [key for key, table in EXPERIMENTS.items() if not table.classifiers]
    runs = [run for key in keys for folders in folders_of(key, out).values() for run in folders]
    trained = [run for run in dict.fromkeys(runs) if any((run / "checkpoints").glob("*.safetensors"))]
    if not trained:
        raise ValueError(f"{out} holds no run with a checkpoint: make a table first, such as `wcgan reproduce digits`")
    first = {run.parent: run for run in reversed(trained)}
    for row in sorted(first):
        for picture in write_grids(first[row], out / "grids" / row.parent.name / row.name):
            say(str(picture))
    return out / "grids"


MEASUREMENTS = {
    "overhead": Measurement("What whitening costs, beside the paper's times", make_overhead),
    "grids": Measurement("Pictures of the runs, one class a row", make_grids),
}
