"""A trained generator from the folder of its run: no training data needed, no code run from files."""

from pathlib import Path

from wcgan.nets import build_generator
from wcgan.train.checkpoint import (
    Checkpoint,
    CheckpointError,
    read_checkpoint,
    read_newest,
    section,
    tensors_to_network,
)
from wcgan.train.hardware import find_device
from wcgan.train.run import Run
from wcgan.train.sampling import Sampler


def load_generator(path: str | Path, checkpoint: str = "last", device: str = "auto") -> Sampler:
    """The generator of a run, ready to sample.

    Args:
        path: the folder of a run.
        checkpoint: `"last"`, `"best"` (by FID, where the run was evaluated) or the number of an iteration.
        device: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:N"`.
    """
    run = Run(Path(path))
    config, found = run.config(), find_checkpoint(run, checkpoint)
    network = build_generator(config.generator)
    tensors_to_network(found, "average" if section(found.tensors, "average") else "generator", network)
    network.requires_grad_(False).eval().to(find_device(device))
    return Sampler(network, found.facts.get("classes", ()), found.facts.get("iteration"))


def find_checkpoint(run: Run, name: str) -> Checkpoint:
    """A run's checkpoint: `"last"`, `"best"` or the number of an iteration."""
    if name == "last":
        found = read_newest(run.checkpoints)
        if found is None:
            raise CheckpointError(f"{run.folder} has no checkpoint yet: train it first")
        return found
    try:
        return read_checkpoint(run.checkpoints / (f"{int(name):07d}" if name.isdigit() else name))
    except CheckpointError as error:
        there = sorted(p.stem for p in run.checkpoints.glob("*.json"))
        raise CheckpointError(
            f"{run.folder} has no checkpoint {name} ({error}); it has {', '.join(there) or 'none'}"
        ) from None
