"""Pictures from a trained generator."""

from collections.abc import Sequence

import torch
from torch import Tensor

from wcgan.nets import Generator
from wcgan.train.images import to_uint8
from wcgan.train.randomness import generator_for


def _pixels(images: Tensor) -> Tensor:
    """`to_uint8`, which cannot show what is not a number."""
    broken = int((~images.isfinite()).flatten(1).any(1).sum())
    if broken:
        raise ValueError(f"{broken} of {len(images)} images from this generator hold NaN or Inf: take an earlier state")
    return to_uint8(images)


class Sampler:
    """A generator at rest: draws images from seeds.

    Example:
        generator = wcgan.load("runs/digits")
        images = generator.sample(64, classes=3, seed=1)  # (64, C, H, W) uint8
    """

    def __init__(self, network: Generator, class_names: Sequence[str] = (), iteration: int | None = None) -> None:
        self.network = network
        self.iteration = iteration
        self.config = network.config
        self.class_names = tuple(class_names)
        self.conditional = network.config.conditional

    def sample(
        self,
        count: int,
        classes: int | Sequence[int] | None = None,
        seed: int = 0,
        truncation: float = 1.0,
        batch: int = 256,
    ) -> Tensor:
        """`(count, C, H, W)` uint8.

        Args:
            count: how many.
            classes: a class, or several that take turns; None for all in turn. Only for a conditional generator.
            seed: the same seed gives the same images.
            truncation: scales the noise; below 1 trades variety for quality.
            batch: how many are computed at once; all it may change is the rounding of a pixel here and there.
        """
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        return self.from_noise(truncation * self.noise(count, seed), self.labels(count, classes), batch)

    def noise(self, count: int, seed: int) -> Tensor:
        """z ~ N(0, I) `(count, noise)`, drawn on the CPU so that a seed means the same everywhere."""
        return torch.randn(count, self.config.noise, generator=generator_for(seed, "sample", 0))

    def labels(self, count: int, classes: int | Sequence[int] | None) -> Tensor | None:
        name, number = self.config.normalization, self.config.classes
        if not self.conditional or number is None:
            if classes is not None:
                raise ValueError(f"this generator ({name}) has no classes; leave out classes={classes}")
            return None
        wanted = list(range(number)) if classes is None else [classes] if isinstance(classes, int) else list(classes)
        if not wanted:
            raise ValueError(f"name at least one class of 0 to {number - 1}, or leave classes out for all")
        for label in wanted:
            if not 0 <= label < number:
                raise ValueError(f"class {label} is out of range: this generator has classes 0 to {number - 1}")
        return torch.tensor(wanted)[torch.arange(count) % len(wanted)]

    @torch.no_grad()
    def from_noise(self, z: Tensor, labels: Tensor | None, batch: int = 256, stay: bool = False) -> Tensor:
        """Images of given noise `(N, noise)` and labels `(N,)` or class weights `(N, classes)`.

        On the CPU, or with `stay` on the device that made them.
        """
        draw = self.network.forward  # not a compiled network's own call, which would compile every size of batch anew
        device = next(self.network.parameters()).device
        was_training = self.network.training
        self.network.eval()
        try:
            parts = [
                _pixels(draw(part.to(device), None if labels is None else labels[i : i + batch].to(device))).to(
                    device if stay else "cpu"
                )
                for i in range(0, len(z), batch)
                for part in [z[i : i + batch]]
            ]
        finally:
            self.network.train(was_training)
        return torch.cat(parts)

    def rows(self, columns: int = 10, most_rows: int = 10, seed: int = 0) -> Tensor:
        """A grid's images: one class a row and one noise a column where there are classes; else all different."""
        if self.config.classes is None or not self.conditional:
            return self.sample(columns * columns, seed=seed)
        rows = min(self.config.classes, most_rows)
        return self.from_noise(self.noise(columns, seed).repeat(rows, 1), torch.arange(rows).repeat_interleave(columns))
