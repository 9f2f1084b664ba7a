"""The training of a GAN: its players, their data and what is to be seen of them, for the loop to run."""

from collections.abc import Callable
from typing import Any

import torch

from wcgan.data import Dataset
from wcgan.train.batches import Batches, Inputs, dataset_on
from wcgan.train.config import Config
from wcgan.train.graph import graphed
from wcgan.train.hardware import Hardware
from wcgan.train.iteration import Players, build_players, learning_rate, train_iteration
from wcgan.train.journal import Journal
from wcgan.train.learner import Losses, set_learning_rate
from wcgan.train.loop import Outcome, Step, Task, due, loop_on, run_tasks
from wcgan.train.parallel import Rank, process_count
from wcgan.train.progress import TrainingProgress
from wcgan.train.run import Run
from wcgan.train.sampling import Sampler

Evaluator = Callable[[Sampler], dict[str, Any]]


def train(
    config: Config, dataset: Dataset, run: Run, evaluator: Evaluator | None = None, stop_at: int | None = None
) -> Outcome:
    """Trains from the newest checkpoint of the run, or from the start, to the end, to `stop_at` or to a signal."""
    settings = config.train
    check_shares(config, Rank(count=process_count()))
    sizes = f"train.batch={settings.batch} and train.generator_batch={settings.generator_batch}"
    with loop_on(settings, run.folder, sizes) as (hardware, rank, stop):
        players = build_players(config, hardware.device, hardware.channels_last, sync=rank.count > 1)
        batches = batches_of(config, dataset, hardware.device, rank)

        def step_of(progress: TrainingProgress) -> Step:
            compile_players(players, config, hardware, progress)
            step = make_step(players, batches, config, hardware, progress)
            return lambda iteration: [step(iteration)]

        task = players_to_task(players, config, dataset, run, evaluator)
        return run_tasks([task], step_of, hardware, rank, stop, stop_at)


def players_to_task(
    players: Players, config: Config, dataset: Dataset, run: Run, evaluator: Evaluator | None = None
) -> Task:
    settings, sampler = config.train, Sampler(players.sampler, dataset.classes)

    def look(iteration: int, last: bool, journal: Journal) -> None:
        if due(settings.sample_every, iteration, last):
            journal.samples(iteration, sampler)
        if due(settings.conditioning_every, iteration, last):
            journal.conditioning(iteration, sampler, settings.seed)

    return Task(
        run,
        settings,
        dataset,
        players,
        learning_rate=lambda iteration: learning_rate(settings, iteration),
        images=settings.critic_steps * settings.batch,
        look=look,
        evaluate=None if evaluator is None else lambda: evaluator(sampler),
        best=("FID", lambda: {f"generator.{k}": v for k, v in players.sampler.state_dict().items()}),
    )


def check_shares(config: Config, rank: Rank) -> None:
    for name in ("batch", "generator_batch"):
        rank.check_share(f"train.{name}", getattr(config.train, name))


def batches_of(config: Config, dataset: Dataset, device: torch.device, rank: Rank) -> Batches:
    """What the players are given, from the data on the device, where it fits."""
    dataset = dataset_on(dataset, device)
    return Batches(
        dataset.images,
        dataset.labels if config.conditional else None,
        config.classes if config.conditional else None,
        config.generator.noise,
        config.train,
        device,
        rank,
    )


def compile_players(players: Players, config: Config, hardware: Hardware, progress: TrainingProgress) -> None:
    if not hardware.compile:
        return
    players.generator.compile(dynamic=False)  # two batch sizes, each with kernels made for it
    if config.train.gradient_penalty:
        progress.say("the discriminator is not compiled: a gradient penalty differentiates it twice")
    else:
        # Spectral normalisation is many small kernels: one kernel for several of them saves most of their cost.
        combined = {"combo_kernels": True} if hardware.device.type == "cuda" else None
        players.discriminator.compile(dynamic=False, options=combined)


def make_step(
    players: Players, batches: Batches, config: Config, hardware: Hardware, progress: TrainingProgress
) -> Callable[[int], Losses]:
    """A function from an iteration's number to its losses, which are valid until the next; a CUDA graph if it can."""

    def compute(inputs: Inputs) -> Losses:
        return train_iteration(players, inputs, config, hardware.precision, batches.rank)

    run = graphed(compute, players, config.train, hardware, progress)

    def step(iteration: int) -> Losses:
        set_learning_rate(players, learning_rate(config.train, iteration))
        return run(batches.draw(iteration))

    return step
