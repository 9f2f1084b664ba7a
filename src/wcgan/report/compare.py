"""Runs side by side: their last scores, and the settings in which they differ."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wcgan.evaluate.protocol import facts_to_name
from wcgan.report.numbers import hundredths, is_number, number, percent
from wcgan.report.protocols import plain
from wcgan.report.read import Record, RunRecord, protocol_key

_NO_SCORES = {"kind", "iteration", "seconds", "protocol"}
_LOSS = "loss/"
_SHARES = {"accuracy": percent, "error": hundredths}


@dataclass(frozen=True)
class Score:
    """What is measured, and how: figures of two protocols are two scores."""

    name: str
    """FID, IS(classifier) and so on."""
    protocol: str | None
    """The protocol's name, with all that differs from it for this score; None where the run does not say."""

    def of(self, evaluation: Record) -> float | None:
        """Its value in an evaluation; None where that has none."""
        value = evaluation.get(self.name)
        return value if is_number(value) and _protocol_name(evaluation, self.name) == self.protocol else None


def runs_to_scores(runs: Sequence[RunRecord]) -> list[Score]:
    """The scores that any of the runs has, in the order in which they appear."""
    return list(dict.fromkeys(score for run in runs for record in run.evaluations for score in _scores(record)))


def score_to_label(score: Score, scores: Sequence[Score]) -> str:
    """A score's name among others; with its protocol where there are several of that name."""
    alone = [other.name for other in scores].count(score.name) == 1
    return score.name if alone else f"{score.name}, {score.protocol or 'protocol not said'}"


def is_lower_better(name: str) -> bool | None:
    """Which way a score improves; None where its name does not tell."""
    kind = re.split(r"[ (,/]", name)[0].lower()
    if kind in ("fid", "kid", "error"):
        return True
    return False if kind in ("is", "accuracy", "precision", "recall") else None


def last_evaluations(run: RunRecord) -> list[Record]:
    """Those of the last iteration that was evaluated: one for each protocol."""
    return [record for record in run.evaluations if record["iteration"] == run.evaluations[-1]["iteration"]]


def last_evaluation(run: RunRecord, score: Score) -> Record:
    """That of the last ones which has a score; empty where none has."""
    return next((record for record in last_evaluations(run) if score.of(record) is not None), {})


def score_to_text(run: RunRecord, score: Score) -> str:
    """A run's last score as the table shows it."""
    return evaluation_to_text(last_evaluation(run, score), score.name)


def evaluation_to_text(evaluation: Record, name: str) -> str:
    """A score of an evaluation, with its standard deviation where it has one."""
    return figure_to_text(name, evaluation.get(name), deviation_of(evaluation, name))


def deviation_of(evaluation: Record, name: str) -> float | None:
    """The standard deviation of a score over the sets of images that it is the mean of."""
    protocol = evaluation.get("protocol")
    deviations = protocol.get("std") if isinstance(protocol, dict) else None
    deviation = deviations.get(name) if isinstance(deviations, dict) else None
    return deviation if is_number(deviation) else None


def figure_to_text(name: str, value: float | None, deviation: float | None = None) -> str:
    """A score's value as a person reads it: shares in percent, other scores as numbers."""
    write = next((write for kind, write in _SHARES.items() if name.startswith(kind)), None)
    if write is not None:
        return write(value) if deviation is None else f"{write(value)} \u00b1 {write(deviation)}"
    return number(value) if deviation is None else f"{number(value)} \u00b1 {number(deviation, 2)}"


def best_runs(runs: Sequence[RunRecord], score: Score) -> set[int]:
    """The places of the runs with the best score, each among those of its own protocol, where there are several."""
    lower = is_lower_better(score.name)
    if lower is None:
        return set()
    groups: dict[str, list[tuple[float, int]]] = {}
    for place, run in enumerate(runs):
        evaluation = last_evaluation(run, score)
        value = score.of(evaluation)
        if value is not None and math.isfinite(value):
            groups.setdefault(protocol_key(evaluation), []).append((value, place))
    best = set()
    for group in groups.values():
        if len(group) > 1:
            top = (min if lower else max)(value for value, _ in group)
            best |= {place for value, place in group if value == top}
    return best


def config_differences(configs: Sequence[Record]) -> list[tuple[str, list[str]]]:
    """Each setting that is not the same in all configs, with its value in each."""
    flat = [flattened(config) for config in configs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    rows = [(name, [plain(settings.get(name, "\u2013")) for settings in flat]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def flattened(config: Record, path: str = "") -> dict[str, Any]:
    """A config without its sections: `train.seed` -> 0.

    Example:
        >>> flattened({"train": {"seed": 0}, "preset": "digits"})
        {'train.seed': 0, 'preset': 'digits'}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            flat |= flattened(value, f"{path}{key}.")
        else:
            flat[f"{path}{key}"] = value
    return flat


def _scores(evaluation: Record) -> list[Score]:
    numbers = [name for name, value in evaluation.items() if name not in _NO_SCORES and is_number(value)]
    names = [name for name in numbers if not name.startswith(_LOSS)]
    return [Score(name, _protocol_name(evaluation, name)) for name in names]


def _protocol_name(evaluation: Record, score: str) -> str | None:
    protocol = evaluation.get("protocol")
    if not isinstance(protocol, dict) or protocol.get("name") is None:
        return None
    return facts_to_name(score, protocol)
