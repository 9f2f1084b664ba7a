"""Read the folders of runs, complete or not, damaged or not."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from wcgan.core.images import png_size
from wcgan.core.reading import open_inside, parse_json, parse_yaml, read_bytes
from wcgan.data.sources import SOURCES
from wcgan.evaluate.protocol import UNUSUAL
from wcgan.norm import VARIANTS
from wcgan.report.numbers import is_number
from wcgan.runs.checkpoint import MOST_FACTS
from wcgan.runs.folder import read_metrics
from wcgan.runs.sampler import GRID_ROWS
from wcgan.runs.status import RunStatus, lines_to_iteration, metrics_to_status

Record = dict[str, Any]
"""A line of `metrics.jsonl`; its protocol, if it has one, is a mapping."""
_MOST_PICTURE = 1 << 26  # bytes
_HASH = re.compile(r"^([0-9a-f]{10})[0-9a-f]{30}(?![0-9a-f])")
# Keys of a protocol that may differ between comparable scores.
_NO_PROTOCOL = {"std", "seed", "neighbours"}
_DEPENDS_ON = {"IS": ("splits", "scored_by_IS"), "KID": ("reference", "generated", "kid_subset_size")}


@dataclass(frozen=True)
class Picture:
    """A grid of samples."""

    iteration: int
    png: bytes
    width: int
    height: int


@dataclass(frozen=True)
class RunRecord:
    """The contents of the folder of a run."""

    folder: Path
    name: str
    """Name of the folder, with as many parents as it takes to tell the runs apart."""
    config: Record
    """`config.yaml`; empty if it is missing or unreadable."""
    config_text: str
    """The text of `config.yaml`."""
    training: tuple[Record, ...]
    """Records of kind train, by iteration."""
    evaluations: tuple[Record, ...]
    """Records of kind evaluation: one per iteration and protocol."""
    conditioning: tuple[Record, ...]
    """Records of kind conditioning."""
    events: tuple[Record, ...]
    """Records of kind event, in order of time."""
    unreadable: int
    """Number of lines that are not records, such as the last one of a run that was killed."""
    problem: str
    """Why `metrics.jsonl` could not be read at all; empty if it was."""
    picture: Picture | None
    """The last grid of samples, if any."""
    class_names: tuple[str, ...]
    """Names of the classes, from its checkpoints; empty if unknown."""

    def setting(self, *path: str) -> Any:
        """A value in the config, or None: `run.setting("generator", "normalization")`."""
        value: Any = self.config
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    @property
    def variant(self) -> str | None:
        """Name of the normalisation in the paper; for a classifier, after the name of its network."""
        if self.classifies:
            depth, name, where = (self.setting("classifier", key) for key in ("depth", "normalization", "where"))
            return f"ResNet-{depth} {name}{' in all layers' if where == 'all' else ''}"
        name = self.setting("generator", "normalization")
        return None if name is None else str(name)

    @property
    def classifies(self) -> bool:
        """Whether the run trains a classifier, not a GAN."""
        return "classifier" in self.config

    @property
    def conditional(self) -> bool:
        """Whether the generator is conditional: its grids then have one class per row."""
        return self.variant in VARIANTS and VARIANTS[str(self.variant)].conditional

    @property
    def row_names(self) -> list[str]:
        """Names of the rows of its grids, in order: of a class or, if unknown, its number; empty without classes."""
        classes = self.setting("generator", "classes")
        if not self.conditional or type(classes) is not int or classes < 1:
            return []
        names = dict(enumerate(self.class_names))
        return [names.get(label, str(label)) for label in range(min(classes, GRID_ROWS))]

    @property
    def dataset(self) -> str | None:
        """Name of the dataset; for a folder of images, without its path."""
        name = self.setting("data", "name")
        return None if name is None else Path(str(name)).name or str(name)

    @property
    def seed(self) -> Any:
        """The seed; None if the config has none."""
        return self.setting("train", "seed")

    @property
    def iteration(self) -> int:
        """How far it got."""
        return lines_to_iteration((*self.training, *self.evaluations, *self.events))

    @property
    def seconds(self) -> float | None:
        """Training time, evaluations included."""
        return self.training[-1].get("seconds") if self.training else None

    @property
    def epochs(self) -> list[float]:
        """Seconds per pass over the training images, from each log line with a rate.

        Lines whose rate includes an evaluation are left out. Empty if the number of images is unknown, as for a folder.
        """
        source, batch = SOURCES.get(str(self.setting("data", "name"))), self.setting("train", "batch")
        evaluated = [record["iteration"] for record in self.evaluations]
        rates = [
            record.get("iterations_per_second")
            for before, record in pairwise(self.training)
            if not any(before["iteration"] <= at < record["iteration"] for at in evaluated)
        ]
        if source is None or not is_number(batch) or batch <= 0:
            return []
        return [source.counts["train"] / batch / rate for rate in rates if is_number(rate) and rate > 0]

    @property
    def machines(self) -> list[str]:
        """Hardware of the run, at its start and each time it was resumed."""
        found = [(event.get("processes"), event["device"]) for event in self.events if event.get("device")]
        return list(dict.fromkeys(f"{n} \u00d7 {name}" if n not in (None, 1) else str(name) for n, name in found))

    @property
    def commits(self) -> list[str]:
        """Commits of the code that ran, if recorded: the first ten digits, as git shortens them."""
        found = (str(event["commit"]) for event in self.events if event.get("commit"))
        return list(dict.fromkeys(_HASH.sub(r"\1", commit) for commit in found))

    @property
    def planned(self) -> int | None:
        """Number of iterations in the config."""
        iterations = self.setting("train", "iterations")
        return iterations if isinstance(iterations, int) else None

    @property
    def status(self) -> RunStatus:
        """From its metrics."""
        return metrics_to_status((*self.training, *self.evaluations, *self.events), self.planned)


def protocol_key(evaluation: Record) -> str:
    """Equal for evaluations under the same protocol, whatever their seeds."""
    protocol = evaluation.get("protocol", {})
    return json.dumps({key: value for key, value in protocol.items() if key not in _NO_PROTOCOL}, sort_keys=True)


def score_key(evaluation: Record, name: str) -> str:
    """Equal for evaluations whose values of one score are comparable, whatever else they measured.

    Example:
        >>> on_the_way = {"protocol": {"generated": 10_000, "splits": 10, "scored_by_IS": 10_000}}
        >>> at_the_end = {"protocol": {"generated": 10_000, "splits": 10, "scored_by_IS": 50_000}}
        >>> [score_key(on_the_way, name) == score_key(at_the_end, name) for name in ("FID", "IS")]
        [True, False]
    """
    protocol = evaluation.get("protocol", {})
    network = "classifier" if "(classifier)" in name else "inception"
    own = _DEPENDS_ON.get(name.partition("(")[0], ("reference", "generated"))
    return json.dumps({key: protocol.get(key) for key in (network, "labels", *UNUSUAL, *own)}, sort_keys=True)


def read_runs(folders: list[Path]) -> list[RunRecord]:
    """Read the folders of runs, in order.

    Raises:
        ValueError: for no folders, or a folder without a run.
    """
    if not folders:
        raise ValueError("a report needs at least one run: name the folder of one")
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder: name the folder of a run")
        if not any((folder / file).is_file() for file in ("config.yaml", "metrics.jsonl")):
            raise ValueError(
                f"{folder} is not the folder of a run: it has neither config.yaml nor metrics.jsonl; "
                "`wcgan train` and `wcgan classify` make one"
            )
    return [_read_run(folder, name) for folder, name in zip(folders, _names(folders), strict=True)]


def _read_run(folder: Path, name: str) -> RunRecord:
    config_text, config = _read_config(folder / "config.yaml")
    problem = ""
    try:
        records, damaged = read_metrics(folder / "metrics.jsonl")
    except (OSError, ValueError) as error:
        records, damaged, problem = [], [], f"the metrics of {name} could not be read: {error}"
    return RunRecord(
        folder=folder,
        name=name,
        config=config,
        config_text=config_text,
        training=_by_iteration(records, "train"),
        evaluations=_by_iteration(records, "evaluation"),
        conditioning=_by_iteration(records, "conditioning"),
        events=tuple(record for record in records if record["kind"] == "event"),
        unreadable=len(damaged),
        problem=problem,
        picture=_last_picture(folder / "samples"),
        class_names=_class_names(folder / "checkpoints"),
    )


def _read_config(file: Path) -> tuple[str, Record]:
    try:
        written = read_bytes(file).decode("utf-8", "replace")
    except (OSError, ValueError):
        return "", {}
    try:
        config = parse_yaml(written)
    except ValueError:
        return written, {}
    return written, config if isinstance(config, dict) else {}


def _by_iteration(records: list[Record], kind: str) -> tuple[Record, ...]:
    """The last record of each iteration and protocol: a resumed run writes some of them twice.

    They are in the order of the iterations; those of one iteration are in the order in which they were written.
    """
    own = [record for record in records if record["kind"] == kind]
    last = {(record["iteration"], protocol_key(record)): place for place, record in enumerate(own)}
    return tuple(own[place] for place in sorted(last.values(), key=lambda place: (own[place]["iteration"], place)))


def _last_picture(folder: Path) -> Picture | None:
    """The latest grid that can be read."""
    found = [file for file in folder.glob("*.png") if file.stem.isdecimal()]
    pictures = map(read_picture, sorted(found, key=lambda file: int(file.stem), reverse=True))
    return next((picture for picture in pictures if picture is not None), None)


def _class_names(folder: Path) -> tuple[str, ...]:
    """The names of the classes beside the first checkpoint that can be read."""
    for file in sorted(folder.glob("*.json"), reverse=True):
        try:
            with open_inside(folder, file.name, most=MOST_FACTS) as opened:
                facts = parse_json(opened.read())
        except (OSError, ValueError):
            continue
        names = facts.get("classes") if isinstance(facts, dict) else None
        if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return tuple(names)
    return ()


def read_picture(file: Path) -> Picture | None:
    """A grid whose file name is its iteration; None if the file is damaged."""
    try:
        with open_inside(file.parent, file.name, most=_MOST_PICTURE) as opened:  # the picture becomes part of the page
            png = opened.read()
        size = png_size(png)
    except (OSError, ValueError):
        return None
    return Picture(int(file.stem), png, *size) if b"IEND" in png[-12:] else None


def _names(folders: list[Path]) -> list[str]:
    """Names of the folders, with as many parents as it takes to tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return ["/".join(part) for part in parts]
