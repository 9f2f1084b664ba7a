"""The training loop, read once from top to bottom."""

import errno
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from wcgan._version import __version__
from wcgan.data import Dataset
from wcgan.train.batches import Batches, Inputs
from wcgan.train.checkpoint import (
    CheckpointError,
    first_nonfinite,
    keep_last,
    players_to_tensors,
    read_newest,
    tensors_to_players,
    write_checkpoint,
)
from wcgan.train.config import Config
from wcgan.train.graph import GraphedIteration, Losses
from wcgan.train.hardware import Hardware, find_hardware
from wcgan.train.iteration import Players, build_players, learning_rate, set_learning_rate, train_iteration
from wcgan.train.journal import Journal
from wcgan.train.parallel import Rank, process_count, process_group
from wcgan.train.progress import Progress, progress_for
from wcgan.train.run import Run
from wcgan.train.sampling import Sampler
from wcgan.train.stopping import StopRequest, stop_requests

Evaluator = Callable[[Sampler], dict[str, Any]]


class DivergedError(ValueError):
    """A loss that is no longer finite."""


@dataclass(frozen=True)
class Outcome:
    """How a call of `train` ended."""

    iteration: int
    stopped_by: int | None = None
    """The signal that ended it early, if any."""
    first_process: bool = True
    """Whether this process is the one that writes."""


def train(
    config: Config, dataset: Dataset, run: Run, evaluator: Evaluator | None = None, stop_at: int | None = None
) -> Outcome:
    """Trains from the newest checkpoint of the run, or from the start, to the end, to `stop_at` or to a signal."""
    if stop_at is not None and stop_at < 1:
        raise ValueError(f"--stop-at must be an iteration, at least 1, got {stop_at}")
    check_shares(config, Rank(count=process_count()))
    hardware = find_hardware(config.train)
    try:
        with process_group(hardware.device) as rank, stop_requests() as stop, _quiet_threads():
            return _train(config, dataset, run, hardware, rank, stop, evaluator, stop_at)
    except (torch.cuda.OutOfMemoryError, RuntimeError) as error:
        if "allocate memory" in str(error) or isinstance(error, torch.cuda.OutOfMemoryError):
            batch = f"train.batch={config.train.batch} and train.generator_batch={config.train.generator_batch}"
            raise ValueError(
                f"{batch} do not fit into the memory of {hardware.device}: lower them with --set"
            ) from error
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CheckpointError(
                f"no space left in {run.folder}: free some and resume the run; checkpoints already written are intact"
            ) from error
        raise


def _train(
    config: Config,
    dataset: Dataset,
    run: Run,
    hardware: Hardware,
    rank: Rank,
    stop: StopRequest,
    evaluator: Evaluator | None,
    stop_at: int | None,
) -> Outcome:
    settings, device = config.train, hardware.device
    players = build_players(config, device, hardware.channels_last, sync=rank.count > 1)
    batches = batches_of(config, dataset, device, rank)
    sampler = Sampler(players.sampler, dataset.classes)
    with progress_for(settings.iterations, rank.first) as progress, ExitStack() as ending:
        iteration, seconds_before = restore(players, run, dataset, rank, progress)
        goal = min(settings.iterations, stop_at or settings.iterations)
        if iteration >= goal:
            return Outcome(iteration, first_process=rank.first)
        compile_players(players, config, hardware, progress)
        step = make_step(players, batches, config, hardware, progress)
        journal = ending.enter_context(closing(Journal(run, config, progress, rank, iteration, hardware)))
        healthy = torch.ones((), dtype=torch.bool, device=device)
        began = time.monotonic()

        while iteration < goal:
            losses = step(iteration)
            iteration += 1
            healthy &= torch.stack([value.isfinite() for value in losses.values()]).all()
            seconds = seconds_before + time.monotonic() - began
            last = iteration == goal
            logging, sampling, saving, conditioning = (
                last or (every > 0 and iteration % every == 0)
                for every in (
                    *(settings.log_every, settings.sample_every, settings.checkpoint_every),
                    settings.conditioning_every,
                )
            )
            stopping = stop.requested(rank)
            evaluating = evaluator and (last or (settings.evaluate_every and iteration % settings.evaluate_every == 0))

            if logging or saving or stopping:  # the only moments at which the host waits for the device
                means = {name: rank.mean(value).item() for name, value in losses.items()}
                unhealthy = rank.any(not healthy) or not all(map(math.isfinite, means.values()))
                stop_if_diverged(unhealthy, means, players, journal, iteration, thorough=saving or stopping)
                journal.losses(iteration, means, seconds)
            if rank.first and sampling and settings.sample_every:
                journal.samples(iteration, sampler)
            if rank.first and conditioning and settings.conditioning_every:
                journal.conditioning(iteration, sampler)
            if evaluating and evaluator:
                try:
                    scores = evaluator(sampler)  # all processes share the work
                except Exception:
                    if rank.first:  # training was not at fault: keep it
                        save(players, run, config, dataset, iteration, seconds)
                    raise
                if rank.first:
                    journal.scores(iteration, scores, players)
            if rank.first and (saving or stopping):
                save(players, run, config, dataset, iteration, seconds)
            progress.advance(iteration)
            if stopping and not last:
                journal.event(iteration, "stopped", signal=stop.signal)
                return Outcome(iteration, stop.signal or int(signal.SIGTERM), rank.first)
        journal.event(iteration, "finished" if goal == settings.iterations else "stopped", seconds=round(seconds, 1))
    return Outcome(iteration, first_process=rank.first)


# What happens around an iteration


def check_shares(config: Config, rank: Rank) -> None:
    for name in ("batch", "generator_batch"):
        size = getattr(config.train, name)
        if size % rank.count:
            raise ValueError(
                f"train.{name}={size} cannot be shared equally by {rank.count} processes: "
                f"set it to a multiple of {rank.count}"
            )


def batches_of(config: Config, dataset: Dataset, device: torch.device, rank: Rank) -> Batches:
    """The data, on the device where it fits into half of the free memory, else where it lies."""
    images, labels = dataset.images, dataset.labels
    if device.type == "cuda" and images.numel() < torch.cuda.mem_get_info(device)[0] / 2:
        images, labels = images.to(device), None if labels is None else labels.to(device)
    return Batches(
        images,
        labels if config.conditional else None,
        config.classes if config.conditional else None,
        config.generator.noise,
        config.train,
        device,
        rank,
    )


def restore(players: Players, run: Run, dataset: Dataset, rank: Rank, progress: Progress) -> tuple[int, float]:
    """Puts back the newest whole checkpoint -> its iteration and the seconds spent until then."""
    found = read_newest(run.checkpoints)
    iteration = 0 if found is None else int(found.facts["iteration"])
    if rank.any(rank.mean(torch.tensor(float(iteration))).item() != iteration):
        raise ValueError(f"the processes found different checkpoints in {run.folder}: it must be one that all share")
    if found is not None and found.facts.get("data") != dataset.fingerprint:
        raise ValueError(
            f"the images of {dataset.name} are not those that {run.folder} was trained on: "
            f"bring those back, or begin a new run with another --out"
        )
    if rank.first:
        run.forget_after(iteration)
    if found is None:
        return 0, 0.0
    for reason in found.damaged:
        progress.say(f"passed over a damaged checkpoint: {reason}; going on from {found.path.name}")
    tensors_to_players(found, players)
    return iteration, float(found.facts["seconds"])


def compile_players(players: Players, config: Config, hardware: Hardware, progress: Progress) -> None:
    if not hardware.compile:
        return
    players.generator.compile(dynamic=False)  # two batch sizes, each with kernels made for it
    if config.train.gradient_penalty:
        progress.say("the discriminator is not compiled: a gradient penalty differentiates it twice")
    else:
        players.discriminator.compile(dynamic=False)


def make_step(
    players: Players, batches: Batches, config: Config, hardware: Hardware, progress: Progress
) -> Callable[[int], Losses]:
    """A function from an iteration's number to its losses, which are valid until the next; a CUDA graph if it can."""

    def compute(inputs: Inputs) -> Losses:
        return train_iteration(players, inputs, config, hardware.precision, batches.rank)

    run: Callable[[Inputs], Losses] = compute
    if hardware.eager_because is None:
        run = GraphedIteration(compute, players, progress.say, required=config.train.cuda_graph == "yes")
    elif hardware.eager_because and hardware.device.type == "cuda":
        progress.say(f"an iteration is not one CUDA graph: {hardware.eager_because}")

    def step(iteration: int) -> Losses:
        set_learning_rate(players, learning_rate(config.train, iteration))
        return run(batches.draw(iteration))

    return step


def stop_if_diverged(
    unhealthy: bool, means: dict[str, float], players: Players, journal: Journal, iteration: int, thorough: bool
) -> None:
    """Before anything is written: a state that is not finite must never become the last checkpoint.

    Losses can be finite when the weights they lead to are not: `thorough`, before a checkpoint, looks at these too.
    """
    if not unhealthy and not thorough:
        return
    tensor = first_nonfinite(players_to_tensors(players))
    if not unhealthy and tensor is None:
        return
    loss = next((name for name, value in means.items() if not math.isfinite(value)), "a loss") if unhealthy else None
    good = read_newest(journal.run.checkpoints)
    kept = f"the last good state is {good.path.name}" if good else "no checkpoint had been written yet"
    where = f"; the first tensor with NaN or Inf is {tensor}" if loss and tensor else ""
    journal.event(iteration, "diverged", loss=loss, tensor=tensor)
    raise DivergedError(f"{loss or tensor} is no longer finite at iteration {iteration}{where}; {kept}")


def save(players: Players, run: Run, config: Config, dataset: Dataset, iteration: int, seconds: float) -> None:
    facts = {
        "iteration": iteration,
        "seconds": seconds,
        "classes": list(dataset.classes),
        "data": dataset.fingerprint,
        "version": __version__,
    }
    write_checkpoint(run.checkpoints, f"{iteration:07d}", players_to_tensors(players), facts)
    keep_last(run.checkpoints, config.train.keep_checkpoints, iteration)


@contextmanager
def _quiet_threads() -> Iterator[None]:
    """TensorBoard's thread prints the error of a full disk that its next caller is given anyway."""
    before = threading.excepthook
    threading.excepthook = lambda thread: None if isinstance(thread.exc_value, OSError) else before(thread)
    try:
        yield
    finally:
        threading.excepthook = before
