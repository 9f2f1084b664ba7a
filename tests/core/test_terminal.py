"""No text from outside commands a terminal."""

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wcgan.core.terminal import printable, printable_lines, shown


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
