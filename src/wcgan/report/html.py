"""HTML by construction: whatever is not markup already is escaped on its way in."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_VOID = {"img", "input", "meta", "wbr"}
# Neither HTML nor SVG may hold these, escaped or not.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class Markup(str):
    """A string that is HTML already."""

    __slots__ = ()


def text(value: object) -> Markup:
    """A value as HTML: markup as it is, anything else escaped."""
    return value if isinstance(value, Markup) else Markup(html.escape(_CONTROL.sub("\ufffd", str(value))))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. Attributes that are None are left out; `class_` is written class, and `text_anchor` text-anchor.

    Example:
        >>> tag("p", "a < b", class_="note")
        '<p class="note">a &lt; b</p>'
        >>> tag("p", tag("b", "bold"))
        '<p><b>bold</b></p>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(parts: Iterable[object]) -> Markup:
    """Several values as one piece of HTML.

    Example:
        >>> join(["a", tag("b", "c"), "<"])
        'a<b>c</b>&lt;'
    """
    return Markup("".join(text(part) for part in parts))


def document(title: str, head: Markup, body: Markup) -> str:
    """A whole page, for screens of any size, light or dark as the reader's system is.

    Example:
        >>> document("Runs", tag("style", "p {}"), tag("body", tag("p", "none"))).splitlines()[0]
        '<!doctype html>'
    """
    header = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        head,
    )
    return f"<!doctype html>\n{tag('html', header, body, lang='en')}\n"
