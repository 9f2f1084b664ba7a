"""A cache of tensors on disk: a safetensors file and a JSON file per entry, written atomically, without pickle.

Trained classifiers are under `classifiers`, statistics of reference sets under `statistics`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from wcgan.core.files import write_atomically
from wcgan.core.reading import parse_json, read_bytes
from wcgan.data.pack import cache_folder

try:
    import safetensors
    import safetensors.torch
except ImportError as error:
    raise ImportError("wcgan.evaluate needs safetensors: pip install 'wcgan[train]'") from error


def load(kind: str, name: str, cache: Path | None = None) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The tensors and the record stored under a name; None if there are none, or if a file is damaged."""
    weights_file, record_file = _files(kind, name, cache)
    try:
        record = parse_json(read_bytes(record_file))
        weights = read_tensors(weights_file)
    except (OSError, ValueError):
        return None
    if not isinstance(record, dict) or record.get("weights") != fingerprint(weights):
        return None
    return weights, record


def save(kind: str, name: str, weights: dict[str, Tensor], record: dict[str, Any], cache: Path | None = None) -> None:
    """Store tensors, then a record with their fingerprint: if the record exists, so do the tensors."""
    weights_file, record_file = _files(kind, name, cache)
    record = {**record, "weights": fingerprint(weights)}
    weights_file.parent.mkdir(parents=True, exist_ok=True)
    tensors = {key: value.detach().cpu().contiguous() for key, value in weights.items()}
    write_atomically(weights_file, safetensors.torch.save(tensors))
    write_atomically(record_file, (json.dumps(record, indent=2) + "\n").encode())


def fingerprint(weights: dict[str, Tensor]) -> str:
    """A short name for these exact tensors."""
    digest = hashlib.sha256()
    for key in sorted(weights):
        value = weights[key].detach().cpu().contiguous()
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:12]


def read_tensors(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        ValueError: for a damaged file, or one of another format.
    """
    try:
        return safetensors.torch.load(file.read_bytes())
    except safetensors.SafetensorError as error:
        raise ValueError(f"{file} is not a safetensors file ({error})") from None


def _files(kind: str, name: str, cache: Path | None) -> tuple[Path, Path]:
    folder = (cache or cache_folder()) / kind
    return folder / f"{name}.safetensors", folder / f"{name}.json"
