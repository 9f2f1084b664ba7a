"""From a config to a finished run of a GAN: load the data, fit the networks to it, train, evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from wcgan import data
from wcgan.core.device import find_hardware
from wcgan.core.files import require_new
from wcgan.core.processes import Rank, is_first_process, process_count
from wcgan.core.terminal import announce, counted
from wcgan.data import Dataset
from wcgan.data.dataset import MOST_RESOLUTION, outline
from wcgan.evaluate.command import evaluator_for
from wcgan.evaluate.image_sets import absolute_paths, load_training_images, training_split
from wcgan.runs.checkpoint import Checkpoint, check_config, iteration_of, read_newest
from wcgan.runs.config import CHANGEABLE, Config, DataConfig, change, write_config
from wcgan.runs.folder import RESUME_OR_MOVE, Run, is_begun, new_run, refuse_changes
from wcgan.train.batches import check_shares
from wcgan.train.custom import Custom
from wcgan.train.fine_tuning import Weights, origin_to_name, take_weights
from wcgan.train.gan import PLAIN, Evaluator, build_players, players_to_task, train
from wcgan.train.learner import tensors_to_learner
from wcgan.train.loop import Outcome, check_images, check_stop_at, save_checkpoint

Changes = dict[str, tuple[Any, Any]]
"""Field of a config -> old and new value."""


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
    ready = prepare(config, folder, resume, accept_config, origin, inception_weights, dataset)
    if is_first_process():
        if ready.own is None:
            new_run(folder, ready.config)
        else:
            write_changes(ready.run, ready.own, ready.config, ready.changes)
        if ready.weights is not None:
            start_from(ready.weights, ready.config, ready.dataset, ready.run)
            ready = replace(ready, weights=None)  # frees their memory
        if dataset is None:
            announce_scores(ready.config, ready.dataset, ready.evaluator is not None, ready.own is None)
    return train(ready.config, ready.dataset, ready.run, ready.evaluator, stop_at, custom)


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


# Before anything is written


@dataclass(frozen=True)
class Ready:
    """A training that may begin: all of it is checked, and nothing is written."""

    run: Run
    config: Config
    """With the networks' sizes taken from the data."""
    dataset: Dataset
    missing: str | None
    """How to get the data if it is not here; for a dry run alone."""
    evaluator: Evaluator | None
    own: Config | None
    """The config of a run that goes on; None for a new one."""
    changes: Changes
    """What the config changes in a run that goes on."""
    weights: Weights | None
    """What a run without a checkpoint starts with."""


def prepare(
    config: Config,
    folder: Path,
    resume: bool,
    accept_config: bool,
    origin: str | Path | None,
    inception_weights: Path | None,
    dataset: Dataset | None = None,
    dry: bool = False,
) -> Ready:
    """Checks all that `start` needs; the arguments are its own. In a dry run, a named data set may be missing."""
    find_hardware(config.train)  # a GPU that is not there is reported before anything is read or written
    run, first, in_memory = Run(folder), is_first_process(), dataset is not None
    # The others take the folder as it will be: the first may still be writing to it.
    begun = is_begun(folder) if first else (folder / "config.yaml").is_file()
    own = run.config() if resume and begun else None
    if own is not None:  # these two are decided once, when a run begins
        held_out = config.data.held_out or own.data.held_out
        config = replace(config, data=replace(config.data, held_out=held_out), origin=own.origin)
        check_resolution(run, own, config)
        if not in_memory:
            check_place(run, config.data.name)
    else:
        if first:
            check_new(folder)
        config = replace(config, origin=None if origin is None else origin_to_name(origin))
        config = config if in_memory else with_held_out(config)
        side = config.data.resolution
        if not in_memory and side not in (None, config.generator.resolution):
            blocks_for(side)  # before the images are read
    missing = None
    if dataset is None:
        try:
            dataset = load_data(config)
        except FileNotFoundError as error:
            if not dry:
                raise
            dataset, missing = outline_if_named(config.data, training_split(config.data.name), error), str(error)
    found = None if own is None else read_newest(run.checkpoints)
    if missing is None:
        check_images(found, dataset, run)
    config = fit_config(config, dataset)
    if not in_memory:
        config = replace(config, data=absolute_paths(config.data))
    check_shares(config, Rank(count=process_count()))
    changes = find_changes(run, own, found, config, accept_config) if first and own is not None else {}
    if own is not None:  # one that was killed before its first checkpoint starts from its origin again
        origin = own.origin if found is None else None
    weights = take_weights(origin, config, dataset) if first and origin is not None else None
    scored = not in_memory and missing is None
    evaluator = evaluator_for(config, dataset, inception_weights, not dry) if scored else None
    return Ready(run, config, dataset, missing, evaluator, own, changes, weights)


def check_new(folder: Path) -> None:
    """Raises a ValueError for a folder in which no new run can begin."""
    if is_begun(folder) or not folder.is_dir():
        require_new(folder, RESUME_OR_MOVE)


# Resuming


def find_changes(run: Run, own: Any, found: Checkpoint | None, config: Any, accept_config: bool = False) -> Changes:
    """What a config changes in a run that goes on: field -> old and new value.

    Args:
        run: the run.
        own: its config.
        found: its newest checkpoint.
        config: what it is to go on with.
        accept_config: whether `config.yaml` may differ from the config of the checkpoint.

    Raises:
        ValueError: for a change that a run may not make.
        CheckpointError: if `config.yaml` was changed since the newest checkpoint, unless that is accepted.
    """
    changes = refuse_changes(run, own, config, CHANGEABLE)
    if found is not None and not accept_config:
        advice = "put these settings back, or go on with them by --accept-config"
        check_config(found, own, advice=advice)
    reached, length = iteration_of(found), config.train.iterations
    if changes and length < min(reached, own.train.iterations):
        raise ValueError(f"train.iterations={length} is less than the {reached} iterations that {run.folder} has")
    return changes


def write_changes(run: Run, own: Any, config: Any, changes: Changes) -> None:
    """Makes a config that of a run, and says what it changes.

    Raises:
        ValueError: if another process trains the run.
    """
    if not changes:
        return
    with run.owned():
        write_config(replace(config, preset=own.preset), run.folder / "config.yaml")
        reached = iteration_of(read_newest(run.checkpoints))
        run.event(reached, "changed", changes={name: list(values) for name, values in changes.items()})
    said = [f"{name} is now {new} (was {old})" for name, (old, new) in changes.items()]
    if "train.iterations" in changes and getattr(config.train, "schedule", "") == "linear":
        said.append(f"the learning rate falls to 0 at iteration {config.train.schedule_end or config.train.iterations}")
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

_LENGTH = "--iterations N sets another length"


def start_from(weights: Weights, config: Config, dataset: Dataset, run: Run) -> None:
    """Gives a run a checkpoint of iteration 0 with the weights of another, and says what was not taken over.

    Raises:
        ValueError: if another process trains the run.
    """
    with run.owned():
        save_checkpoint(players_to_task(weights.players, config, dataset, run), 0, 0.0)
    announce(f"starting with the weights of {weights.source}, iteration {weights.iteration}{weights.said}")
    announce(f"training for {length_to_words(config, dataset)}; {_LENGTH}")


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


# A dry run


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
    config: Config,
    folder: Path,
    resume: bool = False,
    stop_at: int | None = None,
    accept_config: bool = False,
    origin: str | Path | None = None,
    inception_weights: Path | None = None,
) -> dict[str, str]:
    """Describes what `start` would do; writes nothing. The entry `missing` says how to get a data set that is not here.

    It refuses what `start` refuses, with the same errors. The scores of a data set that is not here are not checked.
    """
    check_stop_at(stop_at)
    ready = prepare(config, folder, resume, accept_config, origin, inception_weights, dry=True)
    config, dataset, weights = ready.config, ready.dataset, {}
    players = build_players(config, torch.device("cpu"))
    if ready.weights is not None:
        weights["weights"] = f"start as those of {ready.weights.source}, iteration {ready.weights.iteration}"
    if ready.own is not None and (found := read_newest(ready.run.checkpoints)) is not None:
        tensors_to_learner(found, players_to_task(players, config, dataset, ready.run).learner)
        reached = iteration_of(found)
        done = "; nothing is left to train" if reached >= config.train.iterations else ""
        weights["weights"] = f"go on from iteration {reached}{done}"
    millions = [
        sum(p.numel() for p in network.parameters()) / 1e6 for network in (players.generator, players.discriminator)
    ]
    length = length_to_words(config, dataset) + (f"; {_LENGTH}" if ready.weights else "")
    classes = len(dataset.classes)
    held_out = "; every tenth image is kept out, to score against" if config.data.held_out else ""
    saved = [tensor for network in players.networks.values() for tensor in network.state_dict().values()]
    state = 4 * sum(t.numel() for t in saved) / 1e6 + 8 * sum(millions)  # and Adam's two moments, float32, in MB
    return {
        "data": f"{dataset.name}: {counted(len(dataset), 'image')} of {'x'.join(map(str, dataset.images.shape[1:]))}, "
        f"{counted(classes, 'class') if classes else 'no classes'}{held_out}",
        **({} if ready.missing is None else {"missing": ready.missing}),
        "generator": f"{config.generator.kind}, {config.generator.normalization}, {millions[0]:.2f} M parameters",
        "discriminator": f"{config.discriminator.kind}, {config.discriminator.head}, {millions[1]:.2f} M parameters",
        **weights,
        "training": f"{config.train.loss}, {length}",
        "disk": f"{state * config.train.keep_checkpoints:.0f} MB of checkpoints",
        **processes_to_plan(),
        **find_hardware(config.train).describe(),
    }


def processes_to_plan() -> dict[str, str]:
    """A dry run's line on the processes that `torchrun` started; none for a single one."""
    count = process_count()
    return {"processes": f"{count}, each with 1/{count} of every batch"} if count > 1 else {}


# The networks


def blocks_for(resolution: int) -> tuple[int, int]:
    """The base grid (4 to 7) and the number of doublings that give a resolution."""
    every = {base * 2**doublings: (base, doublings) for base in range(4, 8) for doublings in range(1, 11)}
    allowed = sorted(side for side in every if side <= MOST_RESOLUTION)
    if resolution in allowed:
        return every[resolution]
    near = sorted(sorted(allowed, key=lambda side: abs(side - resolution))[:2])
    raise ValueError(
        f"images of {resolution}x{resolution} do not fit the networks, which double a grid of 4 to 7: "
        f"the nearest sizes are {near[0]} and {near[1]}; --resolution SIZE resizes images in files"
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
