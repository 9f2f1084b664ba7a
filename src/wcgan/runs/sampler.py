"""Images from a trained generator: drawing them, loading the generator of a run, and the generators of the package."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import wcgan
from wcgan.core.config import config_to_dict
from wcgan.core.device import find_device, generator_for
from wcgan.core.files import write_atomically
from wcgan.core.images import to_uint8
from wcgan.core.reading import parse_json, read_text
from wcgan.nets import Generator, build_generator
from wcgan.runs.checkpoint import check_config, find_checkpoint, section, tensors_to_network, write_checkpoint
from wcgan.runs.folder import Run, new_run

DEFAULT = "cifar10-cWC"
ORIGIN = "origin.json"
_FOLDER = Path(wcgan.__file__).parent / "generators"


class Sampler:
    """A generator in evaluation mode, which draws images from seeds.

    Example:
        ```python
        generator = wcgan.load("runs/digits")
        images = generator.sample(64, classes=3, seed=1)  # (64, C, H, W) uint8
        ```
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


def _pixels(images: Tensor) -> Tensor:
    """`to_uint8`, which cannot show what is not a number."""
    broken = int((~images.isfinite()).flatten(1).any(1).sum())
    if broken:
        raise ValueError(f"{broken} of {len(images)} images from this generator hold NaN or Inf: take an earlier state")
    return to_uint8(images)


# Generators of runs


def load_generator(path: str | Path, checkpoint: str = "last", device: str = "auto") -> Sampler:
    """The generator of a run, ready to sample.

    Args:
        path: the folder of a run.
        checkpoint: `"last"`, `"best"` (by FID, where the run was evaluated) or the number of an iteration.
        device: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:N"`.
    """
    run = Run(Path(path))
    config, found = run.config(), find_checkpoint(run, checkpoint)
    check_config(found, config, "generator")
    network = build_generator(config.generator)
    tensors_to_network(found, "average" if section(found.tensors, "average") else "generator", network)
    network.requires_grad_(False).eval().to(find_device(device))
    return Sampler(network, found.facts.get("classes", ()), found.facts.get("iteration"))


# Generators of the package


def shipped_generators() -> tuple[str, ...]:
    """The names of the generators that come with the package.

    Example:
        >>> "digits-cWC_sa" in shipped_generators()
        True
    """
    return tuple(sorted(path.parent.name for path in _FOLDER.glob("*/config.yaml")))


def shipped(name: str = DEFAULT) -> Path:
    """The folder of a generator that comes with the package, for `load_generator`.

    Args:
        name: one of `shipped_generators()`.

    Raises:
        ValueError: for another name.
    """
    if name not in shipped_generators():
        raise ValueError(f"no generator {name!r} comes with the package; there is {', '.join(shipped_generators())}")
    return _FOLDER / name


def find_run(source: Path) -> Path:
    """A path or a name -> the folder of a run: what is there comes first, then a shipped generator of that name."""
    if source.exists():
        return source
    if str(source) not in shipped_generators():
        there = ", ".join(shipped_generators())
        raise ValueError(f"{source} is not there; name the folder of a run, or a generator of the package: {there}")
    return shipped(str(source))


def run_to_shipped(run: Path, folder: Path, command: str = "", checkpoint: str = "last") -> Path:
    """Writes a run's generator alone: config, weights in half precision, and where it comes from.

    Args:
        run: the folder of a run.
        folder: a new folder; it can be loaded as a run's.
        command: what made the run, for `origin.json`; empty where it is not known.
        checkpoint: `"last"`, `"best"` or the number of an iteration.
    """
    sampler, old = load_generator(run, checkpoint, "cpu"), Run(run)
    new = new_run(folder, old.config().without_paths())
    tensors = {f"generator.{key}": _halved(value) for key, value in sampler.network.state_dict().items()}
    iteration = sampler.iteration or 0
    facts = {
        "iteration": iteration,
        "classes": list(sampler.class_names),
        "config": config_to_dict(new.config()),
        "version": wcgan.__version__,
    }
    write_checkpoint(new.checkpoints, f"{iteration:07d}", tensors, facts)
    write_atomically(folder / ORIGIN, json.dumps(_origin(old, iteration, command), indent=1).encode())
    return folder


def _halved(value: Tensor) -> Tensor:
    """In float16, except for integers and values that are too large for it."""
    half = value.to(torch.float16) if value.is_floating_point() else value
    return half if bool(torch.isfinite(half).all()) else value


def _origin(run: Run, iteration: int, command: str) -> dict[str, Any]:
    """How the generator was made; the `origin.json` of one that was shipped before is kept."""
    if (run.folder / ORIGIN).is_file():
        try:
            kept = parse_json(read_text(run.folder / ORIGIN))
        except ValueError as error:
            raise ValueError(f"{run.folder / ORIGIN} cannot be read: {error}") from None
        if not isinstance(kept, dict):
            raise ValueError(f"{run.folder / ORIGIN} cannot be read: it is not a mapping")
        return kept
    lines = run.lines()
    begun: list[dict[str, Any]] = [line for line in lines if line.get("what") in ("started", "resumed")]
    commits = dict.fromkeys(str(line["commit"]) for line in begun if line.get("commit"))
    scores: dict[str, Any] = next(
        (v for v in reversed(lines) if v["kind"] == "evaluation" and v["iteration"] == iteration), {}
    )
    return {
        "command": command,
        "commit": "; ".join(commits) or None,
        **{key: begun[0].get(key) if begun else None for key in ("time", "device", "torch")},
        "scores": {k: v for k, v in scores.items() if "(" in k or k in ("IS", "FID", "KID", "precision", "recall")},
    }
