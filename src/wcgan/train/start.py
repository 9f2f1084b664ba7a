"""From a config to a finished run of a GAN: load the data, fit the networks to it, train, evaluate."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist

from wcgan import data
from wcgan.core.device import find_device, find_hardware
from wcgan.core.processes import Rank, is_first_process, process_count
from wcgan.data import Dataset
from wcgan.evaluate.command import sampler_to_sample
from wcgan.evaluate.features import Features
from wcgan.evaluate.image_sets import classifier_for, load_image_set, training_split
from wcgan.evaluate.inception import VARIABLE, load_inception
from wcgan.evaluate.protocol import PROTOCOLS, protocol_to_plan
from wcgan.evaluate.score import evaluate_generator
from wcgan.nets import build_discriminator, build_generator
from wcgan.runs.checkpoint import check_config, read_newest
from wcgan.runs.config import Config
from wcgan.runs.folder import Run, is_begun, new_run, resumed_run
from wcgan.runs.sampler import Sampler
from wcgan.train.batches import check_shares
from wcgan.train.custom import Custom
from wcgan.train.gan import PLAIN, Evaluator, train
from wcgan.train.loop import Outcome, check_stop_at


def start(
    config: Config,
    folder: Path,
    resume: bool = False,
    stop_at: int | None = None,
    accept_config: bool = False,
    dataset: Dataset | None = None,
    custom: Custom = PLAIN,
) -> Outcome:
    """Trains a new run, or with `resume` the one in the folder, if there is one.

    Args:
        config: of the run; with `resume` it must be the same as before.
        folder: must not exist, or be empty; with `resume` it may have a run.
        resume: whether to go on with a run that is there.
        stop_at: an iteration to end at before the last.
        accept_config: whether to go on although `config.yaml` was changed since the newest checkpoint.
        dataset: images in memory; None for those that the config names.
        custom: your own networks, loss and callbacks.
    """
    check_stop_at(stop_at)
    find_hardware(config.train)  # a GPU that is not there is reported before anything is read or written
    in_memory = dataset is not None
    dataset = load_data(config) if dataset is None else dataset
    config = fit_config(config, dataset)
    check_shares(config, Rank(count=process_count()))
    evaluator = None if in_memory else evaluator_for(config, dataset)
    run = Run(folder)
    if is_first_process():  # the others take the folder as it will be: the first may still be writing to it
        if resume and is_begun(folder):
            run, config = resumed_run(folder, config)
            check_checkpoint_config(run, config, accept_config)
        else:
            run = new_run(folder, config)
    return train(config, dataset, run, evaluator, stop_at, custom)


def go_on(folder: Path, stop_at: int | None = None, accept_config: bool = False) -> Outcome:
    """Resumes a run with its own config.

    Args:
        folder: of the run.
        stop_at: an iteration to end at before the last.
        accept_config: whether to go on although `config.yaml` was changed since the newest checkpoint.
    """
    run, config = resumed_run(folder)
    check_checkpoint_config(run, config, accept_config)
    dataset = load_data(config)
    return train(config, dataset, run, evaluator_for(config, dataset), stop_at)


def check_checkpoint_config(run: Run, config: Any, accept: bool) -> None:
    """Raises a CheckpointError if `config.yaml` is not the config that the newest checkpoint was trained with."""
    found = None if accept else read_newest(run.checkpoints)
    if found is not None:
        advice = "put these settings back, or go on with them by --accept-config"
        check_config(found, config, advice=advice)


def load_data(config: Config) -> data.Dataset:
    """The training images; STL-10 trains on its unlabeled ones, as in the paper."""
    chosen = config.data
    split = training_split(chosen.name)
    return data.load(chosen.name, split, chosen.folder, resolution=chosen.resolution, strict=chosen.strict)


def dry_run(config: Config) -> dict[str, str]:
    """Describes what `start` would do; writes nothing."""
    dataset = load_data(config)
    config = fit_config(config, dataset)
    hardware = find_hardware(config.train)
    millions = [
        sum(p.numel() for p in network.parameters()) / 1e6
        for network in (build_generator(config.generator), build_discriminator(config.discriminator))
    ]
    settings = config.train
    images = settings.iterations * settings.critic_steps * settings.batch
    state = 4 * sum(millions) * 3  # weights and Adam's two moments, float32, in MB
    return {
        "data": f"{dataset.name}: {len(dataset)} images of {'x'.join(map(str, dataset.images.shape[1:]))}, "
        f"{len(dataset.classes) or 'no'} classes",
        "generator": f"{config.generator.kind}, {config.generator.normalization}, {millions[0]:.2f} M parameters",
        "discriminator": f"{config.discriminator.kind}, {config.discriminator.head}, {millions[1]:.2f} M parameters",
        "training": f"{settings.loss}, {settings.iterations} iterations of {settings.critic_steps} + 1 updates, "
        f"{images / len(dataset):.1f} passes over the data",
        "disk": f"{state * settings.keep_checkpoints:.0f} MB of checkpoints",
        **hardware.describe(),
    }


def evaluator_for(config: Config, training: data.Dataset) -> Evaluator | None:
    """Scores against the test split, with Inception, and with a small classifier if the data has labels.

    None where nothing can be scored: without a test split, or with neither labels nor Inception's weights.
    """
    settings, name = config.train, config.data.name
    wants_inception = settings.evaluate_with == "inception" or (
        settings.evaluate_with == "auto" and bool(os.environ.get(VARIABLE))
    )
    lacks = "a test split" if "test" not in data.splits(name) else None
    if lacks is None and not wants_inception and training.labels is None:
        lacks = "labels"
    if lacks is not None:
        if settings.evaluate_with == "auto":
            return None
        raise ValueError(
            f"train.evaluate_with={settings.evaluate_with} needs {lacks} and {training.name} has none: use auto"
        )
    device = str(find_device(settings.device))
    size, channels = config.generator.resolution, config.generator.channels
    reference = load_image_set(config.data.reference_name, "test", config.data.folder, size, channels)
    plan = protocol_to_plan(PROTOCOLS["paper-10k"], len(reference), images=settings.evaluate_images)
    networks: list[Features] = [load_inception(device=device)] if wants_inception else []

    def evaluate(sampler: Sampler) -> dict[str, Any]:
        rank = Rank(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Rank()
        if training.labels is not None and len(networks) == int(wants_inception):  # once a run
            networks.append(classifier_for(reference, name, device, rank, config.data.folder))
        metrics = ("is", "fid") if any(network.classes is not None for network in networks) else ("fid",)
        classes = config.generator.classes if config.generator.conditional else None
        return evaluate_generator(
            sampler_to_sample(sampler),
            reference,
            networks,
            plan,
            classes=classes,
            seed=settings.seed,
            metrics=metrics,
            rank=rank,
        )

    return evaluate


def blocks_for(resolution: int) -> tuple[int, int]:
    """The base grid (4 to 7) and the number of doublings that give a resolution."""
    for doublings in range(1, 8):
        base, rest = divmod(resolution, 2**doublings)
        if rest == 0 and 4 <= base <= 7:
            return base, doublings
    raise ValueError(
        f"images of {resolution}x{resolution} do not fit the networks, which double a grid of 4 to 7: "
        f"choose a size such as 16, 28, 32, 48, 64, 96 or 128 with --set data.resolution=SIZE"
    )


def fit_config(config: Config, dataset: Dataset) -> Config:
    """The config with the networks' sizes taken from the data."""
    _, channels, height, width = dataset.images.shape
    if height != width:
        raise ValueError(
            f"the images are {height}x{width}; square ones are needed: --set data.resolution=SIZE crops them"
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
