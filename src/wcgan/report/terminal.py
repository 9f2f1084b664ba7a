"""Scores as rows and sentences for the terminal."""

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

HEADS = ("score", "value", "images", "seed")


def scores_to_rows(scores: Record) -> tuple[tuple[str, ...], list[tuple[str, ...]], list[str]]:
    """The heads and the rows of a table that fits 80 columns, and the sentences around it: the protocol is the first.

    Example:
        >>> protocol = {"name": "all", "reference": {"images": 9, "of": 9, "dataset": "cats", "split": "train"}}
        >>> scores_to_rows({"FID": 12.5, "protocol": protocol | {"generated": 8, "seed": 1}, "seconds": 3.2})[1]
        [('FID', '12.50', '8 against 9', '1')]
    """
    protocol = scores["protocol"]
    names = [name for name, value in scores.items() if is_number(value) and name != "seconds"]
    rows: list[tuple[str, ...]] = [
        (name, evaluation_to_text(scores, name), _images(name, protocol), str(protocol["seed"])) for name in names
    ]
    facts = {key: value for key, value in protocol.items() if key not in ("name", "std", "seed", "scored")}
    versions = ", ".join(f"{name} {version}" for name, version in scores.get("versions", {}).items())
    cost = ", ".join(filter(None, [duration(scores.get("seconds")), scores.get("device"), versions]))
    return HEADS, rows, [f"protocol: {protocol['name']}", protocol_to_sentence(facts, []), cost]


def runs_to_rows(runs: Sequence[RunRecord]) -> tuple[tuple[str, ...], list[tuple[str, ...]], list[str]]:
    """The heads and the rows of a table of runs, and a sentence for each protocol where there are several.

    A run has a row for each protocol of its last evaluations: figures of two protocols never stand side by side.
    """
    names = list(dict.fromkeys(score.name for score in runs_to_scores(runs)))
    protocols = evaluations_to_protocols(record for run in runs for record in last_evaluations(run))
    several = len(protocols) > 1
    rows: list[tuple[str, ...]] = []
    for run in runs:
        for record in last_evaluations(run) or [{}]:
            letters = (protocols[protocol_key(record)].letter if record else "",) if several else ()
            figures = (evaluation_to_text(record, name) for name in names)
            rows.append((run.name, run.variant or "", str(run.iteration), *letters, *figures))
    heads = ("run", "variant", "iterations", *(("protocol",) if several else ()), *names)
    return heads, rows, [f"protocol {each.letter}: {each.sentence}" for each in protocols.values()] if several else []


def runs_to_error(runs: Sequence[RunRecord]) -> str:
    """The last error of a classifier in a line; of several seeds, their mean and that of each."""
    measured = measure(runs, Score(*MEASURES["error"]))
    if measured is None:
        return "error: not measured yet"
    if len(runs) == 1:
        return f"error: {measured.text}"
    seeds = (f"seed {run.seed} {evaluation_to_text((last_evaluations(run) or [{}])[0], 'error')}" for run in runs)
    left_out = f"; {'; '.join(measured.left_out)}" if measured.left_out else ""
    return f"error: {measured.text} over {counted(len(measured.values), 'seed')} ({', '.join(seeds)}){left_out}"


def _images(name: str, protocol: Record) -> str:
    """How many images a figure comes from."""
    if name.startswith("IS"):
        return f"{protocol['splits']} x {protocol['scored_by_IS'] // protocol['splits']:,}"
    if name.startswith("accuracy"):
        return f"{max(protocol.get('generated', 0), protocol.get('scored_by_IS', 0)):,}"
    return f"{protocol['generated']:,} against {protocol['reference']['images']:,}"
