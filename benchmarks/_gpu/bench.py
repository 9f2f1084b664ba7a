"""The sizes to measure, and the report that grows with each measurement."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wcgan.core.files import write_atomically


@dataclass(frozen=True)
class Sizes:
    """The sizes to measure."""

    widths: tuple[int, ...] = (32, 64, 128, 256, 512)
    batches: tuple[int, ...] = (1, 5)
    shapes: tuple[tuple[int, int, int], ...] = ((128, 256, 4), (128, 256, 16), (128, 256, 32), (64, 128, 32))
    float32_shape: tuple[int, int, int] = (128, 256, 32)
    eager_shapes: tuple[tuple[int, int, int], ...] = ((128, 256, 16), (64, 64, 56))
    images: tuple[int, int, int, int] | None = (64, 3, 224, 224)
    network_width: int | None = None
    calls: int = 20
    rounds: int = 15
    iteration_rounds: int = 8
    timing_seconds: float = 0.33
    long_seconds: float = 60.0
    inference_batch: int = 256
    run_settings: tuple[str, ...] = ()
    train_settings: tuple[str, ...] = ()
    convolutions: tuple[tuple[int, int, int, int], ...] = ((192, 3, 256, 32), (128, 256, 3, 32), (320, 256, 3, 32))
    """Samples, channels of input and output, and side; an image has at most four channels."""


_TINY_NETWORKS = tuple(f"{network}.widths=[4, 4, 4]" for network in ("generator", "discriminator"))
_TINY_BATCHES = ("train.batch=4", "train.generator_batch=4", "train.critic_steps=2")
QUICK = Sizes(
    (4, 40), (1, 2), ((4, 8, 2), (4, 8, 4)), (4, 8, 4), ((4, 8, 2),), None, 4, 2, 2, 1, 0.01, 0.02, 4,
    ("data.name=digits", "train.device=cpu", *_TINY_NETWORKS, *_TINY_BATCHES), _TINY_BATCHES,
    ((2, 3, 32, 4), (2, 32, 1, 4)),
)  # fmt: skip


@dataclass
class Bench:
    """The report, written after each measurement."""

    device: str
    sizes: Sizes
    path: Path | None
    seconds: float
    commit: str
    report: dict[str, Any] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @contextmanager
    def attempt(self, *path: str) -> Iterator[None]:
        """Skips a measurement that fails, and records the reason."""
        try:
            yield
        except (RuntimeError, ValueError) as error:
            self._skip(path, str(error).strip().partition("\n")[0])

    def wants(self, *path: str) -> bool:
        """Whether there is time left for a measurement; prints its name."""
        if time.monotonic() - self.began >= self.seconds:
            self._skip(path, f"{self.seconds:.0f} s had passed")
            return False
        self.report.get("skipped", {}).pop(", ".join(path), None)
        print(f"measuring {', '.join(path)}", file=sys.stderr, flush=True)
        return True

    def add(self, *path: str, value: Any, measured: tuple[str, ...] = ()) -> None:
        """Adds a measurement to the report, with its commit, and writes the file.

        Args:
            path: of its place.
            value: the figure.
            measured: what the commit is of, where that is not the path.
        """
        place = self.report
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = value
        self.report.setdefault("measured_at", {})[", ".join(measured or path)] = self.commit
        self.write()

    def _skip(self, path: tuple[str, ...], why: str) -> None:
        self.report.setdefault("skipped", {})[", ".join(path)] = why
        print(f"skipped {', '.join(path)}: {why}", file=sys.stderr, flush=True)
        self.write()

    def write(self) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, (json.dumps(self.report, indent=1) + "\n").encode())
