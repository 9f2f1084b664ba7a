"""The inputs of one iteration: images, labels and noise, decided by the seed and the iteration's number alone."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from wcgan.core.device import generator_for
from wcgan.core.processes import Rank
from wcgan.data import Dataset
from wcgan.runs.config import ClassifyTrainConfig, Config, TrainConfig

# What both trainings share


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """The values on a device; a GPU copies them from pinned memory while the host goes on."""
    if device.type == "cuda" and values.device.type == "cpu":
        values = values.pin_memory()
    return values.to(device, non_blocking=True)


def dataset_on(dataset: Dataset, device: torch.device) -> Dataset:
    """The data on the device, if it fits into half of the free memory; else where it is."""
    if device.type != "cuda" or dataset.images.numel() >= torch.cuda.mem_get_info(device)[0] / 2:
        return dataset
    labels = None if dataset.labels is None else dataset.labels.to(device)
    return replace(dataset, images=dataset.images.to(device), labels=labels)


class EpochOrder:
    """The order of the data: one permutation after another, cut into batches that may span two of them."""

    def __init__(self, size: int, seed: int, device: torch.device | str = "cpu") -> None:
        self.size, self.seed, self.device = size, seed, torch.device(device)
        self._epoch, self._permutation = -1, torch.empty(0, dtype=torch.int64)

    def indices(self, step: int, batch: int) -> Tensor:
        """The indices `(batch,)` of a step."""
        parts, start, stop = [], step * batch, (step + 1) * batch
        while start < stop:
            epoch, offset = divmod(start, self.size)
            taken = min(self.size - offset, stop - start)
            parts.append(self._order(epoch)[offset : offset + taken])
            start += taken
        return torch.cat(parts)

    def _order(self, epoch: int) -> Tensor:
        if epoch != self._epoch:  # drawn on the CPU, so that a seed means the same everywhere
            order = torch.randperm(self.size, generator=generator_for(self.seed, "order", epoch))
            self._epoch, self._permutation = epoch, to_device(order, self.device)
        return self._permutation


# GANs


class GanInputs(NamedTuple):
    """Inputs of one GAN iteration, on the device: `s` discriminator updates on `b` images, one generator update on `g`.

    Each of several processes has its share of every batch.
    """

    real: Tensor
    """`(s, b, C, H, W)` in [-1, 1], with dequantisation noise."""
    real_labels: Tensor | None
    """`(s, b)`."""
    critic_noise: Tensor
    """`(s, b, noise)`, of the generated images that the discriminator learns from."""
    critic_labels: Tensor | None
    """`(s, b)`."""
    between: Tensor | None
    """`(s, b)` in [0, 1): where between a real and a generated image the gradient penalty looks."""
    noise: Tensor
    """`(g, noise)`, of the generator's update."""
    labels: Tensor | None
    """`(g,)`."""


@dataclass
class GanBatches:
    """Draws the inputs of a GAN: real images and labels, noise and labels for generated ones."""

    images: Tensor  # (N, C, H, W) uint8, on the device or mapped from disk
    labels: Tensor | None
    classes: int | None
    noise: int
    train: TrainConfig
    device: torch.device
    rank: Rank = field(default_factory=Rank)

    def __post_init__(self) -> None:
        self._order = EpochOrder(len(self.images), self.train.seed, self.images.device)

    def draw(self, iteration: int) -> GanInputs:
        """The inputs of an iteration, without a host sync; each purpose has one draw for all updates."""
        steps, batch = self.train.critic_steps, self.train.batch
        between = self._uniform("penalty", iteration, steps, batch) if self.train.gradient_penalty else None
        index = self._order.indices(iteration, steps * batch).view(steps, batch)
        labels = None if self.labels is None else to_device(self.labels[index], self.device)
        critic_labels = generator_labels = None
        if labels is not None and self.train.generated_labels == "real":
            critic_labels = labels
            generator_labels = repeat_to(labels[-1], self.train.generator_batch)
        return GanInputs(
            self._real(iteration, index),
            None if labels is None else self.rank.share(labels, dim=1),
            *self._latent("critic", iteration, critic_labels, steps, batch),
            between,
            *self._latent("generator", iteration, generator_labels, self.train.generator_batch),
        )

    def _real(self, iteration: int, index: Tensor) -> Tensor:
        """Images in [-1, 1] with dequantisation noise U(0, 1/128)."""
        images = to_device(self.images[self.rank.share(index, dim=1)], self.device)
        noise = self._uniform("dequantize", iteration, *index.shape, *self.images.shape[1:])
        return (images + noise) / 128 - 1  # value v becomes uniform in [v, v+1) / 128 - 1

    def _latent(self, purpose: str, iteration: int, labels: Tensor | None, *shape: int) -> tuple[Tensor, Tensor | None]:
        """Noise z ~ N(0, I) `(*shape, noise)`, and the labels, or labels uniform over the classes, `(*shape,)`."""
        random = generator_for(self.train.seed, purpose, iteration, self.device)
        z = torch.randn(*shape, self.noise, generator=random, device=self.device)
        batch = len(shape) - 1
        if self.classes is None:
            return self.rank.share(z, batch), None
        if labels is None:
            labels = torch.randint(0, self.classes, shape, generator=random, device=self.device)
        return self.rank.share(z, batch), self.rank.share(labels, batch)

    def _uniform(self, purpose: str, iteration: int, *shape: int) -> Tensor:
        """U(0, 1) for every update `(s, b, ...)`."""
        random = generator_for(self.train.seed, purpose, iteration, self.device)
        return self.rank.share(torch.rand(shape, generator=random, device=self.device), dim=1)


def check_shares(config: Config, rank: Rank) -> None:
    """Raises a ValueError for batches that the processes cannot share equally."""
    for name in ("batch", "generator_batch"):
        rank.check_share(f"train.{name}", getattr(config.train, name))


def batches_of(config: Config, dataset: Dataset, device: torch.device, rank: Rank) -> GanBatches:
    """The batches of a training; the data is on the device if it fits."""
    dataset = dataset_on(dataset, device)
    return GanBatches(
        dataset.images,
        dataset.labels if config.conditional else None,
        config.classes if config.conditional else None,
        config.generator.noise,
        config.train,
        device,
        rank,
    )


def repeat_to(labels: Tensor, count: int) -> Tensor:
    """Labels `(b,)` repeated to `(count,)`."""
    return labels.repeat(-(-count // len(labels)))[:count]


# Classifiers


class ClassifierInputs(NamedTuple):
    """Inputs of one classifier update, on the device; each of several processes has its share."""

    images: Tensor
    """`(b, C, H, W)` uint8, as they are."""
    labels: Tensor
    """`(b,)`."""
    moved: Tensor | None
    """`(b, 2)`: how many pixels down and across the window of each begins; None for no windows."""
    mirrored: Tensor | None
    """`(b,)` bool; None where none is."""


@dataclass
class ClassifierBatches:
    """Draws the inputs of a classifier: images and labels in the order of a seed, and how each image is augmented."""

    dataset: Dataset
    train: ClassifyTrainConfig
    device: torch.device
    rank: Rank = field(default_factory=Rank)

    def __post_init__(self) -> None:
        self._order = EpochOrder(len(self.dataset), self.train.seed, self.dataset.images.device)

    def draw(self, iteration: int) -> ClassifierInputs:
        """The inputs of an update, without a host sync."""
        size, reach, labels = self.train.batch, self.train.crop, self.dataset.labels
        assert labels is not None
        index = self.rank.share(self._order.indices(iteration, size))
        random = generator_for(self.train.seed, "augment", iteration, self.device)
        moved = torch.randint(-reach, reach + 1, (size, 2), generator=random, device=self.device) if reach else None
        mirrored = torch.rand(size, generator=random, device=self.device) < 0.5 if self.train.flip else None
        return ClassifierInputs(
            to_device(self.dataset.images[index], self.device),
            to_device(labels[index], self.device),
            *(None if values is None else self.rank.share(values) for values in (moved, mirrored)),
        )
