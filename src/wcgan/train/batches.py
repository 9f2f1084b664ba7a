"""The inputs of one iteration: images, labels, noise and augmentations.

All are decided by the seed and the iteration's number alone: a resumed run and one of several processes get the same.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from wcgan.core.device import random_generator
from wcgan.core.processes import Rank
from wcgan.data import Dataset
from wcgan.runs.config import Config, TrainConfig

# What GANs and classifiers share


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
            order = torch.randperm(self.size, generator=random_generator(self.seed, "order", epoch))
            self._epoch, self._permutation = epoch, to_device(order, self.device)
        return self._permutation


# Augmentation

SHIFT = ("translation", "mirror")  # what consistency regularisation does to real images


class Augmentation(NamedTuple):
    """How each image of a batch `(..., C, H, W)` is changed; None for what is not."""

    color: Tensor | None
    """`(..., 3)` in [0, 1): brightness, saturation, contrast."""
    moved: Tensor | None
    """`(..., 2)`: the row and the column at which the window begins that is shown of each."""
    mirrored: Tensor | None
    """`(...)` bool."""
    hole: Tensor | None
    """`(..., 2)`: the row and the column of the centre of a square hole."""


def draw_augmentation(
    names: Collection[str], shape: tuple[int, ...], side: int, random: torch.Generator, share: float = 1.0
) -> Augmentation:
    """Draws augmentations of `shape` images: those of color, translation, mirror and cutout that are among the names.

    The ranges are DiffAugment's: windows begin up to 1/8 of the side outside the image, and holes are half as wide as
    the image, with a centre anywhere in it. Each augmentation changes this share of the images, drawn independently.
    """
    device, reach, hole = random.device, int(side / 8 + 0.5), hole_side(side)

    def integers(low: int, high: int) -> Tensor:
        return torch.randint(low, high, (*shape, 2), generator=random, device=device)

    drawn = Augmentation(
        torch.rand((*shape, 3), generator=random, device=device) if "color" in names else None,
        integers(-reach, reach + 1) if "translation" in names else None,
        torch.rand(shape, generator=random, device=device) < 0.5 if "mirror" in names else None,
        integers(0, side + 1 - hole % 2) if "cutout" in names else None,
    )
    if share >= 1:
        return drawn

    def some(values: Tensor | None, unchanged: float) -> Tensor | None:
        if values is None:
            return None
        chosen = torch.rand(shape, generator=random, device=device) < share
        return torch.where(chosen.view(*shape, *[1] * (values.dim() - len(shape))), values, unchanged)

    return Augmentation(*map(some, drawn, (0.5, 0, False, -side)))  # no change, no shift, a hole outside the image


def augment(images: Tensor, how: Augmentation | None) -> Tensor:
    """Augments images `(..., C, H, W)` in [-1, 1]; differentiable, without a host sync.

    Reference:
        Zhao, Liu, Lin, Zhu and Han, "Differentiable augmentation for data-efficient GAN training", NeurIPS 2020.
    """
    if how is None:
        return images
    side = images.shape[-1]
    if how.color is not None:
        brightness, saturation, contrast = how.color[..., None, None, None].unbind(-4)  # (..., 3) -> (..., 1, 1, 1)
        images = images + (brightness - 0.5)
        grey = images.mean(-3, keepdim=True)
        images = grey + 2 * saturation * (images - grey)
        mean = images.mean((-3, -2, -1), keepdim=True)
        images = mean + (contrast + 0.5) * (images - mean)
    if how.moved is not None:  # as products: the gradient of indexing is slow on a GPU, and sums in varying order
        rows, columns = (window(start, side).to(images.dtype) for start in how.moved.unbind(-1))
        images = rows.unsqueeze(-3) @ images @ columns.unsqueeze(-3).mT
    if how.mirrored is not None:
        images = mirror(images, how.mirrored)
    if how.hole is not None:
        first = how.hole - hole_side(side) // 2
        away = torch.arange(side, device=images.device) - first[..., None]  # (..., 2, side)
        rows, columns = ((away >= 0) & (away < hole_side(side))).unbind(-2)
        images = images * ~(rows[..., None] & columns[..., None, :]).unsqueeze(-3)
    return images


def window(start: Tensor, side: int) -> Tensor:
    """`(...)` -> `(..., side, side)`: row i is true at pixel start + i, and nowhere if that is outside the image."""
    pixels = torch.arange(side, device=start.device)
    return (start[..., None] + pixels)[..., None] == pixels


def mirror(images: Tensor, which: Tensor) -> Tensor:
    """Mirrors those of the images `(..., C, H, W)` for which `which`, `(...)`, is true."""
    return torch.where(which[..., None, None, None], images.flip(-1), images)


def hole_side(side: int) -> int:
    return int(side / 2 + 0.5)


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
    real_view: Augmentation | None
    """Of real images, `(s, b)`."""
    critic_view: Augmentation | None
    """Of generated images that the discriminator learns from, `(s, b)`."""
    view: Augmentation | None
    """Of the images of the generator's update, `(g,)`."""
    shift: Augmentation | None
    """Of real images, whose scores must not change by it, `(s, b)`."""
    average_weight: Tensor | None
    """`()`: the weight of the generator in its moving average."""


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
    flip: bool = False

    def __post_init__(self) -> None:
        self._order = EpochOrder(len(self.images), self.train.seed, self.images.device)

    def draw(self, iteration: int) -> GanInputs:
        """The inputs of an iteration, without a host sync; each purpose has one draw for all updates."""
        steps, batch, generated = self.train.critic_steps, self.train.batch, self.train.generator_batch
        policy, weight = self.train.augment, average_weight(self.train, iteration)
        share = augmented_share(self.train, iteration)
        between = self._uniform("penalty", iteration, steps, batch) if self.train.gradient_penalty else None
        index = self._order.indices(iteration, steps * batch).view(steps, batch)
        labels = None if self.labels is None else to_device(self.labels[index], self.device)
        critic_labels = generator_labels = None
        if labels is not None and self.train.generated_labels == "real":
            critic_labels = labels
            generator_labels = repeat_to(labels[-1], generated)
        elif self.classes is not None and self.train.generated_labels == "balanced":
            critic_labels = balanced_labels(self.classes, iteration, (steps, batch), self.device)
            generator_labels = balanced_labels(self.classes, iteration, (generated,), self.device)
        return GanInputs(
            self._real(iteration, index),
            None if labels is None else self.rank.share(labels, dim=1),
            *self._latent("critic", iteration, critic_labels, steps, batch),
            between,
            *self._latent("generator", iteration, generator_labels, generated),
            self._augmentation("real view", policy, iteration, steps, batch, share=share),
            self._augmentation("critic view", policy, iteration, steps, batch, share=share),
            self._augmentation("view", policy, iteration, generated, share=share),
            self._augmentation("shift", SHIFT if self.train.consistency else (), iteration, steps, batch),
            None if weight is None else torch.full((), weight, device=self.device),
        )

    def latent(self, iteration: int, count: int) -> list[Tensor]:
        """Whole batches for the generator: noise `(count, g, noise)` and, if it is conditional, labels `(count, g)`.

        They are none of an iteration's own; labels come as often as in training.
        """
        random = random_generator(self.train.seed, "average", iteration, self.device)
        shape = (count, self.train.generator_batch)
        z = torch.randn(*shape, self.noise, generator=random, device=self.device)
        if self.classes is None:
            return [z]
        if self.train.generated_labels == "balanced":
            return [z, balanced_labels(self.classes, iteration, shape, self.device)]
        if self.labels is None or self.train.generated_labels == "uniform":
            return [z, torch.randint(0, self.classes, shape, generator=random, device=self.device)]
        index = torch.randint(0, len(self.labels), shape, generator=random, device=self.device)
        return [z, to_device(self.labels[index.to(self.labels.device)], self.device)]

    def _real(self, iteration: int, index: Tensor) -> Tensor:
        """Images in [-1, 1] with dequantisation noise U(0, 1/128)."""
        images = to_device(self.images[self.rank.share(index, dim=1)], self.device)
        if self.flip:
            images = mirror(images, self._uniform("flip", iteration, *index.shape) < 0.5)
        noise = self._uniform("dequantize", iteration, *index.shape, *self.images.shape[1:])
        return (images + noise) / 128 - 1  # value v becomes uniform in [v, v+1) / 128 - 1

    def _latent(self, purpose: str, iteration: int, labels: Tensor | None, *shape: int) -> tuple[Tensor, Tensor | None]:
        """Noise z ~ N(0, I) `(*shape, noise)`, and the labels, or labels uniform over the classes, `(*shape,)`."""
        random = random_generator(self.train.seed, purpose, iteration, self.device)
        z = torch.randn(*shape, self.noise, generator=random, device=self.device)
        batch = len(shape) - 1
        if self.classes is None:
            return self.rank.share(z, batch), None
        if labels is None:
            labels = torch.randint(0, self.classes, shape, generator=random, device=self.device)
        return self.rank.share(z, batch), self.rank.share(labels, batch)

    def _augmentation(
        self, purpose: str, names: Collection[str], iteration: int, *shape: int, share: float = 1.0
    ) -> Augmentation | None:
        if not names:
            return None
        random = random_generator(self.train.seed, purpose, iteration, self.device)
        drawn = draw_augmentation(names, shape, self.images.shape[-1], random, share)
        return Augmentation(*(None if values is None else self.rank.share(values, len(shape) - 1) for values in drawn))

    def _uniform(self, purpose: str, iteration: int, *shape: int) -> Tensor:
        """U(0, 1) for every update `(s, b, ...)`."""
        random = random_generator(self.train.seed, purpose, iteration, self.device)
        return self.rank.share(torch.rand(shape, generator=random, device=self.device), dim=1)


def average_weight(train: TrainConfig, iteration: int) -> float | None:
    """Weight of the generator in its moving average after the next iteration; None if there is no average."""
    if not train.ema and not train.ema_half_life:
        return None
    seen, half_life = iteration * train.images, float(train.ema_half_life)
    if seen < train.ema_start or (train.ema_ramp and not seen):
        return 1.0
    if train.ema_ramp:
        half_life = min(half_life, train.ema_ramp * seen)
    return 1 - (0.5 ** (train.images / half_life) if half_life else train.ema)


def augmented_share(train: TrainConfig, iteration: int) -> float:
    """Share of the images that each augmentation changes in the next iteration."""
    return min(1.0, iteration * train.images / train.augment_ramp) if train.augment_ramp else 1.0


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
        config.data.flip,
    )


def balanced_labels(classes: int, iteration: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """All classes in turn, on and on from one iteration to the next: in each batch equally often, give or take one."""
    start, count = iteration * prod(shape), prod(shape)
    return (torch.arange(start, start + count, device=device) % classes).view(shape)


def repeat_to(labels: Tensor, count: int) -> Tensor:
    """Labels `(b,)` repeated to `(count,)`."""
    return labels.repeat(-(-count // len(labels)))[:count]
