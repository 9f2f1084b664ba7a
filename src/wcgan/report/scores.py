"""Scores of runs, and the protocols by which they were measured."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from wcgan.core.terminal import counted
from wcgan.evaluate.protocol import facts_to_name
from wcgan.paper.tables import MEASURES
from wcgan.report.numbers import is_number, number, percent, score_to_text
from wcgan.report.read import Record, RunRecord, protocol_key

ERROR = "Error is the share of the test images that are misclassified."
_NO_SCORES = {"kind", "iteration", "seconds", "protocol"}
_LOSS = "loss/"


@dataclass(frozen=True)
class Score:
    """What is measured and how: one metric under two protocols is two scores."""

    name: str
    """FID, IS(classifier) and so on."""
    protocol: str | None
    """Name of the protocol, with its changes that affect this score; None if the run does not record one."""

    def of(self, evaluation: Record) -> float | None:
        """Value of the score in an evaluation, or None."""
        value = evaluation.get(self.name)
        return value if is_number(value) and _protocol_name(evaluation, self.name) == self.protocol else None


def runs_to_scores(runs: Sequence[RunRecord]) -> list[Score]:
    """Every score that any of the runs has, in order of appearance."""
    return list(dict.fromkeys(score for run in runs for record in run.evaluations for score in _scores(record)))


def score_to_label(score: Score, scores: Sequence[Score]) -> str:
    """Name of a score among others; with its protocol where several share the name."""
    alone = [other.name for other in scores].count(score.name) == 1
    return score.name if alone else f"{score.name}, {score.protocol or 'unknown protocol'}"


def is_lower_better(name: str) -> bool | None:
    """Whether a lower value of this score is better; None if the name does not tell."""
    kind = re.split(r"[ (,/]", name)[0].lower()
    if kind in ("fid", "kid", "error"):
        return True
    return False if kind in ("is", "accuracy", "precision", "recall") else None


def last_evaluations(run: RunRecord) -> list[Record]:
    """Evaluations of the last evaluated iteration, one per protocol."""
    return [record for record in run.evaluations if record["iteration"] == run.evaluations[-1]["iteration"]]


def last_evaluation(run: RunRecord, score: Score) -> Record:
    """The last evaluation, if it has this score; else an empty record."""
    return next((record for record in last_evaluations(run) if score.of(record) is not None), {})


def evaluation_to_text(evaluation: Record, name: str) -> str:
    """A score of an evaluation, with its standard deviation if it has one."""
    return score_to_text(name, evaluation.get(name), deviation_of(evaluation, name))


def deviation_of(evaluation: Record, name: str) -> float | None:
    """Standard deviation of a score over the sets of images that it averages."""
    deviations = evaluation.get("protocol", {}).get("std")
    deviation = deviations.get(name) if isinstance(deviations, dict) else None
    return deviation if is_number(deviation) else None


def best_evaluations(evaluations: Sequence[Record], name: str) -> set[int]:
    """Indices of the evaluations with the best value of a score, for each protocol that more than one of them has."""
    lower = is_lower_better(name)
    if lower is None:
        return set()
    groups: dict[str, list[tuple[float, int]]] = {}
    for place, evaluation in enumerate(evaluations):
        value = evaluation.get(name)
        if is_number(value) and math.isfinite(value):
            groups.setdefault(protocol_key(evaluation), []).append((value, place))
    best = set()
    for group in groups.values():
        if len(group) > 1:
            top = (min if lower else max)(value for value, _ in group)
            best |= {place for value, place in group if value == top}
    return best


def _scores(evaluation: Record) -> list[Score]:
    numbers = [name for name, value in evaluation.items() if name not in _NO_SCORES and is_number(value)]
    names = [name for name in numbers if not name.startswith(_LOSS)]
    return [Score(name, _protocol_name(evaluation, name)) for name in names]


def _protocol_name(evaluation: Record, score: str) -> str | None:
    protocol = evaluation.get("protocol", {})
    return None if protocol.get("name") is None else facts_to_name(score, protocol)


@dataclass(frozen=True)
class ProtocolNote:
    """A protocol as a page explains it."""

    letter: str
    """Short name on the page."""
    sentence: str


def evaluations_to_protocols(evaluations: Iterable[Record]) -> dict[str, ProtocolNote]:
    """`protocol_key` -> the protocol, in order of appearance, with the seeds of all evaluations that used it."""
    seeds: dict[str, list[Any]] = {}
    neighbours: dict[str, dict[str, Any]] = {}
    for evaluation in evaluations:
        key, own = protocol_key(evaluation), evaluation.get("protocol", {})
        seen = seeds.setdefault(key, [])
        if (seed := own.get("seed")) is not None and seed not in seen:
            seen.append(seed)
        if "neighbours" in own:
            neighbours[key] = {"neighbours": own["neighbours"]}
    protocols = {}
    for place, (key, used) in enumerate(seeds.items()):
        letter = chr(ord("A") + place) if place < 26 else str(place + 1)
        protocol = json.loads(key)
        shown = {**protocol, **neighbours[key]} if key in neighbours else protocol
        protocols[key] = ProtocolNote(letter, protocol_to_sentence(shown, used))
    return protocols


def protocol_to_sentence(protocol: Any, seeds: list[Any]) -> str:
    """A protocol in words; entries with unknown keys follow as they are."""
    if not isinstance(protocol, dict) or not protocol:
        return "The run does not record how its scores were measured."
    parts = []
    rest = dict(protocol)
    if "name" in rest:
        name = rest.pop("name")
        parts.append(ERROR if name == MEASURES["error"][1] else f"{name}.")
    known = {key: rest.pop(key) for key in ("inception", "classifier") if isinstance(rest.get(key), dict)}
    if known and rest.get("features") == " and ".join(known):
        del rest["features"]
    if "inception" in known:
        weights = known["inception"].get("weights")
        parts.append(f"FID, KID and IS use the Inception network of 2015-12-05 (weights {weights}).")
    if "classifier" in known:
        classifier = known["classifier"]
        parts.append(
            "Scores marked (classifier) use a small classifier in place of Inception: not comparable with published "
            f"FID and IS. The classifier was trained on {number(classifier.get('images'))} images of "
            f"{classifier.get('trained_on')}; its accuracy on {classifier.get('tested_on')} is "
            f"{percent(classifier.get('accuracy'))} (weights {classifier.get('weights')})."
        )
    if isinstance(rest.get("reference"), dict):
        parts.append(_reference_to_sentence(rest.pop("reference")))
    if "generated" in rest:
        generated = f"Generated images: {number(rest.pop('generated'))}"
        labels = rest.pop("labels", None)
        generated += f", {labels} over the classes" if labels else ""
        parts.append(f"{generated}.")
    if rest.get("generator") == "not averaged":
        del rest["generator"]
        parts.append("Generated images are from the generator itself, not from its moving average.")
    if "statistics" in rest:
        parts.append(f"Generated images are normalised by statistics {plain(rest.pop('statistics'))}.")
    if "splits" in rest:
        sets, scored = rest.pop("splits"), rest.pop("scored_by_IS", None)
        size = set_size(sets, scored)
        each = f"{number(sets)} sets of {counted(int(size), 'image')}" if size else f"{number(sets)} parts of them"
        name = "IS(classifier)" if list(known) == ["classifier"] else "IS"
        parts.append(f"{name} is the mean \u00b1 standard deviation over {each}.")
    if "kid_subset_size" in rest:
        subsets, size = rest.pop("kid_subsets", None), rest.pop("kid_subset_size")
        each = f"{number(subsets)} subsets of {number(size)} images"
        parts.append(f"KID is the mean \u00b1 standard deviation over {each}.")
    if "neighbours" in rest:
        near = f"{number(rest.pop('neighbours'))} nearest neighbours in the same features, not in VGG's"
        parts.append(f"Precision and recall use {near}.")
    parts += [f"{key}: {plain(value)}." for key, value in rest.items()]
    if seeds:
        parts.append(f"Seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}.")
    return " ".join(parts)


def set_size(sets: Any, scored: Any) -> float | None:
    """Images in each of the sets that IS is taken of; None for a record without their counts."""
    return scored // sets if is_number(sets) and is_number(scored) and sets else None


def _reference_to_sentence(reference: Record) -> str:
    count, dataset, split, there = (reference.get(key) for key in ("images", "dataset", "split", "of"))
    share = f"{number(count)} of the {number(there)}" if is_number(there) and there != count else f"all {number(count)}"
    return f"Real images: {share} of {dataset} {split}."


def plain(value: Any) -> str:
    """A value of a config or a protocol on one line.

    Example:
        >>> plain({"widths": [64, 32], "folder": None})
        'widths 64, 32, folder none'
    """
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {plain(part)}" for key, part in value.items())
    return str(value)
