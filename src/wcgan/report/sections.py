"""The page's tables of runs: their last scores, the protocols behind them, what differs, and the configs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wcgan.report.charts import swatch
from wcgan.report.comparison import (
    best_runs,
    config_differences,
    last_evaluations,
    runs_to_scores,
    score_to_label,
    score_to_text,
)
from wcgan.report.figures import duration, number
from wcgan.report.formats import Part, results_to_parts
from wcgan.report.html import Markup, join, tag
from wcgan.report.pieces import DASH, cell, empty, folded, head, table
from wcgan.report.protocols import evaluations_to_protocols
from wcgan.report.reading import Record, RunRecord, protocol_key
from wcgan.report.rows import Results
from wcgan.report.seeds import Group


def results_to_section(results: Results) -> Markup:
    """The paper's figures beside those of runs, what the runs took, and what is to be said of them."""
    figures, facts = results_to_parts(results)
    styles = {group.name: style for style, group in enumerate(results.groups) if group.runs}
    marks = [swatch(styles[row.preset]) if row.runs else Markup() for row in results.rows]
    notes = [tag("p", sentence, class_="note") for sentence in results.sentences[len(results.notes) :]]
    warnings = [tag("p", sentence, class_="note warn") for sentence in results.notes]
    took = [tag("h2", "What the rows took"), _part(facts, [mark for mark in marks if mark], "facts")]
    return join([*warnings, _part(figures, marks, "results"), *notes, *(took if facts.rows else [])])


def _part(part: Part, marks: Sequence[Markup], kind: str) -> Markup:
    """Some columns of a table, under heads that may have others below them."""
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
    """A figure breaks before the words on where it is from, and nowhere else."""
    return re.sub(r" (?=\u00b1|\(sets)|(?<=\u00b1) |(?<=\b(?:at|of|to)) (?=\d)", "\u00a0", text)


def runs_to_section(groups: Sequence[Group]) -> Markup:
    """A row for each run, with its last scores; runs of one group carry one mark."""
    runs = [run for group in groups for run in group.runs]
    styles = [style for style, group in enumerate(groups) for _ in group.runs]
    scores = runs_to_scores(runs)
    protocols = evaluations_to_protocols(record for run in runs for record in last_evaluations(run))
    best = {score: best_runs(runs, score) for score in scores}
    heads = [("Run", ""), ("Variant", ""), ("Dataset", ""), ("Iterations", "number"), ("Real images", "number")]
    heads += [("Time", "number"), *((score_to_label(s, scores), "number") for s in scores), ("Protocol", "")]
    rows = []
    for place, run in enumerate(runs):
        last: Record = run.training[-1] if run.training else {}
        cells = [
            cell("Variant", run.variant or DASH),
            cell("Dataset", run.dataset or DASH),
            cell("Iterations", number(run.iteration), "number", more=_progress(run)),
            cell("Real images", number(last.get("images")), "number"),
            cell("Time", duration(run.seconds), "number"),
        ]
        for score in scores:
            kind = "number best" if place in best[score] else "number"
            cells.append(cell(score_to_label(score, scores), score_to_text(run, score), kind))
        records = last_evaluations(run)
        letters = ", ".join(dict.fromkeys(protocols[protocol_key(record)].letter for record in records))
        late = records and records[0]["iteration"] != run.iteration
        more = f"at iteration {number(records[0]['iteration'])}" if late else ""
        cells.append(cell("Protocol", letters or "none yet", more=more))
        rows.append(tag("tr", tag("th", swatch(styles[place]), run.name, scope="row"), *cells))
    notes = [tag("p", tag("b", f"Protocol {p.letter}. "), p.sentence, class_="note") for p in protocols.values()]
    if len(protocols) > 1:
        notes.append(tag("p", "Scores of different protocols cannot be compared.", class_="note warn"))
    if any(best.values()):
        marked = "Marked: the best among runs of one protocol; \u2193 lower is better, \u2191 higher is better."
        notes.append(tag("p", marked, class_="note soft"))
    header = tag("tr", *(head(name, kind) for name, kind in heads))
    return join([tag("h2", "Runs"), folded(table([header], rows, "runs"), len(rows), "runs"), *notes])


def differences_to_section(groups: Sequence[Group]) -> Markup:
    """The settings in which the configs differ; of a group, those of its first run."""
    groups = [group for group in groups if group.runs]
    if sum(len(group.runs) for group in groups) < 2:
        return Markup()
    differences = config_differences([group.runs[0].config for group in groups])
    rows = [each for each in differences if each[0] != "preset"]  # a name for the other settings
    if not rows:
        return empty("What differs", "The configs are the same." if len(groups) > 1 else "Nothing but the seed.")
    header = tag("tr", *(tag("th", name, scope="col") for name in ("Setting", "Values")))
    body = [tag("tr", tag("th", name, scope="row"), _values(groups, values)) for name, values in rows]
    return join([tag("h2", "What differs"), table([header], body, "differences")])


def _values(groups: Sequence[Group], values: Sequence[str]) -> Markup:
    """A cell with a line for each value of a setting and the groups that have it: it is never wider than the page."""
    having: dict[str, list[str]] = {}
    for group, value in zip(groups, values, strict=True):
        having.setdefault(value, []).append(group.name)
    lines = [tag("li", tag("b", value), f": {', '.join(names)}") for value, names in having.items()]
    return tag("td", tag("ul", *lines), data_label="Values")


def run_to_details(run: RunRecord, opened: bool) -> Markup:
    """What happened to a run, and its config."""
    parts: list[object] = [tag("summary", run.name, tag("span", f" {DASH} {run.status}", class_="soft"))]
    if run.unreadable:
        lines = "line" if run.unreadable == 1 else "lines"
        parts.append(tag("p", f"{run.unreadable} {lines} of metrics.jsonl could not be read.", class_="note warn"))
    if run.events:
        parts.append(tag("ul", *(tag("li", _event(event)) for event in run.events), class_="events"))
    missing = tag("p", "The run has no config.yaml.", class_="empty")
    parts.append(tag("pre", run.config_text, tabindex="0") if run.config_text.strip() else missing)
    return tag("details", *parts, open="" if opened else None)


def _progress(run: RunRecord) -> str:
    """How far it has still to go; nothing where it is finished."""
    if run.status == "finished":
        return ""
    return run.status if run.planned is None else f"of {number(run.planned)}, {run.status}"


def _event(event: Record) -> str:
    rest = {k: v for k, v in event.items() if k not in ("kind", "iteration", "what", "time") and v is not None}
    facts = "".join(f"; {key} {value}" for key, value in rest.items())
    when = str(event.get("time", "")).replace("T", " ").replace("+00:00", " UTC")
    return f"{event.get('what', 'event')} at iteration {number(event['iteration'])}, {when}{facts}".rstrip(", ")
