"""Runs side by side: their last scores, the protocols behind them, and the settings in which they differ."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from wcgan.report.figures import is_number, number, percent
from wcgan.report.reading import Record, RunRecord

_NO_SCORES = {"kind", "iteration", "seconds", "protocol"}
# Measured with the scores, or free to differ between runs that are compared.
_NO_PROTOCOL = {"std", "seed"}


@dataclass(frozen=True)
class Protocol:
    """How some scores were measured."""

    letter: str
    """Its name on the page."""
    sentence: str
    """What it is."""


def score_names(runs: list[RunRecord]) -> list[str]:
    """The scores that any of the runs has, in the order in which they appear."""
    names: dict[str, None] = {}
    for run in runs:
        for evaluation in run.evaluations:
            names.update(dict.fromkeys(key for key in evaluation if key not in _NO_SCORES))
    return [name for name in names if any(is_number(e.get(name)) for run in runs for e in run.evaluations)]


def is_lower_better(name: str) -> bool | None:
    """Which way a score improves; None where its name does not tell."""
    kind = name.partition("(")[0].strip().lower()
    if kind in ("fid", "kid"):
        return True
    return False if kind in ("is", "accuracy", "precision", "recall") else None


def last_evaluation(run: RunRecord) -> Record:
    return run.evaluations[-1] if run.evaluations else {}


def score_to_text(run: RunRecord, name: str) -> str:
    """A run's last score as the table shows it."""
    return evaluation_to_text(last_evaluation(run), name)


def evaluation_to_text(evaluation: Record, name: str) -> str:
    """A score of an evaluation, with its standard deviation where it has one."""
    value, protocol = evaluation.get(name), evaluation.get("protocol")
    if name.startswith("accuracy"):
        return percent(value)
    deviations = protocol.get("std") if isinstance(protocol, dict) else None
    deviation = deviations.get(name) if isinstance(deviations, dict) else None
    return f"{number(value)} \u00b1 {number(deviation, 2)}" if is_number(deviation) else number(value)


def runs_to_protocols(runs: list[RunRecord]) -> list[Protocol | None]:
    """The protocol of each run's last scores; runs with the same one share it. None for a run without scores."""
    seeds: dict[str, list[Any]] = {}
    for run in runs:
        if run.evaluations:
            protocol = last_evaluation(run).get("protocol")
            seen = seeds.setdefault(_protocol_key(run), [])
            seed = protocol.get("seed") if isinstance(protocol, dict) else None
            if seed is not None and seed not in seen:
                seen.append(seed)
    protocols = {}
    for place, (key, used) in enumerate(seeds.items()):
        letter = chr(ord("A") + place) if place < 26 else str(place + 1)
        protocols[key] = Protocol(letter, protocol_to_sentence(json.loads(key), used))
    return [protocols[_protocol_key(run)] if run.evaluations else None for run in runs]


def protocol_to_sentence(protocol: Any, seeds: list[Any]) -> str:
    """A protocol in words; one that is not known, key by key."""
    if not isinstance(protocol, dict) or not protocol:
        return "The run does not say how its scores were measured."
    parts = []
    rest = dict(protocol)
    if "name" in rest:
        parts.append(f"{rest.pop('name')}.")
    known = {key: rest.pop(key) for key in ("inception", "classifier") if isinstance(rest.get(key), dict)}
    if known and rest.get("features") == " and ".join(known):
        del rest["features"]
    if "inception" in known:
        parts.append(f"FID, KID and IS by the Inception of 2015-12-05 (weights {known['inception'].get('weights')}).")
    if "classifier" in known:
        classifier = known["classifier"]
        parts.append(
            "Features and predictions of a small classifier, not of Inception: not comparable with published FID and "
            f"IS. It learnt from {number(classifier.get('images'))} images of {classifier.get('trained_on')} and knows "
            f"{percent(classifier.get('accuracy'))} of {classifier.get('tested_on')} (weights "
            f"{classifier.get('weights')})."
        )
    if isinstance(rest.get("reference"), dict):
        parts.append(reference_to_sentence(rest.pop("reference")))
    if "generated" in rest:
        generated = f"Generated images: {number(rest.pop('generated'))}"
        labels = rest.pop("labels", None)
        generated += f", {labels} over the classes" if labels else ""
        parts.append(f"{generated}.")
    if "splits" in rest:
        sets, scored = rest.pop("splits"), rest.pop("scored_by_IS", None)
        each = f"{number(sets)} sets of {number(scored // sets)} images" if scored else f"{number(sets)} parts of them"
        name = "IS(classifier)" if list(known) == ["classifier"] else "IS"
        parts.append(f"{name} is the mean \u00b1 standard deviation over {each}.")
    if "kid_subset_size" in rest:
        subsets, size = rest.pop("kid_subsets", None), rest.pop("kid_subset_size")
        each = f"{number(subsets)} subsets of {number(size)} images"
        parts.append(f"KID is the mean \u00b1 standard deviation over {each}.")
    parts += [f"{key}: {_plain(value)}." for key, value in rest.items()]
    if seeds:
        parts.append(f"Seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}.")
    return " ".join(parts)


def reference_to_sentence(reference: Record) -> str:
    count, dataset, split, there = (reference.get(key) for key in ("images", "dataset", "split", "of"))
    share = f"{number(count)} of the {number(there)}" if is_number(there) and there != count else f"all {number(count)}"
    return f"Real images: {share} of {dataset} {split}."


def best_runs(runs: list[RunRecord], name: str) -> set[int]:
    """The places of the runs with the best score, each among those of its own protocol, where there are several."""
    lower = is_lower_better(name)
    if lower is None:
        return set()
    groups: dict[str, list[tuple[float, int]]] = {}
    for place, run in enumerate(runs):
        value = last_evaluation(run).get(name)
        if is_number(value) and math.isfinite(value):
            groups.setdefault(_protocol_key(run), []).append((value, place))
    best = set()
    for group in groups.values():
        if len(group) > 1:
            top = (min if lower else max)(value for value, _ in group)
            best |= {place for value, place in group if value == top}
    return best


def config_differences(runs: list[RunRecord]) -> list[tuple[str, list[str]]]:
    """Each setting that is not the same in all runs, with its value in each."""
    flat = [_flattened(run.config) for run in runs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    rows = [(name, [_plain(settings.get(name, "\u2013")) for settings in flat]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _protocol_key(run: RunRecord) -> str:
    protocol = last_evaluation(run).get("protocol")
    if isinstance(protocol, dict):
        protocol = {key: value for key, value in protocol.items() if key not in _NO_PROTOCOL}
    return json.dumps(protocol, sort_keys=True)


def _flattened(config: Record, path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            flat |= _flattened(value, f"{path}{key}.")
        else:
            flat[f"{path}{key}"] = value
    return flat


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(part)}" for key, part in value.items())
    return str(value)
