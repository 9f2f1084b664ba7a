"""The folder of a run: its config, the one reader and writer of `metrics.jsonl`, and the code that made it.

Nothing in the folder runs code when it is read.
"""

import json
import logging
import os
import re
import subprocess
import zlib
from collections.abc import Collection
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path
from shlex import quote
from typing import Any, overload

import wcgan
from wcgan.core.config import AnyConfig, config_to_dict, config_to_yaml
from wcgan.core.files import owned, remove_leftovers, require_new, write_atomically
from wcgan.core.reading import parse_json, read_bytes
from wcgan.core.terminal import shortened
from wcgan.runs.config import Config, read_config

_log = logging.getLogger(__name__)
LOCK = "run.lock"
MOST_METRICS = 1 << 30  # bytes of metrics.jsonl
MOST_DIFFERENCES = 10  # in a message
MOST_ITERATIONS = 1 << 53  # from here on, floats have gaps
Line = dict[str, Any]
"""A line of `metrics.jsonl`: its kind, its iteration, and what was measured."""
_CHECKED = re.compile(rb'\{"crc": "([0-9a-f]{8})", (.*)')


class Run:
    """A run's folder: `config.yaml`, `metrics.jsonl`, `samples/`, `checkpoints/`, TensorBoard events, `report.html`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def samples(self) -> Path:
        return self.folder / "samples"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @overload
    def config(self) -> Config: ...

    @overload
    def config(self, kind: type[AnyConfig]) -> AnyConfig: ...

    def config(self, kind: type = Config) -> Any:
        if not self.folder.is_dir():
            raise ValueError(f"{self.folder} is not there; name the folder of a run")
        if not (self.folder / "config.yaml").is_file():
            if seeds := sorted(self.folder.glob("seed-*/config.yaml")):
                raise ValueError(f"{self.folder} holds the runs of several seeds: name one, such as {seeds[0].parent}")
            raise ValueError(f"{self.folder} is not the folder of a run: it has no config.yaml")
        return read_config(self.folder / "config.yaml", kind)

    def owned(self) -> AbstractContextManager[None]:
        """Keeps other processes from training in this folder.

        Raises:
            ValueError: that names the process which has it.
        """
        return owned(self.folder / LOCK, str(self.folder))

    def record(self, kind: str, iteration: int, **values: Any) -> None:
        """Appends a line to `metrics.jsonl`."""
        with self.metrics.open("ab+") as file:
            torn = file.seek(0, os.SEEK_END) > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n"
            # A process that was killed may have left half a line: the next one must not become a part of it.
            file.write(b"\n" * torn + line_to_bytes({"kind": kind, "iteration": iteration, **values}))

    def event(self, iteration: int, what: str, **values: Any) -> None:
        """Appends a line that says what happened, and when."""
        time = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.record("event", iteration, what=what, time=time, **values)

    def lines(self) -> list[Line]:
        """The lines of `metrics.jsonl` that can be read."""
        return read_metrics(self.metrics)[0]

    def forget_after(self, iteration: int) -> None:
        """Drops measurements past a checkpoint, which a resumed run will make again; events stay.

        Lines that cannot be read are moved to `metrics.damaged.jsonl`.
        """
        lines, damaged = read_metrics(self.metrics)
        if damaged:
            aside = self.metrics.with_suffix(".damaged.jsonl")
            with aside.open("ab") as file:
                file.write(b"".join(line + b"\n" for line in damaged))
                file.flush()
                os.fsync(file.fileno())
            _log.warning("%s: moved what cannot be read (lines: %d) to %s", self.metrics, len(damaged), aside.name)
        kept = [line for line in lines if line["kind"] == "event" or line["iteration"] <= iteration]
        if damaged or len(kept) < len(lines):
            write_atomically(self.metrics, b"".join(map(line_to_bytes, kept)))


# metrics.jsonl


def line_to_bytes(line: Line) -> bytes:
    """A line in JSON whose first field is the CRC-32 of the line without it: a flipped bit does not go unnoticed."""
    text = json.dumps(line).encode()
    return b'{"crc": "%08x", ' % zlib.crc32(text) + text[1:] + b"\n"


def read_metrics(file: Path) -> tuple[list[Line], list[bytes]]:
    """The lines of `metrics.jsonl`, and what could not be read; both empty where there is no such file.

    Raises:
        ValueError: that names the file, if it is too large or no regular file.
        OSError: if it cannot be opened.
    """
    try:
        content = read_bytes(file, MOST_METRICS)
    except FileNotFoundError:
        return [], []
    lines, damaged = [], []
    for text in content.split(b"\n"):
        line = _bytes_to_line(text.rstrip(b"\r"))
        if line is not None:
            lines.append(line)
        elif text.strip():
            damaged.append(text)
    return lines, damaged


def _bytes_to_line(text: bytes) -> Line | None:
    """A line whose checksum, if it has one, is right, and whose fields have the types that readers rely on."""
    checked = _CHECKED.fullmatch(text)
    if checked is not None:
        text = b"{" + checked[2]
        if zlib.crc32(text) != int(checked[1], 16):
            return None
    try:
        line = parse_json(text.decode("utf-8"))
    except ValueError:
        return None
    if not isinstance(line, dict) or not text.startswith((b'{"kind"', b'{"iteration"')):  # a damaged checksum, perhaps
        return None
    kind, iteration, protocol = line.get("kind"), line.get("iteration"), line.get("protocol", {})
    if type(iteration) is not int or not 0 <= iteration < MOST_ITERATIONS or not isinstance(kind, str):
        return None
    wrong = kind == "event" and not isinstance(line.get("what"), str)
    return None if wrong or not isinstance(protocol, dict) else line


# Beginning and resuming


def is_begun(folder: Path) -> bool:
    """Whether a folder has anything in it but what a process that was killed as it began may have left."""
    return folder.is_dir() and any(
        path.name != LOCK and not (path.name.startswith(".config.yaml.") and path.suffix == ".tmp")
        for path in folder.iterdir()
    )


def seed_folders(folder: Path) -> list[Path]:
    """The sub-folders `seed-N` of a folder, in order of the seeds."""
    numbers = {path: path.name.removeprefix("seed-") for path in folder.glob("seed-*") if path.is_dir()}
    seeds = {int(number): path for path, number in numbers.items() if number.isascii() and number.isdigit()}
    return [seeds[seed] for seed in sorted(seeds)]


RESUME_OR_MOVE = "name another folder (--out), or resume the run (--resume)"


def new_run(folder: Path, config: Any) -> Run:
    """Makes a run's folder; one that is not empty is never written to.

    Raises:
        ValueError: for a folder that is not empty, or that another process uses.
    """
    if not folder.is_dir():
        require_new(folder, RESUME_OR_MOVE)
        folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder)
    if not is_begun(folder):
        with run.owned():
            if not is_begun(folder):
                remove_leftovers(folder, "config.yaml")
                write_atomically(folder / "config.yaml", config_to_yaml(config).encode())
                return run
    raise ValueError(f"{folder} exists already: {RESUME_OR_MOVE}")


@overload
def resumed_run(folder: Path, config: Config | None = None) -> tuple[Run, Config]: ...


@overload
def resumed_run(folder: Path, config: AnyConfig | None, kind: type[AnyConfig]) -> tuple[Run, AnyConfig]: ...


def resumed_run(folder: Path, config: Any = None, kind: type = Config) -> tuple[Run, Any]:
    """A run to resume, and its own config; a `config` that differs from it is refused."""
    run = Run(folder)
    own: Any = run.config(kind)
    if config is not None:
        refuse_changes(run, own, config)
    return run, own


def refuse_changes(run: Run, own: Any, wanted: Any, changeable: Collection[str] = ()) -> dict[str, tuple[Any, Any]]:
    """What differs between a run's own config and the one it is to go on with: field -> old and new value.

    Raises:
        ValueError: that names the differences outside `changeable`.
    """
    found = config_differences(config_to_dict(own), config_to_dict(wanted))
    if fixed := {name: values for name, values in found.items() if name not in changeable}:
        gan = changeable and isinstance(own, Config)  # `wcgan train`, and not another command
        start = f" (--from {quote(str(run.folder))} starts it with these weights)" if gan else ""
        may = "a resumed run may change its length, how often it writes and what it runs on; for the rest, "
        raise ValueError(
            f"{run.folder} was begun with another config ({differences_to_text(fixed)}): {may if changeable else ''}"
            f"begin a new run with another --out{start}"
        )
    return found


def config_differences(own: dict[str, Any], other: dict[str, Any], path: str = "") -> dict[str, tuple[Any, Any]]:
    """The fields of two configs, as plain values, that differ, with both values.

    A field that one of them lacks is left out, and so is the preset's name: a preset may have two.
    """
    found: dict[str, tuple[Any, Any]] = {}
    for key in (key for key in own if key in other and (path or key != "preset")):
        mine, theirs = own[key], other[key]
        if isinstance(mine, dict) and isinstance(theirs, dict) and key != "options":
            found |= config_differences(mine, theirs, f"{path}{key}.")
        elif mine != theirs:
            found[f"{path}{key}"] = mine, theirs
    return found


def differences_to_text(differences: dict[str, tuple[Any, Any]]) -> str:
    """One line, whatever the values are: a checkpoint's config may be anybody's.

    Example:
        >>> differences_to_text({"train.seed": (0, "1\\n2")})
        'train.seed is 0, not 1\\\\n2'
    """
    parts = [
        f"{name} is {shortened(str(mine))}, not {shortened(str(theirs))}"
        for name, (mine, theirs) in differences.items()
    ]
    more = len(parts) - MOST_DIFFERENCES
    return "; ".join([*parts[:MOST_DIFFERENCES], *([f"{more} more"] if more > 0 else [])])


# Provenance


VARIABLE = "WCGAN_COMMIT"


def find_commit() -> str | None:
    """The commit of the working tree, with a plus sign unless its files are those of it; None for an installed package.

    For a copy of the files without git, the environment variable `WCGAN_COMMIT` names the commit.
    """
    if os.environ.get(VARIABLE):
        return os.environ[VARIABLE]
    source = Path(wcgan.__file__).parent
    # A package that is installed inside somebody's repository is none of its files.
    if _git(source, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git(source, "rev-parse", "--short=10", "HEAD")
    return commit and commit + ("" if _git(source, "status", "--porcelain", "--untracked-files=no", ".") == "" else "+")


def _git(folder: Path, *arguments: str) -> str | None:
    """What git answers; None where it does not."""
    try:
        answer = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
