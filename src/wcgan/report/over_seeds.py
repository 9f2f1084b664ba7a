"""The page's section on seeds: what each group measured on average, and which groups differ."""

from __future__ import annotations

from collections.abc import Sequence

from wcgan.report.charts import swatch
from wcgan.report.comparison import Score, figure_to_text, runs_to_scores, score_to_label, score_to_text
from wcgan.report.figures import number
from wcgan.report.html import Markup, join, tag
from wcgan.report.pieces import DASH, cell, folded, head, table
from wcgan.report.reading import RunRecord, protocol_key
from wcgan.report.seeds import Group, Measured, measure
from wcgan.report.significance import Comparison, compare

LEVEL = 0.05
TOO_FEW = "Too few seeds for a test: it needs two or more of each config, measured by one protocol."
METHOD = (
    "Welch's t-test of the last scores by one protocol: the difference of the means, its 95% interval, and the p "
    "value, corrected by Holm for the number of pairs of each score. Marked: below 0.05."
)
_HEADS = ("Pair", "Score", "Difference", "95% interval", "p, corrected", "p", "Seeds")


def groups_to_means(groups: Sequence[Group]) -> Markup:
    """Means over seeds and the tests between groups; nothing where every group is one run, or without a score."""
    styled, measured = _measured(groups)
    labels = [score_to_label(score, list(measured)) for score in measured]
    rows = []
    for place, (style, group) in enumerate(styled):
        own = [cells[place] for cells in measured.values()]
        left_out = dict.fromkeys(reason for each in own if each for reason in each.left_out)
        seeds = cell("Seeds", ", ".join(str(run.seed) for run in group.runs), more="; ".join(left_out))
        texts = [each.text if each else DASH for each in own]
        means = (cell(label, text, "number") for label, text in zip(labels, texts, strict=True))
        rows.append(tag("tr", tag("th", swatch(style), group.name, scope="row"), seeds, *means))
    header = tag("tr", head("Config"), head("Seeds"), *(head(label, "number") for label in labels))
    note = "Mean \u00b1 sample standard deviation over seeds; of one seed, (sets) marks that over its sets of images."
    parts = [tag("h2", "Over seeds"), table([header], rows, "seeds"), tag("p", note, class_="note soft")]
    return join([*parts, _tests(styled, measured)]) if measured else Markup()


def groups_to_seeds(groups: Sequence[Group]) -> Markup:
    """Each seed's last figures and the tests between groups, below a table that has the means; nothing as above."""
    styled, measured = _measured(groups)
    labels = [score_to_label(score, list(measured)) for score in measured]
    rows = [
        tag(
            "tr",
            tag("th", swatch(style), run.name, scope="row"),
            *(
                cell(label, score_to_text(run, s), "number", _early(run))
                for label, s in zip(labels, measured, strict=True)
            ),
        )
        for style, group in styled
        for run in group.runs
    ]
    header = tag("tr", head("Run"), *(head(label, "number") for label in labels))
    seeds = folded(table([header], rows, "seeds"), len(rows), "runs")
    return join([tag("h2", "Each seed"), seeds, _tests(styled, measured)]) if measured else Markup()


def _early(run: RunRecord) -> str:
    """Where the last figures of a run are from, unless that is its end."""
    if run.status == "finished" or not run.evaluations:
        return ""
    return f"at {number(run.evaluations[-1]['iteration'])} of {number(run.planned)}"


def _measured(groups: Sequence[Group]) -> tuple[list[tuple[int, Group]], dict[Score, list[Measured | None]]]:
    """The groups with runs and their styles, and each score of them; no score where every group is one run."""
    styled = [(style, group) for style, group in enumerate(groups) if group.runs]
    if all(len(group.runs) == 1 for _, group in styled):
        return styled, {}
    scores = runs_to_scores([run for _, group in styled for run in group.runs])
    measured = {score: [measure(group.runs, score) for _, group in styled] for score in scores}
    return styled, {score: cells for score, cells in measured.items() if any(cells)}


def _tests(styled: Sequence[tuple[int, Group]], measured: dict[Score, list[Measured | None]]) -> Markup:
    """Every pair of groups that one protocol measured, score by score; nothing for one group."""
    names, rows = [group.name for _, group in styled], []
    if len(names) < 2:
        return Markup()
    for score, cells in measured.items():
        for places in _by_protocol(cells):
            several = {place: each.values for place in places if (each := cells[place]) and len(each.values) > 1}
            for comparison in compare(list(several.values())):
                ends = [list(several)[end] for end in (comparison.first, comparison.second)]
                pair = f"{names[ends[0]]} \u2212 {names[ends[1]]}"
                seeds = " and ".join(str(len(several[end])) for end in ends)
                rows.append(_test(pair, score, score_to_label(score, list(measured)), comparison, seeds))
    columns = list(zip(*measured.values(), strict=True))  # the figures of each group
    lone = [
        name for name, own in zip(names, columns, strict=True) if not any(each and len(each.values) > 1 for each in own)
    ]
    few = tag("p", f"{TOO_FEW} Fewer: {', '.join(lone)}.", class_="note") if lone else Markup()
    if not rows:
        return few or tag("p", TOO_FEW, class_="note")
    tests = folded(table([tag("tr", *map(head, _HEADS))], rows, "tests"), len(rows), "tests")
    return join([tag("h2", "Significance"), tests, tag("p", METHOD, class_="note soft"), few])


def _by_protocol(cells: Sequence[Measured | None]) -> list[list[int]]:
    """The places of figures that can be compared, together."""
    found: dict[str, list[int]] = {}
    for place, each in enumerate(cells):
        if each is not None:
            found.setdefault(protocol_key(each.evaluations[0]), []).append(place)
    return list(found.values())


def _test(pair: str, score: Score, label: str, comparison: Comparison, seeds: str) -> Markup:
    test, corrected = comparison.test, comparison.corrected
    texts = ["no variance", DASH, DASH, DASH]
    if test is not None and corrected is not None:
        difference, low, high = (figure_to_text(score.name, value) for value in (test.difference, test.low, test.high))
        texts = [difference, f"{low} to {high}", _p(corrected), _p(test.p)]
    marked = "best" if corrected is not None and corrected < LEVEL else None
    kinds = [None, None, marked, None, None]
    cells = map(cell, _HEADS[2:], [*texts, seeds], kinds)
    return tag("tr", tag("th", pair, scope="row"), cell("Score", label), *cells)


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"
