"""Links from pages to files outside `docs`, which the site does not have: their text, and the file's path as code."""

import re
from typing import Any

LINK = re.compile(r"\[([^\[\]]+)\]\(\.\./([^)\s#]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    return LINK.sub(r"\1 (`\2`)", markdown)
