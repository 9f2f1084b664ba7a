"""Sections of a page: results beside the paper's, runs, seeds and tests between them, configs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup

from wcgan.core.config import flattened
from wcgan.core.terminal import counted, duration
from wcgan.report.charts import swatch
from wcgan.report.formats import Part, results_to_parts
from wcgan.report.html import cell, empty, folded, head, join, table, tag, unbroken
from wcgan.report.numbers import DASH, number, p_to_text, score_to_text
from wcgan.report.order import EXPLAINED, HEADS, pairs_to_rows, pairs_to_sentence, results_to_pairs
from wcgan.report.paper_comparison import Results
from wcgan.report.read import Record, RunRecord, protocol_key, score_key
from wcgan.report.scores import (
    Score,
    best_evaluations,
    evaluation_to_text,
    evaluations_to_protocols,
    last_evaluation,
    last_evaluations,
    plain,
    runs_to_scores,
    score_to_label,
)
from wcgan.report.seed_groups import Group, Measured, PairTest, compare_pairs, measure
from wcgan.runs.status import RunStatus

LEVEL = 0.05
TOO_FEW = "Too few seeds for a test, which needs two or more per config under one protocol."
METHOD = (
    "Welch's t-test on the last scores of two configs under one protocol, whatever their iterations: difference of the "
    "means, its 95% confidence interval, and the p value, Holm-corrected for the number of tests per score. "
    "Highlighted: below 0.05."
)
_TEST_HEADS = ("Pair", "Score", "Difference", "95% interval", "p, corrected", "p", "Seeds")


def results_to_section(results: Results) -> Markup:
    """A table of the paper with our figures, the notes on it, and what the runs took."""
    figures, facts = results_to_parts(results)
    styles = {group.name: style for style, group in enumerate(results.groups) if group.runs}
    marks = [swatch(styles[row.preset]) if row.runs else Markup() for row in results.rows]
    notes = [tag("p", sentence, class_="note") for sentence in results.sentences[len(results.notes) :]]
    warnings = [tag("p", sentence, class_="note warn") for sentence in results.notes]
    took = [tag("h2", "Run details"), _part(facts, [mark for mark in marks if mark], "facts")]
    return join([*warnings, _part(figures, marks, "results"), *notes, *(took if facts.rows else [])])


def _part(part: Part, marks: Sequence[Markup], kind: str) -> Markup:
    """A table with one row of heads, or two if there are subheads."""
    tall = 2 if any(names for _, names in part.heads) else None
    top = [
        head(label, "group" if names else None, colspan=len(names) or None, rowspan=None if names else tall)
        for label, names in part.heads
    ]
    below = [tag("th", name, scope="col") for _, names in part.heads for name in names]
    labels = [f"{label}, {name}" if name else label for label, names in part.heads for name in (names or ("",))]
    body = [
        tag("tr", tag("th", mark, row[0], scope="row"), *map(cell, labels[1:], map(_unbroken, row[1:])))
        for mark, row in zip(marks, part.rows, strict=True)
    ]
    return table([tag("tr", *line) for line in (top, below) if line], body, kind)


def _unbroken(text: str) -> str:
    """Keep figures and durations on one line; only the iteration may wrap."""
    figure = r" (?=\u00b1|\(sets)|(?<=\u00b1) |(?<=\b(?:at|of|to)) (?=\d)"
    time = r"(?<=\d) (?=(?:d|h|min|s)\b)|(?<=[dhn]) (?=\d+ (?:h|min|s)\b)"
    return re.sub(f"{figure}|{time}", "\u00a0", text)


def order_to_section(results: Results) -> Markup:
    """Whether pairs of rows are in the paper's order; empty if it separates none that have runs."""
    pairs = results_to_pairs(results)
    if not pairs:
        return Markup()
    header = tag("tr", *map(head, HEADS))
    rows = [
        tag("tr", tag("th", row[0], scope="row"), *map(cell, HEADS[1:], map(_unbroken, row[1:])))
        for row in pairs_to_rows(pairs)
    ]
    found, explained = tag("p", pairs_to_sentence(pairs)), tag("p", EXPLAINED, class_="note soft")
    shown = folded(table([header], rows, "tests"), len(rows), "pairs")
    return join([tag("h2", "Order of rows"), found, shown, explained])


def runs_to_section(groups: Sequence[Group]) -> Markup:
    """A row per run with its last scores, or one for each of their protocols; the runs of a group share a colour."""
    styled = [(style, run) for style, group in enumerate(groups) for run in group.runs]
    runs = [run for _, run in styled]
    names = list(dict.fromkeys(score.name for score in runs_to_scores(runs)))
    shown = [(style, run, record) for style, run in styled for record in last_evaluations(run) or [{}]]
    records = [record for _, _, record in shown]
    protocols = evaluations_to_protocols(record for record in records if record)
    best = {name: best_evaluations(records, name) for name in names}
    several = len({run.dataset for run in runs}) > 1  # the title has a single one
    facts_heads = [("Variant", ""), *([("Dataset", "")] if several else [])]
    facts_heads += [(name, "number") for name in ("Iterations", "Real images", "Time")]
    heads = [("Run", ""), *facts_heads, *((name, "number") for name in names), ("Protocol", "")]
    rows = []
    for place, (style, run, record) in enumerate(shown):
        first = place == 0 or shown[place - 1][1] is not run
        facts = _run_to_cells(run, several) if first else [cell(name, "", "missing") for name, _ in facts_heads]
        figures = (
            cell(name, unbroken(evaluation_to_text(record, name)), "number best" if place in best[name] else "number")
            for name in names
        )
        letter = protocols[protocol_key(record)].letter if record else "none yet"
        late = record and record["iteration"] != run.iteration
        protocol = cell("Protocol", letter, more=f"at iteration {number(record['iteration'])}" if late else "")
        rows.append(tag("tr", tag("th", swatch(style), run.name, scope="row"), *facts, *figures, protocol))
    notes = [tag("p", run.problem, class_="note warn") for run in runs if run.problem]
    notes += [tag("p", tag("b", f"Protocol {p.letter}. "), p.sentence, class_="note") for p in protocols.values()]
    if len(protocols) > 1:
        notes.append(tag("p", "Scores under different protocols are not comparable.", class_="note warn"))
    if any(best.values()):
        marked = "Highlighted: the best run under each protocol. \u2193 lower is better, \u2191 higher is better."
        notes.append(tag("p", marked, class_="note soft"))
    header = tag("tr", *(head(name, kind) for name, kind in heads))
    return join([tag("h2", "Runs"), folded(table([header], rows, "runs"), len(runs), "runs"), *notes])


def _run_to_cells(run: RunRecord, with_dataset: bool) -> list[Markup]:
    """What a run is, and how far."""
    last: Record = run.training[-1] if run.training else {}
    return [
        cell("Variant", run.variant or DASH),
        *([cell("Dataset", run.dataset or DASH)] if with_dataset else []),
        cell("Iterations", number(run.iteration), "number", more=_progress(run)),
        cell("Real images", number(last.get("images")), "number"),
        cell("Time", unbroken(duration(run.seconds)), "number"),
    ]


def last_score_to_text(run: RunRecord, score: Score) -> str:
    """The last score of a run."""
    return evaluation_to_text(last_evaluation(run, score), score.name)


def differences_to_section(groups: Sequence[Group]) -> Markup:
    """Settings that differ between groups."""
    groups = [group for group in groups if group.runs]
    if sum(len(group.runs) for group in groups) < 2:
        return Markup()
    differences = config_differences([group.runs[0].config for group in groups])
    rows = [each for each in differences if each[0] != "preset"]  # it names the other settings
    if not rows:
        return empty("Config differences", "The configs are the same." if len(groups) > 1 else "Only the seed.")
    header = tag("tr", *(tag("th", name, scope="col") for name in ("Setting", "Values")))
    body = [tag("tr", tag("th", name, scope="row"), _values(groups, values)) for name, values in rows]
    return join([tag("h2", "Config differences"), table([header], body, "differences")])


def config_differences(configs: Sequence[Record]) -> list[tuple[str, list[str]]]:
    """Settings that are not the same in all configs, with their value in each.

    Example:
        >>> config_differences([{"train": {"seed": 0, "batch": 64}}, {"train": {"seed": 1, "batch": 64}}])
        [('train.seed', ['0', '1'])]
    """
    flat = [flattened(config) for config in configs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    rows = [(name, [plain(settings.get(name, DASH)) for settings in flat]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _values(groups: Sequence[Group], values: Sequence[str]) -> Markup:
    """A cell with a line per value of a setting and the groups that have it, so that it wraps instead of scrolling."""
    having: dict[str, list[str]] = {}
    for group, value in zip(groups, values, strict=True):
        having.setdefault(value, []).append(group.name)
    lines = [tag("li", tag("b", value), f": {', '.join(names)}") for value, names in having.items()]
    return tag("td", tag("ul", *lines), data_label="Values")


def run_to_details(run: RunRecord, opened: bool) -> Markup:
    """The events and the config of a run."""
    parts: list[object] = [tag("summary", run.name, tag("span", f" {DASH} {run.status}", class_="soft"))]
    if run.unreadable:
        lines = counted(run.unreadable, "line")
        parts.append(tag("p", f"{lines} of metrics.jsonl could not be read.", class_="note warn"))
    if run.events:
        parts.append(tag("ul", *(tag("li", _event(event)) for event in run.events), class_="events"))
    missing = tag("p", "The run has no config.yaml.", class_="empty")
    parts.append(tag("pre", run.config_text, tabindex="0") if run.config_text.strip() else missing)
    return tag("details", *parts, open="" if opened else None)


def _progress(run: RunRecord) -> str:
    """The planned iterations and the status; empty for a finished run."""
    if run.status is RunStatus.FINISHED:
        return ""
    return run.status if run.planned is None else f"of {number(run.planned)}, {run.status}"


def _event(event: Record) -> str:
    rest = {k: v for k, v in event.items() if k not in ("kind", "iteration", "what", "time") and v is not None}
    facts = "".join(f"; {key} {value}" for key, value in rest.items())
    when = str(event.get("time", "")).replace("T", " ").replace("+00:00", " UTC")
    return f"{event.get('what', 'event')} at iteration {number(event['iteration'])}, {when}{facts}".rstrip(", ")


def groups_to_means(groups: Sequence[Group]) -> Markup:
    """Means over seeds and tests between groups; empty if every group is one run, or without scores."""
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
    note = "Mean \u00b1 sample standard deviation over seeds or, where marked (sets), over image sets of one seed."
    parts = [tag("h2", "Mean over seeds"), table([header], rows, "seeds"), tag("p", note, class_="note soft")]
    return join([*parts, _tests(styled, measured)]) if measured else Markup()


def groups_to_seeds(groups: Sequence[Group]) -> Markup:
    """The last scores of each seed and tests between groups, below a table that has the means; empty as above."""
    styled, measured = _measured(groups)
    labels = [score_to_label(score, list(measured)) for score in measured]
    rows = [
        tag(
            "tr",
            tag("th", swatch(style), run.name, scope="row"),
            *(
                cell(label, last_score_to_text(run, s), "number", _early(run))
                for label, s in zip(labels, measured, strict=True)
            ),
        )
        for style, group in styled
        for run in group.runs
    ]
    header = tag("tr", head("Run"), *(head(label, "number") for label in labels))
    seeds = folded(table([header], rows, "seeds"), len(rows), "runs")
    return join([tag("h2", "Per seed"), seeds, _tests(styled, measured)]) if measured else Markup()


def _early(run: RunRecord) -> str:
    """The iteration of the last scores of a run; empty for a finished run."""
    if run.status is RunStatus.FINISHED or not run.evaluations:
        return ""
    return f"at {number(run.evaluations[-1]['iteration'])} of {number(run.planned)}"


def _measured(groups: Sequence[Group]) -> tuple[list[tuple[int, Group]], dict[Score, list[Measured | None]]]:
    """The groups with runs and their styles, and the scores of each; no scores if every group is one run."""
    styled = [(style, group) for style, group in enumerate(groups) if group.runs]
    if all(len(group.runs) == 1 for _, group in styled):
        return styled, {}
    scores = runs_to_scores([run for _, group in styled for run in group.runs])
    measured = {score: [measure(group.runs, score) for _, group in styled] for score in scores}
    return styled, {score: cells for score, cells in measured.items() if any(cells)}


def _tests(styled: Sequence[tuple[int, Group]], measured: dict[Score, list[Measured | None]]) -> Markup:
    """Tests of all pairs of groups that share a protocol, per score; empty for one group."""
    names, rows = [group.name for _, group in styled], []
    if len(names) < 2:
        return Markup()
    for score, cells in measured.items():
        several = [(name, each) for name, each in zip(names, cells, strict=True) if each and len(each.values) > 1]
        protocols = [score_key(each.evaluations[0], score.name) for _, each in several]
        for comparison in compare_pairs([each.values for _, each in several], protocols):
            pair = (several[comparison.first], several[comparison.second])
            rows.append(_test(score, score_to_label(score, list(measured)), comparison, pair))
    columns = list(zip(*measured.values(), strict=True))  # the scores of each group
    lone = [
        name for name, own in zip(names, columns, strict=True) if not any(each and len(each.values) > 1 for each in own)
    ]
    few = tag("p", f"{TOO_FEW} Not tested: {', '.join(lone)}", class_="note") if lone else Markup()
    if not rows:
        return few or tag("p", TOO_FEW, class_="note")
    tests = folded(table([tag("tr", *map(head, _TEST_HEADS))], rows, "tests"), len(rows), "tests")
    return join([tag("h2", "Significance"), tests, tag("p", METHOD, class_="note soft"), few])


def _test(score: Score, label: str, comparison: PairTest, pair: Sequence[tuple[str, Measured]]) -> Markup:
    """A row; where two configs were scored after different iterations, it names these."""
    names, (first, second) = [name for name, _ in pair], [each for _, each in pair]
    unequal = first.iteration != second.iteration
    where = f"at {number(first.iteration)} and {number(second.iteration)}" if unequal else ""
    seeds = f"{len(first.values)} and {len(second.values)}"
    test, corrected = comparison.test, comparison.corrected
    texts = ["no variance", DASH, DASH, DASH]
    if test is not None and corrected is not None:
        difference, low, high = (score_to_text(score.name, value) for value in (test.difference, test.low, test.high))
        texts = [difference, f"{low} to {high}", p_to_text(corrected), p_to_text(test.p)]
    marked = "best" if corrected is not None and corrected < LEVEL else None
    kinds = [None, None, marked, None, None]
    cells = map(cell, _TEST_HEADS[2:], [*texts, seeds], kinds)
    return tag("tr", tag("th", " \u2212 ".join(names), scope="row"), cell("Score", label, more=where), *cells)
