"""The curves of a table as a picture on its own: an SVG file, for a paper or a page of somebody else's."""

from __future__ import annotations

from collections.abc import Sequence

from wcgan.report.charts import HEIGHT, WIDTH, Series, is_logarithmic, series_to_svg, swatch
from wcgan.report.comparison import Score
from wcgan.report.curves import groups_to_series, score_to_curve, scores_to_draw, series_to_numbers
from wcgan.report.html import Markup, join, tag
from wcgan.report.pieces import direction_to_words
from wcgan.report.rows import Results, label_of
from wcgan.report.style import CHART

GAP, LINE = 16, 24
TOP = GAP + 2 * LINE  # of a chart, under its name and a note
LETTER = 8  # the width that one may need in the legend
NONE = "No run has been evaluated yet."


def results_to_figure(results: Results) -> str:
    """The paper's scores over iterations, a chart each; all that have curves, where none of the paper's has."""
    scores = _drawn_scores(results)
    names = {column.score: column.label for column in results.columns if column.iteration is None}
    charts = [(names.get(s) or label_of(s, scores), s, _series(results, s)) for s in scores]
    width = GAP + max(1, len(charts)) * (WIDTH + GAP)
    panels = [
        _panel(title, score, series, GAP + place * (WIDTH + GAP)) for place, (title, score, series) in enumerate(charts)
    ]
    curved = any(series.is_curve for _, _, own in charts for series in own)
    lines = max((len(series_to_numbers(score.name, own)) for _, score, own in charts), default=0)
    end = TOP + (HEIGHT if curved else LINE * lines) if charts else GAP
    drawn = {series.label: series.style for _, _, own in charts for series in own if curved}  # numbers have names
    styles = {row.preset: drawn[row.preset] for row in results.rows if row.preset in drawn}
    room = 34 + LETTER * max(map(len, styles), default=0) + GAP
    width = max(width, GAP + room)
    legend, height = _legend(styles, room, width, end)
    return "".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>\n',
            tag(
                "svg",
                tag("title", results.title),
                tag("style", CHART),
                tag("rect", width="100%", height="100%", class_="paper"),
                *(panels or [tag("text", NONE, x=GAP, y=LINE)]),
                legend,
                xmlns="http://www.w3.org/2000/svg",
                viewBox=f"0 0 {width} {height}",
                width=width,
                height=height,
                role="img",
            ),
            "\n",
        ]
    )


def _drawn_scores(results: Results) -> list[Score]:
    """Those of the paper that were measured, else all."""
    found = scores_to_draw([run for row in results.rows for run in row.runs])
    of_paper = {column.score for column in results.columns if column.paper}
    return [score for score in found if score in of_paper] or found


def _series(results: Results, score: Score) -> list[Series]:
    groups = results.groups
    return groups_to_series(groups, [[score_to_curve(score, run) for run in group.runs] for group in groups])


def _panel(title: str, score: Score, series: Sequence[Series], x: int) -> Markup:
    note = direction_to_words(score.name).strip() + (" (log scale)" if is_logarithmic(list(series)) else "")
    texts = [tag("text", title, x=x, y=LINE, class_="title"), tag("text", note, x=x, y=2 * LINE - 4, class_="note")]
    if not any(each.finite for each in series):
        return join([*texts, tag("text", "No finite value to draw.", x=x, y=TOP + LINE)])
    if not any(each.is_curve for each in series):
        numbers = series_to_numbers(score.name, series)
        step = min(LINE, HEIGHT // len(numbers))
        return join([*texts, *(tag("text", text, x=x, y=TOP + (n + 1) * step) for n, (_, text) in enumerate(numbers))])
    chart = series_to_svg(title, list(series))
    return join([*texts, tag("svg", chart, x=x, y=TOP, width=WIDTH, height=HEIGHT)])


def _legend(styles: dict[str, int], room: int, width: int, top: int) -> tuple[Markup, int]:
    """An entry for each row that is drawn, as many beside one another as there is room for -> it, and where it ends."""
    columns = max(1, (width - GAP) // room)
    parts = []
    for place, (label, style) in enumerate(styles.items()):
        x, y = GAP + place % columns * room, top + place // columns * LINE
        parts.append(tag("svg", swatch(style), x=x, y=y + 6, width=26, height=12))
        parts.append(tag("text", label, x=x + 34, y=y + 17))
    return join(parts), top + -(-len(styles) // columns) * LINE + GAP
