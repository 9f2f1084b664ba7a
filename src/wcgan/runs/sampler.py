"""Draws images from a trained generator: from seeds, of classes by name or number, and on the way between two."""

from collections.abc import Sequence
from operator import index
from pathlib import Path
from typing import SupportsIndex, TypeVar

import torch
from torch import Tensor

from wcgan.core.device import find_device, random_generator
from wcgan.core.images import to_uint8
from wcgan.core.terminal import shown
from wcgan.nets import Generator, GeneratorConfig, build_generator
from wcgan.runs.checkpoint import Checkpoint, check_config, find_checkpoint, section, tensors_to_network
from wcgan.runs.folder import Run
from wcgan.runs.pretrained import find_source, is_exported, read_exported

Classes = int | str | Sequence[int | str]
"""A class by its number or name, or several."""
Value = TypeVar("Value", int, int | str)
GRID_ROWS = 10
"""Number of classes in a grid, at most."""
_MOST_NAMES = 20  # in a message
_STRAIGHT = 1e-4  # radians; noise vectors closer than this are interpolated on a line


class Sampler:
    """A generator in evaluation mode, which draws images from seeds.

    Example:
        ```python
        generator = wcgan.load("cifar10-cWC")
        cats = generator.sample(64, classes="cat", seed=1)  # (64, 3, 32, 32) uint8
        film = generator.interpolate(24, classes=("cat", "dog"))  # (24, 8, 3, 32, 32) uint8
        ```
    """

    def __init__(self, network: Generator, class_names: Sequence[str] = (), iteration: int | None = None) -> None:
        self.network = network
        self.iteration = iteration
        self.config = network.config
        self.class_names = tuple(class_names)
        self.conditional = network.config.conditional

    def __repr__(self) -> str:
        config = self.config
        facts = {
            "normalization": config.normalization,
            "classes": config.classes if self.conditional else None,
            "image": (config.channels, config.resolution, config.resolution),
            "noise": config.noise,
            "iteration": self.iteration,
            "device": str(next(self.network.parameters()).device),
        }
        return f"Sampler({', '.join(f'{name}={value!r}' for name, value in facts.items() if value is not None)})"

    def sample(
        self,
        count: int = 64,
        classes: Classes | None = None,
        seed: int = 0,
        truncation: float = 1.0,
        batch: int = 256,
    ) -> Tensor:
        """`(count, C, H, W)` uint8.

        Args:
            count: number of images.
            classes: a class by name or number, or several that take turns; None for all in turn. Only for a
                conditional generator. A text is a name first and then a number: `"10"` is the class called 10, if
                there is one.
            seed: the same seed gives the same images.
            truncation: scales the noise; below 1 trades variety for quality.
            batch: images per forward pass; it can change the rounding of single pixels, nothing else.
        """
        return self.from_noise(truncation * self.noise(count, seed), self.labels(count, classes), batch)

    def noise(self, count: int, seed: int) -> Tensor:
        """z ~ N(0, I) `(count, noise)`, drawn on the CPU so that a seed means the same everywhere."""
        _check_count("count", count, 1)
        return torch.randn(count, self.config.noise, generator=random_generator(seed, "sample", 0))

    def labels(self, count: int, classes: Classes | None) -> Tensor | None:
        """The classes in turn as labels `(count,)`; None for a generator without classes."""
        name, number = self.config.normalization, self.config.classes
        if not self.conditional or number is None:
            if classes is not None:
                raise ValueError(f"this generator ({name}) has no classes: leave them out")
            return None
        wanted = list(range(number)) if classes is None else [classes] if isinstance(classes, int | str) else classes
        if not len(wanted):
            raise ValueError(f"name at least one class of 0 to {number - 1}, or leave classes out for all")
        return torch.tensor([self.class_number(each) for each in wanted])[torch.arange(count) % len(wanted)]

    def class_number(self, wanted: int | str) -> int:
        """The number of a class that is given by its name or its number.

        Raises:
            ValueError: for an unknown name, one that several classes have, and a number out of range.
        """
        number = self.config.classes or 0
        if isinstance(wanted, str):
            found = [label for label, name in enumerate(self.class_names) if name == wanted] or [
                label for label, name in enumerate(self.class_names) if name.casefold() == wanted.casefold()
            ]
            if len(found) > 1:
                each = ", ".join(map(str, found))
                raise ValueError(f"several classes are called {shown(wanted)}: choose one of the numbers {each}")
            if not found and not wanted.isdecimal():
                some = ", ".join(self.class_names[:_MOST_NAMES])
                more = ", ..." if len(self.class_names) > _MOST_NAMES else ""
                named = self.class_names != tuple(map(str, range(len(self.class_names))))
                known = f"{some}{more}, numbered 0" if named else "the numbers 0"
                raise ValueError(f"there is no class {shown(wanted)}; this generator has {known} to {number - 1}")
            wanted = found[0] if found else int(wanted[:19])
        if not 0 <= wanted < number:
            raise ValueError(f"class {wanted} is out of range: this generator has classes 0 to {number - 1}")
        return int(wanted)

    @torch.no_grad()
    def from_noise(self, z: Tensor, labels: Tensor | None, batch: int = 256, stay: bool = False) -> Tensor:
        """Images of given noise `(N, noise)` and labels `(N,)` or class weights `(N, classes)`.

        On the CPU, or with `stay` on the device that made them.
        """
        if not z.isfinite().all():
            raise ValueError("the noise holds NaN or Inf: give a finite truncation")
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

    def between(
        self,
        position: float,
        count: int = 8,
        seeds: int | Sequence[int] = (0, 1),
        classes: Classes | None = None,
        truncation: float = 1.0,
    ) -> Tensor:
        """Images `(count, C, H, W)` uint8 at a position between two ends.

        Noise moves on the great circle. Classes are mixed with the weights `(1 - position, position)`, which mix their
        coloring matrices.

        Args:
            position: from 0, the first end, to 1, the second.
            count: number of images, each on its own way.
            seeds: seeds of the noise at both ends; one seed keeps the noise.
            classes: classes at both ends; one class keeps it, None takes all in turn and keeps them.
            truncation: scales the noise.

        Raises:
            ValueError: for a value out of bounds, and for classes that the generator does not have.
        """
        if not 0 <= position <= 1:
            raise ValueError(f"the position must be from 0 to 1, got {position}")
        start, end = (self.noise(count, seed) for seed in _ends("seeds", seeds))
        labels = self.labels(count, classes if classes is None else _ends("classes", classes))
        if classes is not None and self.config.classes is not None:
            first, last = map(self.class_number, _ends("classes", classes))
            labels = torch.zeros(count, self.config.classes)
            labels[:, first] += 1 - position
            labels[:, last] += position
        return self.from_noise(truncation * great_circle(start, end, position), labels)

    def interpolate(
        self,
        frames: int = 24,
        count: int = 8,
        seeds: int | Sequence[int] = (0, 1),
        classes: Classes | None = None,
        truncation: float = 1.0,
    ) -> Tensor:
        """`(frames, count, C, H, W)` uint8: `between` at equal steps from the first end to the second.

        Raises:
            ValueError: for fewer than two frames, and as `between`.
        """
        _check_count("frames", frames, 2)
        steps = [step / (frames - 1) for step in range(frames)]
        return torch.stack([self.between(step, count, seeds, classes, truncation) for step in steps])

    def rows(self, columns: int = 10, most_rows: int = GRID_ROWS, seed: int = 0) -> Tensor:
        """Images of a grid: one class per row and one noise per column if there are classes; else all different."""
        if self.config.classes is None or not self.conditional:
            return self.sample(columns * columns, seed=seed)
        rows = min(self.config.classes, most_rows)
        return self.from_noise(self.noise(columns, seed).repeat(rows, 1), torch.arange(rows).repeat_interleave(columns))


def great_circle(start: Tensor, end: Tensor, t: float) -> Tensor:
    r"""Points between noise vectors `(N, n)`, on the great circle rather than on the straight line.

    .. math:: \frac{\sin((1-t)\,\omega)}{\sin\omega}\,z_0 + \frac{\sin(t\,\omega)}{\sin\omega}\,z_1

    with :math:`\omega` the angle between them. Noise in many dimensions is near a sphere;
    the middle of the line is not.

    Example:
        >>> import torch
        >>> great_circle(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 2.0]]), 0.5)
        tensor([[1.4142, 1.4142]])
    """
    cosine = torch.nn.functional.cosine_similarity(start.double(), end.double(), dim=1).clamp(-1, 1)
    omega = cosine.arccos().unsqueeze(1)  # (N, 1)
    line = omega.sin() < _STRAIGHT
    sine = torch.where(line, 1.0, omega.sin())
    first = torch.where(line, torch.full_like(omega, 1 - t), ((1 - t) * omega).sin() / sine)
    second = torch.where(line, torch.full_like(omega, t), (t * omega).sin() / sine)
    return (first * start + second * end).to(start.dtype)


def _check_count(name: str, value: object, least: int) -> None:
    """Raises an error that names the value unless it is a whole number of at least `least`."""
    if not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} must be a whole number, got {shown(value)}")
    if index(value) < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def _ends(name: str, value: Value | Sequence[Value]) -> tuple[Value, Value]:
    """One value or two -> the two ends."""
    ends = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if len(ends) not in (1, 2):
        raise ValueError(f"an interpolation takes one or two {name}, got {len(ends)}")
    return ends[0], ends[-1]


def _pixels(images: Tensor) -> Tensor:
    """`to_uint8`, which cannot show what is not a number."""
    broken = int((~images.isfinite()).flatten(1).any(1).sum())
    if broken:
        raise ValueError(
            f"{broken} of {len(images)} images from this generator hold NaN or Inf: take an earlier checkpoint"
        )
    return to_uint8(images)


def load_generator(
    source: str | Path, checkpoint: str | int = "last", device: str = "auto", average: bool = True
) -> Sampler:
    """Loads a generator, ready to sample; see `wcgan.load`.

    Args:
        source: a run, a checkpoint, an exported generator, or the name of a shipped one.
        checkpoint: of a run: last, best or an iteration.
        device: auto, cpu, cuda or cuda:N.
        average: whether a run that has a moving average of the generator draws from that, or from the generator.
    """
    path = find_source(source)
    if path.is_file() and is_exported(path.parent):
        path = path.parent
    if path.is_dir() and is_exported(path):
        if checkpoint != "last":
            raise ValueError(
                f"{source} is one exported generator without checkpoints: leave out checkpoint={checkpoint}"
            )
        network, names = read_exported(path)
        return Sampler(network.to(find_device(device)), names)
    if path.is_file():
        if checkpoint != "last":
            raise ValueError(f"{source} is a checkpoint already: leave out checkpoint={checkpoint}")
        if path.parent.name != "checkpoints":
            raise ValueError(f"{source} is no checkpoint of a run: those are in RUN/checkpoints")
        path, checkpoint = path.parent.parent, path.stem
    run = Run(path)
    config, found = run.config(), find_checkpoint(run, checkpoint)
    check_config(found, config, "generator")
    return checkpoint_to_sampler(found, config.generator, device, average)


def checkpoint_to_sampler(found: Checkpoint, config: GeneratorConfig, device: str, average: bool) -> Sampler:
    """The generator in a run's checkpoint; see `load_generator`."""
    network = build_generator(config)
    averaged = average and bool(section(found.tensors, "average"))
    tensors_to_network(found, "average" if averaged else "generator", network)
    network.requires_grad_(False).eval().to(find_device(device))
    return Sampler(network, found.facts.get("classes", ()), found.facts.get("iteration"))
