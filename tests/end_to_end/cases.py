"""The real command, in a process of its own, on a small folder of images."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.data.cases import random_images, save

SETTINGS = {
    "generator.widths": "[6]",
    "generator.noise": "8",
    "discriminator.widths": "[6, 6]",
    "discriminator.downsample": "1",
    "discriminator.resolution": "8",
    "train.batch": "4",
    "train.generator_batch": "4",
    "train.log_every": "1",
    "train.sample_every": "7",
    "train.checkpoint_every": "3",
    "train.keep_checkpoints": "2",
    "train.device": "cpu",
}


def write_photos(folder: Path, side: int = 8, channels: int = 3, count: int = 12) -> Path:
    """Images of three classes, each in its sub-folder."""
    for number, image in enumerate(random_images(count, channels, side)):
        save(folder / f"class {number % 3}" / f"{number}.png", image)
    return folder


def training(photos: Path, run: Path, **settings: object) -> list[str]:
    """The arguments of `wcgan train`."""
    chosen = SETTINGS | {f"train.{name}": str(value) for name, value in settings.items()}
    sets = [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]
    return ["train", "--data", str(photos), "--out", str(run), *sets]


def begin(arguments: list[str], cache: Path) -> subprocess.Popen[str]:
    """Starts `python -m wcgan ...`."""
    environment = {**os.environ, "WCGAN_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "wcgan", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition, process: subprocess.Popen[str], seconds: float = 120) -> bool:  # type: ignore[no-untyped-def]
    """Whether the condition came true before the process ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        if process.poll() is not None:
            return False
        time.sleep(0.01)
    raise AssertionError(f"nothing happened in {seconds} s: {process.args}")
