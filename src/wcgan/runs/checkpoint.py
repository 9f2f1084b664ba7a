"""Checkpoints: tensors in safetensors, the rest in JSON; whole or not there at all.

A checkpoint is `NAME.safetensors` and then `NAME.json`, which holds the SHA-256 of both. Each is written to a
temporary file, flushed to the disk and renamed, so that a process killed at any moment leaves the checkpoint before it
untouched, or the new one of that name: see `write_pair`. A checkpoint that was cut short or damaged later is recognised
when it is read.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wcgan.core.config import config_to_dict
from wcgan.core.files import NO_SPACE, remove_leftovers
from wcgan.core.reading import open_file, parse_json, read_bytes
from wcgan.core.tensor_files import bytes_to_tensors, coming, tensors_to_bytes, write_pair
from wcgan.runs.config import CHANGEABLE
from wcgan.runs.folder import MOST_ITERATIONS, Run, config_differences, differences_to_text

MOST_FACTS = 1 << 24  # bytes of the JSON file
_NUMBER = re.compile(r"[0-9]+")


class CheckpointError(ValueError):
    """A checkpoint that cannot be written, or none that can be read."""


@dataclass(frozen=True)
class Checkpoint:
    """What was read: the tensors, and the facts beside them."""

    path: Path
    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    damaged: tuple[str, ...] = ()
    """Newer checkpoints that cannot be read, and why."""


# Writing


def write_checkpoint(folder: Path, name: str, tensors: dict[str, Tensor], facts: dict[str, Any]) -> Path:
    """Writes both files; the facts are values for JSON."""
    content, path = tensors_to_bytes(tensors), folder / f"{name}.safetensors"
    facts = {**facts, "bytes": len(content)}
    facts["sha256"] = _digest(content, facts)
    try:
        write_pair(path, content, facts)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise CheckpointError(
                f"no space left to write {path} ({len(content) / 2**20:.0f} MiB): free some and resume the run; "
                f"the checkpoint before it is intact"
            ) from error
        raise
    return path


def _digest(content: bytes, facts: dict[str, Any]) -> str:
    """SHA-256 of the tensors and of the facts beside them."""
    plain = json.dumps({k: v for k, v in facts.items() if k != "sha256"}, sort_keys=True)
    digest = hashlib.sha256(content)
    digest.update(plain.encode())
    return digest.hexdigest()


def keep_last(folder: Path, count: int, newest: int) -> None:
    """Keeps the last `count` checkpoints up to iteration `newest`; deletes older ones and what killed processes left.

    Checkpoints past `newest` are damaged ones that a resumed run skipped, so they do not count.
    """
    for path in [p for p in _numbered(folder) if int(p.stem) <= newest][count:]:
        path.unlink(missing_ok=True)  # the JSON first: without it the tensors are no checkpoint
    for path in folder.glob("*.safetensors"):
        if _NUMBER.fullmatch(path.stem) and not path.with_suffix(".json").exists():
            path.unlink(missing_ok=True)
    remove_leftovers(folder)


def _numbered(folder: Path) -> list[Path]:
    """The JSON files of numbered checkpoints, newest first."""
    found = (path for path in folder.glob("*.json") if _NUMBER.fullmatch(path.stem))
    return sorted(found, key=lambda path: int(path.stem), reverse=True)


# Reading


def read_checkpoint(path: Path) -> Checkpoint:
    """One checkpoint, checked against its hash and for the types of its facts; `path` with either suffix or none.

    Raises:
        CheckpointError: that names the file, if there is no such checkpoint or it is damaged.
    """
    try:
        return _read_pair(path.with_suffix(".safetensors"), path.with_suffix(".json"))
    except CheckpointError:
        with suppress(CheckpointError):
            return _read_pair(path.with_suffix(".safetensors"), coming(path))
        raise


def _read_pair(tensors_file: Path, facts_file: Path) -> Checkpoint:
    try:
        facts = parse_json(read_bytes(facts_file, MOST_FACTS).decode("utf-8"))
    except OSError as error:
        raise _unreadable(facts_file, error) from None
    except ValueError:
        raise CheckpointError(f"{facts_file.name} is damaged") from None
    if not isinstance(facts, dict) or not isinstance(facts.get("sha256"), str):
        raise CheckpointError(f"{facts_file.name} is damaged")
    try:
        with open_file(tensors_file, facts["bytes"] if type(facts.get("bytes")) is int else None) as file:
            content = file.read()
    except OSError as error:
        raise _unreadable(tensors_file, error) from None
    except ValueError as error:
        raise CheckpointError(f"{tensors_file.name} is damaged: {error}") from None
    if _digest(content, facts) != facts["sha256"]:
        raise CheckpointError(f"{tensors_file.name}: its content is not what was written ({len(content)} bytes)")
    for name, (is_right, wanted) in _FACTS.items():
        if (name in facts or name == "iteration") and not is_right(facts.get(name)):
            raise CheckpointError(f"{facts_file.name}: {name} must be {wanted}")
    if _NUMBER.fullmatch(tensors_file.stem) and int(tensors_file.stem) != facts["iteration"]:
        raise CheckpointError(f"{facts_file.name}: its iteration is not the number in its name")
    try:
        return Checkpoint(tensors_file, bytes_to_tensors(content), facts)
    except ValueError as error:
        raise CheckpointError(f"{tensors_file.name} does not hold tensors: {error}") from None


def _unreadable(file: Path, error: OSError) -> CheckpointError:
    if isinstance(error, FileNotFoundError):
        return CheckpointError(f"{file.name} is missing")
    return CheckpointError(f"{file.name} cannot be read: {(error.strerror or str(error)).lower()}")


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST_ITERATIONS


def _is_duration(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


# A hash says that the facts are those that were written, not that this package wrote them.
_FACTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "iteration": (_is_whole, "a whole number"),
    "seconds": (_is_duration, "a number of seconds"),
    "classes": (_is_names, "a list of names"),
    "config": (lambda value: isinstance(value, dict), "a mapping of fields"),
}


def read_newest(folder: Path, at_most: int | None = None) -> Checkpoint | None:
    """The newest checkpoint that can be read, up to an iteration if one is named; None where none was ever written."""
    damaged: list[str] = []
    for path in _numbered(folder):
        if at_most is not None and int(path.stem) > at_most:
            continue
        try:
            return replace(read_checkpoint(path), damaged=tuple(damaged))
        except CheckpointError as error:
            damaged.append(str(error))
    if damaged:
        raise CheckpointError(f"no checkpoint in {folder} can be read: {'; '.join(damaged)}")
    return None


def find_checkpoint(run: Run, name: str | int) -> Checkpoint:
    """A run's checkpoint by its name: `"last"`, `"best"` or the number of an iteration.

    Raises:
        CheckpointError: if there is none of that name, or it is damaged. A damaged last one is never replaced by an
            older one unasked.
    """
    if name == "last":
        found = read_newest(run.checkpoints)
        if found is None:
            raise CheckpointError(f"{run.folder} has no checkpoint yet: train it first")
        if found.damaged:
            older = int(found.path.stem)
            raise CheckpointError(
                f"the last checkpoint in {run.checkpoints} is damaged ({'; '.join(found.damaged)}): restore the file, "
                f'or take the newest that is whole with --checkpoint {older} (in Python: checkpoint="{older}")'
            )
        return found
    name = str(name)
    stem = name.lstrip("0").zfill(7) if _NUMBER.fullmatch(name) else name
    try:
        if not re.fullmatch(r"[\w-]{1,100}", stem):
            raise CheckpointError("a checkpoint is last, best or the number of an iteration")
        return read_checkpoint(run.checkpoints / stem)
    except CheckpointError as error:
        there = sorted(path.stem for path in run.checkpoints.glob("*.json"))
        raise CheckpointError(
            f"{run.folder} has no checkpoint {name} ({error}); it has {', '.join(there) or 'none'}"
        ) from None


def iteration_of(found: Checkpoint | None) -> int:
    """The iteration at which a checkpoint was written; 0 for None."""
    return 0 if found is None else int(found.facts["iteration"])


# From a checkpoint to what it belongs to


def check_config(found: Checkpoint, config: Any, *sections: str, advice: str = "put these settings back") -> None:
    """Raises a CheckpointError, which says what differs, for a config that is not the checkpoint's own.

    What a run may change when it is resumed may differ.

    Args:
        found: the checkpoint; one that was written before checkpoints knew their config fits any.
        config: as it was read from `config.yaml`.
        sections: the parts of the config that matter; all by default.
        advice: how the sentence ends.
    """
    own, theirs = config_to_dict(config), found.facts.get("config", {})
    found_here = config_differences({name: own[name] for name in sections or own}, theirs)
    differences = {name: values for name, values in found_here.items() if name not in CHANGEABLE}
    if differences:
        raise CheckpointError(
            f"config.yaml in {found.path.parent.parent} is not the config that {found.path.name} was trained with "
            f"({differences_to_text(differences)}): {advice}"
        )


def tensors_to_network(found: Checkpoint, name: str, network: nn.Module) -> None:
    """Puts one section of a checkpoint's tensors into a network.

    Raises:
        CheckpointError: if they do not fit.
    """
    tensors = section(found.tensors, name)
    if tensors and all(key.startswith("network.") for key in tensors) and not hasattr(network, "network"):
        raise CheckpointError(
            f"{found.path} has a network of your own, which config.yaml does not describe: load it with "
            f"wcgan.train.load_own_generator, or go on with wcgan.fit"
        )
    try:
        fill_network(network, tensors)
    except ValueError as error:
        raise CheckpointError(
            f"{found.path} does not fit the run's config.yaml: put back the settings that it was trained with"
        ) from error


def fill_network(network: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copies tensors into a network.

    Raises:
        ValueError: if there are too many or too few, or one has another shape or kind of number.
    """
    for key, own in network.state_dict().items():
        if key in tensors and tensors[key].is_floating_point() != own.is_floating_point():
            raise ValueError(f"{key} is {tensors[key].dtype}")
    try:
        network.load_state_dict(tensors)
    except (RuntimeError, TypeError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def section(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix.`, by the rest of their names."""
    return {k.removeprefix(f"{prefix}."): v for k, v in tensors.items() if k.startswith(f"{prefix}.")}


def first_nonfinite(tensors: dict[str, Tensor]) -> str | None:
    """The name of a tensor that holds NaN or Inf."""
    return next((k for k, v in tensors.items() if v.is_floating_point() and not bool(torch.isfinite(v).all())), None)
