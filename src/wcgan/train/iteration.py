"""One iteration: the discriminator's updates, then the generator's."""

import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Adam

from wcgan.nets import Discriminator, Generator, build_discriminator, build_generator
from wcgan.norm import WhiteningLayer
from wcgan.train.config import Config, TrainConfig
from wcgan.train.losses import DISCRIMINATOR_LOSSES, class_loss, generator_loss, gradient_penalty
from wcgan.train.parallel import Rank
from wcgan.train.randomness import EpochOrder, generator_for


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


@dataclass
class Batches:
    """Real images and labels, the noise and labels of generated ones: all of it decided by seed and iteration."""

    images: Tensor  # (N, C, H, W) uint8, on the device or mapped from disk
    labels: Tensor | None
    classes: int | None
    noise: int
    seed: int
    device: torch.device
    rank: Rank = field(default_factory=Rank)

    def __post_init__(self) -> None:
        self._order = EpochOrder(len(self.images), self.seed)

    def real(self, step: int, batch: int) -> tuple[Tensor, Tensor | None]:
        """Images in [-1, 1] with dequantisation noise U(0, 1/128), and their labels."""
        index = self._order.indices(step, batch)
        noise = self._uniform("dequantize", step, (batch, *self.images.shape[1:]))
        index, noise = self.rank.share(index).to(self.images.device), self.rank.share(noise)
        images = self.images[index].to(self.device, non_blocking=True)
        labels = None if self.labels is None else self.labels[index].to(self.device, non_blocking=True)
        return (images + noise) / 128 - 1, labels  # value v becomes uniform in [v, v+1) / 128 - 1

    def latent(self, purpose: str, step: int, batch: int) -> tuple[Tensor, Tensor | None]:
        """Noise z ~ N(0, I), and labels uniform over the classes."""
        random = generator_for(self.seed, purpose, step, self.device)
        z = torch.randn(batch, self.noise, generator=random, device=self.device)
        if self.classes is None:
            return self.rank.share(z), None
        labels = torch.randint(0, self.classes, (batch,), generator=random, device=self.device)
        return self.rank.share(z), self.rank.share(labels)

    def between(self, step: int, batch: int) -> Tensor:
        """Where between a real and a generated image the gradient penalty looks."""
        return self.rank.share(self._uniform("penalty", step, (batch,)))

    def _uniform(self, purpose: str, step: int, shape: tuple[int, ...]) -> Tensor:
        return torch.rand(shape, generator=generator_for(self.seed, purpose, step, self.device), device=self.device)


def build_players(config: Config, device: torch.device, channels_last: bool = False, sync: bool = False) -> Players:
    """Both networks from the seed, in training mode; with `sync`, whitening statistics are those of all processes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        generator, discriminator = build_generator(config.generator), build_discriminator(config.discriminator)
    for layer in generator.modules():
        if isinstance(layer, WhiteningLayer):
            layer.sync = sync
    generator, discriminator = generator.to(device).train(), discriminator.to(device).train()
    if channels_last:
        generator.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        discriminator.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    train = config.train

    def adam(network: nn.Module) -> Adam:
        return Adam(network.parameters(), lr=train.learning_rate, betas=(train.beta1, train.beta2))

    average = copy.deepcopy(generator).requires_grad_(False) if train.ema else None
    return Players(generator, discriminator, adam(generator), adam(discriminator), average)


def learning_rate(train: TrainConfig, iteration: int) -> float:
    """Of the iteration that comes after `iteration` updates."""
    if train.schedule == "linear":
        return train.learning_rate * max(0.0, 1 - iteration / train.iterations)
    if train.schedule == "drop" and train.drop_at is not None and iteration >= train.drop_at:
        return train.learning_rate / 10
    return train.learning_rate


def train_iteration(
    players: Players, batches: Batches, config: Config, iteration: int, precision: torch.dtype
) -> dict[str, Tensor]:
    """`critic_steps` updates of the discriminator and one of the generator. Returns losses, on the device."""
    train, device = config.train, batches.device
    generator, discriminator = players.generator, players.discriminator
    conditional_g = config.generator.conditional
    sees_labels = config.discriminator.head == "projection"
    autocast = torch.autocast(device.type, dtype=precision, enabled=precision != torch.float32)
    rate = learning_rate(train, iteration)
    for optimizer in (players.generator_optimizer, players.discriminator_optimizer):
        optimizer.param_groups[0]["lr"] = rate
    losses: dict[str, Tensor] = {}

    for critic in range(train.critic_steps):
        step = iteration * train.critic_steps + critic
        real, labels = batches.real(step, train.batch)
        z, fake_labels = batches.latent("critic", step, train.batch)
        with autocast:
            with torch.no_grad():
                fake = generator(z, fake_labels if conditional_g else None).to(real.dtype)
            both = torch.cat([real, fake])
            both_labels = torch.cat([labels, fake_labels]) if sees_labels and labels is not None else None  # type: ignore[list-item]
            scores = discriminator(both, both_labels)
        on_real, on_fake = scores.realness.float().chunk(2)
        loss = losses["loss/discriminator"] = DISCRIMINATOR_LOSSES[train.loss](on_real, on_fake)
        if train.gradient_penalty:
            between = batches.between(step, train.batch)
            penalty = gradient_penalty(discriminator, real, fake, labels if sees_labels else None, between)
            losses["loss/gradient_penalty"] = penalty
            loss = loss + train.gradient_penalty * penalty
        if scores.logits is not None and labels is not None:
            losses["loss/class_real"] = class_loss(scores.logits[: len(real)], labels)
            loss = loss + train.class_weight_discriminator * losses["loss/class_real"]
        update(players.discriminator_optimizer, loss, discriminator, batches.rank)

    z, fake_labels = batches.latent("generator", iteration, train.generator_batch)
    with autocast:
        scores = discriminator(
            generator(z, fake_labels if conditional_g else None), fake_labels if sees_labels else None
        )
    loss = losses["loss/generator"] = generator_loss(scores.realness.float())
    if scores.logits is not None and fake_labels is not None:
        losses["loss/class_generated"] = class_loss(scores.logits, fake_labels)
        loss = loss + train.class_weight_generator * losses["loss/class_generated"]
    update(players.generator_optimizer, loss, generator, batches.rank)
    if players.average is not None:
        update_average(players.average, generator, train.ema)
    return {name: loss.detach() for name, loss in losses.items()}


def update(optimizer: Adam, loss: Tensor, network: nn.Module, rank: Rank) -> None:
    """One step down the loss; only this network's parameters get gradients."""
    parameters = list(network.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    rank.average_gradients(parameters)
    optimizer.step()


@torch.no_grad()
def update_average(average: nn.Module, generator: nn.Module, decay: float) -> None:
    """Moves weights and running statistics a step towards the generator's."""
    for mine, theirs in zip(average.state_dict().values(), generator.state_dict().values(), strict=True):
        if mine.is_floating_point():
            mine.lerp_(theirs, 1 - decay)
        else:
            mine.copy_(theirs)
