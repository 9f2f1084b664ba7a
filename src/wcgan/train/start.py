"""From a config to a finished run of a GAN: load the data, fit the networks to it, train, evaluate."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wcgan import data
from wcgan.core.device import find_hardware
from wcgan.core.files import require_new
from wcgan.core.processes import Rank, is_first_process, process_count
from wcgan.core.terminal import announce, counted
from wcgan.data import Dataset
from wcgan.data.dataset import outline
from wcgan.evaluate.command import evaluator_for, path_to_checkpoint
from wcgan.evaluate.image_sets import absolute_paths, load_training_images, training_split
from wcgan.runs.checkpoint import Checkpoint, check_config, iteration_of, read_newest, section
from wcgan.runs.config import CHANGEABLE, Config, DataConfig, change, write_config
from wcgan.runs.folder import RESUME_OR_MOVE, Run, is_begun, new_run, refuse_changes
from wcgan.runs.pretrained import find_source
from wcgan.train.batches import check_shares
from wcgan.train.custom import Custom
from wcgan.train.gan import PLAIN, Players, build_players, players_to_task, train
from wcgan.train.loop import Outcome, check_images, check_stop_at, save_checkpoint


def start(
    config: Config,
    folder: Path,
    resume: bool = False,
    stop_at: int | None = None,
    accept_config: bool = False,
    origin: str | Path | None = None,
    inception_weights: Path | None = None,
    dataset: Dataset | None = None,
    custom: Custom = PLAIN,
) -> Outcome:
    """Trains a new run, or with `resume` the one in the folder, if there is one.

    Args:
        config: of the run; with `resume` it may change nothing but `CHANGEABLE`.
        folder: must not exist, or be empty; with `resume` it may have a run.
        resume: whether to continue a run that exists.
        stop_at: an iteration to end at before the last.
        accept_config: whether to continue although `config.yaml` was changed since the newest checkpoint.
        origin: a run, or the name of a shipped generator, whose weights a new run starts with.
        inception_weights: a file; None for the one in `WCGAN_INCEPTION_WEIGHTS`, if any.
        dataset: images in memory; None for those that the config names.
        custom: your own networks, loss and callbacks.
    """
    check_stop_at(stop_at)
    find_hardware(config.train)  # a GPU that is not there is reported before anything is read or written
    run = Run(folder)
    own = run.config() if resume and (folder / "config.yaml").is_file() else None
    in_memory = dataset is not None
    if own is not None:  # these two are decided once, when a run begins
        held_out = config.data.held_out or own.data.held_out
        config = replace(config, data=replace(config.data, held_out=held_out), origin=own.origin)
        check_resolution(run, own, config)
        if dataset is None:
            check_place(run, config.data.name)
    else:
        config = replace(config, origin=None if origin is None else origin_to_name(origin))
        config = config if in_memory else with_held_out(config)
    dataset = load_data(config) if dataset is None else dataset
    if own is not None:
        check_images(read_newest(run.checkpoints), dataset, run)
    config = fit_config(config, dataset)
    if not in_memory:
        config = replace(config, data=absolute_paths(config.data))
    check_shares(config, Rank(count=process_count()))
    evaluator = None if in_memory else evaluator_for(config, dataset, inception_weights)
    if is_first_process():  # the others take the folder as it will be: the first may still be writing to it
        if resume and is_begun(folder):
            continue_run(run, run.config(), config, accept_config)
        elif origin is not None:
            start_from(str(origin), config, dataset, folder)
        else:
            new_run(folder, config)
        if not in_memory:
            announce_scores(config, dataset, evaluator is not None, own is None)
    return train(config, dataset, run, evaluator, stop_at, custom)


def go_on(
    folder: Path,
    stop_at: int | None = None,
    accept_config: bool = False,
    data: str | None = None,
    strict: bool = False,
    settings: Sequence[str] = (),
    inception_weights: Path | None = None,
) -> Outcome:
    """Resumes a run with its own config, and with the changes that a run may make.

    Args:
        folder: of the run.
        stop_at: an iteration to end at before the last.
        accept_config: whether to continue although `config.yaml` was changed since the newest checkpoint.
        data: where the run's images are now; None for where they were.
        strict: whether a broken image is an error from now on.
        settings: `section.field=value`.
        inception_weights: as for `start`.
    """
    config = change(Run(folder).config(), data, strict, settings)
    return start(config, folder, True, stop_at, accept_config, inception_weights=inception_weights)


# Resuming


def continue_run(run: Run, own: Any, config: Any, accept_config: bool = False) -> None:
    """Makes a config that of a run, and says what it changes.

    Raises:
        ValueError: for a change that a run may not make, or if another process trains it.
        CheckpointError: if `config.yaml` was changed since the newest checkpoint, unless that is accepted.
    """
    changes = refuse_changes(run, own, config, CHANGEABLE)
    found = read_newest(run.checkpoints)
    if found is not None and not accept_config:
        advice = "put these settings back, or go on with them by --accept-config"
        check_config(found, own, advice=advice)
    if not changes:
        return
    reached, length = iteration_of(found), config.train.iterations
    if length < min(reached, own.train.iterations):
        raise ValueError(f"train.iterations={length} is less than the {reached} iterations that {run.folder} has")
    with run.owned():
        write_config(replace(config, preset=own.preset), run.folder / "config.yaml")
        run.event(reached, "changed", changes={name: list(values) for name, values in changes.items()})
    said = [f"{name} is now {new} (was {old})" for name, (old, new) in changes.items()]
    if "train.iterations" in changes and getattr(config.train, "schedule", "") == "linear":
        said.append(f"the learning rate falls to 0 at iteration {config.train.schedule_end or length}")
    announce(f"{run.folder}: {'; '.join(said)}")


def check_resolution(run: Run, own: Any, config: Any) -> None:
    """Raises a ValueError for a resolution that is not the run's, at which its own images would look like others."""
    refuse_changes(run, own, replace(own, data=replace(own.data, resolution=config.data.resolution)), CHANGEABLE)


def check_place(run: Run, name: str) -> None:
    """Raises a ValueError for a folder of images that is no longer there."""
    if name not in data.names() and not Path(name).is_dir():
        if not Path(name).is_absolute():  # as every folder's is
            raise ValueError(f"the images of {run.folder} were in memory: give them to wcgan.fit again, as data")
        raise ValueError(
            f"the images of {run.folder} are no longer in {name}: --resume --data FOLDER says where they are now"
        )


# Fine-tuning


def origin_to_name(origin: str | Path) -> str:
    """A run as an absolute path, a shipped generator by its name."""
    return os.path.abspath(origin) if Path(origin).exists() else str(origin)


# Parameters with a row for each class: colorings of the generator, and the discriminator's embedding or class logits.
_PER_CLASS = re.compile(
    r"\.(class_weight|class_bias|assignment)$|\.(embedding|classifier)\.(parametrizations\.weight\.original|weight|bias)$"
)
_ESTIMATES = ("._u", "._v")  # of spectral normalisation, which finds them again
_LENGTH = "--iterations N sets another length"


def start_from(origin: str, config: Config, dataset: Dataset, folder: Path) -> None:
    """Begins a run whose checkpoint of iteration 0 has the weights of another, and says what was not taken over."""
    source, found = path_to_checkpoint(find_source(origin), "last")
    players = build_players(config, torch.device("cpu"))
    said = take_over(players, found, dataset.classes)
    run = new_run(folder, config)
    save_checkpoint(players_to_task(players, config, dataset, run), 0, 0.0)
    announce(f"starting with the weights of {source.folder.name}, iteration {iteration_of(found)}{said}")
    announce(f"training for {length_to_words(config, dataset)}; {_LENGTH}")


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


# The data


def load_data(config: Config) -> Dataset:
    """The training images."""
    return load_training_images(config.data)


def lacks_test_split(chosen: DataConfig) -> bool:
    """Whether the data is a folder without a test split, and the config names no other to score against."""
    return chosen.name not in data.names() and chosen.reference is None and "test" not in data.splits(chosen.name)


def announce_scores(config: Config, dataset: Dataset, scored: bool, new: bool) -> None:
    """Says which images a run on a folder without a test split is scored against, if that is not plain."""
    every, held_out = config.train.evaluate_every, config.data.held_out
    if every and not scored and config.data.name not in data.names():
        why = f"{dataset.name} has fewer than two classes, so scores need Inception's weights: --inception-weights FILE"
        kept = "; every tenth image is kept out of training, for a later `wcgan evaluate`" if held_out and new else ""
        announce(f"training without scores: {why}{kept}")
    elif held_out and new:
        announce(f"every tenth image of {dataset.name} is kept out of training, to score against")
    elif every and not held_out and lacks_test_split(config.data):
        announce(f"no image of {dataset.name} was kept out of training: scores compare with the training images")


def with_held_out(config: Config) -> Config:
    """The config of a new run: images are held out if it is to be scored during training and there is no test split."""
    chosen = config.data
    held_out = (chosen.held_out or config.train.evaluate_every > 0) and lacks_test_split(chosen)
    return replace(config, data=replace(chosen, held_out=held_out))


# Before anything is written


def check_new(folder: Path) -> None:
    """Raises a ValueError for a folder in which no new run can begin."""
    if is_begun(folder) or not folder.is_dir():
        require_new(folder, RESUME_OR_MOVE)


def length_to_words(config: Config, dataset: Dataset) -> str:
    """How long a training is: in iterations, and in passes over the data."""
    settings = config.train
    passes = settings.iterations * settings.critic_steps * settings.batch / len(dataset)
    return (
        f"{counted(settings.iterations, 'iteration')} of {settings.critic_steps} + 1 updates, "
        f"{passes:,.{1 if passes < 100 else 0}f} passes over the data"
    )


def outline_if_named(chosen: DataConfig, split: str, error: FileNotFoundError) -> Dataset:
    """A data set that is not here, as published. Nothing is known of a folder: for one, the error is raised again."""
    if chosen.name not in data.names():
        raise error
    return outline(chosen.name, split, chosen.resolution)


def dry_run(
    config: Config, folder: Path | None = None, resume: bool = False, origin: str | Path | None = None
) -> dict[str, str]:
    """Describes what `start` would do; writes nothing. The entry `missing` says how to get a data set that is not here.

    Raises:
        ValueError: for a folder that is not new, without `resume`, and for weights that are not there.
        FileNotFoundError: for a folder of images that is not there.
    """
    weights, missing = {}, {}
    if folder is not None and not resume:
        check_new(folder)
    if origin is not None and not (resume and folder is not None and is_begun(folder)):
        source, found = path_to_checkpoint(find_source(origin), "last")
        weights["weights"] = f"start as those of {source.folder.name}, iteration {iteration_of(found)}"
    config = with_held_out(config)
    try:
        dataset = load_data(config)
    except FileNotFoundError as error:
        dataset = outline_if_named(config.data, training_split(config.data.name), error)
        missing["missing"] = str(error)
    config = fit_config(config, dataset)
    hardware = find_hardware(config.train)
    players = build_players(config, torch.device("cpu"))
    millions = [
        sum(p.numel() for p in network.parameters()) / 1e6 for network in (players.generator, players.discriminator)
    ]
    length = length_to_words(config, dataset) + (f"; {_LENGTH}" if weights else "")
    classes = len(dataset.classes)
    held_out = "; every tenth image is kept out, to score against" if config.data.held_out else ""
    saved = [tensor for network in players.networks.values() for tensor in network.state_dict().values()]
    state = 4 * sum(t.numel() for t in saved) / 1e6 + 8 * sum(millions)  # and Adam's two moments, float32, in MB
    return {
        "data": f"{dataset.name}: {counted(len(dataset), 'image')} of {'x'.join(map(str, dataset.images.shape[1:]))}, "
        f"{counted(classes, 'class') if classes else 'no classes'}{held_out}",
        **missing,
        "generator": f"{config.generator.kind}, {config.generator.normalization}, {millions[0]:.2f} M parameters",
        "discriminator": f"{config.discriminator.kind}, {config.discriminator.head}, {millions[1]:.2f} M parameters",
        **weights,
        "training": f"{config.train.loss}, {length}",
        "disk": f"{state * config.train.keep_checkpoints:.0f} MB of checkpoints",
        **hardware.describe(),
    }


# The networks


def blocks_for(resolution: int) -> tuple[int, int]:
    """The base grid (4 to 7) and the number of doublings that give a resolution."""
    for doublings in range(1, 8):
        base, rest = divmod(resolution, 2**doublings)
        if rest == 0 and 4 <= base <= 7:
            return base, doublings
    raise ValueError(
        f"images of {resolution}x{resolution} do not fit the networks, which double a grid of 4 to 7: "
        f"choose a size such as 16, 28, 32, 48, 64, 96 or 128; --resolution SIZE resizes those in files"
    )


def fit_config(config: Config, dataset: Dataset) -> Config:
    """The config with the networks' sizes taken from the data."""
    _, channels, height, width = dataset.images.shape
    if height != width:
        crops = "--resolution SIZE crops those in files"
        raise ValueError(f"the images are {height}x{width}; square ones are needed: {crops}")
    if config.data.resolution not in (None, height):
        raise ValueError(
            f"the images are {height}x{width} and data.resolution={config.data.resolution} resizes only those in files:"
            " resize yours"
        )
    classes = len(dataset.classes) or None
    if config.conditional:
        if dataset.labels is None or classes is None or classes < 2:
            raise ValueError(
                f"{config.generator.normalization} with a {config.discriminator.head} head needs several classes; "
                f"{dataset.name} has {classes or 'none'}: give each class a sub-folder, or take an unconditional preset"
            )
    else:
        classes = None
    g, d = config.generator, config.discriminator
    if g.resolution != height:
        base, doublings = blocks_for(height)
        widths = (*g.widths, *[g.widths[-1]] * doublings)[:doublings]
        g = replace(g, base=base, widths=widths)
        if d.kind == "resnet":  # down to a grid of 7 or less, as the paper's networks are
            halvings = min(len(d.widths), max(1, doublings - 1))
            d = replace(d, resolution=height, downsample=halvings)
    g = replace(g, channels=channels, classes=classes)
    d = replace(d, channels=channels, classes=classes, resolution=height)
    return replace(config, generator=g, discriminator=d)
