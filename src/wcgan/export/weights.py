"""Weights in safetensors and the config beside them, as a model hub names them: no code, and no pickle."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from wcgan.data.reading import parse_json, read_bytes
from wcgan.nets import Generator, GeneratorConfig, build_generator
from wcgan.train import Run, Sampler
from wcgan.train.progress import OnProgress

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
_CHECKED = 64


def write_weights(sampler: Sampler, run: Run, folder: Path, progress: OnProgress) -> dict[str, Any]:
    """The generator as it was trained, read back and held against the original; returns facts about it."""
    network = sampler.network
    save_file({k: v.contiguous() for k, v in network.state_dict().items()}, folder / WEIGHTS, {"format": "pt"})
    config = json.dumps(dataclasses.asdict(network.config), indent=2, sort_keys=True)
    (folder / CONFIG).write_text(config + "\n", encoding="utf-8")
    return {"largest difference": check_same(sampler, read_weights(folder), progress)}


def read_weights(folder: Path) -> Generator:
    """A generator from such a folder, in evaluation mode.

    Raises:
        ValueError: if a file is missing, or the two do not fit each other.
    """
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} holds no generator: it has no {name}")
    try:
        config = GeneratorConfig(**parse_json(read_bytes(folder / CONFIG)))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / CONFIG} describes no generator: {error}") from None
    network = build_generator(config)
    try:
        network.load_state_dict(load_file(folder / WEIGHTS))
    except (RuntimeError, SafetensorError):
        raise ValueError(f"{folder}: {WEIGHTS} does not fit {CONFIG}") from None
    return network.requires_grad_(False).eval()


@torch.no_grad()
def check_same(sampler: Sampler, network: Generator, progress: OnProgress) -> float:
    """The largest difference between two generators that must not differ at all.

    Raises:
        ValueError: if they do.
    """
    noise, labels = sampler.noise(_CHECKED, 0), sampler.labels(_CHECKED, None)
    inputs = (noise,) if labels is None else (noise, labels)
    largest = float((network(*inputs) - sampler.network(*inputs)).abs().max())
    progress("checking", _CHECKED, _CHECKED)
    if largest != 0:
        raise ValueError(f"the written generator differs by {largest:.1e} from the one that was trained")
    return largest
