"""Protocols in words: how scores were measured, without which they mean nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from wcgan.paper.tables import MEASURES
from wcgan.report.numbers import is_number, number, percent
from wcgan.report.read import Record, protocol_key

ERROR = "Error is the share of the test images that are taken for another class."


@dataclass(frozen=True)
class Protocol:
    """How some scores were measured."""

    letter: str
    """Its name on the page."""
    sentence: str
    """What it is."""


def evaluations_to_protocols(evaluations: Iterable[Record]) -> dict[str, Protocol]:
    """Their protocols by `protocol_key`, in the order in which they appear; seeds are all named."""
    seeds: dict[str, list[Any]] = {}
    neighbours: dict[str, dict[str, Any]] = {}
    for evaluation in evaluations:
        key, protocol = protocol_key(evaluation), evaluation.get("protocol")
        own, seen = protocol if isinstance(protocol, dict) else {}, seeds.setdefault(key, [])
        if (seed := own.get("seed")) is not None and seed not in seen:
            seen.append(seed)
        if "neighbours" in own:
            neighbours[key] = {"neighbours": own["neighbours"]}
    protocols = {}
    for place, (key, used) in enumerate(seeds.items()):
        letter = chr(ord("A") + place) if place < 26 else str(place + 1)
        protocol = json.loads(key)
        shown = {**protocol, **neighbours[key]} if key in neighbours else protocol
        protocols[key] = Protocol(letter, protocol_to_sentence(shown, used))
    return protocols


def protocol_to_sentence(protocol: Any, seeds: list[Any]) -> str:
    """A protocol in words; one that is not known, key by key."""
    if not isinstance(protocol, dict) or not protocol:
        return "The run does not say how its scores were measured."
    parts = []
    rest = dict(protocol)
    if "name" in rest:
        name = rest.pop("name")
        parts.append(ERROR if name == MEASURES["error"][1] else f"{name}.")
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
    if "neighbours" in rest:
        near = f"{number(rest.pop('neighbours'))} nearest neighbours among the same features, not those of VGG"
        parts.append(f"Precision and recall by {near}.")
    parts += [f"{key}: {plain(value)}." for key, value in rest.items()]
    if seeds:
        parts.append(f"Seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}.")
    return " ".join(parts)


def reference_to_sentence(reference: Record) -> str:
    count, dataset, split, there = (reference.get(key) for key in ("images", "dataset", "split", "of"))
    share = f"{number(count)} of the {number(there)}" if is_number(there) and there != count else f"all {number(count)}"
    return f"Real images: {share} of {dataset} {split}."


def plain(value: Any) -> str:
    """A value of a config or a protocol as one line."""
    if value is None:
        return "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {plain(part)}" for key, part in value.items())
    return str(value)
