"""Checkpoints: tensors in safetensors, the rest in JSON; whole or not there at all.

A checkpoint is `NAME.safetensors` and then `NAME.json`, which holds the SHA-256 of both. Each is written to a
temporary file, flushed to the disk and renamed, so that a process killed at any moment leaves the checkpoint before it
untouched, and one that was cut short or damaged later is recognised when it is read.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from wcgan.core.files import NO_SPACE, write_atomically


class CheckpointError(ValueError):
    """A checkpoint that cannot be written, or none that can be read."""


@dataclass(frozen=True)
class Checkpoint:
    """What was read: the tensors, and the facts beside them."""

    path: Path
    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    damaged: tuple[str, ...] = ()
    """Newer checkpoints that had to be passed over, and why."""


def write_checkpoint(folder: Path, name: str, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    content = save({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
    path = folder / f"{name}.safetensors"
    _write(path, content)
    facts = {**facts, "bytes": len(content)}
    facts["sha256"] = _digest(content, facts)
    _write(path.with_suffix(".json"), json.dumps(facts, indent=1).encode())
    return path


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise CheckpointError(
                f"no space left to write {path} ({len(content) / 2**20:.0f} MiB): free some and resume the run; "
                f"the checkpoint before it is intact"
            ) from error
        raise


def _digest(content: bytes, facts: dict[str, Any]) -> str:
    """Of the tensors and of the facts beside them."""
    plain = json.dumps({k: v for k, v in facts.items() if k != "sha256"}, sort_keys=True)
    digest = hashlib.sha256(content)
    digest.update(plain.encode())
    return digest.hexdigest()


def keep_last(folder: Path, count: int, newest: int) -> None:
    """Deletes all but the last `count` up to iteration `newest`, and what a killed process may have left.

    Those past `newest` are damaged ones that a resumed run passed over: they must not count as good ones.
    """
    for path in [p for p in _numbered(folder) if int(p.stem) <= newest][count:]:
        path.unlink(missing_ok=True)  # the JSON first: without it the tensors are no checkpoint
    for path in folder.glob("*.safetensors"):
        if path.stem.isdigit() and not path.with_suffix(".json").exists():
            path.unlink(missing_ok=True)
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def _numbered(folder: Path) -> list[Path]:
    """The JSON files of numbered checkpoints, newest first."""
    return sorted((p for p in folder.glob("*.json") if p.stem.isdigit()), key=lambda p: int(p.stem), reverse=True)


def read_checkpoint(path: Path) -> Checkpoint:
    """One checkpoint, checked against its hash."""
    try:
        facts = json.loads(path.with_suffix(".json").read_bytes())
        content = path.with_suffix(".safetensors").read_bytes()
        if _digest(content, facts) != facts["sha256"]:
            raise CheckpointError(f"{path.name}: its content is not what was written ({len(content)} bytes)")
        return Checkpoint(path.with_suffix(".safetensors"), load(content), facts)
    except FileNotFoundError as error:
        raise CheckpointError(f"{Path(error.filename).name} is missing") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        raise CheckpointError(f"{path.with_suffix('.json').name} is damaged") from None


def read_newest(folder: Path, at_most: int | None = None) -> Checkpoint | None:
    """The newest whole checkpoint, up to an iteration if one is named; None where none was ever written."""
    damaged: list[str] = []
    for path in _numbered(folder):
        if at_most is not None and int(path.stem) > at_most:
            continue
        try:
            found = read_checkpoint(path)
        except CheckpointError as error:
            damaged.append(str(error))
            continue
        return Checkpoint(found.path, found.tensors, found.facts, tuple(damaged))
    if damaged:
        raise CheckpointError(f"no checkpoint in {folder} can be read: {'; '.join(damaged)}")
    return None


def iteration_of(found: Checkpoint | None) -> int:
    """How far a run was when it was written; 0 for none."""
    return 0 if found is None else int(found.facts["iteration"])


def tensors_to_network(found: Checkpoint, name: str, network: nn.Module) -> None:
    try:
        network.load_state_dict(section(found.tensors, name))
    except RuntimeError as error:
        raise CheckpointError(
            f"{found.path} does not fit the run's config.yaml: put back the settings that it was trained with"
        ) from error


def section(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(f"{prefix}."): v for k, v in tensors.items() if k.startswith(f"{prefix}.")}


def first_nonfinite(tensors: dict[str, Tensor]) -> str | None:
    """The name of a tensor that holds NaN or Inf."""
    return next((k for k, v in tensors.items() if v.is_floating_point() and not bool(torch.isfinite(v).all())), None)
