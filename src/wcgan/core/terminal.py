"""Text for people: made safe for the terminal, as progress, and as tables."""

from __future__ import annotations

import math
import sys
import time
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress
from rich.table import Column

from wcgan.core.options import name_options

if TYPE_CHECKING:
    from rich.text import Text

INCOMPLETE, BAD_INPUT = 1, 2
"""Exit codes of commands that could not do all that they were asked for, or nothing."""
# Control characters can move the cursor and more. A lone surrogate, which stands for a byte of a file name that is not
# UTF-8, cannot be printed. Some format characters reverse the text that follows them.
_UNSAFE = {"Cc", "Cs", "Zl", "Zp"}
_REVERSING = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: object) -> str:
    """A name or value as one line, with characters that could control a terminal replaced by escapes.

    Example:
        >>> printable("run\\x1b[2J")
        'run\\\\x1b[2J'
        >>> printable("caf\\udce9")  # a byte that is not UTF-8
        'caf\\\\xe9'
    """
    return "".join(_escaped(char) if _is_unsafe(char) else char for char in str(text))


def printable_lines(text: str) -> str:
    """Text of several lines, each made safe by `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def cells(values: Iterable[object]) -> list[Text]:
    """Names and values for a row of a Rich table; `[...]` in them is not markup."""
    from rich.text import Text  # slow to import, and only tables need it

    return [Text(printable(value)) for value in values]


def shown(value: object) -> str:
    """The repr of a value, shortened for an error message.

    Example:
        >>> shown("a" * 100)
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa..."
    """
    try:
        return shortened(repr(value))
    except ValueError:  # an integer with thousands of digits
        return "a number with thousands of digits"


def shortened(text: str) -> str:
    """Text from outside as one line of at most some 40 characters, for an error message.

    Example:
        >>> shortened("a" * 100)
        'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...'
    """
    return printable(text if len(text) <= 40 else f"{text[:40]}...")


def counted(count: int, noun: str) -> str:
    """A count with its noun, in the plural where needed.

    Example:
        >>> counted(1, "run"), counted(1200, "run"), counted(2, "class")
        ('1 run', '1,200 runs', '2 classes')
    """
    plural = noun if count == 1 else f"{noun}{'es' if noun.endswith('s') else 's'}"
    return f"{count:,} {plural}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message that is not blank, or the error's name.

    Example:
        >>> first_line(ValueError("\\n not so\\n")), first_line(KeyboardInterrupt())
        ('not so', 'KeyboardInterrupt')
    """
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def nearest(name: str, known: Iterable[str]) -> str:
    """The three known names most similar to another, case aside, for an error message.

    Example:
        >>> nearest("bn", ["WC", "cBN", "BN", "std-C"])
        'BN, cBN, WC'
    """

    def similarity(each: str) -> float:
        return SequenceMatcher(None, each.lower(), name.lower()).ratio()

    return ", ".join(sorted(known, key=similarity, reverse=True)[:3])


def _is_unsafe(char: str) -> bool:
    return char in _REVERSING or unicodedata.category(char) in _UNSAFE


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")


SECONDS_BETWEEN_LINES = 10.0
OnProgress = Callable[[str, int, int], None]
"""Called with a description, how much is done, and how much there is."""


def announce(text: str) -> None:
    """Prints a line beside the progress, to standard error."""
    print(printable_lines(name_options(text)), file=sys.stderr, flush=True)  # noqa: T201


class TrainingProgress:
    """Shows the progress of a run; this base class shows nothing."""

    def say(self, text: str) -> None:
        """Prints a message."""

    def show(self, values: dict[str, float]) -> None:
        """Sets the latest figures; the name of a loss starts with `loss/`."""

    def advance(self, iteration: int) -> None:
        """Sets the number of iterations done."""


def figures_to_text(values: dict[str, float]) -> str:
    """The figures of a training in one line, losses first.

    Example:
        >>> figures_to_text({"loss/discriminator": 1.8451, "loss/generator": 1.73})
        'loss: discriminator 1.845  generator 1.730'
        >>> figures_to_text({"loss/training": 2.25, "error/training": 87.5})
        'loss: training 2.250  error/training 87.500'
    """
    losses = [f"{name.removeprefix('loss/')} {v:.3f}" for name, v in values.items() if name.startswith("loss/")]
    others = [f"{name} {v:.3f}" for name, v in values.items() if not name.startswith("loss/")]
    return ("loss: " if losses else "") + "  ".join([*losses, *others])


class _Bar(TrainingProgress):
    def __init__(self, bar: RichProgress, total: int) -> None:
        self.bar, self.task = bar, bar.add_task("training", total=total, figures="", rate="")
        self._first: tuple[int, float] | None = None

    def say(self, text: str) -> None:
        self.bar.console.print(printable_lines(text), markup=False, emoji=False, highlight=False)

    def show(self, values: dict[str, float]) -> None:
        self.bar.update(self.task, figures=printable(figures_to_text(values)))

    def advance(self, iteration: int) -> None:
        now = time.monotonic()
        self._first = self._first or (iteration, now)
        done, seconds = iteration - self._first[0], now - self._first[1]
        rate = f"{done / seconds:.1f}/s" if done and seconds else ""
        self.bar.update(self.task, completed=iteration, rate=rate)


def duration(seconds: object) -> str:
    """A time span in its two largest units; a dash for what is no number.

    Example:
        >>> [duration(s) for s in (8.4, 75, 3700, 200_000, None)]
        ['8 s', '1 min 15 s', '1 h 1 min', '2 d 7 h', '\u2013']
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return "\u2013"
    whole = round(seconds)
    for unit, size, below, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


class _Lines(TrainingProgress):
    def __init__(self, total: int) -> None:
        self.total, self._figures, self._last = total, "", 0.0
        self._first: tuple[int, float] | None = None

    def say(self, text: str) -> None:
        announce(text)

    def show(self, values: dict[str, float]) -> None:
        self._figures = figures_to_text(values)

    def advance(self, iteration: int) -> None:
        now = time.monotonic()
        self._first = self._first or (iteration, now)
        done, seconds = iteration - self._first[0], now - self._first[1]
        too_early = now - self._last < SECONDS_BETWEEN_LINES or not (done or self._figures)  # a count alone says little
        if too_early and iteration < self.total:
            return
        self._last = now
        left = f"{duration(seconds / done * (self.total - iteration))} left" if done else ""
        self.say("  ".join(part for part in (f"{iteration}/{self.total}", self._figures, left) if part))


def training_columns() -> tuple[ProgressColumn, ...]:
    """The progress bar of a training: in a narrow terminal the figures are wrapped, and the rest is never cut."""
    return (
        BarColumn(bar_width=8),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[figures]}", markup=False, table_column=Column(no_wrap=False)),
    )


@contextmanager
def progress_for(total: int, visible: bool) -> Iterator[TrainingProgress]:
    """A progress bar on a terminal, lines elsewhere, and nothing unless `visible`."""
    console = Console(stderr=True)
    if not visible:
        yield TrainingProgress()
    elif console.is_terminal:
        with RichProgress(*training_columns(), console=console) as bar:
            yield _Bar(bar, total)
    else:
        yield _Lines(total)


@contextmanager
def progress_bars() -> Iterator[OnProgress]:
    """Yields a function that shows progress: a bar for each description on a terminal, lines elsewhere."""
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


Row = tuple[str, ...]
GAP = 2
"""Spaces between the columns of a table."""


def split_columns(heads: Row, rows: Sequence[Row], width: int) -> list[tuple[Row, list[Row]]]:
    """A table as several that fit a width, each with the first column and some of the others.

    The first column counts with half of the width at most, since long names can be folded. A head may break before a
    bracket.

    Example:
        >>> split_columns(("run", "FID(classifier)", "IS"), [("wc", "1.5", "8.25")], width=20)
        [(('run', 'FID(classifier)'), [('wc', '1.5')]), (('run', 'IS'), [('wc', '8.25')])]
    """
    lines = [tuple(head.replace("(", "\n(").split("\n")) for head in heads]
    widths = [max(map(len, (*line, *column))) + GAP for line, *column in zip(lines, *rows, strict=True)]
    first = min(widths[0], width // 2)
    parts: list[list[int]] = [[]]
    for place in range(1, len(heads)):
        if parts[-1] and first + sum(widths[each] for each in parts[-1]) + widths[place] > width:
            parts.append([])
        parts[-1].append(place)
    return [
        (tuple(heads[each] for each in (0, *part)), [tuple(row[each] for each in (0, *part)) for row in rows])
        for part in parts
    ]


def rows_to_markdown(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Container[str] = ()) -> list[str]:
    """The lines of a Markdown table; cells are Markdown, and the columns named in `right` are right-aligned.

    Example:
        >>> print(*rows_to_markdown(("run", "FID"), [("`WC`", "17.2")], right=("FID",)), sep="\\n")
        | run | FID |
        | --- | ---: |
        | `WC` | 17.2 |
    """
    sides = ["---:" if head in right else "---" for head in heads]
    return [f"| {' | '.join(line)} |" for line in (heads, sides, *rows)]
