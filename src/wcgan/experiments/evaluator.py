"""The evaluation of a run while it trains."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

from wcgan import data
from wcgan.evaluate import PROTOCOLS, Features, evaluate_generator, load_inception, protocol_to_plan
from wcgan.evaluate.inception import VARIABLE
from wcgan.experiments.evaluation import sampler_to_sample
from wcgan.experiments.sets import classifier_of, load_set
from wcgan.train.config import Config
from wcgan.train.gan import Evaluator
from wcgan.train.hardware import find_device
from wcgan.train.parallel import Rank
from wcgan.train.sampling import Sampler


def evaluator_for(config: Config, training: data.Dataset) -> Evaluator | None:
    """Scores against the test split, by Inception and by a small classifier where the data has labels.

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
    reference = load_set(config.data.reference_name, "test", config.data.folder, size, channels)
    plan = protocol_to_plan(PROTOCOLS["paper-10k"], len(reference), images=settings.evaluate_images)
    networks: list[Features] = [load_inception(device=device)] if wants_inception else []

    def evaluate(sampler: Sampler) -> dict[str, Any]:
        rank = Rank(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Rank()
        if training.labels is not None and len(networks) == int(wants_inception):  # once a run
            networks.append(classifier_of(reference, name, device, rank, config.data.folder))
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
