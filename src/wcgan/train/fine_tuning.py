"""The weights of another run as those of a new one: what fits is copied, and classes of the same name keep theirs."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from wcgan.data import Dataset
from wcgan.evaluate.command import path_to_checkpoint
from wcgan.runs.checkpoint import Checkpoint, iteration_of, section
from wcgan.runs.config import Config
from wcgan.runs.pretrained import find_source
from wcgan.train.gan import Players, build_players

# Parameters with a row for each class: colorings of the generator, and the discriminator's embedding or class logits.
_PER_CLASS = re.compile(
    r"\.(class_weight|class_bias|assignment)$|\.(embedding|classifier)\.(parametrizations\.weight\.original|weight|bias)$"
)
_ESTIMATES = ("._u", "._v")  # of spectral normalisation, which finds them again


def origin_to_name(origin: str | Path) -> str:
    """A run as an absolute path, a shipped generator by its name."""
    return os.path.abspath(origin) if Path(origin).exists() else str(origin)


class Weights(NamedTuple):
    """Networks with the weights of another run."""

    source: str
    iteration: int
    players: Players
    said: str
    """What was not taken over, in words."""


def take_weights(origin: str | Path, config: Config, dataset: Dataset) -> Weights:
    """Builds a run's networks with the weights of another run, or of a shipped generator."""
    source, found = path_to_checkpoint(find_source(origin), "last")
    players = build_players(config, torch.device("cpu"))
    said = take_over(players, found, dataset.classes)
    return Weights(source.folder.name, iteration_of(found), players, said)


def take_over(players: Players, found: Checkpoint, classes: Sequence[str]) -> str:
    """Copies the weights of a checkpoint wherever they fit -> what is different, in words.

    A class of the same name keeps its coloring and its embedding; those of other classes start as the mean.

    Raises:
        ValueError: if nothing fits the generator.
    """
    before = list(found.facts.get("classes", ()))
    generator = section(found.tensors, "generator")
    left: list[str] = []
    for name, network in players.networks.items():
        tensors = section(found.tensors, name) or (generator if name == "average" else {})
        missing, taken = copy_similar(tensors, network, before, classes)
        if not taken and name == "generator":
            raise ValueError(f"no weight in {found.path} fits the generator: take its networks with --from alone")
        if name not in ("average", "lecam"):  # averages of what is named already, or of scores
            left += [f"{', '.join(missing)} of the {name}" if taken else f"the {name}"] if missing else []
    said = f"; not taken over: {' and '.join(left)}" if left else ""
    new = [name for name in classes if name not in before]
    if players.generator.config.classes and new:
        verb, all_new = "starts" if len(new) == 1 else "start", "all " if len(new) == len(classes) > 1 else ""
        plural = "class" if len(new) == 1 else "classes"
        said += f"; {all_new}{len(new)} new {plural} {verb} as the mean of the old"
    return said


@torch.no_grad()
def copy_similar(
    tensors: Mapping[str, Tensor], network: nn.Module, before: Sequence[str], classes: Sequence[str]
) -> tuple[list[str], int]:
    """Copies tensors of the same name and shape into a network -> its parts that lack some, and how many fitted."""
    missing: dict[str, None] = {}
    taken = 0
    for key, own in network.state_dict().items():
        theirs = tensors.get(key)
        if theirs is not None and theirs.dim() and _PER_CLASS.search(key):
            theirs = rows_by_class(theirs, before, classes)
        if theirs is not None and theirs.shape == own.shape:
            own.copy_(theirs)
            taken += own.dim() > 1  # a bias or a counter alone is no start
        elif not key.endswith(_ESTIMATES):
            missing[".".join(key.split(".")[: 2 if key.startswith("blocks.") else 1])] = None
    return list(missing), taken


def rows_by_class(table: Tensor, before: Sequence[str], classes: Sequence[str]) -> Tensor:
    """A table with a row for each class, for other classes: rows of the same name, or the mean.

    Example:
        >>> rows_by_class(torch.tensor([1.0, 3.0]), ["cat", "dog"], ["dog", "owl"])
        tensor([3., 2.])
    """
    places = {name: place for place, name in enumerate(before) if place < len(table)}
    rows, mean = table.float(), table.float().mean(0)
    return torch.stack([rows[places[name]] if name in places else mean for name in classes])
