"""`wcgan reproduce`: runs what is missing, goes on with what was stopped, skips what is done, writes the table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from wcgan.core.processes import process_count, stop_requests
from wcgan.paper.tables import Table
from wcgan.reproduce.complete_run import Ending, find_looker, finish_run, looker_to_notes, run_to_ending
from wcgan.reproduce.display import Show, board_for
from wcgan.reproduce.plan import (
    EXPERIMENTS,
    PlannedRun,
    Reproduction,
    choose_rows,
    find_table,
    folders_of,
    read_options,
    with_rows,
    write_options,
)
from wcgan.reproduce.ray import connected, import_ray, run_on_cluster
from wcgan.runs.status import RunStatus

WriteTable = Callable[[Table, Mapping[str, Sequence[Path]], Path, float, Sequence[str]], dict[str, Path]]
"""`wcgan.report.write_table`: from a table and the folders of its rows' runs to its files."""
INCOMPLETE = 1
_NOT_STARTED = Ending(RunStatus.NOT_STARTED, sentence=str(RunStatus.NOT_STARTED))


@dataclass(frozen=True)
class Result:
    """What became of a table."""

    files: dict[str, Path]
    """md, csv, tex and html -> where the table is."""
    problems: tuple[str, ...]
    """A sentence for each reason why runs are not done."""
    stopped_by: int | None = None
    """The signal that ended it early, if any."""

    @property
    def exit_code(self) -> int:
        """0 for a table with every run that was asked for."""
        return 128 + self.stopped_by if self.stopped_by is not None else INCOMPLETE if self.problems else 0


def reproduce(
    plan: Reproduction, write_table: WriteTable, ray: str | None = None, gpus_per_run: float | None = None
) -> Result:
    """Makes a table: every run of the plan, one after another or as tasks on Ray, then its files.

    Args:
        plan: what `plan_table` gives.
        write_table: writes the files.
        ray: local, or a cluster's address; None for one run after another, as where Ray is not installed.
        gpus_per_run: of each task, on Ray; None for a GPU each.
    """
    if process_count() > 1:
        raise ValueError("wcgan reproduce is one process: use --ray for several runs at once")
    if gpus_per_run is not None and not 0 < gpus_per_run <= 1:
        raise ValueError(f"--gpus-per-run must be more than 0 and at most 1, got {gpus_per_run}")
    looker, module = find_looker(), None if ray is None else import_ray()
    notes = looker_to_notes(looker, plan)
    if ray is not None and module is None:
        notes.append("Ray is not installed (pip install 'wcgan[cluster]'): the runs go one after another.")
    write_options(plan)
    endings = {run.name: ending for run in plan.runs if (ending := run_to_ending(run, looker)) is not None}
    left = [run for run in plan.runs if run.name not in endings]
    with ExitStack() as context:
        stop = context.enter_context(stop_requests(interrupt=module is None))
        if module is not None and left:
            # Ray prints to the output that a worker has died, until it is shut down.
            context.enter_context(redirect_stdout(sys.stderr))
            context.enter_context(connected(module, str(ray)))
        show = context.enter_context(board_for(plan.runs, live=module is not None))
        for run in plan.runs:
            if run.name in endings:
                show(run, endings[run.name].state, endings[run.name].sentence)
        results = (
            _run_in_turn(left, show)
            if module is None or not left
            else run_on_cluster(module, left, plan.out, gpus_per_run, show, lambda: stop.signal is not None)
        )
        try:
            for run, ending in results:
                endings[run.name] = ending
                show(run, ending.state, ending.sentence)
                stop.signal = stop.signal or ending.stopped_by
        except KeyboardInterrupt:
            pass  # outside of training, where nothing that is written is half written
    missing = {run.name: endings.get(run.name, _NOT_STARTED) for run in plan.runs}
    missing = {name: ending for name, ending in missing.items() if ending.state is not RunStatus.DONE}
    states = [f"Not done: {', '.join(f'{name} ({e.state})' for name, e in missing.items())}."] if missing else []
    files = _write(plan.key, plan.table, plan.out, write_table, [*notes, *states])
    return Result(files, tuple(_problems(missing, len(plan.runs))), stop.signal)


def _problems(missing: Mapping[str, Ending], runs: int) -> Iterator[str]:
    """A sentence for each reason: what all runs lack, such as a data set, is said once for the table."""
    reasons: dict[str, list[str]] = {}
    for name, ending in missing.items():
        reasons.setdefault(ending.sentence, []).append(name)
    for sentence, names in reasons.items():
        yield sentence if len(names) == runs > 1 else f"{'; '.join(names)}: {sentence}"


def rebuild(folder: Path, name: str | None, write_table: WriteTable, rows: Sequence[str] = ()) -> dict[str, Path]:
    """Writes the files of a table, or of every table that has a run, from the folders of runs alone -> their pages.

    Args:
        folder: holds a folder for each table.
        name: of the table; None for every one.
        write_table: writes the files.
        rows: those to write, as `choose_rows` takes them; none for all.

    Raises:
        ValueError: where there is no run.
    """
    if rows and name is None:
        raise ValueError("--rows are those of one table: name it")
    if not folder.is_dir():
        raise ValueError(f"{folder} is not there: name a folder that holds one for each table")
    keys = [key for key in EXPERIMENTS if (folder / key).is_dir()] if name is None else [find_table(name)]
    found = [key for key in keys if any(folders_of(key, folder).values())]
    if not found:
        raise ValueError(f"{folder} holds no run{f' of {keys[0]}' if name else ''}: they lie in TABLE/ROW/seed-N")
    tables = {key: with_rows(EXPERIMENTS[key], {row.preset for row in choose_rows(key, rows)}) for key in found}
    return {key: _write(key, table, folder, write_table)["html"] for key, table in tables.items()}


def _write(key: str, table: Table, out: Path, write_table: WriteTable, notes: Sequence[str] = ()) -> dict[str, Path]:
    folder, presets = out / key, {row.preset for row in table.rows}
    runs = {preset: folders for preset, folders in folders_of(key, out).items() if preset in presets}
    scale, settings = read_options(folder)
    changed = [f"Set in every run: {', '.join(settings)}."] if settings else []
    return write_table(table, runs, folder, scale, [*changed, *notes])


def _run_in_turn(runs: Sequence[PlannedRun], show: Show) -> Iterator[tuple[PlannedRun, Ending]]:
    for run in runs:
        show(run, RunStatus.RUNNING, "")
        ending = finish_run(run)
        yield run, ending
        if ending.stopped_by is not None:
            return
