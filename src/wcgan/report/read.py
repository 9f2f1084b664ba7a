"""From the folder of a run to what the page shows of it, whatever is missing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from wcgan.core.reading import open_inside, parse_yaml, read_bytes
from wcgan.data.sources import SOURCES
from wcgan.norm import VARIANTS
from wcgan.runs.folder import read_metrics
from wcgan.runs.status import RunStatus, lines_to_iteration, metrics_to_status

Record = dict[str, Any]
# Measured with the scores, or free to differ between figures that are compared.
_MOST_PICTURE = 1 << 26  # bytes
_NO_PROTOCOL = {"std", "seed", "neighbours"}


@dataclass(frozen=True)
class Picture:
    """A grid of samples."""

    iteration: int
    png: bytes
    width: int
    height: int


@dataclass(frozen=True)
class RunRecord:
    """What the folder of a run says."""

    folder: Path
    name: str
    """The folder's name, with as much of the path before it as tells it from the others."""
    config: Record
    """`config.yaml`; empty where it is missing or not readable."""
    config_text: str
    """The same, as it is written."""
    training: tuple[Record, ...]
    """Lines of `metrics.jsonl` of kind train, by iteration."""
    evaluations: tuple[Record, ...]
    """Those of kind evaluation: one for each iteration and protocol."""
    conditioning: tuple[Record, ...]
    """Those of kind conditioning."""
    events: tuple[Record, ...]
    """Those of kind event, in the order in which they happened."""
    unreadable: int
    """Lines that are no records: the last one, where a run was killed."""
    picture: Picture | None
    """The last grid of samples."""

    def setting(self, *path: str) -> Any:
        """A value of the config, or None: `run.setting("generator", "normalization")`."""
        value: Any = self.config
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    @property
    def variant(self) -> str | None:
        """The normalisation's name in the paper; of a classifier, after that of its network."""
        if self.classifies:
            depth, name, where = (self.setting("classifier", key) for key in ("depth", "normalization", "where"))
            return f"ResNet-{depth} {name}{' in all layers' if where == 'all' else ''}"
        name = self.setting("generator", "normalization")
        return None if name is None else str(name)

    @property
    def classifies(self) -> bool:
        """Whether it is the run of a classifier, in place of a GAN."""
        return "classifier" in self.config

    @property
    def conditional(self) -> bool:
        """Whether the generator is told a class: its samples then have one class a row."""
        return self.variant in VARIANTS and VARIANTS[str(self.variant)].conditional

    @property
    def dataset(self) -> str | None:
        """The dataset's name; of a folder of images, its own name without the path."""
        name = self.setting("data", "name")
        return None if name is None else Path(str(name)).name or str(name)

    @property
    def seed(self) -> Any:
        """Of its randomness; None where the config does not say."""
        return self.setting("train", "seed")

    @property
    def iteration(self) -> int:
        """How far it got."""
        return lines_to_iteration((*self.training, *self.evaluations, *self.events))

    @property
    def seconds(self) -> float | None:
        """How long it has trained, evaluations on the way included."""
        return self.training[-1].get("seconds") if self.training else None

    @property
    def epochs(self) -> list[float]:
        """Seconds that a pass over the training images would take, at each line that says how fast it went.

        A line that an evaluation came before says something else. Empty where the number of images is not known, as
        that of a folder's.
        """
        source, batch = SOURCES.get(str(self.setting("data", "name"))), self.setting("train", "batch")
        evaluated = [record["iteration"] for record in self.evaluations]
        rates = [
            record.get("iterations_per_second")
            for before, record in pairwise(self.training)
            if not any(before["iteration"] <= at < record["iteration"] for at in evaluated)
        ]
        return [source.counts["train"] / batch / rate for rate in rates if source and batch and rate]

    @property
    def machines(self) -> list[str]:
        """What it ran on, first and after each time it was resumed."""
        found = [(event.get("processes"), event["device"]) for event in self.events if event.get("device")]
        return list(dict.fromkeys(f"{n} \u00d7 {name}" if n not in (None, 1) else str(name) for n, name in found))

    @property
    def commits(self) -> list[str]:
        """Of the code that ran; none where no event says."""
        return list(dict.fromkeys(str(event["commit"]) for event in self.events if event.get("commit")))

    @property
    def planned(self) -> int | None:
        """How far it is to go."""
        iterations = self.setting("train", "iterations")
        return iterations if isinstance(iterations, int) else None

    @property
    def status(self) -> RunStatus:
        """From its metrics."""
        return metrics_to_status((*self.training, *self.evaluations, *self.events), self.planned)


def protocol_key(evaluation: Record) -> str:
    """The same for evaluations that can be compared: all of the protocol but its seed and what is always the same."""
    protocol = evaluation.get("protocol")
    if isinstance(protocol, dict):
        protocol = {key: value for key, value in protocol.items() if key not in _NO_PROTOCOL}
    return json.dumps(protocol, sort_keys=True)


def score_key(evaluation: Record, name: str) -> str:
    """The same for evaluations whose values of one score can be compared, whatever else was measured with it.

    Example:
        >>> on_the_way = {"protocol": {"generated": 10_000, "splits": 10, "scored_by_IS": 10_000}}
        >>> at_the_end = {"protocol": {"generated": 10_000, "splits": 10, "scored_by_IS": 50_000}}
        >>> [score_key(on_the_way, name) == score_key(at_the_end, name) for name in ("FID", "IS")]
        [True, False]
    """
    protocol = evaluation.get("protocol")
    if not isinstance(protocol, dict):
        return json.dumps(protocol)
    network = "classifier" if "(classifier)" in name else "inception"
    own = ("splits", "scored_by_IS") if name.startswith("IS") else ("reference", "generated", "kid_subset_size")
    return json.dumps({key: protocol.get(key) for key in (network, "labels", *own)}, sort_keys=True)


def read_runs(folders: list[Path]) -> list[RunRecord]:
    """What the folders say, in their order.

    Raises:
        ValueError: for no folder at all, or one that is not a run's.
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
    try:
        records, damaged = read_metrics(folder / "metrics.jsonl")
    except (OSError, ValueError):
        records, damaged = [], []
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
        picture=_last_picture(folder / "samples"),
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
    """In order, the last record of each iteration and protocol: a resumed run writes some of them twice."""
    chosen = {(record["iteration"], protocol_key(record)): record for record in records if record["kind"] == kind}
    return tuple(sorted(chosen.values(), key=lambda record: record["iteration"]))


def _last_picture(folder: Path) -> Picture | None:
    """The readable grid with the highest iteration."""
    found = [file for file in folder.glob("*.png") if file.stem.isdecimal()]
    pictures = map(read_picture, sorted(found, key=lambda file: int(file.stem), reverse=True))
    return next((picture for picture in pictures if picture is not None), None)


def read_picture(file: Path) -> Picture | None:
    """A grid whose name is its iteration; None where it is not whole."""
    try:
        with open_inside(file.parent, file.name, most=_MOST_PICTURE) as opened:  # it becomes a part of the page
            png = opened.read()
    except (OSError, ValueError):
        return None
    # A PNG opens with 8 fixed bytes, then the header chunk: length, "IHDR", width, height.
    if png[:8] != b"\x89PNG\r\n\x1a\n" or png[12:16] != b"IHDR" or b"IEND" not in png[-12:]:
        return None
    width, height = (int.from_bytes(png[start : start + 4], "big") for start in (16, 20))
    return Picture(int(file.stem), png, width, height)


def _names(folders: list[Path]) -> list[str]:
    """Each folder's last part, with as many parts before it as it takes to tell them all apart."""
    parts = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return ["/".join(part) for part in parts]
