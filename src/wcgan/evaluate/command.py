"""`wcgan evaluate`: score a run, a checkpoint or a folder of images against real images, with a protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from wcgan import data
from wcgan.core.device import find_device
from wcgan.core.processes import Rank, join_processes
from wcgan.core.terminal import OnProgress
from wcgan.evaluate.features import Features
from wcgan.evaluate.image_sets import classifier_for, load_image_set, name_to_parts
from wcgan.evaluate.inception import load_inception
from wcgan.evaluate.precision_recall import NEIGHBOURS
from wcgan.evaluate.protocol import METRICS, Plan, Protocol, find_protocol, protocol_to_plan
from wcgan.evaluate.score import evaluate_generator, evaluate_images
from wcgan.runs.checkpoint import Checkpoint, check_config, find_checkpoint, read_checkpoint
from wcgan.runs.folder import Run
from wcgan.runs.pretrained import shipped, shipped_generators
from wcgan.runs.sampler import Sampler, load_generator

FEATURES = ("inception", "classifier")


@dataclass(frozen=True)
class EvaluationConfig:
    """The options of an evaluation."""

    reference: str | None = None
    """The real images: `name:split`, or a folder. None for the data of the run."""
    protocol: str | None = None
    """A name in `PROTOCOLS`; None for paper-10k with a run and all with a folder."""
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
    resolution: int | None = None
    """For a folder: the side to which its images and the real images are resized."""
    channels: int | None = None
    """For a folder: 1 to convert both sets to grey, 3 to colour."""
    batch: int | None = None
    """Batch size for the networks; affects only time and memory."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""

    def __post_init__(self) -> None:
        for name, values, allowed in (("metrics", self.metrics, METRICS), ("features", self.features, FEATURES)):
            unknown = [value for value in values or () if value not in allowed]
            if unknown or values == ():
                raise ValueError(f"--{name} takes some of {', '.join(allowed)}, got {', '.join(unknown) or 'none'}")
        for name, least in (("batch", 1), ("kid_subset_size", 2)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"--{name.replace('_', '-')} must be at least {least}, got {value}")


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    scores: dict[str, Any]
    """The scores under their names, the protocol, the time and the hardware."""
    iteration: int
    """Iteration of the generator; 0 for images."""
    run: Run | None
    """The run or folder of images whose metrics get the scores; None for what comes with the package."""
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
        measured = _evaluate_run(path, config, rank, shown)
        return replace(measured, run=None) if is_shipped else measured  # nothing is written into the package


def _evaluate_run(path: Path, config: EvaluationConfig, rank: Rank, progress: OnProgress | None) -> Evaluation:
    if config.resolution is not None or config.channels is not None:
        raise ValueError(
            "--resolution and --channels are for folders of images: real images are brought to the generator's"
        )
    run, found = path_to_checkpoint(path, config.checkpoint)
    own, device = run.config(), str(find_device(config.device))
    check_config(found, own, "data", "generator")
    protocol = find_protocol(config.protocol or "paper-10k")
    generator = own.generator
    tested = own.data.reference_name if protocol.split == "test" else own.data.name
    reference = load_image_set(
        config.reference or tested,
        protocol.split,
        own.data.folder,
        generator.resolution,
        generator.channels,
        progress,
    )
    name = config.reference or own.data.name
    networks = _inception(config, device) + _classifier(
        config, reference, name, device, rank, own.data.folder, progress
    )
    metrics, plan, notes = _plan(config, networks, protocol, len(reference), None)
    sampler = load_generator(run.folder, found.path.stem, device)
    scores = evaluate_generator(
        sampler_to_sample(sampler),
        reference,
        networks,
        plan,
        classes=generator.classes if generator.conditional else None,
        **_options(config, metrics, rank, progress),
    )
    return Evaluation(scores, int(found.facts["iteration"]), run, notes, rank.first)


def _evaluate_set(target: str, config: EvaluationConfig, rank: Rank, progress: OnProgress | None) -> Evaluation:
    if config.reference is None:
        raise ValueError(f"what should {target} be compared with? Give --data name:split or --data FOLDER")
    protocol, device = find_protocol(config.protocol or "all"), str(find_device(config.device))
    size = (config.resolution, config.channels)
    images = load_image_set(target, "test", None, *size, progress)
    reference = load_image_set(config.reference, protocol.split, None, *size, progress)
    networks = _inception(config, device)  # after the images, so that their errors are reported at once
    networks += _classifier(config, reference, config.reference, device, rank, None, progress)
    metrics, plan, notes = _plan(config, networks, protocol, len(reference), len(images))
    scores = evaluate_images(images, reference, networks, plan, **_options(config, metrics, rank, progress))
    return Evaluation(scores, 0, Run(Path(target)) if Path(target).is_dir() else None, notes, rank.first)


def path_to_checkpoint(path: Path, wanted: str) -> tuple[Run, Checkpoint]:
    """The run and checkpoint for a path: a file in `checkpoints`, or a run's folder and the wanted checkpoint."""
    if path.suffix != ".safetensors":
        return Run(path), find_checkpoint(Run(path), wanted)
    run = Run(path.parent.parent)
    if not (run.folder / "config.yaml").is_file():
        raise ValueError(f"{path} is not a checkpoint of a run: there is no {run.folder / 'config.yaml'}")
    return run, read_checkpoint(path.with_suffix(""))


def _inception(config: EvaluationConfig, device: str) -> list[Features]:
    return [load_inception(config.inception_weights, device)] if "inception" in config.features else []


def _classifier(
    config: EvaluationConfig,
    reference: data.Dataset,
    name: str,
    device: str,
    rank: Rank,
    folder: str | None,
    progress: OnProgress | None,
) -> list[Features]:
    if "classifier" not in config.features:
        return []
    return [classifier_for(reference, name_to_parts(name)[0], device, rank, folder, progress)]


def _plan(
    config: EvaluationConfig, networks: Sequence[Features], protocol: Protocol, reference: int, generated: int | None
) -> tuple[tuple[str, ...], Plan, tuple[str, ...]]:
    """The metrics asked for, or all that are possible; their plan; and notes on those left out."""
    metrics, notes = list(config.metrics or METRICS), []
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


def sampler_to_sample(sampler: Sampler) -> Any:
    """A generator as the function that evaluation needs; its images stay on the device."""

    def sample(count: int, labels: Tensor | None, seed: int) -> Tensor:
        return sampler.from_noise(sampler.noise(count, seed), labels, stay=True)

    return sample
