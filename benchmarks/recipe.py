"""What each part of the recipe gives: a plain start with one change at a time, as a table.

    python benchmarks/recipe.py [--preset cifar10/best] [--iterations 10000] [--rows NAME ...] [--out runs/recipe]
                                [--data FOLDER] [--set section.field=value ...]

Each row is a run in a folder of its own, which a second call resumes; several processes with other `--rows` can share
`--out` and a GPU. Printed is the table of the rows that are there, with the time that each took; `--rows` alone prints
it and trains nothing.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wcgan.core.terminal import rows_to_markdown
from wcgan.paper.presets import configure
from wcgan.runs.config import Config
from wcgan.runs.folder import Run
from wcgan.train.journal import facts_of
from wcgan.train.start import start

# What each row is a change of: the paper's networks and rate, with flips and a moving average.
START = (
    "generator.widths=[128, 128, 128]",
    *(f"train.{setting}" for setting in ("schedule=linear", "beta2=0.9", "lecam=0", "equal_classes=0")),
    *(f"train.{setting}" for setting in ("ema=0", "ema_half_life=500000", "ema_ramp=0", "generator_batch=128")),
    *(f"train.{setting}" for setting in ("critic_statistics=update", "generated_labels=real")),
)
# Row -> the settings that it changes.
ROWS: dict[str, tuple[str, ...]] = {
    "start": (),
    "cBN": ("generator.normalization=cBN",),
    "cWC_sa": ("generator.normalization=cWC_sa", "generator.options={normalize_assignment: true, class_bias: false}"),
    "generator of 256": ("generator.widths=[256, 256, 256]",),
    "consistency": ("train.consistency=10",),
    "LeCam": ("train.lecam=0.3",),
    "augmentation": ("train.augment=[translation, cutout]",),
    "augmentation, later": ("train.augment=[translation, cutout]", "train.augment_ramp=3200000"),
    "augmentation, color too": ("train.augment=[color, translation, cutout]",),
    "no flips": ("data.flip=false",),
    "no average": ("train.ema_half_life=0",),
    "average that keeps up": ("train.ema_ramp=0.2",),
    "averaged statistics": ("train.ema_statistics=averaged",),
    "slow decay": ("train.schedule_end=50000",),
    "constant rate": ("train.schedule=constant",),
    "longer average": ("train.ema_half_life=1000000",),
    "rate twice as high": ("train.learning_rate=4e-4",),
    "D twice as fast": ("train.learning_rate_discriminator=4e-4",),
    "2 updates of D on 128": ("train.critic_steps=2", "train.batch=128"),
    "beta2 0.999": ("train.beta2=0.999",),
    "two blocks a width": ("generator.depth=2",),
    "attention": ("generator.attention=16", "discriminator.attention=16"),
    "orthogonal coloring": ("generator.options={init: orthogonal}",),
    "identity coloring": ("generator.options={init: identity}",),
    "decay of colorings": ("train.coloring_decay=0.1",),
    "classes slower": ("train.class_rate=0.1",),
    "shrinkage 0.01": ("generator.options={eps: 0.01}",),
}
HEADS = ("row", "change", "FID", "best FID", "iteration", "iterations/s", "minutes")


def row_to_config(row: str, preset: str, iterations: int, folder: Path | None, settings: Sequence[str]) -> Config:
    """The preset as it starts, with so many iterations and the change of a row."""
    config = configure(preset, settings=[f"train.iterations={iterations}", *START, *settings, *ROWS[row]])
    return replace(config, data=replace(config.data, folder=None if folder is None else str(folder)))


def row_to_folder(row: str, out: Path) -> Path:
    return out / row.replace(" ", "-")


def run_to_cells(row: str, run: Run) -> tuple[str, ...]:
    """A row of the table: its change, its last and its best FID, and what it cost."""
    lines = run.lines()
    found = [line for line in lines if line["kind"] == "evaluation"]
    training = [line for line in found if facts_of(line) == facts_of(found[0])]  # none made later
    scores = [next(v for k, v in line.items() if k.startswith("FID")) for line in training]
    last = [line for line in lines if line["kind"] == "train"][-1]
    return (
        row,
        " ".join(ROWS[row]) or "-",
        f"{scores[-1]:.2f}" if scores else "-",
        f"{min(scores):.2f}" if scores else "-",
        str(last["iteration"]),
        f"{last['iteration'] / last['seconds']:.1f}",
        f"{last['seconds'] / 60:.1f}",
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cifar10/best")
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--rows", nargs="*", default=list(ROWS), metavar="NAME", help="none: only print the table")
    parser.add_argument("--out", type=Path, default=Path("runs/recipe"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args(arguments)
    if unknown := [row for row in args.rows if row not in ROWS]:
        parser.error(f"there is no row {unknown[0]!r}; the rows are {', '.join(ROWS)}")
    for row in args.rows:
        config = row_to_config(row, args.preset, args.iterations, args.data, args.settings)
        start(config, row_to_folder(row, args.out), resume=True)
    found = {row: Run(row_to_folder(row, args.out)) for row in ROWS}
    cells = [run_to_cells(row, run) for row, run in found.items() if run.metrics.exists()]
    print("\n".join(rows_to_markdown(HEADS, cells, right=HEADS[2:])))


if __name__ == "__main__":
    main()
