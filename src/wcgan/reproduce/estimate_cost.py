"""What a table would take: a short burst of each of its configs, through the code that trains and measures."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from wcgan.core.device import find_hardware
from wcgan.core.images import grid, write_png
from wcgan.core.processes import Rank
from wcgan.core.terminal import OnProgress
from wcgan.core.terminal import TrainingProgress as Silence
from wcgan.evaluate.features import Features
from wcgan.evaluate.image_sets import CHUNK
from wcgan.evaluate.inception import load_inception
from wcgan.evaluate.protocol import find_protocol, protocol_to_plan
from wcgan.paper.tables import Row
from wcgan.report.numbers import duration
from wcgan.reproduce.complete_run import (
    Looker,
    find_looker,
    looker_to_notes,
    missing_figures,
    other_number_of_images,
    run_to_standing,
)
from wcgan.reproduce.plan import PlannedRun, Reproduction, RunConfig
from wcgan.runs.config import ClassifyConfig, Config, TrainConfig
from wcgan.runs.folder import Run
from wcgan.runs.sampler import Sampler
from wcgan.runs.status import RunStatus
from wcgan.train import gan
from wcgan.train.batches import ClassifierBatches, dataset_on
from wcgan.train.classifier import build_learner, learner_to_task, make_step, measure_error
from wcgan.train.gan import build_players
from wcgan.train.graph import WARM_UP
from wcgan.train.loop import save
from wcgan.train.start import fit_config, load_data
from wcgan.train.start_classifier import fit_classifier, load_splits

SECONDS = 2.0  # of a burst, after the iterations that warm up


@dataclass(frozen=True)
class Burst:
    """What a config takes on this machine."""

    seconds_per_iteration: float
    seconds_per_image: float
    """Drawn, and looked at by Inception where that is here; of a classifier, tested."""
    checkpoint_bytes: int
    grid_bytes: int
    test_images: int = 0
    """In each evaluation of a classifier."""


@dataclass(frozen=True)
class Estimate:
    """What is left of a row."""

    row: Row
    iterations: int
    """Of one run."""
    seeds: int
    done: int
    """Seeds with nothing left to do."""
    seconds: float = 0.0
    """One run after another."""
    bytes: int = 0
    missing: str = ""
    """Why it cannot be trained, where it cannot."""


def estimate(plan: Reproduction, progress: OnProgress | None = None) -> tuple[list[Estimate], list[str]]:
    """An estimate for each row, and what a reader must know. Nothing is written but the caches of data.

    Args:
        plan: what `plan_table` gives.
        progress: called with what is being done, how much of it is done, and how much there is.
    """
    looker = find_looker()
    rows = list(dict.fromkeys(run.row.preset for run in plan.runs))
    estimates = []
    for number, name in enumerate(rows, start=1):
        runs = [run for run in plan.runs if run.row.preset == name]
        estimates.append(_estimate_row(runs, looker))
        if progress is not None:
            progress("rows tried", number, len(rows))
    return estimates, looker_to_notes(looker, plan)


def _estimate_row(runs: Sequence[PlannedRun], looker: Looker) -> Estimate:
    nothing = runs_to_estimate(runs, looker)
    if nothing.done == len(runs):
        return nothing
    config = runs[0].config
    try:
        if isinstance(config, Config):
            burst = measure_burst(config, looker)
            small = any(other_number_of_images(config, protocol) is not None for protocol in runs[0].row.protocols)
        else:
            burst, small = measure_classifier(config), False
    except (ValueError, ImportError, OSError) as error:
        return replace(nothing, missing=str(error))
    return runs_to_estimate(runs, looker, burst, small)


def runs_to_estimate(
    runs: Sequence[PlannedRun], looker: Looker, burst: Burst | None = None, small: bool = False
) -> Estimate:
    """What the runs of a row have left, if each takes what a burst did.

    Args:
        runs: one for each seed.
        looker: what looks at the images.
        burst: of their config; None for one that takes nothing.
        small: whether there are fewer real images than the protocols have: training's evaluation is then all there is.
    """
    standings = [run_to_standing(run, looker) for run in runs]
    left = [(r, s) for r, s in zip(runs, standings, strict=True) if s.state not in (RunStatus.DONE, RunStatus.DIVERGED)]
    burst = burst or Burst(0.0, 0.0, 0, 0)
    return Estimate(
        runs[0].row,
        runs[0].config.train.iterations,
        len(runs),
        len(runs) - len(left),
        sum(_seconds(run, standing.iteration, burst, looker, small) for run, standing in left),
        sum(_bytes(run.config, burst) for run, _ in left),
    )


def measure_burst(config: Config, looker: Looker, seconds: float = SECONDS) -> Burst:
    """Trains for a few seconds, draws some images, and writes one checkpoint and one grid into a temporary folder."""
    hardware, dataset = find_hardware(config.train), load_data(config)
    config = fit_config(config, dataset)
    players = build_players(config, hardware.device, hardware.channels_last)
    batches = gan.batches_of(config, dataset, hardware.device, Rank())
    gan.compile_players(players, config, hardware, Silence())
    step = gan.make_step(players, batches, config, hardware, Silence())
    per_iteration = _time_warm(step, hardware.device, seconds)
    sampler = Sampler(players.sampled_generator, dataset.classes)
    networks = [load_inception(device=str(hardware.device))] if looker.features == "inception" else []
    per_image = _time(lambda number: _look(sampler, networks, number), hardware.device, seconds) / CHUNK
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        save(gan.players_to_task(players, config, dataset, run), 0, 0.0)
        write_png(grid(sampler.rows(), 10), run.samples / "grid.png")
        checkpoint = sum(file.stat().st_size for file in run.checkpoints.iterdir())
        return Burst(per_iteration, per_image, checkpoint, (run.samples / "grid.png").stat().st_size)


def measure_classifier(config: ClassifyConfig, seconds: float = SECONDS) -> Burst:
    """Trains a classifier for a few seconds, tests a few images, and writes one checkpoint into a temporary folder."""
    hardware, (training, test) = find_hardware(config.train), load_splits(config)
    config, device = fit_classifier(config, training), hardware.device
    training, test = dataset_on(training, device), dataset_on(test, device)
    learner = build_learner(config, training.images, device, hardware.channels_last)
    step = make_step([learner], [ClassifierBatches(training, config.train, device)], hardware, Silence())
    per_iteration = _time_warm(step, device, seconds)
    few = replace(test, images=test.images[:CHUNK], labels=None if test.labels is None else test.labels[:CHUNK])
    per_image = _time(lambda _: measure_error(learner, few, device), device, seconds) / len(few)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        save(learner_to_task(learner, config, training, test, run, device, Rank()), 0, 0.0)
        checkpoint = sum(file.stat().st_size for file in run.checkpoints.iterdir())
        return Burst(per_iteration, per_image, checkpoint, 0, len(test))


def _time_warm(step: Callable[[int], object], device: torch.device, seconds: float) -> float:
    """Seconds of a step, after those that warm up."""
    began = time.monotonic()
    for iteration in range(WARM_UP + 1):  # a GPU compiles, and records the graph; a slow CPU has nothing to wait for
        if device.type == "cuda" or iteration == 0 or time.monotonic() - began < seconds:
            step(iteration)
    return _time(step, device, seconds)


def _time(step: Callable[[int], object], device: torch.device, seconds: float) -> float:
    """Seconds of a step: as many as fit into the time, at least one."""
    _wait(device)
    began, count = time.monotonic(), 0
    while count == 0 or time.monotonic() - began < seconds:
        step(count)
        _wait(device)
        count += 1
    return (time.monotonic() - began) / count


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _look(sampler: Sampler, networks: Sequence[Features], seed: int) -> None:
    images = sampler.from_noise(sampler.noise(CHUNK, seed), sampler.labels(CHUNK, None), stay=True)
    for network in networks:
        for part in images.split(network.batch):
            network.predict(part)


def _seconds(run: PlannedRun, reached: int, burst: Burst, looker: Looker, small: bool) -> float:
    """Of the iterations that are left, training's own evaluations among them, and the row's protocols after them."""
    train = run.config.train
    left = train.iterations - reached
    every = train.evaluate_every or train.iterations
    evaluations = -(-train.iterations // every) - reached // every  # the last one wherever it falls
    images = evaluations * (train.evaluate_images if isinstance(train, TrainConfig) else burst.test_images)
    measured = small or not isinstance(train, TrainConfig)  # a classifier has no evaluation but training's
    missing = {} if measured else missing_figures(run, looker, Run(run.folder).lines())
    for name, metrics in missing.items():
        protocol = find_protocol(name)
        images += protocol_to_plan(protocol, protocol.reference or 0, metrics=metrics).images(metrics)
    return left * burst.seconds_per_iteration + images * burst.seconds_per_image


def _bytes(config: RunConfig, burst: Burst) -> int:
    """The checkpoints that are kept, and each grid twice: in `samples` and in TensorBoard's events."""
    train = config.train
    grids = train.iterations // train.sample_every if isinstance(train, TrainConfig) and train.sample_every else 0
    return train.keep_checkpoints * burst.checkpoint_bytes + 2 * grids * burst.grid_bytes


_HEAD = f"{'row':35} iterations {'done':>8} {'time left':>12} {'disk':>8}"


def estimates_to_lines(estimates: Sequence[Estimate], notes: Sequence[str] = ()) -> list[str]:
    """A line for each row and one for all of them, then why rows cannot be trained: one for each reason."""
    lines = [_HEAD]
    for each in estimates:
        cost = ("-", "-") if each.missing else (duration(each.seconds), size(each.bytes))
        lines.append(_line(each.row.preset, f"{each.iterations:,}", each.done, each.seeds, *cost))
    done, seeds = sum(each.done for each in estimates), sum(each.seeds for each in estimates)
    cost = duration(sum(each.seconds for each in estimates)), size(sum(each.bytes for each in estimates))
    lines.append(_line("all, one run after another", "", done, seeds, *cost))
    reasons = Counter(each.missing for each in estimates if each.missing)
    left_out = [
        f"{count} of {len(estimates)} rows cannot be trained here and are left out of the sum: {reason}"
        for reason, count in reasons.items()
    ]
    return [*lines, *left_out, *notes]


def _line(name: str, iterations: str, done: int, seeds: int, time: str, disk: str) -> str:
    return f"{name:35} {iterations:>10} {f'{done} of {seeds}':>8} {time:>12} {disk:>8}"


def size(count: int) -> str:
    """Bytes as a person reads them.

    Example:
        >>> size(2_500_000_000), size(3_000_000)
        ('2.5 GB', '3 MB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
