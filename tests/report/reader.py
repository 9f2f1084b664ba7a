"""A page as a reader of HTML sees it: elements in order, with their attributes and text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

VOID = {"img", "input", "meta", "wbr"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text inside, as a person reads it."""
        inside = (child if isinstance(child, str) else child.text for child in self.children)
        return "".join(inside).replace("\u00a0", " ")

    def all(self, name: str, class_: str | None = None) -> list[Element]:
        """The elements inside with a name, and a class if one is given."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                classes = (child.attributes.get("class") or "").split()
                if child.name == name and (class_ is None or class_ in classes):
                    found.append(child)
                found += child.all(name, class_)
        return found

    def walk(self) -> list[Element]:
        inside = [e for child in self.children if isinstance(child, Element) for e in child.walk()]
        return [self, *inside]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("page")]

    def handle_starttag(self, tag, attrs):
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data):
        self.open[-1].children.append(data)


def read_page(file: Path) -> Element:
    """The page; every element must be closed where it belongs."""
    reader = _Reader()
    reader.feed(file.read_text(encoding="utf-8"))
    reader.close()
    assert [element.name for element in reader.open] == ["page"]
    return reader.open[0]


def rows(page: Element, class_: str = "runs") -> list[dict[str, str]]:
    """The body of a table, a dictionary per row: column -> text."""
    (table,) = page.all("table", class_)
    heads = [head.text.rstrip(" \u2191\u2193") for head in table.all("thead")[0].all("th")]
    return [
        dict(zip(heads, [cell.text for cell in row.all("th") + row.all("td")], strict=True))
        for row in table.all("tbody")[0].all("tr")
    ]


def section(page: Element, title: str) -> str:
    """The text from one heading to the next."""
    (body,) = page.all("body")
    found, inside = [], False
    for child in body.children:
        assert isinstance(child, Element)
        if child.name == "h2":
            inside = child.text == title
        elif inside:
            found.append(child.text)
    return "\n".join(found)
