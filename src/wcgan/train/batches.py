"""The inputs of one iteration: images, labels and noise, decided by the seed and the iteration's number alone."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from wcgan.core.device import generator_for
from wcgan.core.processes import Rank
from wcgan.data import Dataset
from wcgan.runs.config import ClassifyTrainConfig, TrainConfig

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


class Pixels(nn.Module):
    """uint8 images to a classifier's input: augmented, each channel with mean 0 and variance 1.

    Windows that reach beyond the image are padded with the channels' means.

    Args:
        channels: of the images; `measure` takes their means and deviations from images.

    Shape:
        `(N, C, H, W)` uint8 to the same in float32.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("std", torch.ones(channels))

    def measure(self, images: Tensor) -> None:
        """Takes mean and deviation of each channel from all of the images."""
        counts = torch.stack(
            [
                torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in part.unbind(1)])
                for part in images.split(4096)
            ]
        ).sum(0)  # (C, 256): how often each value is there
        values, total = torch.arange(256, dtype=torch.float64, device=counts.device), counts[0].sum()
        mean = (counts * values).sum(1) / total
        variance = (counts * (values - mean[:, None]).square()).sum(1) / total
        self.mean.copy_(mean)
        self.std.copy_(variance.sqrt().clamp(min=1.0))  # a channel of one value stays finite

    def forward(self, images: Tensor, moved: Tensor | None = None, mirrored: Tensor | None = None) -> Tensor:
        out = (images.permute(0, 2, 3, 1) - self.mean) / self.std  # (N, H, W, C)
        if moved is not None or mirrored is not None:
            out = _cut(out, moved, mirrored)
        return out.permute(0, 3, 1, 2)


def _cut(x: Tensor, moved: Tensor | None, mirrored: Tensor | None) -> Tensor:
    """Windows of `(N, H, W, C)`, each of its image's size, with zeros beyond the image."""
    n, height, width, _ = x.shape
    rows = torch.arange(height, device=x.device).expand(n, -1)
    columns = torch.arange(width, device=x.device).expand(n, -1)
    if mirrored is not None:
        columns = torch.where(mirrored[:, None], width - 1 - columns, columns)
    if moved is not None:
        rows, columns = rows + moved[:, :1], columns + moved[:, 1:]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    sample = torch.arange(n, device=x.device)[:, None, None]
    found = x[sample, rows.clamp(0, height - 1)[:, :, None], columns.clamp(0, width - 1)[:, None, :]]
    return found * inside[..., None]
