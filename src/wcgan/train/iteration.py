"""One iteration: the discriminator's updates, then the generator's."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Adam

from wcgan.nets import Discriminator, Generator, build_discriminator, build_generator
from wcgan.norm import sub_batches
from wcgan.train.batches import Inputs
from wcgan.train.config import Config, TrainConfig
from wcgan.train.learner import place, rate_on, update
from wcgan.train.losses import DISCRIMINATOR_LOSSES, class_loss, generator_loss, gradient_penalty
from wcgan.train.parallel import Rank

ALONE = Rank()


@dataclass
class Players:
    """The two networks, their optimisers, and the moving average of the generator, if any."""

    generator: Generator
    discriminator: Discriminator
    generator_optimizer: Adam
    discriminator_optimizer: Adam
    average: Generator | None = None

    @property
    def sampler(self) -> Generator:
        """The generator that samples are drawn from."""
        return self.generator if self.average is None else self.average

    @property
    def networks(self) -> dict[str, nn.Module]:
        both: dict[str, nn.Module] = {"generator": self.generator, "discriminator": self.discriminator}
        return both if self.average is None else both | {"average": self.average}

    @property
    def optimizers(self) -> dict[str, Adam]:
        return {
            "generator_optimizer": self.generator_optimizer,
            "discriminator_optimizer": self.discriminator_optimizer,
        }


def build_players(config: Config, device: torch.device, channels_last: bool = False, sync: bool = False) -> Players:
    """Both networks from the seed, in training mode; with `sync`, whitening statistics are those of all processes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        generator, discriminator = build_generator(config.generator), build_discriminator(config.discriminator)
    for network in (generator, discriminator):
        place(network, device, channels_last, sync)
    train = config.train

    def adam(network: nn.Module) -> Adam:
        parameters, betas = network.parameters(), (train.beta1, train.beta2)
        if device.type != "cuda":
            return Adam(parameters, train.learning_rate, betas)
        return Adam(parameters, rate_on(device, train.learning_rate), betas, fused=True)

    average = copy.deepcopy(generator).requires_grad_(False) if train.ema else None
    return Players(generator, discriminator, adam(generator), adam(discriminator), average)


def learning_rate(train: TrainConfig, iteration: int) -> float:
    """Of the iteration that comes after `iteration` updates."""
    end = train.schedule_end or train.iterations
    decay = max(0.0, 1 - iteration / end) if train.schedule == "linear" else 1.0
    drop = 0.1 if train.drop_at is not None and iteration >= train.drop_at else 1.0
    return train.learning_rate * decay * drop


def train_iteration(
    players: Players, inputs: Inputs, config: Config, precision: torch.dtype, rank: Rank = ALONE
) -> dict[str, Tensor]:
    """`critic_steps` updates of the discriminator and one of the generator. Returns losses, on the device.

    The same work on the same tensors whatever the iteration: nothing is drawn, no value decides what is done and
    nobody waits for the device.
    """
    train, device = config.train, inputs.real.device
    generator, discriminator = players.generator, players.discriminator
    conditional_g = config.generator.conditional
    sees_labels = config.discriminator.head == "projection"
    autocast = torch.autocast(device.type, dtype=precision, enabled=precision != torch.float32)
    losses: dict[str, Tensor] = {}

    with autocast:
        generated = critic_images(generator, inputs.critic_noise, inputs.critic_labels if conditional_g else None)
    for step, (real, fake) in enumerate(zip(inputs.real, generated, strict=True)):
        labels, fake_labels, between = (
            None if values is None else values[step]
            for values in (inputs.real_labels, inputs.critic_labels, inputs.between)
        )
        both_labels = torch.cat([labels, fake_labels]) if sees_labels and labels is not None else None  # type: ignore[list-item]
        with autocast:
            scores = discriminator(torch.cat([real, fake]), both_labels)
        on_real, on_fake = scores.realness.float().chunk(2)
        loss = losses["loss/discriminator"] = DISCRIMINATOR_LOSSES[train.loss](on_real, on_fake)
        if between is not None:
            penalty = gradient_penalty(discriminator, real, fake, labels if sees_labels else None, between)
            losses["loss/gradient_penalty"] = penalty
            loss = loss + train.gradient_penalty * penalty
        if scores.logits is not None and labels is not None:
            losses["loss/class_real"] = class_loss(scores.logits[: len(real)], labels)
            loss = loss + train.class_weight_discriminator * losses["loss/class_real"]
        update(players.discriminator_optimizer, loss, discriminator, rank)

    with autocast, frozen(discriminator):
        images = generator(inputs.noise, inputs.labels if conditional_g else None)
        scores = discriminator(images, inputs.labels if sees_labels else None)
    loss = losses["loss/generator"] = generator_loss(scores.realness.float())
    if scores.logits is not None and inputs.labels is not None:
        losses["loss/class_generated"] = class_loss(scores.logits, inputs.labels)
        loss = loss + train.class_weight_generator * losses["loss/class_generated"]
    update(players.generator_optimizer, loss, generator, rank)
    if players.average is not None:
        update_average(players.average, generator, train.ema)
    return {name: loss.detach() for name, loss in losses.items()}


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Within, the network's parameters need no gradients: a compiled backward pass would compute them unasked."""
    network.requires_grad_(False)
    try:
        yield
    finally:
        network.requires_grad_(True)


@torch.no_grad()
def critic_images(generator: Generator, noise: Tensor, labels: Tensor | None) -> Tensor:
    """Images for all updates of the discriminator, `(s, b, C, H, W)` from `(s, b, noise)`; on a GPU in one pass.

    The generator does not change between these updates, and each update's batch is normalised by statistics of its
    own: they are the images that one pass after another gives, which on the CPU, whose cache is small, is faster.
    """
    steps, batch = noise.shape[:2]
    if noise.device.type == "cpu":
        return torch.stack([generator(z, None if labels is None else labels[i]) for i, z in enumerate(noise)])
    with sub_batches(generator, steps):
        images: Tensor = generator(noise.flatten(0, 1), None if labels is None else labels.flatten())
    return images.unflatten(0, (steps, batch))


@torch.no_grad()
def update_average(average: nn.Module, generator: nn.Module, decay: float) -> None:
    """Moves weights and running statistics a step towards the generator's."""
    for mine, theirs in zip(average.state_dict().values(), generator.state_dict().values(), strict=True):
        if mine.is_floating_point():
            mine.lerp_(theirs, 1 - decay)
        else:
            mine.copy_(theirs)
