"""Charts of runs over iterations and wall-clock time, with bands over seeds: on a page, and as one SVG file."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from markupsafe import Markup

from wcgan.report.charts import (
    HEIGHT,
    MOST_DRAWN,
    NO_VALUES,
    WIDTH,
    Series,
    series_in_percent,
    series_to_note,
    series_to_svg,
    swatch,
)
from wcgan.report.html import CHART, direction, direction_to_words, empty, join, tag
from wcgan.report.numbers import is_number, number, score_to_text
from wcgan.report.paper_comparison import Results, label_of
from wcgan.report.read import Record, RunRecord
from wcgan.report.scores import Score, runs_to_scores, score_to_label
from wcgan.report.seed_groups import Group

Curve = dict[int, float]
"""Iteration -> value."""

UNITS = (("days", 86400), ("hours", 3600), ("minutes", 60), ("seconds", 1))
BANDS = (
    "A line is the mean over the seeds of one config. Its band spans their lowest to highest value where all seeds "
    "have one; after that, thin lines are single seeds. Over time, a mean is drawn at the mean time of the seeds."
)
SWITCH = join(
    [
        tag("h2", "Curves"),
        tag("input", type="radio", name="over", id="over-iterations", checked=""),
        tag("label", "over iterations", for_="over-iterations"),
        tag("input", type="radio", name="over", id="over-time"),
        tag("label", "over wall-clock time", for_="over-time"),
    ]
)
NO_SCORES = "No run has been evaluated yet."
# Lengths in an SVG file.
GAP, LINE = 16, 24
TOP = GAP + 2 * LINE  # of a chart, below its title and a note
LETTER = 8  # most that a letter of the legend is wide


def groups_to_curves(groups: Sequence[Group]) -> Markup:
    """The sections on scores, losses and conditioning, below a switch between iterations and time."""
    runs = [run for group in groups for run in group.runs]
    several = any(len(group.runs) > 1 for group in groups)
    return join(
        [
            SWITCH if any(_is_time(record.get("seconds")) for run in runs for record in run.training) else "",
            tag("p", BANDS, class_="note soft") if several else "",
            _scores(groups, runs),
            _values(groups, "Losses", "loss/", lambda run: (*run.training, *run.evaluations))
            or empty("Losses", "No losses have been logged yet."),
            _values(groups, "Error on the training images", "error/", lambda run: run.training),
            _values(groups, "Conditioning of the generator", "condition", lambda run: run.conditioning),
        ]
    )


def curves_to_series(label: str, style: int, curves: Sequence[Curve], place: Callable[[int, int], float]) -> Series:
    """One curve as it is, or the mean and span of several where all have a value, and single curves after that.

    Args:
        label: text in the legend.
        style: number of the line style.
        curves: one per seed.
        place: (index of the curve, iteration) -> x.
    """
    common = sorted(set.intersection(*map(set, curves)))
    count = len(curves)
    where = [sum(place(seed, i) for seed in range(count)) / count for i in common]
    values = [[curve[i] for curve in curves] for i in common]
    values = [each if all(map(math.isfinite, each)) else [math.nan] for each in values]
    after = common[-1] if common else -1
    thin = [
        tuple((place(seed, i), curve[i]) for i in sorted(curve) if i >= after)
        for seed, curve in enumerate(curves)
        if curve and max(curve) > after
    ]
    means = tuple((x, sum(each) / len(each)) for x, each in zip(where, values, strict=True))
    low = tuple((x, min(each)) for x, each in zip(where, values, strict=True))
    high = tuple((x, max(each)) for x, each in zip(where, values, strict=True))
    several = count > 1
    return Series(label, style, means, low if several else (), high if several else (), tuple(thin))


def groups_to_series(groups: Sequence[Group], curves: Sequence[Sequence[Curve]]) -> list[Series]:
    """A series over iterations per group that has values; `curves` has a curve per seed of each group."""
    return [
        curves_to_series(group.name, style, own, lambda _, iteration: iteration)
        for style, (group, own) in enumerate(zip(groups, curves, strict=True))
        if any(own)
    ]


def series_to_numbers(name: str, series: Sequence[Series]) -> list[tuple[int, str]]:
    """Style and text of every value, for series too short to draw.

    Example:
        >>> series_to_numbers("FID", [Series("WC", 0, ((1000, 17.25),))])
        [(0, 'WC: 17.25 at 1,000')]
    """
    values = [(s, point) for s in series for point in (*s.points, *(p for curve in s.thin for p in curve))]
    return [(s.style, f"{s.label}: {score_to_text(name, y)} at {number(x)}") for s, (x, y) in values]


def times_of(run: RunRecord, iterations: Iterable[int]) -> dict[int, float]:
    """Training time in seconds at some iterations, interpolated between log lines; none after the last line."""
    marks = [(0, 0.0), *((r["iteration"], r["seconds"]) for r in run.training if _is_time(r.get("seconds")))]
    times = {}
    for iteration in iterations:
        after = bisect_left(marks, iteration, key=lambda mark: mark[0])
        if after < len(marks):
            (i0, s0), (i1, s1) = marks[max(0, after - 1)], marks[after]
            times[iteration] = s1 if i1 == iteration else s0 + (s1 - s0) * (iteration - i0) / (i1 - i0)
    return times


def scores_to_draw(runs: Sequence[RunRecord]) -> list[Score]:
    """Scores with a curve. One that its runs have once is left out if these have a curve under another protocol."""
    scores = runs_to_scores(runs)
    lengths = [{score: len(score_to_curve(score, run)) for score in scores} for run in runs]

    def is_shown(score: Score) -> bool:
        same = [other for other in scores if other.name == score.name]
        return any(own[score] > 1 or (own[score] and all(own[o] <= 1 for o in same)) for own in lengths)

    return [score for score in scores if is_shown(score)]


def score_to_curve(score: Score, run: RunRecord) -> Curve:
    """The values of a score over a run."""
    found = ((record["iteration"], score.of(record)) for record in run.evaluations)
    return {iteration: float(value) for iteration, value in found if value is not None}


def _scores(groups: Sequence[Group], runs: Sequence[RunRecord]) -> Markup:
    drawn = scores_to_draw(runs)
    if not drawn:
        return empty("Scores", NO_SCORES)
    charts = [
        _chart(score_to_label(score, drawn), score.name, groups, partial(score_to_curve, score)) for score in drawn
    ]
    return join([tag("h2", "Scores"), tag("div", *charts, class_="charts")])


def _values(
    groups: Sequence[Group], title: str, prefix: str, records_of: Callable[[RunRecord], Sequence[Record]]
) -> Markup:
    """A section with a chart for every logged number with this prefix; empty if there is none."""
    runs = [run for group in groups for run in group.runs]
    numbers = (key for run in runs for r in records_of(run) for key, value in r.items() if is_number(value))
    keys = dict.fromkeys(key for key in numbers if key.startswith(prefix))
    charts = [_chart(_title(key), key, groups, partial(_records_to_curve, records_of, key)) for key in keys]
    return join([tag("h2", title), tag("div", *charts, class_="charts")]) if charts else Markup()


def _chart(title: str, key: str, groups: Sequence[Group], curve_of: Callable[[RunRecord], Curve]) -> Markup:
    curves = [[curve_of(run) for run in group.runs] for group in groups]
    drawn = groups_to_series(groups, curves)
    note = series_to_note(key, drawn)
    heading = tag("h3", title, direction(key), tag("span", note, class_="soft direction") if note else "")
    if not any(s.is_curve for s in drawn):
        numbers = [tag("li", swatch(style), text) for style, text in series_to_numbers(key, drawn)]
        return tag("figure", heading, tag("ul", *numbers, class_="numbers"))
    legend = tag("ul", *(tag("li", swatch(s.style), s.label) for s in drawn), class_="legend")
    chart = tag("div", series_to_svg(title, series_in_percent(key, drawn)), class_="over-iterations")
    return tag("figure", heading, chart, _over_time(title, key, groups, curves), legend if len(groups) > 1 else "")


def _over_time(title: str, key: str, groups: Sequence[Group], curves: Sequence[Sequence[Curve]]) -> Markup:
    """The same curves over time, as far as times are known."""
    times = [
        [times_of(run, curve) for run, curve in zip(g.runs, own, strict=True)]
        for g, own in zip(groups, curves, strict=True)
    ]
    longest = max((seconds for own in times for each in own for seconds in each.values()), default=0.0)
    unit, size = next(((name, size) for name, size in UNITS if longest > 2 * size), UNITS[-1])
    drawn = [
        curves_to_series(
            group.name,
            style,
            [{i: curve[i] for i in known} for curve, known in zip(own, when, strict=True)],
            partial(_time_of, when, size),
        )
        for style, (group, own, when) in enumerate(zip(groups, curves, times, strict=True))
        if any(when)
    ]
    over = f"{unit} of training"
    return tag("div", series_to_svg(title, series_in_percent(key, drawn), over), class_="over-time")


def _records_to_curve(records_of: Callable[[RunRecord], Sequence[Record]], key: str, run: RunRecord) -> Curve:
    return {record["iteration"]: float(record[key]) for record in records_of(run) if is_number(record.get(key))}


def _time_of(times: Sequence[dict[int, float]], unit: int, seed: int, iteration: int) -> float:
    return times[seed][iteration] / unit


def _title(key: str) -> str:
    """Title of a chart.

    Example:
        >>> _title("loss/generator"), _title("error/training"), _title("condition/median")
        ('Generator loss', 'Training error', 'Condition: median')
    """
    kind, _, name = key.partition("/")
    if kind in ("loss", "error"):
        return f"{name.capitalize()} {kind}"
    return f"{kind.capitalize()}: {name.replace('_', ' ')}"


def _is_time(seconds: object) -> bool:
    return is_number(seconds) and 0 <= seconds < MOST_DRAWN


def results_to_figure(results: Results) -> str:
    """An SVG file with a chart over iterations for each of the paper's scores, or for all scores if it has none."""
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
    drawn = {series.label: series.style for _, _, own in charts for series in own if curved}  # numbers have labels
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
                *(panels or [tag("text", NO_SCORES, x=GAP, y=LINE)]),
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
    """The paper's scores that were measured, else all scores."""
    found = scores_to_draw([run for row in results.rows for run in row.runs])
    of_paper = {column.score for column in results.columns if column.paper}
    return [score for score in found if score in of_paper] or found


def _series(results: Results, score: Score) -> list[Series]:
    groups = results.groups
    return groups_to_series(groups, [[score_to_curve(score, run) for run in group.runs] for group in groups])


def _panel(title: str, score: Score, series: list[Series], x: int) -> Markup:
    note = (direction_to_words(score.name) + series_to_note(score.name, series)).strip()
    texts = [tag("text", title, x=x, y=LINE, class_="title"), tag("text", note, x=x, y=2 * LINE - 4, class_="note")]
    if not any(each.finite for each in series):
        return join([*texts, tag("text", NO_VALUES, x=x, y=TOP + LINE)])
    if not any(each.is_curve for each in series):
        numbers = series_to_numbers(score.name, series)
        step = min(LINE, HEIGHT // len(numbers))
        return join([*texts, *(tag("text", text, x=x, y=TOP + (n + 1) * step) for n, (_, text) in enumerate(numbers))])
    chart = series_to_svg(title, series_in_percent(score.name, series))
    return join([*texts, tag("svg", chart, x=x, y=TOP, width=WIDTH, height=HEIGHT)])


def _legend(styles: dict[str, int], room: int, width: int, top: int) -> tuple[Markup, int]:
    """An entry per row of the table, in as many columns as fit -> the legend, and the y where it ends."""
    columns = max(1, (width - GAP) // room)
    parts = []
    for place, (label, style) in enumerate(styles.items()):
        x, y = GAP + place % columns * room, top + place // columns * LINE
        parts.append(tag("svg", swatch(style), x=x, y=y + 6, width=26, height=12))
        parts.append(tag("text", label, x=x + 34, y=y + 17))
    return join(parts), top + -(-len(styles) // columns) * LINE + GAP
