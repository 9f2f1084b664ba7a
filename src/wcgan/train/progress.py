"""TrainingProgress on the terminal, or in plain lines where there is none."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress

from wcgan.data.terminal import printable, printable_lines

SECONDS_BETWEEN_LINES = 10.0
OnProgress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


class TrainingProgress:
    """Says where a run stands."""

    def say(self, text: str) -> None:
        """A sentence of its own."""

    def show(self, values: dict[str, float]) -> None:
        """The latest figures."""

    def advance(self, iteration: int) -> None:
        """So many iterations are done."""


class _Bar(TrainingProgress):
    def __init__(self, bar: RichProgress, total: int) -> None:
        self.bar, self.task = bar, bar.add_task("training", total=total, figures="", rate="")
        self._first: tuple[int, float] | None = None

    def say(self, text: str) -> None:
        self.bar.console.print(printable_lines(text), markup=False, emoji=False)

    def show(self, values: dict[str, float]) -> None:
        figures = "  ".join(f"{name} {value:.3f}" for name, value in values.items())
        self.bar.update(self.task, figures=printable(figures))

    def advance(self, iteration: int) -> None:
        now = time.monotonic()
        self._first = self._first or (iteration, now)
        done, seconds = iteration - self._first[0], now - self._first[1]
        rate = f"{done / seconds:.1f} it/s" if done and seconds else ""
        self.bar.update(self.task, completed=iteration, rate=rate)


class _Lines(TrainingProgress):
    def __init__(self, total: int) -> None:
        self.total, self._figures, self._last = total, "", 0.0
        self._first: tuple[int, float] | None = None

    def say(self, text: str) -> None:
        print(printable_lines(text), file=sys.stderr, flush=True)  # noqa: T201

    def show(self, values: dict[str, float]) -> None:
        self._figures = "  ".join(f"{name} {value:.3f}" for name, value in values.items())

    def advance(self, iteration: int) -> None:
        now = time.monotonic()
        self._first = self._first or (iteration, now)
        if now - self._last < SECONDS_BETWEEN_LINES and iteration < self.total:
            return
        self._last = now
        done, seconds = iteration - self._first[0], now - self._first[1]
        left = f"  {seconds / done * (self.total - iteration):.0f} s left" if done else ""
        self.say(f"{iteration}/{self.total}  {self._figures}{left}")


@contextmanager
def progress_for(total: int, visible: bool) -> Iterator[TrainingProgress]:
    """A bar on a terminal, lines elsewhere, nothing for processes other than the first."""
    console = Console(stderr=True)
    if not visible:
        yield TrainingProgress()
    elif console.is_terminal:
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
        )
        with RichProgress(*columns, console=console) as bar:
            yield _Bar(bar, total)
    else:
        yield _Lines(total)
