"""Where a run of a table stands: what it has been trained for, and which figures of its row are still missing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from wcgan.evaluate import PROTOCOLS, Protocol, load_inception, plan_name_of
from wcgan.evaluate.inception import VARIABLE
from wcgan.experiments.tables import PlannedRun, Reproduction
from wcgan.train.config import Config
from wcgan.train.run import Run

Record = dict[str, Any]
NAMES = {"inception": "{}", "classifier": "{}(classifier)"}  # a figure's name, by what looks at the images
FIGURES = ("IS", "FID", "error")


@dataclass(frozen=True)
class Looker:
    """What looks at the images of a table on this machine."""

    features: str
    """inception where `WCGAN_INCEPTION_WEIGHTS` names its weights, else classifier."""
    scores: bool = True
    """Whether it gives an Inception Score: weights may lack their last layer."""

    @property
    def note(self) -> str | None:
        """What a reader of the figures must know."""
        if self.features == "classifier":
            return f"{VARIABLE} names no weights: a small classifier looked at the images, not the paper's Inception."
        return None if self.scores else "IS is left out: the Inception weights lack their last layer."


@dataclass(frozen=True)
class Standing:
    """How far a run is."""

    state: str
    """missing, begun, done or diverged."""
    iteration: int = 0
    figures: str = ""
    """Its last ones, in words."""


def find_looker() -> Looker:
    """Inception where its weights are named, else the classifier."""
    file = os.environ.get(VARIABLE)
    return _inception(file) if file else Looker("classifier")


@cache
def _inception(file: str) -> Looker:
    return Looker("inception", load_inception(device="cpu").classes is not None)


def looker_to_notes(looker: Looker, plan: Reproduction) -> list[str]:
    """What a reader of a table must know; nothing looks at the images of classifiers."""
    return [looker.note] if looker.note and not plan.table.classifiers else []


def run_to_standing(planned: PlannedRun, looker: Looker) -> Standing:
    """From the files of its folder alone."""
    lines = Run(planned.folder).lines()
    if not lines:
        return Standing("missing")
    iteration = max(line["iteration"] for line in lines)
    last = next((line["what"] for line in reversed(lines) if line["kind"] == "event"), None)
    if last == "diverged":
        return Standing("diverged", iteration)
    done = iteration >= planned.config.train.iterations and not missing_figures(planned, looker, lines)
    return Standing("done" if done else "begun", iteration, _figures_to_words(lines))


def missing_figures(planned: PlannedRun, looker: Looker, lines: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """Protocol -> metrics of the row that the last iteration has not been measured by, and can be here."""
    last = planned.config.train.iterations
    measured = [line for line in lines if line["kind"] == "evaluation" and line["iteration"] == last]
    missing: dict[str, tuple[str, ...]] = {}
    for protocol, metrics in planned.row.protocols.items():
        left = tuple(
            metric
            for metric in metrics
            if (metric != "is" or looker.scores) and not _is_measured(planned, looker, measured, metric, protocol)
        )
        if left:
            missing[protocol] = left
    return missing


def _is_measured(planned: PlannedRun, looker: Looker, measured: Sequence[Record], metric: str, protocol: str) -> bool:
    """By Inception, or by the classifier where only that can look; of a classifier, in its training."""
    if not isinstance(planned.config, Config):
        return any(metric in line for line in measured)
    names = [NAMES[features].format(metric.upper()) for features in dict.fromkeys(("inception", looker.features))]
    images = planned.config.train.evaluate_images
    return any(
        name in line and _fits(line["protocol"], metric, PROTOCOLS[protocol], images)
        for line in measured
        for name in names
    )


def _fits(facts: Record, metric: str, protocol: Protocol, images: int) -> bool:
    """Whether a figure was taken by the protocol, in all that concerns it.

    Of a set with fewer real images than it has, all are taken, against `images` generated ones.
    """
    if facts["reference"]["of"] < (protocol.reference or 0):
        return images == facts.get("scored_by_IS" if metric == "is" else "generated")
    return plan_name_of(metric, facts["name"]) == protocol.name


def _figures_to_words(lines: Sequence[Record]) -> str:
    found: dict[str, float] = {}
    for line in lines:
        if line["kind"] == "evaluation":
            found |= {name: value for name, value in line.items() if name.startswith(FIGURES)}
    return ", ".join(f"{name} {value:.2f}" for name, value in sorted(found.items(), reverse=True))
