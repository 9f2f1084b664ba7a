"""No text from outside commands a terminal."""

import io
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.progress import Progress

from wcgan.core.terminal import (
    duration,
    figures_to_text,
    printable,
    printable_lines,
    progress_for,
    shown,
    training_columns,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain [/x] text, ä, 日本, 👩‍🔬", "plain [/x] text, ä, 日本, 👩‍🔬"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb\nc\td\x08", "a\\rb\\nc\\td\\x08"),
        ("file\u202egnp.exe", "file\\u202egnp.exe"),
        ("caf\udce9", "caf\\xe9"),
        ("\ud800", "\\ud800"),
        ("a\u2028b", "a\\u2028b"),
    ],
)
def test_what_commands_a_terminal_is_escaped_and_nothing_else(text: str, expected: str) -> None:
    assert printable(text) == expected


@given(st.text(st.characters()))
def test_any_text_can_be_printed_in_one_line(text: str) -> None:
    line = printable(text)
    assert line.encode().decode() == line
    assert line.isprintable() or not any(char < " " or "\x7f" <= char <= "\x9f" for char in line)
    assert len(line.splitlines()) <= 1


def test_lines_stay_lines() -> None:
    assert printable_lines("a\nb\x1b\n") == "a\nb\\x1b\n"


def test_values_in_a_sentence_are_short_whatever_they_are() -> None:
    assert shown(10**30) == "1" + "0" * 30
    assert shown(1 << 100_000) == "a number with thousands of digits"
    assert len(shown({"a": "\x1b" * 1000})) < 200
    assert io.StringIO(shown("\udcff")).getvalue().encode(sys.getfilesystemencoding())


@pytest.mark.parametrize("width", [80, 60])
def test_a_narrow_terminal_cuts_no_number_of_a_training(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    bar = Progress(*training_columns(), console=console)
    losses = figures_to_text({"loss/discriminator": 1.845, "loss/generator": 1.73})
    bar.add_task("training", total=100_000, completed=90_000, figures=losses, rate="14.3/s")
    with console.capture() as capture:
        console.print(bar.get_renderable())
    words = capture.get().split()
    assert words[1:] == ["90000/100000", "14.3/s", "--:--", *losses.split()]
    assert (len(capture.get().splitlines()) == 1) == (width == 80)


def test_the_first_line_of_a_log_says_more_than_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_for(20, visible=True) as lines:
        lines.advance(1)
        assert capsys.readouterr().err == ""
        lines.advance(2)
    assert re.fullmatch(r"2/20  \d+ s left\n", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (59.4, "59 s"),
        (59.6, "1 min"),
        (3600, "1 h"),
        (3659, "1 h"),
        (86_400, "1 d"),
        (172_799, "1 d 23 h"),
        (float("inf"), "\u2013"),
        (float("nan"), "\u2013"),
        (True, "\u2013"),
        ("5", "\u2013"),
    ],
)
def test_a_time_span_is_rounded_to_seconds_and_cut_to_two_units(seconds: object, text: str) -> None:
    assert duration(seconds) == text


def test_the_time_left_is_in_its_two_largest_units(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([1000.0, 1250.0])
    monkeypatch.setattr("wcgan.core.terminal.time.monotonic", lambda: next(clock))
    with progress_for(20, visible=True) as lines:
        lines.advance(1)
        lines.advance(2)
    assert capsys.readouterr().err.endswith("2/20  1 h 15 min left\n")
