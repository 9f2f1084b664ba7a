"""One run of a table, from wherever it stands to its figures."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from wcgan.classify import ClassifyConfig
from wcgan.data.lock import locked
from wcgan.evaluate import find_protocol
from wcgan.experiments.evaluation import EvaluationConfig, evaluate
from wcgan.experiments.kinds import start_run
from wcgan.experiments.sets import load_set
from wcgan.experiments.standing import Looker, find_looker, missing_figures, run_to_standing
from wcgan.experiments.tables import PlannedRun
from wcgan.train.checkpoint import read_newest
from wcgan.train.config import Config
from wcgan.train.loop import DivergedError
from wcgan.train.run import Run

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ending:
    """How far a run was brought."""

    state: str
    """done, diverged, stopped or failed."""
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
        return Ending("diverged", run_to_standing(planned, Looker("classifier")).iteration, str(error))
    except (ValueError, OSError, ImportError) as error:
        return Ending("failed", sentence=str(error))
    except Exception as error:
        _log.exception("%s", planned.name)
        return Ending("failed", sentence=f"{type(error).__name__}: {error}")


def _lock_of(planned: PlannedRun) -> Path:
    """Not among the runs, whose folders hold what is worth keeping: OUT/TABLE/ROW/SEED -> OUT/.locks/TABLE.ROW.SEED."""
    *_, table, row, seed = planned.folder.parts
    folder = planned.folder.parents[2] / ".locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{table}.{row}.{seed}"


def run_to_ending(planned: PlannedRun, looker: Looker) -> Ending | None:
    """Of a run with nothing left to do; None for any other."""
    standing = run_to_standing(planned, looker)
    if standing.state == "diverged":
        return Ending("diverged", standing.iteration, f"diverged at iteration {standing.iteration}")
    return Ending("done", standing.iteration, standing.figures) if standing.state == "done" else None


def _finish(planned: PlannedRun, looker: Looker) -> Ending:
    ended = run_to_ending(planned, looker)
    if ended is not None:
        return ended
    run = Run(planned.folder)
    _check_checkpoints(run)
    if not (run.folder / "config.yaml").exists():
        for leftover in run.folder.glob(".config.yaml.*.tmp"):  # of a process killed as it began
            leftover.unlink()
    outcome = start_run(planned.config, planned.folder)
    if outcome.stopped_by is not None:
        return Ending("stopped", outcome.iteration, f"stopped at iteration {outcome.iteration}", outcome.stopped_by)
    missing = missing_figures(planned, looker, run.lines())
    if missing and isinstance(planned.config, ClassifyConfig):
        raise ValueError(f"{run.folder} is trained and lacks its error: bring its metrics back, or delete it")
    for protocol, metrics in missing.items():
        _measure(run, protocol, metrics, looker)
    after = run_to_standing(planned, looker)
    return Ending("done", after.iteration, after.figures)


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
