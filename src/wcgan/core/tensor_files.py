"""Tensors on disk: a safetensors file and a JSON file of facts beside it, written atomically, without pickle.

Checkpoints of runs are such pairs, and so are the entries of the cache: trained classifiers under `classifiers`,
statistics of reference sets under `statistics`.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wcgan.core.files import cache_folder, write_atomically
from wcgan.core.reading import parse_json, read_bytes
from wcgan.core.terminal import announce

try:
    import safetensors
    import safetensors.torch
except ImportError as error:
    raise ImportError("files of tensors need safetensors: pip install 'wcgan[train]'") from error


def tensors_to_bytes(tensors: dict[str, Tensor]) -> bytes:
    """The content of a safetensors file."""
    return safetensors.torch.save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})


def bytes_to_tensors(content: bytes) -> dict[str, Tensor]:
    """The tensors in the content of a safetensors file.

    Raises:
        ValueError: in one line, for damaged content or another format.
    """
    try:
        return safetensors.torch.load(content)
    except (safetensors.SafetensorError, ValueError, RuntimeError, KeyError, OverflowError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def write_pair(path: Path, content: bytes, facts: dict[str, Any]) -> None:
    """Writes the safetensors file, then the JSON file beside it: if the second exists, so does the first.

    Where there is such a pair already, the new facts are first written to `coming`: a process that is killed between
    the two files leaves tensors to which the facts in one of the JSON files belong.

    Args:
        path: the safetensors file; its folder is created if it does not exist.
        content: the result of `tensors_to_bytes`.
        facts: values for JSON.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(facts, indent=1).encode()
    if path.with_suffix(".json").exists():
        write_atomically(coming(path), text)
    write_atomically(path, content)
    write_atomically(path.with_suffix(".json"), text)
    coming(path).unlink(missing_ok=True)


def coming(path: Path) -> Path:
    """The JSON file of a pair that is being written over another."""
    return path.with_suffix(".json.new")


def fingerprint(tensors: dict[str, Tensor]) -> str:
    """A short name for these exact tensors."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().cpu()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.flatten().view(torch.uint8).numpy().data)  # as bytes: NumPy has no bfloat16
    return digest.hexdigest()[:12]


def load_cached(kind: str, name: str, cache: Path | None = None) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The tensors and the facts that are cached under a name; None if there are none, or if a file is damaged."""
    path = _cached(kind, name, cache)
    try:
        facts = parse_json(read_bytes(path.with_suffix(".json")))
        tensors = bytes_to_tensors(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(facts, dict) or facts.get("weights") != fingerprint(tensors):
        return None
    return tensors, facts


def save_cached(
    kind: str, name: str, tensors: dict[str, Tensor], facts: dict[str, Any], cache: Path | None = None
) -> None:
    """Caches tensors, and facts with the tensors' fingerprint. Where that cannot be written, says so and goes on."""
    facts = {**facts, "weights": fingerprint(tensors)}
    path = _cached(kind, name, cache)
    try:
        write_pair(path, tensors_to_bytes(tensors), facts)
    except OSError as error:
        reason = error.strerror or error
        announce(f"{kind} cannot be cached in {path.parent} ({reason}): make room there or set WCGAN_CACHE")


def _cached(kind: str, name: str, cache: Path | None) -> Path:
    return (cache or cache_folder()) / kind / f"{name}.safetensors"
