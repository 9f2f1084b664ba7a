"""Show the state of a table's runs: as a live table on a terminal, or as one line per change elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Column
from rich.table import Table as RichTable

from wcgan.core.terminal import cells, printable
from wcgan.reproduce.plan import PlannedRun
from wcgan.runs.status import RunStatus

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

        def show(run: PlannedRun, state: RunStatus, words: str) -> None:
            known[run.folder] = (run, state, words)
            shown.update(_table(known.values()))

        yield show


def _lines() -> Show:
    before: dict[object, RunStatus] = {}
    said: set[str] = set()

    def show(run: PlannedRun, state: RunStatus, words: str) -> None:
        if before.get(run.folder) != state:
            before[run.folder] = state
            if state is RunStatus.FAILED:  # a reason that several runs share is printed once
                words = "" if words in said else words
                said.add(words)
            line = printable(f"{run.name}: {state}{f' ({words})' if words else ''}")
            print(line, file=sys.stderr, flush=True)  # noqa: T201

    return show


def _table(runs: Iterable[tuple[PlannedRun, RunStatus, str]]) -> RichTable:
    table = RichTable(*(Column(name, overflow="fold") for name in ("row", "seed", "state", "")))
    for run, state, words in sorted(runs, key=lambda each: _ORDER.index(each[1])):
        table.add_row(*cells((run.row.preset, run.seed, state, words)))
    return table
