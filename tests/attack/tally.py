"""Counts the cases of attacks and what went wrong in them; `make attack` prints the counts as a table.

A test takes the fixture `attack` and runs each of its cases inside `with attack.case():`. An assertion that fails
there is a silent difference, any other exception a traceback. The cases after it run all the same; the test fails at
its end.
"""

import signal
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest

LIMIT = 60.0  # seconds that a case may take on a busy machine; nearly all take milliseconds
HEADS = ("class", "cases", "tracebacks", "silent differences", "hangs", "seconds")


class Hang(BaseException):
    """Raised inside a case that takes too long; not an Exception, so that no handler in the case swallows it."""


def require_named(error: Exception, name: object) -> None:
    """A refusal must name the file that it is about."""
    assert str(name) in str(error), f"{name} is not named: {error}"


def require_sentence(error: Exception) -> None:
    """A refusal must be one line, and not as long as the file."""
    assert "\n" not in str(error).strip(), repr(str(error))
    assert len(str(error)) < 2000, f"{len(str(error))} characters"


def quick_and_long(quick: int, long: int) -> pytest.MarkDecorator:
    """Parametrises `cases`: a quick part for `make test`, a long one for `make attack` and `make test-slow`."""
    marks = (pytest.mark.slow, pytest.mark.attack)
    return pytest.mark.parametrize("cases", [quick, pytest.param(long, marks=marks)])


@dataclass
class Attack:
    """The cases of one test."""

    limit: float = LIMIT
    """Seconds that a case may take."""
    cases: int = 0
    seconds: float = 0.0
    tracebacks: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)

    @contextmanager
    def case(self, count: int = 1) -> Iterator[None]:
        """Runs one case, or `count` that can only be run together."""
        self.cases += count
        start = time.perf_counter()
        try:
            with _interrupted_after(self.limit):
                yield
        except Hang:
            self.hangs.append(f"case {self.cases} was stopped after {self.limit} seconds")
        except AssertionError:
            self.differences.append(f"case {self.cases}: {traceback.format_exc()}")
        except Exception:
            self.tracebacks.append(f"case {self.cases}: {traceback.format_exc()}")
        self.seconds += time.perf_counter() - start

    @property
    def findings(self) -> list[str]:
        return self.tracebacks + self.differences + self.hangs

    def counts(self) -> list[float]:
        return [self.cases, len(self.tracebacks), len(self.differences), len(self.hangs), self.seconds]


@contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """Raises Hang in the block after so many seconds, as soon as Python code runs again."""
    if not hasattr(signal, "setitimer"):  # Windows
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def attack(request: pytest.FixtureRequest) -> Iterator[Attack]:
    """Counts this test's cases, and fails it if anything was found in them."""
    tally = Attack()
    yield tally
    name = request.node.originalname.removeprefix("test_").replace("_", " ")
    request.node.user_properties.append(("attack", [f"{request.path.parent.name}: {name}", *tally.counts()]))
    assert tally.cases > 0, "no case was run"
    assert not tally.findings, f"{len(tally.findings)} findings, the first of which are\n" + "\n".join(
        tally.findings[:3]
    )


def table_lines(rows: list[list[Any]]) -> list[str]:
    """The rows of one class added up, and a last row with the sum of all."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * (len(HEADS) - 1))
    for name, *values in rows:
        for key in (name, "all"):
            sums[key] = [a + b for a, b in zip(sums[key], values, strict=True)]
    total = sums.pop("all", [0.0] * (len(HEADS) - 1))
    cells = [HEADS, *((name, *(f"{value:,.0f}" for value in sums[name])) for name in sorted(sums))]
    cells.append(("all", *(f"{value:,.0f}" for value in total)))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for name, *numbers in cells:
        aligned = (cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))
        lines.append("  ".join((name.ljust(widths[0]), *aligned)))
    return lines


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Prints the table when attacks alone were asked for."""
    if config.option.markexpr != "attack":
        return
    reports = [report for each in terminalreporter.stats.values() for report in each]
    ended = [report for report in reports if getattr(report, "when", "") == "teardown"]
    rows = [value for report in ended for name, value in report.user_properties if name == "attack"]
    terminalreporter.section("attacks")
    for line in table_lines(rows):
        terminalreporter.write_line(line)
