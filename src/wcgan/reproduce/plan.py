"""Which runs a table needs: its rows and seeds, their configs, and the folder of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from wcgan.core.config import config_to_yaml, override
from wcgan.core.files import write_atomically
from wcgan.core.reading import parse_json, read_bytes
from wcgan.norm import VARIANTS
from wcgan.paper.classifier_presets import CLASSIFIERS
from wcgan.paper.presets import classifier_preset, preset, preset_to_folder
from wcgan.paper.tables import TABLES, Row, Table, figures_of
from wcgan.runs.config import ClassifyConfig, Config
from wcgan.runs.folder import Run, resumed_run
from wcgan.train.loop import Outcome
from wcgan.train.start import fit_config, load_data, start
from wcgan.train.start_classifier import fit_classifier, load_splits, start_classifiers

_STABILITY = ("WC", "WzcaC", "WzcaC-decomposition")
_CONVERGENCE = ("GP + ResNet", "WC GP + ResNet", "SN + ResNet", "WC SN + ResNet")
EXPERIMENTS: dict[str, Table] = {
    **TABLES,
    "convergence": Table(
        "fig.cifar-convergence",
        "IS and FID 10k every 1,000 iterations",
        tuple(Row(f"cifar10/{name}") for name in _CONVERGENCE),
        number=2,
        evaluate_every=1000,
    ),
    "stability": Table(
        "fig:zca-vs-cholesky",
        "Cholesky against ZCA with either gradient",
        tuple(Row(f"cifar10/{name}") for name in _STABILITY),
        number=4,
        evaluate_every=1000,
        seeds=3,
    ),
    "conditioning": Table(
        "",
        "The Jacobian with BN, WC and its ablation",
        (Row("cifar10/SN + ResNet"), *TABLES["ablation-WC"].rows),
        conditioning_every=1000,
    ),
    "filters": Table(
        "",
        "cWC with 256 filters in G and 128 in D",
        tuple(
            Row(f"cifar10/{name}", figures_of(f"cifar10/{name}"))
            for name in ("SN + Proj. Discr.", "cWC SN + Proj. Discr. wide", "cWC SN + Proj. Discr.")
        ),
    ),
    "digits-stability": Table(
        "",
        "Stability, as figure 4, on the digits",
        tuple(Row(f"digits/{name}") for name in _STABILITY),
        evaluate_every=100,
        seeds=3,
    ),
    "digits": Table(
        "",
        "Every variant on the embedded digits",
        tuple(Row(f"digits/{name}") for name in VARIANTS),
        evaluate_every=0,
    ),
}


@dataclass(frozen=True)
class PlannedRun:
    """A run that a table needs."""

    row: Row
    seed: int
    config: RunConfig
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.row.preset}, seed {self.seed}"


@dataclass(frozen=True)
class Reproduction:
    """A table to be made: the runs that are asked for, and what about them is not the paper's."""

    key: str
    """Its name in `EXPERIMENTS`."""
    runs: tuple[PlannedRun, ...]
    """One seed of every row, then the next."""
    out: Path
    """Holds a folder for each table."""
    scale: float = 1.0
    """By which every schedule is shortened."""
    settings: tuple[str, ...] = ()
    """`section.field=value`, in every run."""

    @property
    def table(self) -> Table:
        """With the rows that are asked for, and no others."""
        return with_rows(EXPERIMENTS[self.key], {run.row.preset for run in self.runs})

    @property
    def folder(self) -> Path:
        return self.out / self.key


def find_table(name: str) -> str:
    """A key of `EXPERIMENTS` by itself or by its place in the paper; case does not matter.

    Example:
        >>> find_table("table3"), find_table("Figure 2"), find_table("digits")
        ('ablation-WC', 'convergence', 'digits')
    """
    names = {key.lower(): key for key in EXPERIMENTS}
    names |= {table.place.lower().replace(" ", ""): key for key, table in EXPERIMENTS.items() if table.place}
    found = names.get(name.lower().replace(" ", ""))
    if found is None:
        near = ", ".join(get_close_matches(name.lower(), names, cutoff=0))
        raise ValueError(f"unknown table {name!r}; `wcgan reproduce --list` names them; the nearest are {near}")
    return found


def with_rows(table: Table, presets: Collection[str]) -> Table:
    """A table with some of its rows; quoted ones stand in a whole table only."""
    rows = tuple(row for row in table.rows if row.preset in presets)
    return table if len(rows) == len(table.rows) else replace(table, rows=rows, quoted=())


def choose_rows(key: str, wanted: Sequence[str] = ()) -> tuple[Row, ...]:
    """The rows of a table that have these names: a preset's, its part after the slash, or a dataset's; all for none."""
    rows, names = EXPERIMENTS[key].rows, [part.strip() for text in wanted for part in text.split(",") if part.strip()]
    known = {name for row in rows for name in (row.preset, row.preset.partition("/")[2], row.dataset)}
    for name in names:
        if name not in known:
            near = ", ".join(get_close_matches(name, sorted(known), cutoff=0))
            raise ValueError(f"{key} has no row {name!r}; the nearest are {near}")
    return tuple(
        row for row in rows if not names or {row.preset, row.preset.partition("/")[2], row.dataset} & set(names)
    )


def default_folder(scale: float) -> Path:
    """Shortened runs and full ones lie apart.

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
    """The runs of a table.

    Args:
        name: a key of `EXPERIMENTS`, or a place in the paper such as table3.
        rows: those to make, as `choose_rows` takes them; none for all.
        seeds: 3 for the seeds 0, 1 and 2; None for as many as the table has.
        scale: by which every schedule is shortened.
        settings: `section.field=value`, set in every run after it is shortened.
        out: holds a folder for each table; None for one whose name says the scale.

    Raises:
        ValueError: for a table, row or setting that is not there, or a folder that holds runs of another config.
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
        home, origin = _homes()[key, row.preset]
        config = override(shorten(_unscaled(home, origin), scale), settings)
        for seed in range(count):
            seeded = with_train(config, seed=seed)
            runs.append(PlannedRun(row, seed, seeded, out / home / preset_to_folder(origin) / f"seed-{seed}"))
    plan = Reproduction(key, tuple(sorted(runs, key=lambda run: run.seed)), out, scale, tuple(settings))
    _check_folder(plan)
    return plan


def folders_of(key: str, out: Path) -> dict[str, list[Path]]:
    """A row's preset -> the folders of its runs that are there, by seed."""
    found = {}
    for row in EXPERIMENTS[key].rows:
        home, origin = _homes()[key, row.preset]
        folders = (out / home / preset_to_folder(origin)).glob("seed-*")
        seeds = {int(f.name.removeprefix("seed-")): f for f in folders if f.name.removeprefix("seed-").isdigit()}
        found[row.preset] = [seeds[n] for n in sorted(seeds) if (seeds[n] / "config.yaml").is_file()]
    return found


def write_options(plan: Reproduction) -> None:
    """Beside the runs: what about them is not the paper's."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    write_atomically(_options(plan.folder), json.dumps({"scale": plan.scale, "set": plan.settings}).encode() + b"\n")


def read_options(folder: Path) -> tuple[float, tuple[str, ...]]:
    """The scale and the settings of a table's runs; those of the paper where nothing is written."""
    if not _options(folder).is_file():
        return 1.0, ()
    try:
        options = parse_json(read_bytes(_options(folder)))
        return float(options["scale"]), tuple(map(str, options["set"]))
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{_options(folder)} is damaged: delete it, and give --scale and --set again") from None


def _options(folder: Path) -> Path:
    return folder / "options.json"


@cache
def _homes() -> dict[tuple[str, str], tuple[str, str]]:
    """Table and preset -> the first table and preset with that very config: a run that two tables have is one run."""
    first: dict[str, tuple[str, str]] = {}
    homes = {}
    for key, table in EXPERIMENTS.items():
        for row in table.rows:
            text = config_to_yaml(replace(_unscaled(key, row.preset), preset=None))
            homes[key, row.preset] = first.setdefault(text, (key, row.preset))
    return homes


def _unscaled(key: str, name: str) -> RunConfig:
    table = EXPERIMENTS[key]
    config = with_train(find_preset(name), evaluate_every=table.evaluate_every)
    return config if table.classifiers else with_train(config, conditioning_every=table.conditioning_every)


def _check_folder(plan: Reproduction) -> None:
    """Raises a ValueError where runs are there that have another config than the plan."""
    if _options(plan.folder).is_file():
        scale, settings = read_options(plan.folder)
        if (scale, settings) != (plan.scale, plan.settings):
            sets = "".join(f" --set {setting}" for setting in settings)
            raise ValueError(f"{plan.folder} was begun with --scale {scale:g}{sets}: say that, or name another --out")
    for run in plan.runs:
        check_run(run.config, run.folder)


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
