"""What the sections of the page are made of: cells, heads, arrows."""

from __future__ import annotations

from collections.abc import Sequence

from wcgan.report.comparison import is_lower_better
from wcgan.report.html import Markup, join, tag

DASH = "\u2013"
MOST_OPEN = 12  # rows of a table


def cell(label: str, value: str, kind: str | None = None, more: str = "") -> Markup:
    """A cell, with a second line if there is more to say, that carries its column's name for narrow screens."""
    return tag("td", tag("span", value, tag("small", more) if more else ""), data_label=label, class_=kind)


def head(name: str, kind: str | None = None, **attributes: object) -> Markup:
    """A column's name, which may break before its bracket."""
    word, bracket, rest = name.partition("(")
    breakable = join([word, tag("wbr") if bracket else "", bracket, rest])
    return tag("th", breakable, arrow(name), scope="col", class_=kind or None, **attributes)


def arrow(name: str) -> str:
    """Which way a score improves, in one sign."""
    return {True: "\u00a0\u2193", False: "\u00a0\u2191", None: ""}[is_lower_better(name)]


def direction_to_words(name: str) -> str:
    """Which way a score improves; empty where that is not known.

    Example:
        >>> direction_to_words("FID").strip()
        '\u2193 lower is better'
    """
    words = {True: " lower is better", False: " higher is better", None: ""}[is_lower_better(name)]
    return f"{arrow(name)}{words}" if words else ""


def direction(name: str) -> Markup:
    """The same for a page."""
    words = direction_to_words(name)
    return tag("span", words, class_="direction soft") if words else Markup()


def table(heads: Sequence[Markup], rows: Sequence[Markup], kind: str) -> Markup:
    """A table under one or more rows of heads, which scrolls by itself and stacks its cells on narrow screens."""
    body = tag("table", tag("thead", *heads), tag("tbody", *rows), class_=f"{kind} stack")
    return tag("div", body, class_="scroll", tabindex="0")


def folded(content: Markup, count: int, what: str) -> Markup:
    """A table as it is, or folded away where it is long."""
    return content if count <= MOST_OPEN else tag("details", tag("summary", f"{count} {what}"), content)


def empty(title: str, sentence: str) -> Markup:
    """A section that has nothing to show, and says so."""
    return join([tag("h2", title), tag("p", sentence, class_="empty")])
