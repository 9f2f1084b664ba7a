"""`wcgan reproduce`: list the runs of a table, complete those that are not done, and write the table."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Column
from rich.table import Table as RichTable

from wcgan.core.processes import process_count, stop_requests
from wcgan.core.terminal import INCOMPLETE, cells, printable
from wcgan.data import check_present
from wcgan.paper.tables import Row, Table
from wcgan.report import write_table
from wcgan.reproduce.complete_run import (
    RunResult,
    complete_run,
    find_scorer,
    result_if_complete,
    run_to_summary,
    scorer_to_notes,
)
from wcgan.reproduce.experiments import EXPERIMENTS, choose_rows, find_table, with_rows
from wcgan.reproduce.plan import PlannedRun, Reproduction, RunConfig, folders_of, read_options, write_options
from wcgan.reproduce.ray import connected, import_ray, run_on_cluster
from wcgan.runs.status import RunStatus

_NOT_STARTED = RunResult(RunStatus.NOT_STARTED, sentence=str(RunStatus.NOT_STARTED))


@dataclass(frozen=True)
class RowPreview:
    """What `wcgan reproduce` would run for a row of a table."""

    row: Row
    iterations: int
    """Iterations of one run."""
    seeds: int
    done: int
    """Seeds with nothing left to do."""
    begun: int
    """Seeds that would be resumed."""
    folder: Path
    """The folder with a sub-folder `seed-N` for each seed."""
    missing: str
    """Why the row cannot be trained here; empty if it can."""


def preview(plan: Reproduction) -> list[RowPreview]:
    """What `reproduce` would run, row by row; nothing is trained or written, and no data is read."""
    scorer, rows = find_scorer(), []
    for preset in dict.fromkeys(run.row.preset for run in plan.runs):
        runs = [run for run in plan.runs if run.row.preset == preset]
        statuses = Counter(run_to_summary(run, scorer).status for run in runs)
        done, first = statuses[RunStatus.DONE] + statuses[RunStatus.DIVERGED], runs[0]
        begun = len(runs) - done - statuses[RunStatus.NOT_STARTED]
        missing = "" if done == len(runs) else missing_data(first.config)
        folder = first.folder.parent
        length = first.config.train.iterations
        rows.append(RowPreview(first.row, length, len(runs), done, begun, folder, missing))
    return rows


def missing_data(config: RunConfig) -> str:
    """A sentence on the data set that a run needs and that is not on this machine; empty if it is."""
    try:
        check_present(config.data.name, config.data.folder)
    except FileNotFoundError as error:
        return str(error)
    return ""


def preview_to_lines(rows: Sequence[RowPreview]) -> list[str]:
    """One line per row and one for the whole table, then one per reason why rows cannot be trained."""
    lines = [f"{'row':35} iterations     done  begun  folder"]
    for row in rows:
        done = f"{row.done} of {row.seeds}"
        lines.append(f"{row.row.preset:35} {row.iterations:>10,} {done:>8} {row.begun:>6}  {row.folder}/seed-*")
    done, seeds, begun = (sum(counts) for counts in zip(*((r.done, r.seeds, r.begun) for r in rows), strict=True))
    lines.append(f"{'all':35} {'':10} {f'{done} of {seeds}':>8} {begun:>6}")
    reasons = Counter(row.missing for row in rows if row.missing)
    return lines + [f"{count} of {len(rows)} rows cannot be trained here: {why}" for why, count in reasons.items()]


@dataclass(frozen=True)
class Result:
    """What `reproduce` made."""

    files: dict[str, Path]
    """Format (md, csv, tex, html, svg) -> the table's file."""
    problems: tuple[str, ...]
    """One sentence per reason why runs are not done."""
    stopped_by: int | None = None
    """The signal that stopped it, if one did."""

    @property
    def exit_code(self) -> int:
        """0 if every run that was asked for is done."""
        return 128 + self.stopped_by if self.stopped_by is not None else INCOMPLETE if self.problems else 0


def reproduce(plan: Reproduction, ray: str | None = None, gpus_per_run: float | None = None) -> Result:
    """Make a table: complete every run of the plan, one after another or as tasks on Ray, then write the files.

    Args:
        plan: the result of `plan_table`.
        ray: local, or a cluster's address; None, or Ray not being installed, means one run after another.
        gpus_per_run: share of a GPU for each task on Ray; None for a whole GPU.
    """
    if process_count() > 1:
        raise ValueError("wcgan reproduce runs in one process: use --ray for several runs at once")
    if gpus_per_run is not None and not 0 < gpus_per_run <= 1:
        raise ValueError(f"--gpus-per-run must be more than 0 and at most 1, got {gpus_per_run}")
    scorer, module = find_scorer(), None if ray is None else import_ray()
    notes = scorer_to_notes(scorer, plan)
    if ray is not None and module is None:
        notes.append("Ray is not installed (pip install 'wcgan[cluster]'): the runs were made one after another.")
    write_options(plan)
    results = {run.name: result for run in plan.runs if (result := result_if_complete(run, scorer)) is not None}
    left = [run for run in plan.runs if run.name not in results]
    with ExitStack() as context:
        stop = context.enter_context(stop_requests(interrupt=module is None))
        if module is not None and left:
            # Until it is shut down, Ray prints to stdout that a worker has died.
            context.enter_context(redirect_stdout(sys.stderr))
            context.enter_context(connected(module, str(ray)))
        show = context.enter_context(display_runs(plan.runs, live=module is not None))
        for run in plan.runs:
            if run.name in results:
                show(run, results[run.name].status, results[run.name].sentence)
        pending = (
            _complete_in_turn(left, show)
            if module is None or not left
            else run_on_cluster(module, left, plan.out, gpus_per_run, show, lambda: stop.signal is not None)
        )
        try:
            for run, result in pending:
                results[run.name] = result
                show(run, result.status, result.sentence)
                stop.signal = stop.signal or result.stopped_by
        except KeyboardInterrupt:
            pass  # outside of training, where every file is written whole
    missing = {run.name: results.get(run.name, _NOT_STARTED) for run in plan.runs}
    missing = {name: result for name, result in missing.items() if result.status is not RunStatus.DONE}
    undone = [f"Not done: {', '.join(f'{name} ({e.status})' for name, e in missing.items())}."] if missing else []
    files = _write(plan.key, plan.table, plan.out, [*notes, *undone])
    return Result(files, tuple(_problems(missing, len(plan.runs))), stop.signal)


def _problems(missing: Mapping[str, RunResult], runs: int) -> Iterator[str]:
    """One sentence per reason; what all runs lack, such as a data set, is reported once for the table."""
    reasons: dict[str, list[str]] = {}
    for name, result in missing.items():
        reasons.setdefault(result.sentence, []).append(name)
    for sentence, names in reasons.items():
        yield sentence if len(names) == runs > 1 else f"{'; '.join(names)}: {sentence}"


def rebuild(folder: Path, name: str | None = None, rows: Sequence[str] = ()) -> dict[str, Path]:
    """Write the files of tables from the folders of their runs, without training -> table and its HTML page.

    Args:
        folder: the folder with a sub-folder for each table.
        name: the table; None for every table that has a run.
        rows: the rows to write, as for `choose_rows`; none for all.

    Raises:
        ValueError: if there is no run.
    """
    if rows and name is None:
        raise ValueError("--rows chooses rows of one table: name the table")
    if not folder.is_dir():
        raise ValueError(f"{folder} does not exist: name the folder with a sub-folder for each table")
    keys = [key for key in EXPERIMENTS if (folder / key).is_dir()] if name is None else [find_table(name)]
    found = [key for key in keys if any(folders_of(key, folder).values())]
    if not found:
        raise ValueError(f"{folder} has no run{f' of {keys[0]}' if name else ''}: runs are in TABLE/ROW/seed-N")
    tables = {key: with_rows(EXPERIMENTS[key], {row.preset for row in choose_rows(key, rows)}) for key in found}
    return {key: _write(key, table, folder)["html"] for key, table in tables.items()}


def _write(key: str, table: Table, out: Path, notes: Sequence[str] = ()) -> dict[str, Path]:
    folder, presets = out / key, {row.preset for row in table.rows}
    runs = {preset: folders for preset, folders in folders_of(key, out).items() if preset in presets}
    shared = dict.fromkeys(run.parents[1] for own in runs.values() for run in own)  # rows may be another table's too
    scale, settings = read_options(folder, *shared)
    changed = [f"Set in every run: {', '.join(settings)}."] if settings else []
    return write_table(table, runs, folder, scale, [*changed, *notes])


def _complete_in_turn(runs: Sequence[PlannedRun], show: Show) -> Iterator[tuple[PlannedRun, RunResult]]:
    for run in runs:
        show(run, RunStatus.RUNNING, "")
        result = complete_run(run)
        yield run, result
        if result.stopped_by is not None:
            return


Show = Callable[[PlannedRun, RunStatus, str], None]
"""Takes a run, its status, and details."""
REFRESHES_PER_SECOND = 2
# The most telling first: a terminal may not have room for all runs.
_ORDER = [
    RunStatus.RUNNING,
    RunStatus.FAILED,
    RunStatus.DIVERGED,
    RunStatus.STOPPED,
    RunStatus.UNFINISHED,
    RunStatus.FINISHED,
    RunStatus.NOT_STARTED,
    RunStatus.DONE,
]


@contextmanager
def display_runs(runs: Sequence[PlannedRun], live: bool) -> Iterator[Show]:
    """A context that gives a function to call with every change.

    Args:
        runs: all runs to show.
        live: whether to show a table on a terminal; runs that go one after another show a progress bar instead.
    """
    console = Console(stderr=True)
    if not live or not console.is_terminal:
        yield _lines()
        return
    known = {run.folder: (run, RunStatus.NOT_STARTED, "") for run in runs}
    with Live(_table(known.values()), console=console, refresh_per_second=REFRESHES_PER_SECOND) as shown:

        def show(run: PlannedRun, status: RunStatus, words: str) -> None:
            known[run.folder] = (run, status, words)
            shown.update(_table(known.values()))

        yield show


def _lines() -> Show:
    before: dict[object, RunStatus] = {}
    said: set[str] = set()

    def show(run: PlannedRun, status: RunStatus, words: str) -> None:
        if before.get(run.folder) != status:
            before[run.folder] = status
            if status is RunStatus.FAILED:  # a reason that several runs share is printed once
                words = "" if words in said else words
                said.add(words)
            line = printable(f"{run.name}: {status}{f' ({words})' if words else ''}")
            print(line, file=sys.stderr, flush=True)  # noqa: T201

    return show


def _table(runs: Iterable[tuple[PlannedRun, RunStatus, str]]) -> RichTable:
    table = RichTable(*(Column(name, overflow="fold") for name in ("row", "seed", "status", "")))
    for run, status, words in sorted(runs, key=lambda each: _ORDER.index(each[1])):
        table.add_row(*cells((run.row.preset, run.seed, status, words)))
    return table
