"""A table of the paper with the figures of runs beside it, in five files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from wcgan.paper.tables import Table
from wcgan.report.curves import results_to_figure
from wcgan.report.formats import results_to_csv, results_to_latex, results_to_markdown
from wcgan.report.page import results_to_page, write_whole
from wcgan.report.paper_comparison import runs_to_results
from wcgan.report.read import RunRecord, read_runs

_FORMATS = {
    "md": results_to_markdown,
    "csv": results_to_csv,
    "tex": results_to_latex,
    "html": results_to_page,
    "svg": results_to_figure,
}


def write_table(
    table: Table,
    runs: Mapping[str, Sequence[str | os.PathLike[str]]],
    folder: str | os.PathLike[str],
    scale: float = 1.0,
    notes: Sequence[str] = (),
) -> dict[str, Path]:
    """Write a table as `table.md`, `table.csv`, `table.tex` and `table.html`: the paper's figures, ours, and their
    difference; seeds, iterations, protocol, time, hardware and commit of each row. `table.svg` has its curves.

    Ours are two, by the protocol of the paper's figure: the best evaluation on the way, with its iteration, and that of
    the last checkpoint; each the mean over the seeds that got as far. The difference is best against best, and a run
    that was stopped early has none. A score that the paper does not have gets a column without it, and a row without
    runs has dashes.

    Args:
        table: of `wcgan.paper.tables.TABLES`.
        runs: a row's preset -> the folders of its seeds, in any state.
        folder: where the files go; those that exist are replaced, each in one step.
        scale: what the schedules were shortened to, which every file says.
        notes: further sentences on all rows.

    Returns:
        md, csv, tex, html and svg -> the file.

    Raises:
        ValueError: for a preset that the table does not have, a folder that is not a run's, or a scale out of (0, 1].
    """
    if not 0 < scale <= 1:
        raise ValueError(f"scale must be more than 0 and at most 1, got {scale}")
    presets = [row.preset for row in table.rows]
    unknown = [preset for preset in runs if preset not in presets]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a row of {table.title!r}; its rows are {', '.join(presets)}")
    records = {preset: _read_seeds(preset, [Path(run) for run in own]) for preset, own in runs.items() if own}
    results = runs_to_results(table, records, scale, notes)
    return {
        suffix: write_whole(Path(folder) / f"table.{suffix}", convert(results)) for suffix, convert in _FORMATS.items()
    }


def _read_seeds(preset: str, folders: list[Path]) -> list[RunRecord]:
    """The runs of a row, each under its preset and its seed."""
    return [dataclasses.replace(run, name=f"{preset}, seed\u00a0{run.seed}") for run in read_runs(folders)]
