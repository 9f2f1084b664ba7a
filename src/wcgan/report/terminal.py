"""Scores as rows and sentences for the terminal, in tables that fit its width."""

from __future__ import annotations

from collections.abc import Sequence

from wcgan.paper.tables import MEASURES
from wcgan.report.numbers import counted, duration, is_number
from wcgan.report.read import Record, RunRecord, protocol_key
from wcgan.report.scores import (
    Score,
    evaluation_to_text,
    evaluations_to_protocols,
    last_evaluations,
    protocol_to_sentence,
    runs_to_scores,
)
from wcgan.report.seed_groups import measure

Row = tuple[str, ...]
HEADS = ("score", "value", "images", "seed")
GAP = 2
"""Spaces between the columns of a table."""


def scores_to_rows(scores: Record) -> tuple[Row, list[Row], list[str]]:
    """The heads and rows of a table of scores, and the sentences around it; the first names the protocol.

    Example:
        >>> protocol = {"name": "all", "reference": {"images": 9, "of": 9, "dataset": "cats", "split": "train"}}
        >>> scores_to_rows({"FID": 12.5, "protocol": protocol | {"generated": 8, "seed": 1}, "seconds": 3.2})[1]
        [('FID', '12.50', '8 against 9', '1')]
    """
    protocol = scores["protocol"]
    names = [name for name, value in scores.items() if is_number(value) and name != "seconds"]
    rows: list[Row] = [
        (name, evaluation_to_text(scores, name), _images(name, protocol), str(protocol["seed"])) for name in names
    ]
    facts = {key: value for key, value in protocol.items() if key not in ("name", "std", "seed", "scored")}
    versions = ", ".join(f"{name} {version}" for name, version in scores.get("versions", {}).items())
    cost = ", ".join(filter(None, [duration(scores.get("seconds")), scores.get("device"), versions]))
    return HEADS, rows, [f"protocol: {protocol['name']}", protocol_to_sentence(facts, []), cost]


def runs_to_rows(runs: Sequence[RunRecord]) -> tuple[Row, list[Row], list[str]]:
    """The heads and rows of a table of runs, and a sentence per protocol if there are several.

    A run has a row for each protocol of its last evaluations, so that no row mixes protocols.
    """
    names = list(dict.fromkeys(score.name for score in runs_to_scores(runs)))
    protocols = evaluations_to_protocols(record for run in runs for record in last_evaluations(run))
    several = len(protocols) > 1
    rows: list[Row] = []
    for run in runs:
        for record in last_evaluations(run) or [{}]:
            letters = (protocols[protocol_key(record)].letter if record else "",) if several else ()
            figures = (evaluation_to_text(record, name) for name in names)
            rows.append((run.name, run.variant or "", str(run.iteration), *letters, *figures))
    heads = ("run", "variant", "iterations", *(("protocol",) if several else ()), *names)
    return heads, rows, [f"protocol {each.letter}: {each.sentence}" for each in protocols.values()] if several else []


def split_columns(heads: Row, rows: Sequence[Row], width: int) -> list[tuple[Row, list[Row]]]:
    """A table as several that fit a width, each with the first column and some of the others.

    The first column counts with half of the width at most, since long names can be folded. A head may break before a
    bracket.

    Example:
        >>> split_columns(("run", "FID(classifier)", "IS"), [("wc", "1.5", "8.25")], width=20)
        [(('run', 'FID(classifier)'), [('wc', '1.5')]), (('run', 'IS'), [('wc', '8.25')])]
    """
    lines = [tuple(head.replace("(", "\n(").split("\n")) for head in heads]
    widths = [max(map(len, (*line, *column))) + GAP for line, *column in zip(lines, *rows, strict=True)]
    first = min(widths[0], width // 2)
    parts: list[list[int]] = [[]]
    for place in range(1, len(heads)):
        if parts[-1] and first + sum(widths[each] for each in parts[-1]) + widths[place] > width:
            parts.append([])
        parts[-1].append(place)
    return [
        (tuple(heads[each] for each in (0, *part)), [tuple(row[each] for each in (0, *part)) for row in rows])
        for part in parts
    ]


def runs_to_error(runs: Sequence[RunRecord]) -> str:
    """A line with the last error of a classifier; for several seeds, the mean and the error of each."""
    measured = measure(runs, Score(*MEASURES["error"]))
    if measured is None:
        return "error: not measured yet"
    if len(runs) == 1:
        return f"error: {measured.text}"
    seeds = (f"seed {run.seed} {evaluation_to_text((last_evaluations(run) or [{}])[0], 'error')}" for run in runs)
    left_out = f"; {'; '.join(measured.left_out)}" if measured.left_out else ""
    return f"error: {measured.text} over {counted(len(measured.values), 'seed')} ({', '.join(seeds)}){left_out}"


def _images(name: str, protocol: Record) -> str:
    """How many images a score is computed from."""
    if name.startswith("IS"):
        return f"{protocol['splits']} x {protocol['scored_by_IS'] // protocol['splits']:,}"
    if name.startswith("accuracy"):
        return f"{max(protocol.get('generated', 0), protocol.get('scored_by_IS', 0)):,}"
    return f"{protocol['generated']:,} against {protocol['reference']['images']:,}"
