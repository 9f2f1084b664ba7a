"""Training iterations to time: the paper's CIFAR-10 networks, with different normalisations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from wcgan.core.config import override
from wcgan.core.device import Hardware, find_hardware
from wcgan.core.processes import Rank
from wcgan.core.terminal import TrainingProgress
from wcgan.data import Dataset
from wcgan.norm import VARIANTS
from wcgan.paper.presets import preset
from wcgan.runs.config import Config
from wcgan.train import graph
from wcgan.train.batches import GanBatches, batches_of
from wcgan.train.gan import Players, build_players, compile_players, make_step

Step = Callable[[int], object]
"""Runs one iteration, given its number."""

IMAGES, WARM_UP = 10_000, 2
WIDTH_ON_CPU = 32  # the paper's widths would take minutes per iteration
REPEATS_ON_CUDA = 5  # iterations per timing: one is too short
_VERSIONS = 64  # compiled versions to keep: PyTorch counts those of all networks together and keeps 8


def iteration_config(normalization: str, width: int | None, settings: Sequence[str]) -> Config:
    """The paper's config with spectral normalisation, and with projection if the normalisation is conditional.

    `width` is the width of all blocks; None for the paper's.
    """
    conditional = VARIANTS[normalization].conditional
    config = preset("cifar10/cWC SN + Proj. Discr." if conditional else "cifar10/WC SN + ResNet")
    g, d = replace(config.generator, normalization=normalization), config.discriminator
    if width is not None:
        g, d = replace(g, widths=(width,) * len(g.widths)), replace(d, widths=(width,) * len(d.widths))
    return override(replace(config, generator=g, discriminator=d), settings)


def synthetic_data(config: Config) -> Dataset:
    """Random images of the size that a config expects."""
    random, side = torch.Generator().manual_seed(0), config.generator.resolution
    classes = config.classes or 1
    shape = (IMAGES, config.generator.channels, side, side)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=random)
    labels = torch.randint(0, classes, (IMAGES,), generator=random)
    return Dataset(images, labels, tuple(map(str, range(classes))), "synthetic", "train", "synthetic")


def keep_compiled_networks() -> None:
    """Let PyTorch keep the compiled versions of many networks in one process."""
    torch._dynamo.config.cache_size_limit = _VERSIONS


class PrintedProgress(TrainingProgress):
    """Prints messages, such as why a network is not compiled, and nothing else."""

    def __init__(self, speak: Callable[[str], None]) -> None:
        self._speak = speak

    def say(self, text: str) -> None:
        self._speak(text)


@dataclass(frozen=True)
class Workbench:
    """Networks and data on a device, ready for training."""

    players: Players
    batches: GanBatches
    hardware: Hardware
    progress: TrainingProgress

    def step(self, config: Config) -> Step:
        """An iteration as `wcgan train` runs it; `config` may have another number of updates."""
        batches = replace(self.batches, train=config.train)
        return make_step(self.players, batches, config, self.hardware, self.progress)

    @property
    def warm_up(self) -> int:
        """Iterations before timings are stable, including the capture of a CUDA graph if there is one."""
        return WARM_UP if self.hardware.eager_because is not None else WARM_UP + graph.WARM_UP


def build_workbench(config: Config, rank: Rank, say: Callable[[str], None]) -> Workbench:
    """Networks initialised from a config's seed, compiled if the hardware calls for it, and synthetic data."""
    hardware, progress = find_hardware(config.train), PrintedProgress(say)
    players = build_players(config, hardware.device, hardware.channels_last, sync=rank.count > 1)
    batches = batches_of(config, synthetic_data(config), hardware.device, rank)
    if hardware.compile:
        keep_compiled_networks()
    compile_players(players, config, hardware, progress)
    return Workbench(players, batches, hardware, progress)


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """The same names, starting from a different one at each turn."""
    first = turn % len(names)
    return [*names[first:], *names[:first]]


def step_to_seconds(step: Step, number: int, device: torch.device, rank: Rank) -> float:
    """Seconds per iteration; on a single CPU thread, its CPU time, which other load hardly affects."""
    gpu = device.type == "cuda"
    own_time = not gpu and rank.count == 1 and torch.get_num_threads() == 1
    clock, repeats = time.thread_time if own_time else time.perf_counter, REPEATS_ON_CUDA if gpu else 1
    if gpu:
        torch.cuda.synchronize(device)
    begin = clock()
    for repeat in range(repeats):
        step(number * repeats + repeat)
    if gpu:
        torch.cuda.synchronize(device)
    return (clock() - begin) / repeats
