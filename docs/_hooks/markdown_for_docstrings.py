"""What Markdown does not know: formulas, and the examples of docstrings.

Formulas become MathML when the site is built, so that a browser needs no script and no font to show them. Pages write
`$...$` and `$$...$$`; docstrings write `:math:` and `.. math::`.
"""

import re
from typing import Any
from xml.etree.ElementTree import Element, fromstring

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from mkdocs.plugins import event_priority


def to_mathml(latex: str, display: str) -> Element:
    # Without its namespace, which HTML does not need: the serialiser would write a prefix before every tag.
    return fromstring(re.sub(r' xmlns="[^"]*"', "", convert(latex.strip(), display=display), count=1))


class InlineFormula(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element, int, int]:  # noqa: N802
        return to_mathml(m.group(1), "inline"), m.start(0), m.end(0)


class DisplayedFormula(BlockProcessor):
    """A block that is nothing but a formula."""

    PATTERN = re.compile(r"(?:\$\$(?P<page>.+?)\$\$|\.\. math::(?P<docstring>.+))\s*", re.DOTALL)

    def test(self, parent: Element, block: str) -> bool:
        return self.PATTERN.fullmatch(block.strip()) is not None

    def run(self, parent: Element, blocks: list[str]) -> None:
        match = self.PATTERN.fullmatch(blocks.pop(0).strip())
        assert match is not None
        holder = Element("div", {"class": "formula"})
        holder.append(to_mathml(match["page"] or match["docstring"], "block"))
        parent.append(holder)


class DoctestFences(Preprocessor):
    """Puts a fence around the lines from a `>>>` to the next blank one, which Markdown would take for quotations."""

    def run(self, lines: list[str]) -> list[str]:
        result: list[str] = []
        inside = fenced = False
        for line in [*lines, ""]:
            fenced ^= line.lstrip().startswith("```")
            if not inside and not fenced and line.startswith(">>> "):
                inside = True
                result.append("```pycon")
            elif inside and not line.strip():
                inside = False
                result.append("```")
            result.append(line)
        return result


class DocstringMarkdown(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.preprocessors.register(DoctestFences(md), "doctest", 40)  # before fences are read
        # The role goes before inline code (190), whose backticks it has; dollars after it, so that code keeps its own.
        md.inlinePatterns.register(InlineFormula(r":math:`([^`]+)`", md), "math-role", 195)
        md.inlinePatterns.register(InlineFormula(r"(?<![\\$\w])\$(?!\s)([^$\n]+?)(?<!\s)\$(?![\w$])", md), "math", 185)
        md.parser.blockprocessors.register(DisplayedFormula(md.parser), "math", 95)


@event_priority(100)  # before mkdocstrings takes its copy of the extensions
def on_config(config: Any) -> Any:
    config.markdown_extensions.append(DocstringMarkdown())
    return config
