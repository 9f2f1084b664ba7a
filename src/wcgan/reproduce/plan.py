"""The runs that a table needs: the config, seed and folder of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Any

from wcgan.core.config import override
from wcgan.core.files import write_atomically
from wcgan.core.reading import parse_json, read_bytes
from wcgan.paper.classifier_presets import CLASSIFIERS
from wcgan.paper.presets import classifier_preset, preset, preset_to_folder
from wcgan.paper.tables import Row, Table, canonical_name
from wcgan.reproduce.experiments import EXPERIMENTS, choose_rows, find_table, with_rows
from wcgan.runs.config import ClassifyConfig, Config
from wcgan.runs.folder import Run, resumed_run, seed_folders
from wcgan.train.loop import Outcome
from wcgan.train.start import fit_config, load_data, start
from wcgan.train.start_classifier import fit_classifier, load_splits, start_classifiers

RunConfig = Config | ClassifyConfig
"""The config of a GAN or of a classifier."""


@dataclass(frozen=True)
class PlannedRun:
    """A run that a table needs, whether or not it has been started."""

    row: Row
    seed: int
    config: RunConfig
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.row.preset}, seed {self.seed}"


@dataclass(frozen=True)
class Reproduction:
    """A table to make: the runs asked for, and how they differ from the paper's."""

    key: str
    """The table's key in `EXPERIMENTS`."""
    runs: tuple[PlannedRun, ...]
    """All rows with the first seed, then all rows with the next."""
    out: Path
    """The folder with a sub-folder for each table."""
    scale: float = 1.0
    """Factor by which every schedule is shortened."""
    settings: tuple[str, ...] = ()
    """`section.field=value`, set in every run."""

    @property
    def table(self) -> Table:
        """The table with only the rows asked for."""
        return with_rows(EXPERIMENTS[self.key], {run.row.preset for run in self.runs})

    @property
    def folder(self) -> Path:
        return self.out / self.key


def default_folder(scale: float) -> Path:
    """The folder for all tables if none is given; shortened runs get one of their own.

    Example:
        >>> str(default_folder(1.0)), str(default_folder(0.1))
        ('reproduce', 'reproduce-x0.1')
    """
    return Path("reproduce" if scale == 1 else f"reproduce-x{scale:g}")


def plan_table(
    name: str,
    rows: Sequence[str] = (),
    seeds: int | None = None,
    scale: float = 1.0,
    settings: Sequence[str] = (),
    out: Path | None = None,
) -> Reproduction:
    """Plan the runs of a table; nothing is written.

    Args:
        name: a key of `EXPERIMENTS`, or a place in the paper such as table3.
        rows: the rows to make, as for `choose_rows`; none for all.
        seeds: number of runs per row: 3 for the seeds 0, 1 and 2; None for the table's default.
        scale: factor by which every schedule is shortened.
        settings: `section.field=value`, set in every run after it is shortened.
        out: the folder with a sub-folder for each table; None for `default_folder`.

    Raises:
        ValueError: for an unknown table, row or setting, or a folder with runs of another config.
    """
    key = find_table(name)
    count = EXPERIMENTS[key].seeds if seeds is None else seeds
    if count < 1:
        raise ValueError(f"--seeds must be at least 1, got {count}")
    if any(setting.partition("=")[0].strip() == "train.seed" for setting in settings):
        raise ValueError("train.seed is not for --set here: --seeds 3 trains every row with the seeds 0, 1 and 2")
    out = out or default_folder(scale)
    runs = []
    for row in choose_rows(key, rows):
        config = override(shorten(_row_config(key, row.preset), scale), settings)
        for seed in range(count):
            folder = out / _row_folder(key, row.preset) / f"seed-{seed}"
            runs.append(PlannedRun(row, seed, with_train(config, seed=seed), folder))
    plan = Reproduction(key, tuple(sorted(runs, key=lambda run: run.seed)), out, scale, tuple(settings))
    _check_folder(plan)
    return plan


def folders_of(key: str, out: Path) -> dict[str, list[Path]]:
    """A row's preset -> the existing folders of its runs, in order of the seeds."""
    return {
        row.preset: [f for f in seed_folders(out / _row_folder(key, row.preset)) if (f / "config.yaml").is_file()]
        for row in EXPERIMENTS[key].rows
    }


def write_options(plan: Reproduction) -> None:
    """Write `options.json` into the table's folder: how its runs differ from the paper's."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    write_atomically(_options(plan.folder), json.dumps({"scale": plan.scale, "set": plan.settings}).encode() + b"\n")


def read_options(*folders: Path) -> tuple[float, tuple[str, ...]]:
    """The scale and the settings in the first table's folder with an `options.json`; the paper's if none has one."""
    file = next(filter(Path.is_file, map(_options, folders)), None)
    if file is None:
        return 1.0, ()
    try:
        options = parse_json(read_bytes(file))
        return float(options["scale"]), tuple(map(str, options["set"]))
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{file} is damaged: delete it, and give --scale and --set again") from None


def _options(folder: Path) -> Path:
    return folder / "options.json"


def _row_config(key: str, name: str) -> RunConfig:
    """The full-length config of a table's row."""
    table = EXPERIMENTS[key]
    config = with_train(find_preset(name), evaluate_every=table.evaluate_every)
    return config if table.classifiers else with_train(config, conditioning_every=table.conditioning_every)


def _row_folder(key: str, name: str) -> Path:
    """TABLE/ROW for the runs of a row: those of the first table and row with the same config, which share its runs."""
    table, row = _first_rows()[_config_key(key, name)]
    return Path(table) / preset_to_folder(row)


@cache
def _first_rows() -> dict[tuple[str, int, int], tuple[str, str]]:
    first: dict[tuple[str, int, int], tuple[str, str]] = {}
    for key, table in EXPERIMENTS.items():
        for row in table.rows:
            first.setdefault(_config_key(key, row.preset), (key, row.preset))
    return first


def _config_key(key: str, name: str) -> tuple[str, int, int]:
    """All that decides the config of a row."""
    return canonical_name(name), EXPERIMENTS[key].evaluate_every, EXPERIMENTS[key].conditioning_every


def _check_folder(plan: Reproduction) -> None:
    """Raises a ValueError if there are runs with another config than the plan's."""
    if _options(plan.folder).is_file():
        scale, settings = read_options(plan.folder)
        if (scale, settings) != (plan.scale, plan.settings):
            sets = "".join(f" --set {quote(setting)}" for setting in settings) or " and without --set"
            raise ValueError(
                f"{plan.folder} was begun with --scale {scale:g}{sets}: repeat that, or name another --out"
            )
    for run in plan.runs:
        check_run(run.config, run.folder)


@dataclass(frozen=True)
class _Trainer:
    """How to train from configs of one type."""

    start: Callable[..., Outcome]
    """Trains, given a config, a folder and `resume`."""
    fit: Callable[[Any], Any]
    """A config -> the same with the sizes of its data, as a run records it."""
    lengths: tuple[str, ...]
    """The fields of `train` that are numbers of iterations."""


_TRAINERS: dict[type, _Trainer] = {
    Config: _Trainer(
        start,
        lambda config: fit_config(config, load_data(config)),
        (
            *("iterations", "schedule_start", "schedule_end", "drop_at", "evaluate_every"),
            *("conditioning_every", "sample_every", "checkpoint_every"),
        ),
    ),
    ClassifyConfig: _Trainer(
        start_classifiers,
        lambda config: fit_classifier(config, load_splits(config)[0]),
        ("iterations", "drops", "warm_up", "evaluate_every", "checkpoint_every"),
    ),
}


def find_preset(name: str) -> RunConfig:
    """The config of a preset, of a GAN or a classifier."""
    return classifier_preset(name) if name in CLASSIFIERS else preset(name)


def start_run(config: RunConfig, folder: Path) -> Outcome:
    """Start a run, or resume it if its folder exists."""
    return _TRAINERS[type(config)].start(config, folder, resume=True)


def check_run(config: RunConfig, folder: Path) -> None:
    """Raises a ValueError that lists the differences if a folder has a run of another config."""
    if not (folder / "config.yaml").is_file():
        return
    own: Any = Run(folder).config(type(config))
    if replace(own, preset=config.preset) != config:  # a preset may have two names
        resumed_run(folder, _TRAINERS[type(config)].fit(config), type(config))


def with_train(config: RunConfig, **fields: Any) -> RunConfig:
    """A config with some fields of its `train` section changed."""
    return replace(config, train=replace(config.train, **fields))  # type: ignore[arg-type]


def shorten(config: RunConfig, scale: float) -> RunConfig:
    """A config with every length of its schedule multiplied by a factor; none drops from 1 or more to 0.

    Example:
        >>> shorten(preset("cifar10/cWC SN + Proj. Discr. drop"), 0.1).train.drop_at
        3000
        >>> shorten(classifier_preset("cifar10/ResNet-32 WC"), 0.1).train.drops
        (3200, 4800)
    """
    if not 0 < scale <= 1:
        raise ValueError(f"--scale must be more than 0 and at most 1, got {scale}")
    lengths = {name: getattr(config.train, name) for name in _TRAINERS[type(config)].lengths}
    return with_train(config, **{name: _shortened(value, scale) for name, value in lengths.items() if value})


def _shortened(length: int | tuple[int, ...], scale: float) -> int | tuple[int, ...]:
    """Lengths that become equal are merged into one."""
    if isinstance(length, tuple):
        return tuple(dict.fromkeys(max(1, round(each * scale)) for each in length))
    return max(1, round(length * scale))
