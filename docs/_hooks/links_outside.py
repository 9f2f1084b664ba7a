"""Links from pages to files outside `docs`, which the site does not have: their text, and at first the path as code."""

import re
from typing import Any

LINK = re.compile(r"\[([^\[\]]+)\]\(\.\./([^)\s#]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    named = set[str]()

    def link_to_text(link: re.Match[str]) -> str:
        text, path = link.groups()
        if path in named:
            return text
        named.add(path)
        return f"{text} (`{path}`)"

    return LINK.sub(link_to_text, markdown)
