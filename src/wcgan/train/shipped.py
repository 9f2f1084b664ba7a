"""Generators that come with the package, each as the folder of a run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import wcgan
from wcgan.data.writing import write_atomically
from wcgan.train.checkpoint import write_checkpoint
from wcgan.train.config import DataConfig
from wcgan.train.loading import load_generator
from wcgan.train.run import Run, new_run

DEFAULT = "cifar10-cWC"
ORIGIN = "origin.json"
_FOLDER = Path(wcgan.__file__).parent / "generators"


def shipped_generators() -> tuple[str, ...]:
    """Their names.

    Example:
        >>> "digits-cWC_sa" in shipped_generators()
        True
    """
    return tuple(sorted(path.parent.name for path in _FOLDER.glob("*/config.yaml")))


def shipped(name: str = DEFAULT) -> Path:
    """The folder of one of them, for `load_generator`.

    Args:
        name: one of `shipped_generators()`.

    Raises:
        ValueError: for another name.
    """
    if name not in shipped_generators():
        raise ValueError(f"no generator {name!r} comes with the package; there is {', '.join(shipped_generators())}")
    return _FOLDER / name


def find_run(source: Path) -> Path:
    """A path or a name -> the folder of a run: what is there comes first, then a shipped generator of that name."""
    if source.exists():
        return source
    if str(source) not in shipped_generators():
        there = ", ".join(shipped_generators())
        raise ValueError(f"{source} is not there; name the folder of a run, or a generator of the package: {there}")
    return shipped(str(source))


def run_to_shipped(run: Path, folder: Path, command: str = "", checkpoint: str = "last") -> Path:
    """A run without all that only training needs: config, generator in half precision, and where it comes from.

    Args:
        run: the folder of a run.
        folder: a new folder; it can be loaded as a run's.
        command: what made the run, for `origin.json`; empty where it is not known.
        checkpoint: `"last"`, `"best"` or the number of an iteration.
    """
    sampler, old = load_generator(run, checkpoint, "cpu"), Run(run)
    config = old.config()
    # A data set's name may be a path, which says more about a machine than about the images.
    data = DataConfig(name=Path(config.data.name).name, resolution=config.data.resolution)
    new = new_run(folder, replace(config, data=data))
    tensors = {f"generator.{key}": _halved(value) for key, value in sampler.network.state_dict().items()}
    iteration = sampler.iteration or 0
    facts = {"iteration": iteration, "classes": list(sampler.class_names), "version": wcgan.__version__}
    write_checkpoint(new.checkpoints, f"{iteration:07d}", tensors, facts)
    write_atomically(folder / ORIGIN, json.dumps(_origin(old, iteration, command), indent=1).encode())
    return folder


def _halved(value: Tensor) -> Tensor:
    """In float16, but for what is no floating-point number or too large for it."""
    half = value.to(torch.float16) if value.is_floating_point() else value
    return half if bool(torch.isfinite(half).all()) else value


def _origin(run: Run, iteration: int, command: str) -> dict[str, Any]:
    """What is known of how the generator was made; `origin.json` of one that was shipped before is kept."""
    if (run.folder / ORIGIN).is_file():
        kept: dict[str, Any] = json.loads((run.folder / ORIGIN).read_text(encoding="utf-8"))
        return kept
    lines = run.lines()
    begun: list[dict[str, Any]] = [line for line in lines if line.get("what") in ("started", "resumed")]
    commits = dict.fromkeys(str(line["commit"]) for line in begun if line.get("commit"))
    scores: dict[str, Any] = next(
        (v for v in reversed(lines) if v["kind"] == "evaluation" and v["iteration"] == iteration), {}
    )
    return {
        "command": command,
        "commit": "; ".join(commits) or None,
        **{key: begun[0].get(key) if begun else None for key in ("time", "device", "torch")},
        "scores": {k: v for k, v in scores.items() if "(" in k or k in ("IS", "FID", "KID", "precision", "recall")},
    }
