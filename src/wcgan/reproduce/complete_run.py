"""Complete one run of a table: train what is left, then measure the figures that are missing."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from wcgan import data
from wcgan.core.files import locked
from wcgan.evaluate.command import EvaluationConfig, evaluate
from wcgan.evaluate.image_sets import load_real_images
from wcgan.evaluate.inception import VARIABLE, load_inception
from wcgan.evaluate.protocol import PROTOCOLS, Protocol, facts_to_name, find_protocol, is_unusual
from wcgan.report.numbers import is_number
from wcgan.reproduce.plan import PlannedRun, Reproduction, start_run
from wcgan.runs.checkpoint import read_newest
from wcgan.runs.config import ClassifyConfig, Config
from wcgan.runs.folder import Run
from wcgan.runs.status import RunStatus, lines_to_iteration, metrics_to_status
from wcgan.train.loop import DivergedError

_log = logging.getLogger(__name__)


Record = dict[str, Any]
_SCORE_NAMES = {"inception": "{}", "classifier": "{}(classifier)"}  # by the network that scores the images
_SHOWN = ("IS", "FID", "error")


@dataclass(frozen=True)
class Scorer:
    """The network that scores generated images on this machine."""

    features: str
    """inception if `WCGAN_INCEPTION_WEIGHTS` names its weights, else classifier."""
    gives_is: bool = True
    """Whether it gives an Inception Score; Inception weights without the last layer do not."""

    @property
    def note(self) -> str | None:
        """What a reader of the figures must know, if anything."""
        if self.features == "classifier":
            return f"{VARIABLE} names no weights: a small classifier scores the images, not the paper's Inception."
        return None if self.gives_is else "IS is left out: the Inception weights lack their last layer."


def find_scorer() -> Scorer:
    """Inception if its weights are named, else the small classifier."""
    file = os.environ.get(VARIABLE)
    return _inception(file) if file else Scorer("classifier")


@cache
def _inception(file: str) -> Scorer:
    return Scorer("inception", load_inception(device="cpu").classes is not None)


def scorer_to_notes(scorer: Scorer, plan: Reproduction) -> list[str]:
    """What a reader of a table must know about its scores; a table of classifiers has no images to score."""
    return [scorer.note] if scorer.note and not plan.table.classifiers else []


@dataclass(frozen=True)
class RunSummary:
    """What the folder of a run says about it."""

    status: RunStatus
    iteration: int = 0
    figures: str = ""
    """Its last figures, as text."""


def run_to_summary(planned: PlannedRun, scorer: Scorer) -> RunSummary:
    """The status of a run, from the files in its folder alone."""
    lines = Run(planned.folder).lines()
    iteration, status = lines_to_iteration(lines), metrics_to_status(lines, planned.config.train.iterations)
    if status in (RunStatus.NOT_STARTED, RunStatus.DIVERGED):
        return RunSummary(status, iteration)
    done = status is RunStatus.FINISHED and not missing_figures(planned, scorer, lines)
    return RunSummary(RunStatus.DONE if done else status, iteration, _figures_to_words(lines))


def missing_figures(planned: PlannedRun, scorer: Scorer, lines: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """Protocol -> the row's metrics that are not yet measured after the last iteration and can be measured here."""
    last = planned.config.train.iterations
    measured = [line for line in lines if line["kind"] == "evaluation" and line["iteration"] == last]
    missing: dict[str, tuple[str, ...]] = {}
    for protocol, metrics in planned.row.protocols.items():
        left = tuple(
            metric
            for metric in metrics
            if (metric != "is" or scorer.gives_is) and not _is_measured(planned, scorer, measured, metric, protocol)
        )
        if left:
            missing[protocol] = left
    return missing


def _is_measured(planned: PlannedRun, scorer: Scorer, measured: Sequence[Record], metric: str, protocol: str) -> bool:
    """Whether a metric was measured, by Inception or by this machine's scorer; for a classifier, during training."""
    if not isinstance(planned.config, Config):
        return any(metric in line for line in measured)
    names = [
        _SCORE_NAMES[features].format(metric.upper()) for features in dict.fromkeys(("inception", scorer.features))
    ]
    images = planned.config.train.evaluate_images
    return any(
        name in line and _fits(line.get("protocol", {}), metric, PROTOCOLS[protocol], images)
        for line in measured
        for name in names
    )


def _fits(facts: Record, metric: str, protocol: Protocol, images: int) -> bool:
    """Whether a figure was measured with a protocol, as far as its metric is concerned.

    A data set with fewer real images than the protocol asks for is used whole, against `images` generated images.
    """
    if is_unusual(facts):
        return False
    reference = facts.get("reference")
    there = reference.get("of") if isinstance(reference, dict) else None
    if not is_number(there):  # a damaged record: the figure is measured again
        return False
    if there < (protocol.reference or 0):
        return images == facts.get("scored_by_IS" if metric == "is" else "generated")
    return facts_to_name(metric, facts) == protocol.name


def _figures_to_words(lines: Sequence[Record]) -> str:
    found: dict[str, float] = {}
    for line in lines:
        if line["kind"] == "evaluation" and not is_unusual(line.get("protocol", {})):
            found |= {name: value for name, value in line.items() if name.startswith(_SHOWN) and is_number(value)}
    return ", ".join(f"{name} {value:.2f}" for name, value in sorted(found.items(), reverse=True))


@dataclass(frozen=True)
class RunResult:
    """What came of an attempt to complete a run."""

    status: RunStatus
    iteration: int = 0
    sentence: str = ""
    """The figures of a run that is done, or why it is not done."""
    stopped_by: int | None = None
    """The signal that stopped it, if one did."""


def result_if_complete(planned: PlannedRun, scorer: Scorer) -> RunResult | None:
    """The result of a run with nothing left to do; None if there is something to do."""
    try:
        summary = run_to_summary(planned, scorer)
    except OSError:  # `complete_run` fails on it, and says why
        return None
    if summary.status is RunStatus.DIVERGED:
        return RunResult(RunStatus.DIVERGED, summary.iteration, f"diverged at iteration {summary.iteration}")
    done = summary.status is RunStatus.DONE
    return RunResult(RunStatus.DONE, summary.iteration, summary.figures) if done else None


def complete_run(planned: PlannedRun) -> RunResult:
    """Train what is left of a run and measure what is missing; an error fails this run only.

    A lock keeps out other processes; the next one to get it continues from what this one has done.
    """
    try:
        with locked(_lock_of(planned)):
            return _complete(planned, find_scorer())
    except DivergedError as error:
        return RunResult(RunStatus.DIVERGED, run_to_summary(planned, Scorer("classifier")).iteration, str(error))
    except (ValueError, OSError, ImportError) as error:
        return RunResult(RunStatus.FAILED, sentence=str(error))
    except Exception as error:
        _log.exception("%s", planned.name)
        return RunResult(RunStatus.FAILED, sentence=f"{type(error).__name__}: {error}")


def _lock_of(planned: PlannedRun) -> Path:
    """OUT/TABLE/ROW/SEED -> OUT/.locks/TABLE.ROW.SEED: outside the runs' folders, which are worth keeping."""
    *_, table, row, seed = planned.folder.parts
    folder = planned.folder.parents[2] / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{table}.{row}.{seed}"


def _complete(planned: PlannedRun, scorer: Scorer) -> RunResult:
    ended = result_if_complete(planned, scorer)
    if ended is not None:
        return ended
    run = Run(planned.folder)
    _check_checkpoints(run)
    outcome = start_run(planned.config, planned.folder)
    if outcome.stopped_by is not None:
        sentence = f"stopped at iteration {outcome.iteration}"
        return RunResult(RunStatus.STOPPED, outcome.iteration, sentence, outcome.stopped_by)
    missing = missing_figures(planned, scorer, run.lines())
    if missing and isinstance(planned.config, ClassifyConfig):
        raise ValueError(f"{run.folder} is trained but has no error in its metrics: restore them, or delete the folder")
    for protocol, metrics in missing.items():
        _measure(run, protocol, metrics, scorer)
    after = run_to_summary(planned, scorer)
    return RunResult(RunStatus.DONE, after.iteration, after.figures)


def _check_checkpoints(run: Run) -> None:
    """Raises a ValueError for a finished run without checkpoints: training it again would lose its figures."""
    finished = any(line.get("what") == "finished" for line in run.lines())
    if finished and read_newest(run.checkpoints) is None:
        raise ValueError(
            f"{run.folder} lacks figures and has no checkpoint to measure: restore its checkpoints, or delete the "
            "folder to train again"
        )


def _measure(run: Run, protocol: str, metrics: tuple[str, ...], scorer: Scorer) -> None:
    """Measure the last checkpoint and record the figures in the run's metrics."""
    config = run.config()
    is_published = config.data.name in data.names()  # a folder has the protocol of its training
    measured = evaluate(
        str(run.folder),
        EvaluationConfig(
            protocol=protocol if is_published else None,
            metrics=metrics,
            features=(scorer.features,),
            images=images_if_too_few(config, protocol) if is_published else None,
            seed=config.train.seed,
            device=config.train.device,
        ),
    )
    run.record("evaluation", measured.iteration, **measured.scores)


def images_if_too_few(config: Config, protocol: str) -> int | None:
    """The number used during training if there are fewer real images than the protocol asks for, else None."""
    wanted, generator = find_protocol(protocol), config.generator
    reference = load_real_images(config.data, wanted.split, generator.resolution, generator.channels)
    return config.train.evaluate_images if len(reference) < (wanted.reference or 0) else None
