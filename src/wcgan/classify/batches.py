"""What an update is given: images, labels, and where each image is cut and whether it is mirrored."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from wcgan.classify.config import ClassifyTrainConfig
from wcgan.data import Dataset
from wcgan.train.batches import EpochOrder, to_device
from wcgan.train.parallel import Rank
from wcgan.train.randomness import generator_for


class ClassifierInputs(NamedTuple):
    """One update's draws, on the device; of several processes, each has its share."""

    images: Tensor
    """`(b, C, H, W)` uint8, as they are."""
    labels: Tensor
    """`(b,)`."""
    moved: Tensor | None
    """`(b, 2)`: how many pixels down and across the window of each begins; None for no windows."""
    mirrored: Tensor | None
    """`(b,)` bool; None where none is."""


@dataclass
class LabelledBatches:
    """Images and labels in the order that a seed decides."""

    dataset: Dataset
    train: ClassifyTrainConfig
    device: torch.device
    rank: Rank = field(default_factory=Rank)

    def __post_init__(self) -> None:
        self._order = EpochOrder(len(self.dataset), self.train.seed, self.dataset.images.device)

    def draw(self, iteration: int) -> ClassifierInputs:
        """An update's inputs, decided by seed and iteration; no wait for a GPU."""
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
    """uint8 images to what the network sees: cut and mirrored, each channel with mean 0 and variance 1.

    A window that reaches beyond the image has the channels' means there.

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
