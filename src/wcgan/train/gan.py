"""A GAN's training, top to bottom: the players, one iteration, the training.

One iteration, in five files: `run_tasks` (loop.py) calls `step`, below; `GanBatches.draw` (batches.py) draws the
inputs; `train_iteration`, below, adds up the losses (losses.py); `update` (learner.py) differentiates the sum and steps
an optimiser. On a GPU, `step` replays a recording of `train_iteration` (graph.py), with the same results.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from wcgan.core.device import Hardware
from wcgan.core.processes import ALONE, Rank, process_count
from wcgan.core.terminal import TrainingProgress
from wcgan.data import Dataset
from wcgan.nets import Discriminator, Generator, build_discriminator, build_generator
from wcgan.norm import sub_batches, update_statistics
from wcgan.runs.config import Config, TrainConfig
from wcgan.runs.folder import Run
from wcgan.runs.sampler import Sampler
from wcgan.train.batches import GanBatches, GanInputs, augment, batches_of, check_shares
from wcgan.train.custom import AdversarialLoss, Callback, Custom, OwnDiscriminator, OwnGenerator
from wcgan.train.graph import branch_from, branch_point, graphed
from wcgan.train.journal import Journal
from wcgan.train.learner import (
    Losses,
    parameters_to_groups,
    place,
    rate_on,
    set_learning_rate,
    share_statistics,
    update,
    update_average,
)
from wcgan.train.loop import Outcome, Step, Task, due, loop_on, run_tasks
from wcgan.train.losses import LOSSES, LeCam, class_loss, gradient_penalty, in_full_precision

STATISTICS_BATCHES = 50  # of the generator, over which the statistics of its moving average are recomputed
PLAIN = Custom()
Evaluator = Callable[[Sampler], dict[str, Any]]


# The players


@dataclass
class Players:
    """The two networks, their optimisers, and the moving average of the generator, if any."""

    generator: Generator
    discriminator: Discriminator
    generator_optimizer: Optimizer
    discriminator_optimizer: Optimizer
    average: Generator | None = None
    lecam: LeCam | None = None
    loss: AdversarialLoss | None = None
    """None for the one that the config names."""

    @property
    def sampled_generator(self) -> Generator:
        """The generator that samples are drawn from: the moving average, where there is one."""
        return self.generator if self.average is None else self.average

    @property
    def networks(self) -> dict[str, nn.Module]:
        every = {
            "generator": self.generator,
            "discriminator": self.discriminator,
            "average": self.average,
            "lecam": self.lecam,
        }
        return {name: network for name, network in every.items() if network is not None}

    @property
    def optimizers(self) -> dict[str, Optimizer]:
        return {
            "generator_optimizer": self.generator_optimizer,
            "discriminator_optimizer": self.discriminator_optimizer,
        }


def build_players(
    config: Config, device: torch.device, channels_last: bool = False, sync: bool = False, custom: Custom = PLAIN
) -> Players:
    """Both networks from the seed, in training mode; with `sync`, processes share whitening statistics."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        generator, discriminator = build_networks(config, custom)
    generator.equal_classes = config.train.equal_classes
    generator.equal_classes_whitened = config.train.equal_classes_whitened
    if custom.generator is None:
        for bias in generator.redundant_biases():
            bias.requires_grad_(False)
    elif config.train.equal_classes:
        raise ValueError("train.equal_classes is for the package's generators: add such a penalty to your own")
    for network in (generator, discriminator):
        place(network, device, channels_last, sync)
    train = config.train

    def optimizer(network: nn.Module, discriminator: bool) -> Optimizer:
        rate, betas = learning_rate(train, 0, discriminator), (train.beta1, train.beta2)
        chosen: dict[str, Any] = {"lr": rate, "betas": betas}
        if device.type == "cuda":
            chosen |= {"lr": rate_on(device, rate), "fused": True}
        if discriminator or (train.coloring_decay == 0 and train.class_rate == 1):
            return Adam(network.parameters(), **chosen)
        groups = parameters_to_groups(network, train.coloring_decay, train.class_rate)
        if device.type == "cuda":  # a tensor each, since each group has a rate of its own
            groups = [group | {"lr": rate_on(device, rate * group["share"])} for group in groups]
        return AdamW(groups, **chosen)

    average = copy.deepcopy(generator).requires_grad_(False) if train.ema or train.ema_half_life else None
    if average is not None:
        share_statistics(average, False)  # each process recomputes all of them, on the same batches
    optimizers = optimizer(generator, False), optimizer(discriminator, True)
    lecam = LeCam().to(device) if train.lecam else None
    return Players(generator, discriminator, *optimizers, average, lecam, custom.loss)


def build_networks(config: Config, custom: Custom) -> tuple[Generator, Discriminator]:
    """Generator and discriminator: your own, or those of the config."""
    g, d = custom.generator, custom.discriminator
    return (
        build_generator(config.generator) if g is None else OwnGenerator(g, config.generator),
        build_discriminator(config.discriminator) if d is None else OwnDiscriminator(d),
    )


# One iteration


def train_iteration(
    players: Players, inputs: GanInputs, config: Config, precision: torch.dtype, rank: Rank = ALONE
) -> Losses:
    """`critic_steps` updates of the discriminator and one of the generator -> losses, on the device.

    A CUDA graph can record it: every iteration does the same work on the same tensors, without a random draw, a branch
    on a value, or a host sync.
    """
    train, device = config.train, inputs.real.device
    generator, discriminator = players.generator, players.discriminator
    adversarial = players.loss or LOSSES[train.loss]
    conditional_g = config.generator.conditional
    sees_labels = config.discriminator.head == "projection"
    autocast = torch.autocast(device.type, dtype=precision, enabled=precision != torch.float32)
    losses: Losses = {}

    with autocast:
        labels = inputs.critic_labels if conditional_g else None
        generated = critic_images(generator, inputs.critic_noise, labels, train.critic_statistics == "iteration")
    made = branch_point(device, generator, discriminator)  # these images are the first to move running statistics
    reals, fakes = augment(inputs.real, inputs.real_view), augment(generated, inputs.critic_view)
    shifted = None if inputs.shift is None else augment(reals, inputs.shift)
    for step, (real, fake) in enumerate(zip(reals, fakes, strict=True)):
        labels, fake_labels, between = (
            None if values is None else values[step]
            for values in (inputs.real_labels, inputs.critic_labels, inputs.between)
        )
        shown, asked = [real, fake], [labels, fake_labels] if sees_labels else []
        if shifted is not None:
            shown, asked = [*shown, shifted[step]], [*asked, *asked[:1]]
        with autocast:
            known = [each for each in asked if each is not None]
            scores = discriminator(torch.cat(shown), torch.cat(known) if known else None)
        on_real, on_fake, *on_shifted = in_full_precision(scores.realness).split(len(real))
        loss = losses["loss/discriminator"] = adversarial.discriminator(on_real, on_fake)
        if on_shifted:
            losses["loss/consistency"] = (on_real - on_shifted[0]).square().mean()
            loss = loss + train.consistency * losses["loss/consistency"]
        if players.lecam is not None:
            losses["loss/lecam"] = players.lecam(on_real, on_fake, rank)
            loss = loss + train.lecam * losses["loss/lecam"]
        if between is not None:
            penalty = gradient_penalty(discriminator, real, fake, labels if sees_labels else None, between)
            losses["loss/gradient_penalty"] = penalty
            loss = loss + train.gradient_penalty * penalty
        if scores.logits is not None and labels is not None:
            losses["loss/class_real"] = class_loss(scores.logits[: len(real)], labels, train.label_smoothing)
            loss = loss + train.class_weight_discriminator * losses["loss/class_real"]
        update(players.discriminator_optimizer, loss, discriminator, rank)

    with branch_from(made):  # in a CUDA graph, beside the updates above: they change nothing of the generator
        with autocast:
            images = generator(inputs.noise, inputs.labels if conditional_g else None)
        images = augment(images, inputs.view)
    with autocast, frozen(discriminator):
        scores = discriminator(images, inputs.labels if sees_labels else None)
    loss = losses["loss/generator"] = adversarial.generator(in_full_precision(scores.realness))
    if scores.logits is not None and inputs.labels is not None:
        losses["loss/class_generated"] = class_loss(scores.logits, inputs.labels, train.label_smoothing)
        loss = loss + train.class_weight_generator * losses["loss/class_generated"]
    update(players.generator_optimizer, loss, generator, rank)
    if players.average is not None and inputs.average_weight is not None:
        update_average(players.average, generator, inputs.average_weight)
    return {name: loss.detach() for name, loss in losses.items()}


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Turns off the gradients of a network's parameters, which a compiled backward pass would compute unasked."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


@torch.no_grad()
def critic_images(generator: Generator, noise: Tensor, labels: Tensor | None, together: bool = False) -> Tensor:
    """Images for all updates of the discriminator, `(s, b, C, H, W)` from `(s, b, noise)`; on a GPU in one pass.

    The generator does not change between these updates. Each update's batch is normalised by its own statistics, as in
    one pass after another, or all of them `together`. On the CPU, whose cache is small, separate passes are faster.
    """
    steps, batch = noise.shape[:2]
    if noise.device.type == "cpu" and not together:
        return torch.stack([generator(z, None if labels is None else labels[i]) for i, z in enumerate(noise)])
    with sub_batches(generator, 1 if together else steps):
        images: Tensor = generator(noise.flatten(0, 1), None if labels is None else labels.flatten())
    return images.unflatten(0, (steps, batch))


# The average's statistics


def make_refresh(players: Players, batches: GanBatches, precision: torch.dtype) -> Callable[[int], None] | None:
    """A function that recomputes the running statistics of the moving average, given the iterations done.

    None if they are not to be recomputed. They depend on the average's weights, the seed and the iteration alone, so
    that it does not matter when they were recomputed before.
    """
    average = players.average
    if average is None or batches.train.ema_statistics == "averaged":
        return None
    done = -1

    def refresh(iteration: int) -> None:
        nonlocal done
        if iteration == done:
            return
        with torch.autocast(batches.device.type, dtype=precision, enabled=precision != torch.float32):
            noise, *labels = batches.latent(iteration, STATISTICS_BATCHES)
            inputs = zip(noise, *labels, strict=True) if average.config.conditional else zip(noise, strict=True)
            update_statistics(inputs, average, forward=lambda network, each: network(*each))
        done = iteration

    return refresh


# The training


def train(
    config: Config,
    dataset: Dataset,
    run: Run,
    evaluator: Evaluator | None = None,
    stop_at: int | None = None,
    custom: Custom = PLAIN,
) -> Outcome:
    """Trains from the newest checkpoint of the run, or from the start, to the end, to `stop_at` or to a signal."""
    settings = config.train
    check_shares(config, Rank(count=process_count()))
    sizes = f"train.batch={settings.batch} and train.generator_batch={settings.generator_batch}"
    with loop_on(settings, [run], sizes) as environment:
        hardware, rank = environment.hardware, environment.rank
        players = build_players(config, hardware.device, hardware.channels_last, rank.count > 1, custom)
        batches = batches_of(config, dataset, hardware.device, rank)
        compile_players(players, config, hardware, environment.progress)
        step = make_step(players, batches, config, hardware, environment.progress)
        refresh = make_refresh(players, batches, hardware.precision)
        task = players_to_task(players, config, dataset, run, evaluator, custom.callbacks, refresh)
        return run_tasks([task], step, environment, stop_at)


def make_step(
    players: Players, batches: GanBatches, config: Config, hardware: Hardware, progress: TrainingProgress
) -> Step:
    """A function from an iteration's number to its losses."""

    def compute(inputs: GanInputs) -> Losses:
        return train_iteration(players, inputs, config, hardware.precision, batches.rank)

    iterate = graphed(compute, players, config.train, hardware, progress)

    def step(iteration: int) -> list[Losses]:
        set_learning_rates(players, config.train, iteration)
        return [iterate(batches.draw(iteration))]

    return step


def set_learning_rates(players: Players, train: TrainConfig, iteration: int) -> None:
    """Sets the learning rates of both players after so many iterations."""
    set_learning_rate(players.generator_optimizer, learning_rate(train, iteration))
    set_learning_rate(players.discriminator_optimizer, learning_rate(train, iteration, discriminator=True))


def learning_rate(train: TrainConfig, iteration: int, discriminator: bool = False) -> float:
    """The learning rate of the generator, or of the discriminator, after so many iterations."""
    own = train.learning_rate_discriminator if discriminator else None
    begin, end = train.schedule_start, train.schedule_end or train.iterations
    left = min(1.0, max(0.0, 1 - (iteration - begin) / (end - begin)))
    decay = left if train.schedule == "linear" else 1.0
    drop = 0.1 if train.drop_at is not None and iteration >= train.drop_at else 1.0
    return (train.learning_rate if own is None else own) * decay * drop


def players_to_task(
    players: Players,
    config: Config,
    dataset: Dataset,
    run: Run,
    evaluator: Evaluator | None = None,
    callbacks: Sequence[Callback] = (),
    refresh: Callable[[int], None] | None = None,
) -> Task:
    """What the loop needs of a GAN: what is trained, what is logged, and what is kept as best."""
    settings, sampler = config.train, Sampler(players.sampled_generator, dataset.classes)

    def look(iteration: int, last: bool, journal: Journal) -> None:
        sampling, measuring = (due(n, iteration, last) for n in (settings.sample_every, settings.conditioning_every))
        if refresh is not None and (sampling or measuring):
            refresh(iteration)
        if sampling:
            journal.samples(iteration, sampler)
        if measuring:
            journal.conditioning(iteration, sampler, settings.seed)

    return Task(
        run,
        config,
        dataset,
        players,
        learning_rate=lambda iteration: learning_rate(settings, iteration),
        images=settings.images,
        refresh=refresh,
        look=look,
        evaluate=None if evaluator is None else lambda: evaluator(sampler),
        best=("FID", lambda: {f"generator.{k}": v for k, v in players.sampled_generator.state_dict().items()}),
        callbacks=callbacks,
        sampler=sampler,
    )


def compile_players(players: Players, config: Config, hardware: Hardware, progress: TrainingProgress) -> None:
    """Has `torch.compile` compile the networks and losses, where the hardware wants it and the losses allow it."""
    if not hardware.compile:
        return
    if players.loss is None:  # a loss is a dozen operations on a hundred numbers: a kernel each, or one for all
        players.loss = AdversarialLoss(*(torch.compile(part, dynamic=False) for part in LOSSES[config.train.loss]))
    # Statistics and spectral normalisation are many small kernels: one kernel for several saves most of their cost.
    # Timing decides how such a kernel sums, so a deterministic run has none.
    combine = hardware.device.type == "cuda" and not config.train.deterministic
    combined = {"combo_kernels": True} if combine else None
    players.generator.compile(dynamic=False, options=combined)  # two batch sizes, each with kernels made for it
    if config.train.gradient_penalty:
        progress.say("the discriminator is not compiled: a gradient penalty differentiates it twice")
    else:
        players.discriminator.compile(dynamic=False, options=combined)
