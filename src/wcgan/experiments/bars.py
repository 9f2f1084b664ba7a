"""Bars for work in several parts, or plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

from wcgan.data.terminal import printable
from wcgan.train.progress import SECONDS_BETWEEN_LINES, OnProgress


@contextmanager
def progress_bars() -> Iterator[OnProgress]:
    """Gives a function to call with what is being done, how much of it is done, and how much there is."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with RichProgress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(printable(what), total=total)
            bars.update(tasks[what], completed=done)

        yield report


def _lines() -> OnProgress:
    last = time.monotonic()

    def report(what: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"{printable(what)}: {done:,} of {total:,}", file=sys.stderr, flush=True)  # noqa: T201

    return report
