"""From the folder of a run to what the page shows of it, whatever is missing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wcgan.norm import VARIANTS

try:
    import yaml
except ImportError as error:
    raise ImportError("wcgan.report needs PyYAML: pip install 'wcgan[train]'") from error

Record = dict[str, Any]


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

    name: str
    """The folder's name, with as much of the path before it as tells it from the others."""
    config: Record
    """`config.yaml`; empty where it is missing or not readable."""
    config_text: str
    """The same, as it is written."""
    training: tuple[Record, ...]
    """Lines of `metrics.jsonl` of kind train, by iteration."""
    evaluations: tuple[Record, ...]
    """Those of kind evaluation."""
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
        """The normalisation's name in the paper."""
        name = self.setting("generator", "normalization")
        return None if name is None else str(name)

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
    def iteration(self) -> int:
        """How far it got."""
        return max((record["iteration"] for record in (*self.training, *self.evaluations, *self.events)), default=0)

    @property
    def planned(self) -> int | None:
        """How far it is to go."""
        iterations = self.setting("train", "iterations")
        return iterations if isinstance(iterations, int) else None

    @property
    def status(self) -> str:
        """finished, diverged, stopped (by a signal), unfinished, or not started."""
        last = self.events[-1].get("what") if self.events else None
        if last in ("diverged", "stopped"):
            return str(last)
        if last == "finished" or (self.planned is not None and self.iteration >= self.planned):
            return "finished"
        return "unfinished" if self.iteration or self.events else "not started"


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
                "`wcgan train --out FOLDER` makes one"
            )
    return [_read_run(folder, name) for folder, name in zip(folders, _names(folders), strict=True)]


def _read_run(folder: Path, name: str) -> RunRecord:
    config_text, config = _read_config(folder / "config.yaml")
    records, unreadable = _read_records(folder / "metrics.jsonl")
    return RunRecord(
        name=name,
        config=config,
        config_text=config_text,
        training=_by_iteration(records, "train"),
        evaluations=_by_iteration(records, "evaluation"),
        events=tuple(record for record in records if record["kind"] == "event"),
        unreadable=unreadable,
        picture=_last_picture(folder / "samples"),
    )


def _read_config(file: Path) -> tuple[str, Record]:
    try:
        written = file.read_text(encoding="utf-8", errors="replace")
        config = yaml.safe_load(written)
    except OSError:
        return "", {}
    except yaml.YAMLError:
        return written, {}
    return written, config if isinstance(config, dict) else {}


def _read_records(file: Path) -> tuple[list[Record], int]:
    """The lines that are records, and how many are not."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return [], 0
    records, unreadable = [], 0
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict) and "kind" in record and type(record.get("iteration")) is int:
            records.append(record)
        else:
            unreadable += bool(line.strip())
    return records, unreadable


def _by_iteration(records: list[Record], kind: str) -> tuple[Record, ...]:
    """In order, the last record of each iteration: a resumed run writes some of them twice."""
    chosen = {record["iteration"]: record for record in records if record["kind"] == kind}
    return tuple(chosen[iteration] for iteration in sorted(chosen))


def _last_picture(folder: Path) -> Picture | None:
    """The readable grid with the highest iteration."""
    found = [file for file in folder.glob("*.png") if file.stem.isdecimal()]
    for file in sorted(found, key=lambda file: int(file.stem), reverse=True):
        try:
            png = file.read_bytes()
        except OSError:
            continue
        # A PNG opens with 8 fixed bytes, then the header chunk: length, "IHDR", width, height.
        if png[:8] == b"\x89PNG\r\n\x1a\n" and png[12:16] == b"IHDR" and b"IEND" in png[-12:]:
            width, height = (int.from_bytes(png[start : start + 4], "big") for start in (16, 20))
            return Picture(int(file.stem), png, width, height)
    return None


def _names(folders: list[Path]) -> list[str]:
    """Each folder's last part, with as many parts before it as it takes to tell them all apart."""
    parts = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(set(parts)):
            return names
    return ["/".join(part) for part in parts]
