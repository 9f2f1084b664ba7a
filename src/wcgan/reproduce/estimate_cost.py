"""Estimate the time and disk space that a table needs, by training and evaluating each of its configs briefly."""

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
from wcgan.core.terminal import OnProgress, duration
from wcgan.core.terminal import TrainingProgress as Silence
from wcgan.evaluate.image_sets import CHUNK
from wcgan.evaluate.inception import load_inception
from wcgan.evaluate.protocol import Features, find_protocol, protocol_to_plan
from wcgan.paper.tables import Row
from wcgan.reproduce.complete_run import (
    Scorer,
    find_scorer,
    images_if_too_few,
    missing_figures,
    run_to_summary,
    scorer_to_notes,
)
from wcgan.reproduce.plan import PlannedRun, Reproduction, RunConfig
from wcgan.runs.config import ClassifyConfig, Config, TrainConfig
from wcgan.runs.folder import Run
from wcgan.runs.sampler import Sampler
from wcgan.runs.status import RunStatus
from wcgan.train import gan
from wcgan.train.batches import dataset_on
from wcgan.train.classifier import ClassifierBatches, build_learner, learner_to_task, make_step, measure_error
from wcgan.train.gan import build_players
from wcgan.train.graph import WARM_UP
from wcgan.train.loop import save_checkpoint
from wcgan.train.start import fit_config, load_data
from wcgan.train.start_classifier import fit_classifier, load_splits

SECONDS = 2.0  # for each timing, after the warm-up


@dataclass(frozen=True)
class UnitCosts:
    """What one iteration, one evaluated image, one checkpoint and one grid of a config cost on this machine."""

    seconds_per_iteration: float
    seconds_per_image: float
    """For a GAN, to draw an image and score it if Inception is there; for a classifier, to test an image."""
    checkpoint_bytes: int
    grid_bytes: int
    test_images: int = 0
    """Images in each evaluation of a classifier."""


@dataclass(frozen=True)
class Estimate:
    """The cost of what is left to do for a row."""

    row: Row
    iterations: int
    """Iterations of one run."""
    seeds: int
    done: int
    """Seeds with nothing left to do."""
    seconds: float = 0.0
    """Total time if runs go one after another."""
    bytes: int = 0
    missing: str = ""
    """Why the row cannot be trained here; empty if it can."""


def estimate_cost(plan: Reproduction, progress: OnProgress | None = None) -> tuple[list[Estimate], list[str]]:
    """An estimate for each row, and notes for the reader. Nothing is written except the cache of decoded data.

    Args:
        plan: the result of `plan_table`.
        progress: called with a description, the number of rows done, and the number of rows.
    """
    scorer = find_scorer()
    rows = list(dict.fromkeys(run.row.preset for run in plan.runs))
    estimates = []
    for number, name in enumerate(rows, start=1):
        runs = [run for run in plan.runs if run.row.preset == name]
        estimates.append(_estimate_row(runs, scorer))
        if progress is not None:
            progress("rows timed", number, len(rows))
    return estimates, scorer_to_notes(scorer, plan)


def _estimate_row(runs: Sequence[PlannedRun], scorer: Scorer) -> Estimate:
    nothing = runs_to_estimate(runs, scorer)
    if nothing.done == len(runs):
        return nothing
    config = runs[0].config
    try:
        if isinstance(config, Config):
            costs = measure_gan_costs(config, scorer, SECONDS)
            small = any(images_if_too_few(config, protocol) is not None for protocol in runs[0].row.protocols)
        else:
            costs, small = measure_classifier_costs(config, SECONDS), False
    except (ValueError, ImportError, OSError) as error:
        return replace(nothing, missing=str(error))
    return runs_to_estimate(runs, scorer, costs, small)


def runs_to_estimate(
    runs: Sequence[PlannedRun], scorer: Scorer, costs: UnitCosts | None = None, small: bool = False
) -> Estimate:
    """The cost of what is left to do for the runs of a row.

    Args:
        runs: one for each seed.
        scorer: the network that scores images.
        costs: measured for their config; None for no cost at all.
        small: whether there are fewer real images than the protocols ask for, so that the evaluation during training is
            the only one.
    """
    summaries = [run_to_summary(run, scorer) for run in runs]
    over = (RunStatus.DONE, RunStatus.DIVERGED)
    left = [(r, s) for r, s in zip(runs, summaries, strict=True) if s.status not in over]
    costs = costs or UnitCosts(0.0, 0.0, 0, 0)
    return Estimate(
        runs[0].row,
        runs[0].config.train.iterations,
        len(runs),
        len(runs) - len(left),
        sum(_seconds(run, summary.iteration, costs, scorer, small) for run, summary in left),
        sum(_bytes(run.config, costs) for run, _ in left),
    )


def measure_gan_costs(config: Config, scorer: Scorer, seconds: float) -> UnitCosts:
    """Train a GAN for a few seconds, draw and score images, and write a checkpoint and a grid to a temporary folder."""
    hardware, dataset = find_hardware(config.train), load_data(config)
    config = fit_config(config, dataset)
    players = build_players(config, hardware.device, hardware.channels_last)
    batches = gan.batches_of(config, dataset, hardware.device, Rank())
    gan.compile_players(players, config, hardware, Silence())
    step = gan.make_step(players, batches, config, hardware, Silence())
    per_iteration = warm_seconds_per_step(step, hardware.device, seconds)
    sampler = Sampler(players.sampled_generator, dataset.classes)
    networks = [load_inception(device=str(hardware.device))] if scorer.features == "inception" else []
    per_chunk = seconds_per_step(lambda seed: _draw_and_score(sampler, networks, seed), hardware.device, seconds)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        save_checkpoint(gan.players_to_task(players, config, dataset, run), 0, 0.0)
        write_png(grid(sampler.rows(), 10), run.samples / "grid.png")
        checkpoint = sum(file.stat().st_size for file in run.checkpoints.iterdir())
        return UnitCosts(per_iteration, per_chunk / CHUNK, checkpoint, (run.samples / "grid.png").stat().st_size)


def measure_classifier_costs(config: ClassifyConfig, seconds: float) -> UnitCosts:
    """Train a classifier for a few seconds, test a few images, and write a checkpoint to a temporary folder."""
    hardware, (training, test) = find_hardware(config.train), load_splits(config)
    config, device = fit_classifier(config, training), hardware.device
    training, test = dataset_on(training, device), dataset_on(test, device)
    learner = build_learner(config, training.images, device, hardware.channels_last)
    step = make_step([learner], [ClassifierBatches(training, config.train, device)], hardware, Silence())
    per_iteration = warm_seconds_per_step(step, device, seconds)
    few = replace(test, images=test.images[:CHUNK], labels=None if test.labels is None else test.labels[:CHUNK])
    per_image = seconds_per_step(lambda _: measure_error(learner, few, device), device, seconds) / len(few)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        save_checkpoint(learner_to_task(learner, config, training, test, run, device, Rank()), 0, 0.0)
        checkpoint = sum(file.stat().st_size for file in run.checkpoints.iterdir())
        return UnitCosts(per_iteration, per_image, checkpoint, 0, len(test))


def warm_seconds_per_step(step: Callable[[int], object], device: torch.device, seconds: float) -> float:
    """Seconds per step, after the warm-up."""
    began = time.monotonic()
    for iteration in range(WARM_UP + 1):  # a GPU compiles and captures the graph; a slow CPU may stop early
        if device.type == "cuda" or iteration == 0 or time.monotonic() - began < seconds:
            step(iteration)
    return seconds_per_step(step, device, seconds)


def seconds_per_step(step: Callable[[int], object], device: torch.device, seconds: float) -> float:
    """Seconds per step, over as many steps as fit into the given time, and at least one."""
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


def _draw_and_score(sampler: Sampler, networks: Sequence[Features], seed: int) -> None:
    images = sampler.from_noise(sampler.noise(CHUNK, seed), sampler.labels(CHUNK, None), stay=True)
    for network in networks:
        for part in images.split(network.batch):
            network.predict(part)


def _seconds(run: PlannedRun, reached: int, costs: UnitCosts, scorer: Scorer, small: bool) -> float:
    """Time for the iterations left, with the evaluations during training, and for the row's protocols afterwards."""
    train = run.config.train
    left = train.iterations - reached
    every = train.evaluate_every or train.iterations
    evaluations = -(-train.iterations // every) - reached // every if left else 0  # there is always one at the end
    images = evaluations * (train.evaluate_images if isinstance(train, TrainConfig) else costs.test_images)
    measured = small or not isinstance(train, TrainConfig)  # a classifier is evaluated during training only
    missing = {} if measured else missing_figures(run, scorer, Run(run.folder).lines())
    for name, metrics in missing.items():
        protocol = find_protocol(name)
        images += protocol_to_plan(protocol, protocol.reference or 0, metrics=metrics).images(metrics)
    return left * costs.seconds_per_iteration + images * costs.seconds_per_image


def _bytes(config: RunConfig, costs: UnitCosts) -> int:
    """Size of the checkpoints that are kept, and of each grid twice: in `samples` and in TensorBoard's events."""
    train = config.train
    grids = train.iterations // train.sample_every if isinstance(train, TrainConfig) and train.sample_every else 0
    return train.keep_checkpoints * costs.checkpoint_bytes + 2 * grids * costs.grid_bytes


_HEAD = f"{'row':35} iterations {'done':>8} {'time left':>12} {'disk':>8}"


def estimates_to_lines(estimates: Sequence[Estimate], notes: Sequence[str] = ()) -> list[str]:
    """One line per row and one for the whole table, then one per reason why rows cannot be trained."""
    lines = [_HEAD]
    for each in estimates:
        cost = ("-", "-") if each.missing else (duration(each.seconds), size(each.bytes))
        lines.append(_line(each.row.preset, f"{each.iterations:,}", each.done, each.seeds, *cost))
    done, seeds = sum(each.done for each in estimates), sum(each.seeds for each in estimates)
    cost = ("-", "-")
    if not all(each.missing for each in estimates):
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
    """A number of bytes in MB or GB.

    Example:
        >>> size(2_500_000_000), size(3_000_000)
        ('2.5 GB', '3 MB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
