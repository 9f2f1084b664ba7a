"""GANs and classifiers: what a table does with a config, by its type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wcgan.classify import ClassifyConfig, fit_classifier, load_splits
from wcgan.experiments.classification import classifier_preset, start_classifiers
from wcgan.experiments.classifiers import CLASSIFIERS
from wcgan.experiments.presets import preset
from wcgan.experiments.training import load_data, start
from wcgan.train.config import Config
from wcgan.train.fitting import fit_config
from wcgan.train.loop import Outcome
from wcgan.train.run import Run, resumed_run

RunConfig = Config | ClassifyConfig
"""Everything that decides a run of a table."""


@dataclass(frozen=True)
class Kind:
    """What is done with configs of one type."""

    start: Callable[..., Outcome]
    """From a config, a folder and `resume` to a run that is as far as it got."""
    fit: Callable[[Any], Any]
    """A config -> that which its run has: with the sizes of the data."""
    schedule: tuple[str, ...]
    """The fields of `train` that are lengths: iterations, or several of them."""


KINDS: dict[type, Kind] = {
    Config: Kind(
        start,
        lambda config: fit_config(config, load_data(config)),
        (
            "iterations",
            "schedule_end",
            "drop_at",
            "evaluate_every",
            "conditioning_every",
            "sample_every",
            "checkpoint_every",
        ),
    ),
    ClassifyConfig: Kind(
        start_classifiers,
        lambda config: fit_classifier(config, load_splits(config)[0]),
        ("iterations", "drops", "warm_up", "evaluate_every", "checkpoint_every"),
    ),
}


def find_preset(name: str) -> RunConfig:
    """A preset of either kind."""
    return classifier_preset(name) if name in CLASSIFIERS else preset(name)


def start_run(config: RunConfig, folder: Path) -> Outcome:
    """Begins a run, or goes on with it where it is there."""
    return KINDS[type(config)].start(config, folder, resume=True)


def check_run(config: RunConfig, folder: Path) -> None:
    """Raises a ValueError, which says what differs, where a folder holds a run of another config."""
    if (folder / "config.yaml").is_file() and Run(folder).config(type(config)) != config:
        resumed_run(folder, KINDS[type(config)].fit(config), type(config))


def with_train(config: RunConfig, **fields: Any) -> RunConfig:
    """A config with fields of its training set."""
    return replace(config, train=replace(config.train, **fields))  # type: ignore[arg-type]


def shorten(config: RunConfig, scale: float) -> RunConfig:
    """A config with every length of its schedule multiplied; none that is not 0 becomes less than 1.

    Example:
        >>> shorten(preset("cifar10/cWC SN + Proj. Discr. drop"), 0.1).train.drop_at
        3000
        >>> shorten(classifier_preset("cifar10/ResNet-32 WC"), 0.1).train.drops
        (3200, 4800)
    """
    if not 0 < scale <= 1:
        raise ValueError(f"--scale must be more than 0 and at most 1, got {scale}")
    lengths = {name: getattr(config.train, name) for name in KINDS[type(config)].schedule}
    return with_train(config, **{name: _shortened(value, scale) for name, value in lengths.items() if value})


def _shortened(length: int | tuple[int, ...], scale: float) -> int | tuple[int, ...]:
    """Of several lengths, those that become the same are one."""
    if isinstance(length, tuple):
        return tuple(dict.fromkeys(max(1, round(each * scale)) for each in length))
    return max(1, round(length * scale))
