"""The loop of every training, read once from top to bottom: restore, iterate, log, evaluate, save."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from wcgan import __version__
from wcgan.core.config import config_to_dict
from wcgan.core.device import Hardware, deterministic_algorithms, find_hardware
from wcgan.core.files import NO_SPACE
from wcgan.core.processes import Rank, StopRequest, join_processes, process_count, stop_requests
from wcgan.core.terminal import TrainingProgress, first_line, progress_for
from wcgan.data import Dataset
from wcgan.runs.checkpoint import (
    Checkpoint,
    CheckpointError,
    first_nonfinite,
    iteration_of,
    keep_last,
    read_newest,
    write_checkpoint,
)
from wcgan.runs.config import LoopConfig
from wcgan.runs.folder import Run
from wcgan.runs.sampler import Sampler
from wcgan.runs.status import RunStatus, metrics_to_status
from wcgan.train.custom import Callback, Training
from wcgan.train.graph import hardware_for
from wcgan.train.journal import Best, Journal
from wcgan.train.learner import Learner, Losses, count_retries, learner_to_tensors, tensors_to_learner

Step = Callable[[int], Sequence[Losses]]
"""Iterations done -> the losses of the next one, for each task; they are valid until the next call."""


class DivergedError(ValueError):
    """A loss that is no longer finite."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended."""

    iteration: int
    stopped_by: int | None = None
    """The signal that ended it early, if any."""
    first_process: bool = True
    """Whether this process is the one that writes."""
    trained: bool = True
    """Whether there was anything left to train."""


@dataclass(frozen=True)
class Task:
    """What is trained into one folder, and what is written of it."""

    run: Run
    config: Any
    """A `Config` or a `ClassifyConfig`; checkpoints keep it."""
    dataset: Dataset
    learner: Learner
    learning_rate: Callable[[int], float]
    """Iterations done -> the learning rate of the next one."""
    images: int
    """Real images in an iteration."""
    refresh: Callable[[int], None] | None = None
    """Recomputes what iterations do not keep up to date, before it is evaluated or saved; in all processes."""
    look: Callable[[int, bool, Journal], None] | None = None
    """Writes sample grids and other extras. The first process calls it after each iteration, with the iteration,
    whether it is the last one, and the journal."""
    evaluate: Callable[[], dict[str, Any]] | None = None
    """Scores of what is there; all processes share the work."""
    best: Best | None = None
    """What is kept as the best state."""
    callbacks: Sequence[Callback] = ()
    sampler: Sampler | None = None
    """For the callbacks."""

    @property
    def settings(self) -> LoopConfig:
        settings: LoopConfig = self.config.train
        return settings

    def facts(self, iteration: int) -> dict[str, Any]:
        """What a checkpoint says beside its tensors."""
        return {
            "iteration": iteration,
            "classes": list(self.dataset.classes),
            "data": self.dataset.fingerprint,
            "config": config_to_dict(self.config),
            "version": __version__,
        }


@dataclass(frozen=True)
class Environment:
    """What a training runs in: hardware, this process among all, where a signal is remembered, the terminal."""

    hardware: Hardware
    rank: Rank
    stop: StopRequest
    progress: TrainingProgress


def due(every: int, iteration: int, last: bool) -> bool:
    """Whether it is time for what happens every so many iterations, and at the last; 0 for never."""
    return every > 0 and (last or iteration % every == 0)


def check_stop_at(stop_at: int | None) -> None:
    """Raises a ValueError for an iteration that no run gets to."""
    if stop_at is not None and stop_at < 1:
        raise ValueError(f"--stop-at must be an iteration, at least 1, got {stop_at}")


@contextmanager
def loop_on(settings: LoopConfig, runs: Sequence[Run], sizes: str) -> Iterator[Environment]:
    """The environment of a training; the folders are this training's alone until it ends.

    Args:
        settings: say which hardware.
        runs: where the training writes.
        sizes: settings, with their values, that would need less memory if they were lower.

    Raises:
        ValueError: if memory or disk space does not suffice, or another process trains in one of the folders.
    """
    hardware = find_hardware(settings)
    try:
        with join_processes(hardware.device) as rank, stop_requests() as stop, _quiet_threads(), ExitStack() as owned:
            for run in runs if rank.first else ():
                owned.enter_context(run.owned())
            progress = owned.enter_context(progress_for(settings.iterations, rank.first))
            owned.enter_context(deterministic_algorithms(settings.deterministic and hardware.device.type == "cuda"))
            yield Environment(hardware, rank, stop, progress)
    except (torch.cuda.OutOfMemoryError, RuntimeError) as error:
        if "allocate memory" in str(error) or isinstance(error, torch.cuda.OutOfMemoryError):
            raise ValueError(
                f"{sizes} do not fit into the memory of {hardware.device}: lower them with --set"
            ) from error
        if "does not have a deterministic implementation" in str(error):
            what = str(error).partition(" does not")[0]
            raise ValueError(f"train.deterministic is not possible: {what} has no deterministic variant") from error
        if type(error).__module__.startswith(("torch._inductor", "torch._dynamo")):
            why = first_line(error)
            raise ValueError(f"torch.compile failed ({why}): train without it by --set train.compile=no") from error
        raise
    except OSError as error:
        if error.errno in NO_SPACE:
            folder = runs[0].folder if len(runs) == 1 else runs[0].folder.parent
            raise CheckpointError(
                f"no space left in {folder}: free some and resume the run; checkpoints already written are intact"
            ) from error
        raise


def run_tasks(tasks: Sequence[Task], step: Step, environment: Environment, stop_at: int | None = None) -> Outcome:
    """Trains from the newest checkpoints, or from the start, to the end, to `stop_at` or to a signal.

    Args:
        tasks: trained side by side, iteration by iteration; their settings differ in nothing but what they draw.
        step: one iteration of all of them.
        environment: from `loop_on`.
        stop_at: an iteration to end at before the last.
    """
    check_stop_at(stop_at)
    settings, hardware, rank = tasks[0].settings, environment.hardware, environment.rank
    progress, stop = environment.progress, environment.stop
    iteration, seconds_before = restore(tasks, rank, progress)
    goal = min(settings.iterations, stop_at or settings.iterations)
    if iteration >= goal:
        for task in tasks if rank.first and iteration >= settings.iterations else ():
            if metrics_to_status(task.run.lines(), settings.iterations) is not RunStatus.FINISHED:
                task.run.event(iteration, "finished")  # killed right after its last checkpoint
        return Outcome(iteration, first_process=rank.first, trained=False)
    progress.say(first_words(hardware))
    with ExitStack() as ending:
        journals = []
        for task in tasks:
            training = Training(task.run, task.config, iteration, task.sampler, stop.ask)
            place, retried = hardware_for(task.learner, hardware), count_retries(task.learner)
            journal = Journal(training, progress, rank, place, task.callbacks, retried)
            journals.append(ending.enter_context(closing(journal)))
        healthy = [torch.ones((), dtype=torch.bool, device=hardware.device) for _ in tasks]
        began = time.monotonic()

        while iteration < goal:
            losses = step(iteration)
            iteration += 1
            for flag, values in zip(healthy, losses, strict=True):
                flag &= torch.stack([value.isfinite() for value in values.values()]).all()
            seconds = seconds_before + time.monotonic() - began
            last = iteration == goal
            saving, stopping = due(settings.checkpoint_every, iteration, last), stop.requested(rank)
            logging = saving or stopping or due(settings.log_every, iteration, last)
            evaluating = last or due(settings.evaluate_every, iteration, last)

            for task, journal, flag, values in zip(tasks, journals, healthy, losses, strict=True):
                if logging:  # the only moments at which the host waits for the device
                    means = {name: rank.mean(value).item() for name, value in values.items()}
                    unhealthy = rank.any(not flag) or not all(map(math.isfinite, means.values()))
                    stop_if_diverged(unhealthy, means, task, journal, iteration, thorough=saving or stopping)
                    journal.losses(iteration, means, seconds, task.learning_rate(iteration - 1), task.images)
                    journal.retries(iteration, count_retries(task.learner))
                if task.refresh is not None and (evaluating or saving or stopping):
                    task.refresh(iteration)
                if rank.first and task.look is not None:
                    task.look(iteration, last, journal)
                if evaluating and task.evaluate is not None:
                    try:
                        scores = task.evaluate()
                    except Exception:
                        if rank.first:  # training was not at fault: keep it
                            journal.checkpoint_written(iteration, save_checkpoint(task, iteration, seconds))
                        raise
                    if rank.first:
                        journal.scores(iteration, scores, task.best, task.facts(iteration))
                if rank.first and (saving or stopping):
                    journal.checkpoint_written(iteration, save_checkpoint(task, iteration, seconds))
            progress.advance(iteration)
            if stopping and not last:
                for journal in journals:
                    journal.event(iteration, "stopped", signal=stop.signal)
                signalled = rank.any(stop.signal is not None)  # else a callback asked for the end
                return Outcome(iteration, (stop.signal or int(signal.SIGTERM)) if signalled else None, rank.first)
        what = "finished" if goal == settings.iterations else "stopped"
        for journal in journals:
            journal.event(iteration, what, seconds=round(seconds, 1))
    rank.any(False)  # no process returns before the last checkpoint is there
    return Outcome(iteration, first_process=rank.first)


# What happens around an iteration


def first_words(hardware: Hardware) -> str:
    """What a training runs on, and why its first iteration takes long."""
    place = hardware.describe()["device"]
    if process_count() > 1:
        place = f"{process_count()} \u00d7 {place}"  # as in the report
    return f"training on {place}{'; compiling the networks first: a minute or two' if hardware.compile else ''}"


def restore(tasks: Sequence[Task], rank: Rank, progress: TrainingProgress) -> tuple[int, float]:
    """Puts back the newest checkpoint that can be read -> its iteration and the seconds spent until then.

    Several tasks go back to the newest that all of them have: a kill may come between the checkpoints of two tasks.
    """
    found = [read_newest(task.run.checkpoints) for task in tasks]
    iteration = min(iteration_of(each) for each in found)
    found = [
        each if iteration_of(each) == iteration else read_newest(task.run.checkpoints, iteration)
        for each, task in zip(found, tasks, strict=True)
    ]
    if rank.any(rank.mean(torch.tensor(iteration, dtype=torch.float64)).item() != iteration):
        raise ValueError(
            f"the processes found different checkpoints in {tasks[0].run.folder}: it must be one that all share"
        )
    for each, task in zip(found, tasks, strict=True):
        if iteration_of(each) != iteration:
            raise ValueError(
                f"{task.run.folder} has no checkpoint of iteration {iteration}, which another run goes on from"
            )
        check_images(each, task.dataset, task.run)
    seconds = 0.0
    for each, task in zip(found, tasks, strict=True):
        if each is not None:
            for reason in each.damaged:
                progress.say(f"passed over a damaged checkpoint: {reason}; going on from {each.path.name}")
            tensors_to_learner(each, task.learner)
            seconds = float(each.facts.get("seconds", 0.0))
    for task in tasks if rank.first else ():  # last: a checkpoint that does not fit must leave the metrics as they are
        task.run.forget_after(iteration)
    return iteration, seconds


def check_images(found: Checkpoint | None, dataset: Dataset, run: Run) -> None:
    """Raises a ValueError if the images are not those that a checkpoint was trained on."""
    if found is not None and found.facts.get("data") != dataset.fingerprint:
        raise ValueError(
            f"the images of {dataset.name} are not those that {run.folder} was trained on: bring those back, name "
            f"their folder with --data, or begin a new run with another --out"
        )


def stop_if_diverged(
    unhealthy: bool, means: dict[str, float], task: Task, journal: Journal, iteration: int, thorough: bool
) -> None:
    """Raises a DivergedError before anything is written: a state that is not finite must never become a checkpoint.

    Losses can be finite although the weights they lead to are not: `thorough`, before a checkpoint, checks these too.
    """
    if not unhealthy and not thorough:
        return
    tensor = first_nonfinite(learner_to_tensors(task.learner))
    if not unhealthy and tensor is None:
        return
    loss = next((name for name, value in means.items() if not math.isfinite(value)), "a loss") if unhealthy else None
    good = read_newest(task.run.checkpoints)
    kept = f"the last good state is {good.path.name}" if good else "no checkpoint had been written yet"
    where = f"; the first tensor with NaN or Inf is {tensor}" if loss and tensor else ""
    journal.event(iteration, "diverged", loss=loss, tensor=tensor)
    raise DivergedError(f"{loss or tensor} is no longer finite at iteration {iteration}{where}; {kept}")


def save_checkpoint(task: Task, iteration: int, seconds: float) -> Path:
    """Writes a checkpoint, and deletes those that are no longer kept."""
    facts = {**task.facts(iteration), "seconds": seconds}
    path = write_checkpoint(task.run.checkpoints, f"{iteration:07d}", learner_to_tensors(task.learner), facts)
    keep_last(task.run.checkpoints, task.settings.keep_checkpoints, iteration)
    return path


@contextmanager
def _quiet_threads() -> Iterator[None]:
    """TensorBoard's thread prints the error of a full disk that its next caller is given anyway."""
    before = threading.excepthook
    threading.excepthook = lambda thread: None if isinstance(thread.exc_value, OSError) else before(thread)
    try:
        yield
    finally:
        threading.excepthook = before
