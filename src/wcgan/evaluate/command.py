"""`wcgan evaluate`: score a run, a checkpoint or a folder of images against real images, with a protocol."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from wcgan import data
from wcgan.core.device import find_device
from wcgan.core.processes import Rank, join_processes
from wcgan.core.terminal import OnProgress
from wcgan.evaluate.image_sets import (
    CHUNK,
    classifier_for,
    load_image_set,
    load_real_images,
    load_training_images,
    name_to_parts,
)
from wcgan.evaluate.inception import VARIABLE, load_inception
from wcgan.evaluate.metrics import NEIGHBOURS
from wcgan.evaluate.protocol import METRICS, PROTOCOLS, Features, Plan, Protocol, find_protocol, protocol_to_plan
from wcgan.evaluate.score import evaluate_generator, evaluate_images
from wcgan.evaluate.small_classifier import Classifier
from wcgan.evaluate.train_small_classifier import check_learnable
from wcgan.norm import use_batch_statistics
from wcgan.runs.checkpoint import Checkpoint, CheckpointError, check_config, find_checkpoint, read_checkpoint, section
from wcgan.runs.config import Config
from wcgan.runs.folder import Run
from wcgan.runs.pretrained import shipped, shipped_generators
from wcgan.runs.sampler import Sampler, checkpoint_to_sampler

FEATURES = ("inception", "classifier")
Evaluator = Callable[[Sampler], dict[str, Any]]
"""A generator -> its scores."""


@dataclass(frozen=True)
class EvaluationConfig:
    """The options of an evaluation."""

    reference: str | None = None
    """The real images: `name:split`, or a folder. None for the data of the run."""
    protocol: str | None = None
    """A name in `PROTOCOLS`; None for the one that fits the number of real images."""
    metrics: tuple[str, ...] | None = None
    """Some of is, fid, kid and pr (precision and recall); None for all that are possible."""
    features: tuple[str, ...] = ("inception",)
    """The feature networks: inception, classifier or both."""
    inception_weights: Path | None = None
    """A file of weights; None for the file in `WCGAN_INCEPTION_WEIGHTS`, or a download."""
    images: int | None = None
    """Number of images to score, instead of the protocol's."""
    kid_subset_size: int = 1000
    """Images in each of KID's subsets."""
    seed: int = 0
    """Seed for labels, noise and KID's subsets."""
    checkpoint: str = "last"
    """The checkpoint of a run: last, best or an iteration."""
    average: bool = True
    """Whether a run with a moving average of its generator is scored by that, or by the generator itself."""
    batch_statistics: int | None = None
    """Normalise generated images by the statistics of batches of this size; None for the running statistics."""
    resolution: int | None = None
    """For a folder: the side to which its images and the real images are resized."""
    channels: int | None = None
    """For a folder: 1 to convert both sets to grey, 3 to colour."""
    strict: bool = False
    """Whether a broken image is an error instead of skipped."""
    batch: int | None = None
    """Batch size for the networks; affects only time and memory."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""

    def __post_init__(self) -> None:
        both = "; pr is precision and recall"
        for name, values, allowed, note in (
            ("metrics", self.metrics, METRICS, both),
            ("features", self.features, FEATURES, ""),
        ):
            unknown = [value for value in values or () if value not in allowed]
            if unknown or values == ():
                given = ", ".join(unknown) or "none"
                raise ValueError(f"--{name} takes some of {', '.join(allowed)}, got {given}{note}")
        for name, least in (("batch", 1), ("kid_subset_size", 2)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"--{name.replace('_', '-')} must be at least {least}, got {value}")
        if self.batch_statistics is not None and (self.batch_statistics < 2 or CHUNK % self.batch_statistics):
            raise ValueError(f"--batch-statistics must be a power of 2 up to {CHUNK}, got {self.batch_statistics}")


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    scores: dict[str, Any]
    """The scores under their names, the protocol, the time and the hardware."""
    iteration: int
    """Iteration of the generator; 0 for images."""
    notes: tuple[str, ...]
    """What was left out and why."""
    first_process: bool
    """Whether this process is the one that writes."""


def evaluate(target: str, config: EvaluationConfig, progress: OnProgress | None = None) -> Evaluation:
    """Score a run, a checkpoint, a folder of images or a named set.

    Args:
        target: the folder of a run, a `.safetensors` file in its `checkpoints`, the name of a generator that comes with
            the package, a folder of images, or `name:split`.
        config: the options.
        progress: called with a description, how much is done, and how much there is.

    Raises:
        ValueError: for a target that is none of these, or one that cannot be scored.
    """
    is_shipped = target in shipped_generators() and not Path(target).exists()
    path = shipped(target) if is_shipped else Path(target)
    is_run = path.suffix == ".safetensors" or (path / "config.yaml").is_file()
    if not is_run and not path.is_dir() and name_to_parts(target)[0] not in data.names():
        raise ValueError(
            f"{target} is neither a run, nor a checkpoint, nor a folder of images, nor a dataset,"
            f" nor a generator of the package: {', '.join(shipped_generators())}"
        )
    with join_processes(find_device(config.device)) as rank:
        shown = progress if rank.first else None
        if not is_run:
            return _evaluate_set(target, config, rank, shown)
        return _evaluate_run(path, config, rank, shown)


def target_to_run(target: str) -> Run | None:
    """The run or folder of images whose metrics get the scores; None for named sets and generators of the package."""
    path = Path(target)
    if path.suffix == ".safetensors":
        path = path.parent.parent
    return Run(path) if path.is_dir() else None


def _evaluate_run(path: Path, config: EvaluationConfig, rank: Rank, progress: OnProgress | None) -> Evaluation:
    if config.resolution is not None or config.channels is not None:
        raise ValueError(
            "--resolution and --channels are for folders of images: real images are brought to the generator's"
        )
    run, found = path_to_checkpoint(path, config.checkpoint)
    if not config.average and not section(found.tensors, "average"):
        raise ValueError(f"{run.folder} has no moving average of its generator: leave out --no-average")
    own, device = run.config(), str(find_device(config.device))
    check_config(found, own, "data", "generator")
    real = replace(own.data, strict=config.strict or own.data.strict)
    name = name_to_parts(config.reference or real.name)[0]
    protocol = default_protocol(name) if config.protocol is None else find_protocol(config.protocol)
    size = (own.generator.resolution, own.generator.channels, progress)
    if config.reference is not None:
        reference = load_image_set(config.reference, protocol.split, real.folder, *size, real.strict)
    else:
        _check_data(run, own, found)
        reference = load_real_images(real, protocol.split, *size)
    held_out = real.held_out and config.reference is None
    networks = _networks(config, reference, name, device, rank, real.folder, progress, held_out)
    if (
        config.protocol is None
        and config.images is None
        and len(reference) < (protocol.reference or len(reference) + 1)
    ):
        config = replace(config, images=own.train.evaluate_images)  # as during training
    metrics, plan, notes = _plan(config, networks, protocol, len(reference), None)
    sampler = checkpoint_to_sampler(found, own.generator, device, config.average)
    if config.batch_statistics is not None:
        use_batch_statistics(sampler.network)
    scores = evaluate_generator(
        sampler_to_sample(sampler, config.batch_statistics or CHUNK),
        reference,
        networks,
        plan,
        classes=own.generator.classes if own.generator.conditional else None,
        **_options(config, metrics, rank, progress),
    )
    if not config.average:
        scores["protocol"]["generator"] = "not averaged"
    if config.batch_statistics is not None:
        scores["protocol"]["statistics"] = f"of batches of {config.batch_statistics}"
    return Evaluation(scores, int(found.facts["iteration"]), notes, rank.first)


def default_protocol(name: str) -> Protocol:
    """The protocol for a run unless one is asked for: the paper's for its data sets, all images for a folder."""
    return PROTOCOLS["paper-10k" if name in data.names() else "all"]


def _check_data(run: Run, own: Config, found: Checkpoint) -> None:
    """Raises a ValueError if the run's images are no longer there, or were exchanged for others.

    They are only looked at where the path in `config.yaml` is another than when the checkpoint was written.
    """
    if own.data.name not in data.names() and not Path(own.data.name).is_dir():
        raise ValueError(
            f"the images of {run.folder} are no longer in {own.data.name}: --data FOLDER says where they are now"
        )
    before = found.facts.get("config", {}).get("data", {})
    moved = isinstance(before, dict) and before.get("name", own.data.name) != own.data.name
    if moved and load_training_images(own.data).fingerprint != found.facts.get("data"):
        raise CheckpointError(
            f"the images in {own.data.name}, which config.yaml names, are not those that {found.path.name} was "
            f"trained on: put {before['name']} back, or compare with other images by --data"
        )


def _evaluate_set(target: str, config: EvaluationConfig, rank: Rank, progress: OnProgress | None) -> Evaluation:
    if config.batch_statistics is not None:
        raise ValueError(f"--batch-statistics is for generators, and {target} is a set of images")
    if config.reference is None:
        raise ValueError(f"what should {target} be compared with? Give --data name:split or --data FOLDER")
    protocol, device = find_protocol(config.protocol or "all"), str(find_device(config.device))
    size = (config.resolution, config.channels)
    images = load_image_set(target, "test", None, *size, progress, config.strict)
    reference = load_image_set(config.reference, protocol.split, None, *size, progress, config.strict)
    networks = _networks(config, reference, name_to_parts(config.reference)[0], device, rank, None, progress)
    metrics, plan, notes = _plan(config, networks, protocol, len(reference), len(images))
    scores = evaluate_images(images, reference, networks, plan, **_options(config, metrics, rank, progress))
    return Evaluation(scores, 0, notes, rank.first)


def path_to_checkpoint(path: Path, wanted: str) -> tuple[Run, Checkpoint]:
    """The run and checkpoint for a path: a file in `checkpoints`, or a run's folder and the wanted checkpoint."""
    if path.suffix != ".safetensors":
        return Run(path), find_checkpoint(Run(path), wanted)
    run = Run(path.parent.parent)
    if not (run.folder / "config.yaml").is_file():
        raise ValueError(f"{path} is not a checkpoint of a run: there is no {run.folder / 'config.yaml'}")
    return run, read_checkpoint(path)


def _networks(
    config: EvaluationConfig,
    reference: data.Dataset,
    name: str,
    device: str,
    rank: Rank,
    folder: str | None,
    progress: OnProgress | None,
    held_out: bool = False,
) -> list[Features]:
    """The networks that score; loaded after the images, so that an error in these is reported at once."""
    found: list[Features] = []
    if "inception" in config.features:
        found.append(load_inception(config.inception_weights, device))
    if "classifier" in config.features:
        found.append(classifier_for(reference, name, device, rank, folder, progress, held_out))
    return found


def _plan(
    config: EvaluationConfig, networks: Sequence[Features], protocol: Protocol, reference: int, generated: int | None
) -> tuple[tuple[str, ...], Plan, tuple[str, ...]]:
    """The metrics asked for, or all that are possible; their plan; and notes on those left out or of little worth."""
    metrics, notes = list(config.metrics or METRICS), [note for network in networks for note in doubts(network)]
    if config.metrics is None and all(network.classes is None for network in networks):
        metrics.remove("is")
        notes.append("IS is left out: the Inception weights lack their last layer")
    plan = protocol_to_plan(protocol, reference, generated, config.images, metrics)
    if config.metrics is None and min(plan.reference, plan.generated) < config.kid_subset_size:
        metrics.remove("kid")
        notes.append(f"KID is left out: it draws subsets of {config.kid_subset_size:,} images; see --kid-subset-size")
    if config.metrics is None and min(plan.reference, plan.generated) <= NEIGHBOURS:
        metrics.remove("pr")
        notes.append(f"precision and recall are left out: they need more than {NEIGHBOURS} images of each set")
    return tuple(metrics), plan, tuple(notes)


def doubts(network: Features) -> list[str]:
    """A note if a network's scores mean little: a classifier that knows its classes hardly better than by chance."""
    if not isinstance(network, Classifier):
        return []
    facts, chance = network.facts, 1 / network.classes
    if facts.accuracy >= chance + (1 - chance) / 4:
        return []
    return [
        f"the classifier is right for {facts.accuracy:.0%} of {facts.tested_on}, and chance for {chance:.0%}: "
        "its scores say little about these images"
    ]


def _options(
    config: EvaluationConfig, metrics: Sequence[str], rank: Rank, progress: OnProgress | None
) -> dict[str, Any]:
    return {
        "metrics": metrics,
        "seed": config.seed,
        "kid_subset_size": config.kid_subset_size,
        "batch": config.batch,
        "rank": rank,
        "progress": progress,
    }


def sampler_to_sample(sampler: Sampler, batch: int = CHUNK) -> Any:
    """A generator as the function that evaluation needs; its images stay on the device."""

    def sample(count: int, labels: Tensor | None, seed: int) -> Tensor:
        return sampler.from_noise(sampler.noise(count, seed), labels, batch, stay=True)

    return sample


# During training


def evaluator_for(
    config: Config, training: data.Dataset, inception_weights: Path | None = None, download: bool = True
) -> Evaluator | None:
    """Scores against the test split, with Inception, and with a small classifier if the data has labels.

    None if nothing is to be scored (`train.evaluate_with=none`) or nothing can be: without a test split, unless
    `train.evaluate_every` asks for scores, or with neither labels of several classes nor Inception's weights.

    Args:
        config: of the run.
        training: the images it is trained on.
        inception_weights: a file; None for the one in `WCGAN_INCEPTION_WEIGHTS`, if any.
        download: whether to download Inception's weights if there is no file; without them, an evaluator cannot score.

    Raises:
        ValueError: if the config asks for scores that cannot be had.
    """
    settings, chosen = config.train, config.data
    if settings.evaluate_with == "none":
        return None
    has_file = bool(inception_weights or os.environ.get(VARIABLE))
    wants_inception = settings.evaluate_with == "inception" or (settings.evaluate_with == "auto" and has_file)
    labelled = len(training.classes) > 1  # images in a single sub-folder are all of one class
    tested = chosen.held_out or chosen.reference is not None or "test" in data.splits(chosen.name)
    lacks = None if tested or settings.evaluate_every else "a test split"
    if lacks is None and not wants_inception and not labelled:
        lacks = "labels of several classes"
    if lacks is not None:
        if settings.evaluate_with == "auto":
            return None
        raise ValueError(
            f"train.evaluate_with={settings.evaluate_with} needs {lacks} and {training.name} has none: use auto"
        )
    device = str(find_device(settings.device))
    reference = load_real_images(chosen, "test", config.generator.resolution, config.generator.channels)
    plan = protocol_to_plan(default_protocol(chosen.name), len(reference), images=settings.evaluate_images)
    if labelled:  # before the training, not at its first evaluation
        check_learnable(training, reference if reference.split == "test" else None)
    networks: list[Features] = []
    if wants_inception and (has_file or download):
        networks.append(load_inception(inception_weights, device))

    def evaluate(sampler: Sampler) -> dict[str, Any]:
        rank = Rank(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Rank()
        if labelled and len(networks) == int(wants_inception):  # once a run
            held_out = chosen.held_out
            networks.append(classifier_for(reference, chosen.name, device, rank, chosen.folder, held_out=held_out))
        metrics = ("is", "fid") if any(network.classes is not None for network in networks) else ("fid",)
        return evaluate_generator(
            sampler_to_sample(sampler),
            reference,
            networks,
            plan,
            classes=config.generator.classes if config.generator.conditional else None,
            seed=settings.seed,
            metrics=metrics,
            rank=rank,
        )

    return evaluate
