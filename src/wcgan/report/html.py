"""Build HTML and SVG from Python, with everything escaped that is not markup already; the style sheet of all pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape

from wcgan.report.numbers import DASH
from wcgan.report.scores import is_lower_better

MOST_OPEN = 12
"""Rows of a table that is shown without unfolding it."""
_VOID = {"img", "input", "meta", "wbr"}
# Not allowed in HTML or SVG, escaped or not.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def text(value: object) -> Markup:
    """A value as HTML: markup as it is, anything else escaped."""
    return value if isinstance(value, Markup) else escape(_CONTROL.sub("\ufffd", str(value)))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. None leaves an attribute out; `class_` is written class, and `text_anchor` text-anchor.

    Example:
        >>> print(tag("p", "a < b", class_="note"))
        <p class="note">a &lt; b</p>
        >>> print(tag("p", tag("b", "bold")))
        <p><b>bold</b></p>
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
        >>> print(join(["a", tag("b", "c"), "<"]))
        a<b>c</b>&lt;
    """
    return Markup("").join(map(text, parts))


def document(title: str, head: Markup, body: Markup) -> str:
    """A whole page for screens of any size, light or dark as the reader's system is set.

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


def table(heads: Sequence[Markup], rows: Sequence[Markup], kind: str) -> Markup:
    """A table that scrolls sideways on its own, and stacks its cells on narrow screens; `kind` is its CSS class."""
    body = tag("table", tag("thead", *heads), tag("tbody", *rows), class_=f"{kind} stack")
    return tag("div", body, class_="scroll", tabindex="0")


def head(name: str, kind: str | None = None, **attributes: object) -> Markup:
    """A column head, which can break before a bracket."""
    word, bracket, rest = name.partition("(")
    breakable = join([word, tag("wbr") if bracket else "", bracket, rest])
    return tag("th", breakable, arrow(name), scope="col", class_=kind or None, **attributes)


def cell(label: str, value: str, kind: str | None = None, more: str = "") -> Markup:
    """A table cell with an optional second line. Narrow screens show its label, and leave out missing values."""
    kinds = " ".join(filter(None, (kind, "missing" if value == DASH and not more else None)))
    return tag("td", tag("span", value, tag("small", more) if more else ""), data_label=label, class_=kinds or None)


def unbroken(text: str) -> str:
    """A text that breaks between its figures only: a unit stays with its number, and a deviation with its sign.

    Example:
        >>> unbroken("12 min 3 s"), unbroken("5.9 \u00b1 0.1")
        ('12\xa0min 3\xa0s', '5.9 \u00b1\xa00.1')
    """
    return re.sub(r"(?<=\d) (?=[a-z])|(?<=\u00b1) ", "\u00a0", text)


def folded(content: Markup, count: int, what: str) -> Markup:
    """A table, folded away if it has more than `MOST_OPEN` rows."""
    return content if count <= MOST_OPEN else tag("details", tag("summary", f"{count} {what}"), content)


def empty(title: str, sentence: str) -> Markup:
    """A section with a sentence in place of its content."""
    return join([tag("h2", title), tag("p", sentence, class_="empty")])


def arrow(name: str) -> str:
    """An arrow towards better values of a score; empty if unknown."""
    return {True: "\u00a0\u2193", False: "\u00a0\u2191", None: ""}[is_lower_better(name)]


def direction_to_words(name: str) -> str:
    """Which values of a score are better; empty if unknown.

    Example:
        >>> direction_to_words("FID").strip()
        '\u2193 lower is better'
    """
    words = {True: " lower is better", False: " higher is better", None: ""}[is_lower_better(name)]
    return f"{arrow(name)}{words}" if words else ""


def direction(name: str) -> Markup:
    """`direction_to_words` as an element, or nothing."""
    words = direction_to_words(name)
    return tag("span", words, class_="direction soft") if words else Markup()


# The colours of curves on light and on dark pages: eight hues that colour-blind readers can tell apart, at 4.5:1.
_LIGHT = ("#0064b0", "#c04a00", "#00785a", "#a8357d", "#7a5c00", "#5a49c8", "#b3212e", "#4d5b66")
_DARK = ("#6cb8ff", "#ff9d5c", "#4fd1a8", "#f08cc8", "#e0c04a", "#a79bff", "#ff8589", "#aebbc6")
_NAMES = ("paper", "ink", "soft", "line", "panel", "mark", *(f"c{number}" for number in range(len(_LIGHT))))
_ON_LIGHT = dict(zip(_NAMES, ("#fff", "#1b1f24", "#57606a", "#d5dae0", "#f5f7f9", "#e5f1fb", *_LIGHT), strict=True))
_ON_DARK = dict(zip(_NAMES, ("#14171b", "#e6e9ed", "#a0aab5", "#343b44", "#1c2127", "#17324a", *_DARK), strict=True))


def _variables(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}:{value};" for name, value in colours.items())


def _literal(rules: str, colours: dict[str, str]) -> str:
    """Rules with literal colours: not every program that shows an SVG supports CSS variables."""
    return re.sub(r"var\(--(\w+)\)", lambda found: colours[found[1]], rules)


_PAPER = f"""
:root {{ color-scheme: light dark; {_variables(_ON_LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(_ON_DARK)} }} }}
"""
_LINES = """
.chart text { font-size: 13px; fill: var(--soft); }
.grid, .axis { fill: none; stroke: var(--line); stroke-width: 1; }
.axis { stroke: var(--soft); }
.line, .thin { fill: none; stroke-width: 2; stroke-linejoin: round; }
.thin { stroke-width: 1.4; }
.band { fill-opacity: .16; stroke-opacity: .3; stroke-width: 1; }
""" + "\n".join(
    f".line.c{n}, .thin.c{n}, .band.c{n} {{ stroke: var(--c{n}); }} .dot.c{n}, .band.c{n} {{ fill: var(--c{n}); }}"
    for n in range(len(_LIGHT))
)

_ALONE = (
    _LINES
    + """
text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: var(--ink); }
.title { font-weight: 600; }
.note { fill: var(--soft); }
.paper { fill: var(--paper); }
"""
)
CHART = Markup(
    f"{_literal(_ALONE, _ON_LIGHT)}\n@media (prefers-color-scheme: dark) {{ {_literal(_ALONE, _ON_DARK)} }}\n"
)
"""Style sheet of an SVG file."""

SHEET = Markup(
    _PAPER
    + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 1280px; padding: 1.5rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .7rem; }
h3 { font-size: 1rem; margin: 0 0 .4rem; overflow-wrap: anywhere; }
p { margin: .4rem 0; max-width: 50rem; }
.soft, .empty, figcaption { color: var(--soft); }
.note { font-size: .9rem; overflow-wrap: anywhere; }
.warn { border-left: 4px solid var(--c1); padding: .2rem .8rem; background: var(--panel); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .45rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { font-size: .85rem; color: var(--soft); font-weight: 600; vertical-align: bottom; }
tbody th { font-weight: 600; min-width: 10rem; overflow-wrap: anywhere; }
.differences td { overflow-wrap: anywhere; }
.differences ul { list-style: none; margin: 0; padding: 0; }
td.number, th.number { text-align: right; }
.runs, .results, .facts, .seeds, .tests { font-size: .92rem; }
.seeds td.number { white-space: nowrap; }
.results thead .group { text-align: center; }
.results th, .results td { padding-left: .4rem; padding-right: .4rem; }
.runs th, .runs td { padding-left: .3rem; padding-right: .3rem; }
.runs td:not(.number) { white-space: nowrap; }
.runs tbody th { min-width: 7rem; }
td small { display: block; color: var(--soft); white-space: normal; }
td.best { font-weight: 700; background: var(--mark); }
.direction { white-space: nowrap; font-weight: 400; }
.scroll { overflow-x: auto; }
.swatch { width: 26px; height: 12px; vertical-align: middle; margin-right: .4rem; flex: none; }
.charts, .samples { display: grid; gap: 1.4rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 350px), 1fr)); }
.samples { grid-template-columns: repeat(auto-fit, minmax(min(100%, 350px), 1fr)); }
figure { margin: 0; min-width: 0; }
.chart { display: block; width: 100%; height: auto; overflow: visible; }
.over-time, #over-time:checked ~ .charts .over-iterations { display: none; }
#over-time:checked ~ .charts .over-time { display: block; }
input[name=over] { margin: 0 .3rem 0 0; accent-color: var(--c0); }
label { margin-right: 1.2rem; }
.legend { display: flex; flex-wrap: wrap; gap: .15rem 1rem; list-style: none; margin: .2rem 0 0; padding: 0;
  font-size: .85rem; }
.numbers { list-style: none; margin: 0; padding: 0; }
.legend li { display: flex; align-items: center; min-width: 0; overflow-wrap: anywhere; }
.samples img { display: block; max-width: 100%; height: auto; border: 1px solid var(--line); background: #fff; }
.grid-and-rows { display: flex; gap: .5rem; }
.grid-and-rows img { flex: 0 1 auto; min-width: 0; align-self: flex-start; }
.rows { display: grid; grid-auto-rows: 1fr; flex: none; max-width: 30%; margin: 0; padding: 0; list-style: none; }
.rows li { align-self: center; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; text-align: right;
  font-size: .8rem; }
.samples img.small { image-rendering: pixelated; }
figcaption { font-size: .9rem; margin-top: .35rem; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .6rem 0; background: var(--panel); }
summary { cursor: pointer; padding: .6rem .9rem; font-weight: 600; overflow-wrap: anywhere; }
details > :not(summary) { margin-left: .9rem; margin-right: .9rem; }
pre { overflow-x: auto; font: .85rem/1.45 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.events { padding-left: 1.2rem; font-size: .9rem; overflow-wrap: anywhere; }
@media (max-width: 900px) {
  .stack { font-size: 1rem; }
  .stack, .stack tbody { display: block; }
  .stack thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .stack tr { display: block; border: 1px solid var(--line); border-radius: 6px; padding: .4rem .8rem;
    margin-bottom: .8rem; }
  .stack th, .stack td, .stack td.number { display: flex; justify-content: space-between; gap: 1rem; max-width: none;
    text-align: right; white-space: normal; padding: .25rem 0; border: 0; }
  .stack tbody th { justify-content: flex-start; align-items: center; gap: 0; text-align: left; }
  .stack td.missing { display: none; }
  .stack td > span { min-width: 0; overflow-wrap: anywhere; }
  .stack.differences td { display: block; text-align: left; }
  .stack.differences td::before { content: none; }
  .stack td.best { background: none; }
  .stack td.best > span { background: var(--mark); padding: 0 .3rem; border-radius: 3px; }
  .stack td::before { content: attr(data-label); color: var(--soft); font-weight: 400; text-align: left;
    flex: none; max-width: 60%; overflow-wrap: anywhere; }
}
"""
    + _LINES
    + """
@media (max-width: 500px) { body { padding: 1rem 1rem 3rem; } .chart text { font-size: 15px; } }
"""
)
"""Style sheet of a page."""
