"""Tiny networks, data and runs, shared by the tests of training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wcgan.data import Dataset
from wcgan.nets import DiscriminatorConfig, GeneratorConfig
from wcgan.norm import VARIANTS
from wcgan.runs.checkpoint import read_newest
from wcgan.runs.config import Config, DataConfig, TrainConfig
from wcgan.runs.folder import Line, Run, new_run
from wcgan.train.batches import GanBatches
from wcgan.train.gan import Evaluator, Players, build_players, set_learning_rates, train, train_iteration
from wcgan.train.learner import learner_to_tensors
from wcgan.train.loop import Outcome

CPU = torch.device("cpu")
CLASSES = 3
SIDE = 8


@contextmanager
def float64() -> Iterator[None]:
    """New tensors are of float64, in which only rounding parts two ways to the same sums."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def tiny_config(normalization: str = "cWC", head: str = "projection", **train: Any) -> Config:
    """A generator and a discriminator of width 4 on 8 x 8 images of one channel."""
    settings = {
        "iterations": 6,
        "critic_steps": 1,
        "batch": 4,
        "generator_batch": 4,
        "log_every": 1,
        "sample_every": 0,
        "checkpoint_every": 2,
        "device": "cpu",
        **train,
    }
    classes = CLASSES if VARIANTS[normalization].conditional or head != "plain" else None
    return Config(
        DataConfig(),
        GeneratorConfig(widths=(4,), noise=6, normalization=normalization, channels=1, classes=classes),
        DiscriminatorConfig(
            widths=(4, 4),
            downsample=1,
            head=head,
            channels=1,
            classes=classes,
            resolution=SIDE,
            spectral_norm=not settings.get("gradient_penalty"),
        ),
        TrainConfig(**settings),
    )


def with_discriminator(config: Config, **fields: Any) -> Config:
    return replace(config, discriminator=replace(config.discriminator, **fields))


def tiny_data(count: int = 10, labels: bool = True, side: int = SIDE, channels: int = 1) -> Dataset:
    images = torch.randint(0, 256, (count, channels, side, side), generator=torch.Generator().manual_seed(1))
    classes = tuple("abc") if labels else ()
    return Dataset(
        images.to(torch.uint8), torch.arange(count) % CLASSES if labels else None, classes, "tiny", "train", "tiny"
    )


def tiny_batches(config: Config, data: Dataset | None = None, **fields: Any) -> GanBatches:
    data = data or tiny_data()
    labels = data.labels if config.conditional else None
    return GanBatches(
        data.images, labels, config.classes, config.generator.noise, config.train, CPU, flip=config.data.flip, **fields
    )


def tiny_players(config: Config) -> Players:
    return build_players(config, CPU)


def iterate(
    players: Players,
    config: Config,
    iteration: int = 0,
    data: Dataset | None = None,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    """One iteration as the loop makes it -> its losses."""
    set_learning_rates(players, config.train, iteration)
    return train_iteration(players, tiny_batches(config, data).draw(iteration), config, dtype)


def tiny_run(folder: Path, config: Config) -> Run:
    return new_run(folder, config)


def snapshot(players: Players) -> dict[str, Tensor]:
    """Every tensor of the players, copied."""
    return {name: value.clone() for name, value in learner_to_tensors(players).items()}


def last_tensors(run: Run) -> dict[str, Tensor]:
    found = read_newest(run.checkpoints)
    assert found is not None
    return found.tensors


def different(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """Names of tensors that are not the same bits in both, or not in both."""
    shared = one.keys() & other.keys()
    return sorted((one.keys() ^ other.keys()) | {name for name in shared if not same_bits(one[name], other[name])})


def same_bits(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return one.contiguous().numpy().tobytes() == other.contiguous().numpy().tobytes()


def run_to_end(
    folder: Path, evaluator: Evaluator | None = None, data: Dataset | None = None, **settings: Any
) -> tuple[Run, Outcome]:
    """A new run in a folder, and how its training ended."""
    config = tiny_config(**settings)
    run = tiny_run(folder / "run", config)
    outcome = train(config, data or tiny_data(), run, evaluator)
    return run, outcome


def of_kind(run: Run, kind: str) -> list[Line]:
    return [line for line in run.lines() if line["kind"] == kind]
