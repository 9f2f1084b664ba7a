"""The folder of a run: it explains itself, and nothing in it runs code when read."""

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, overload
from wcgan.core.files import write_atomically
from wcgan.core.config import AnyConfig, config_to_dict, config_to_yaml
from wcgan.runs.config import Config, read_config
from wcgan.core.files import require_new
import os
import subprocess
import wcgan


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

    def record(self, kind: str, iteration: int, **values: Any) -> None:
        """Appends a line to `metrics.jsonl`."""
        line = json.dumps({"kind": kind, "iteration": iteration, **values})
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def event(self, iteration: int, what: str, **values: Any) -> None:
        time = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.record("event", iteration, what=what, time=time, **values)

    def lines(self) -> list[dict[str, Any]]:
        """What `metrics.jsonl` holds; a last line that was cut short is left out."""
        if not self.metrics.exists():
            return []
        found = []
        for line in self.metrics.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return found

    def forget_after(self, iteration: int) -> None:
        """Drops measurements past a checkpoint that a resumed run will make again; events stay."""
        lines = [v for v in self.lines() if v["kind"] == "event" or v["iteration"] <= iteration]
        write_atomically(self.metrics, "".join(json.dumps(v) + "\n" for v in lines).encode())


def new_run(folder: Path, config: Any) -> Run:
    """A fresh folder; one that holds anything is never written over."""
    require_new(folder, "name another with --out, or go on with --resume")
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(folder)
    write_atomically(folder / "config.yaml", config_to_yaml(config).encode())
    return run


@overload
def resumed_run(folder: Path, config: Config | None = None) -> tuple[Run, Config]: ...


@overload
def resumed_run(folder: Path, config: AnyConfig | None, kind: type[AnyConfig]) -> tuple[Run, AnyConfig]: ...


def resumed_run(folder: Path, config: Any = None, kind: type = Config) -> tuple[Run, Any]:
    """A folder to go on with, and its own config; a config that differs from it is refused."""
    run = Run(folder)
    own: Any = run.config(kind)
    if config is not None and replace(config, preset=own.preset) != own:  # a preset may have two names
        differences = _differences(config_to_dict(own), config_to_dict(config))
        raise ValueError(
            f"{folder} was begun with another config ({'; '.join(differences)}): "
            f"resume without a preset and --set, or begin a new run with another --out"
        )
    return run, own


def _differences(own: dict[str, Any], other: dict[str, Any], path: str = "") -> list[str]:
    found = []
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(other.get(key), dict):
            found += _differences(value, other[key], f"{path}{key}.")
        elif value != other.get(key):
            found.append(f"{path}{key} is {value}, not {other.get(key)}")
    return found


VARIABLE = "WCGAN_COMMIT"


def find_commit() -> str | None:
    """The commit of a working tree, with a plus sign where its files differ from it; None of an installed package.

    The environment's `WCGAN_COMMIT` says it for a copy of the files that git knows nothing of.
    """
    if os.environ.get(VARIABLE):
        return os.environ[VARIABLE]
    source = Path(wcgan.__file__).parent
    # A package that is installed inside somebody's repository is none of its files.
    if _git(source, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit = _git(source, "rev-parse", "--short=10", "HEAD")
    return commit and commit + ("+" if _git(source, "status", "--porcelain", "--untracked-files=no", ".") else "")


def _git(folder: Path, *arguments: str) -> str | None:
    """What git answers; None where it does not."""
    try:
        answer = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
