"""Text from outside, made safe to print."""

import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

# Control characters move the cursor and more. A lone surrogate, which stands for a byte of a file's name that is not
# UTF-8, cannot be printed at all. Some format characters reverse the order of what follows them.
_UNSAFE = {"Cc", "Cs", "Zl", "Zp"}
_REVERSING = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: object) -> str:
    """A name or value as one line of text, with every character that could command a terminal written as its escape.

    Example:
        >>> printable("run\\x1b[2J")
        'run\\\\x1b[2J'
        >>> printable("caf\\udce9")  # a byte that is not UTF-8
        'caf\\\\xe9'
    """
    return "".join(_escaped(char) if _is_unsafe(char) else char for char in str(text))


def printable_lines(text: str) -> str:
    """The same for a text of several lines, which it keeps."""
    return "\n".join(map(printable, text.split("\n")))


def cells(values: Iterable[object]) -> "list[Text]":
    """Names and values for a row of a Rich table, in which `[...]` is no markup."""
    from rich.text import Text  # comes with the command line, not with the data

    return [Text(printable(value)) for value in values]


def shown(value: object) -> str:
    """A value as it was given, cut short: a sentence must not grow with what is wrong in it.

    Example:
        >>> shown("a" * 100)
        "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa..."
    """
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        text = "a number with thousands of digits"
    return printable(text if len(text) <= 40 else f"{text[:40]}...")


def _is_unsafe(char: str) -> bool:
    return char in _REVERSING or unicodedata.category(char) in _UNSAFE


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii")
