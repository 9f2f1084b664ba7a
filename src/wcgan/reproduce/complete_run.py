"""One run of a table, from wherever it stands to its figures."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from wcgan.core.files import locked
from wcgan.evaluate.command import EvaluationConfig, evaluate
from wcgan.evaluate.image_sets import load_set
from wcgan.evaluate.inception import VARIABLE, load_inception
from wcgan.evaluate.protocol import PROTOCOLS, Protocol, find_protocol, plan_name_of
from wcgan.reproduce.plan import PlannedRun, Reproduction, start_run
from wcgan.runs.checkpoint import read_newest
from wcgan.runs.config import ClassifyConfig, Config
from wcgan.runs.folder import Run
from wcgan.runs.status import RunStatus, lines_to_iteration, metrics_to_status
from wcgan.train.loop import DivergedError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ending:
    """How far a run was brought."""

    state: RunStatus
    iteration: int = 0
    sentence: str = ""
    """Why it is not done; of one that is, its figures."""
    stopped_by: int | None = None
    """The signal, of one that was stopped."""


def finish_run(planned: PlannedRun) -> Ending:
    """Trains what is left and measures what is missing; what goes wrong is this run's alone.

    One process at a time works in a folder. Whoever comes second finds what the first has done.
    """
    try:
        with locked(_lock_of(planned)):
            return _finish(planned, find_looker())
    except DivergedError as error:
        return Ending(RunStatus.DIVERGED, run_to_standing(planned, Looker("classifier")).iteration, str(error))
    except (ValueError, OSError, ImportError) as error:
        return Ending(RunStatus.FAILED, sentence=str(error))
    except Exception as error:
        _log.exception("%s", planned.name)
        return Ending(RunStatus.FAILED, sentence=f"{type(error).__name__}: {error}")


def _lock_of(planned: PlannedRun) -> Path:
    """Not among the runs, whose folders hold what is worth keeping: OUT/TABLE/ROW/SEED -> OUT/.locks/TABLE.ROW.SEED."""
    *_, table, row, seed = planned.folder.parts
    folder = planned.folder.parents[2] / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{table}.{row}.{seed}"


def run_to_ending(planned: PlannedRun, looker: Looker) -> Ending | None:
    """Of a run with nothing left to do; None for any other."""
    standing = run_to_standing(planned, looker)
    if standing.state is RunStatus.DIVERGED:
        return Ending(RunStatus.DIVERGED, standing.iteration, f"diverged at iteration {standing.iteration}")
    done = standing.state is RunStatus.DONE
    return Ending(RunStatus.DONE, standing.iteration, standing.figures) if done else None


def _finish(planned: PlannedRun, looker: Looker) -> Ending:
    ended = run_to_ending(planned, looker)
    if ended is not None:
        return ended
    run = Run(planned.folder)
    _check_checkpoints(run)
    outcome = start_run(planned.config, planned.folder)
    if outcome.stopped_by is not None:
        sentence = f"stopped at iteration {outcome.iteration}"
        return Ending(RunStatus.STOPPED, outcome.iteration, sentence, outcome.stopped_by)
    missing = missing_figures(planned, looker, run.lines())
    if missing and isinstance(planned.config, ClassifyConfig):
        raise ValueError(f"{run.folder} is trained and lacks its error: bring its metrics back, or delete it")
    for protocol, metrics in missing.items():
        _measure(run, protocol, metrics, looker)
    after = run_to_standing(planned, looker)
    return Ending(RunStatus.DONE, after.iteration, after.figures)


def _check_checkpoints(run: Run) -> None:
    """Raises a ValueError for a finished run without its checkpoints: training it again would lose its figures."""
    finished = any(line.get("what") == "finished" for line in run.lines())
    if finished and read_newest(run.checkpoints) is None:
        raise ValueError(
            f"{run.folder} lacks figures, and has no checkpoint to take them from: bring its checkpoints back, or "
            "delete it to train it again"
        )


def _measure(run: Run, protocol: str, metrics: tuple[str, ...], looker: Looker) -> None:
    """Puts the figures of the last checkpoint into the run's metrics."""
    config = run.config()
    measured = evaluate(
        str(run.folder),
        EvaluationConfig(
            protocol=protocol,
            metrics=metrics,
            features=(looker.features,),
            images=other_number_of_images(config, protocol),
            seed=config.train.seed,
            device=config.train.device,
        ),
    )
    run.record("evaluation", measured.iteration, **measured.scores)


def other_number_of_images(config: Config, protocol: str) -> int | None:
    """That of training's evaluations, where there are fewer real images than the protocol has; else None."""
    wanted, generator = find_protocol(protocol), config.generator
    reference = load_set(
        config.data.reference_name, wanted.split, config.data.folder, generator.resolution, generator.channels
    )
    return config.train.evaluate_images if len(reference) < (wanted.reference or 0) else None


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

    state: RunStatus
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
    iteration, last = lines_to_iteration(lines), planned.config.train.iterations
    status = metrics_to_status(lines, last)
    if status in (RunStatus.NOT_STARTED, RunStatus.DIVERGED):
        return Standing(status, iteration)
    done = iteration >= last and not missing_figures(planned, looker, lines)
    return Standing(RunStatus.DONE if done else status, iteration, _figures_to_words(lines))


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
