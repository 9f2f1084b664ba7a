"""Score images or a generator, and record the protocol that makes the scores comparable."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from wcgan import __version__
from wcgan.core.processes import Rank
from wcgan.core.terminal import OnProgress, counted
from wcgan.data import Dataset
from wcgan.evaluate.fid import frechet_distance
from wcgan.evaluate.image_sets import ChunkedImages, GeneratedImages, Sample, StoredImages, batches
from wcgan.evaluate.inception import Inception, fidelity_version
from wcgan.evaluate.metrics import NEIGHBOURS, SUBSET_SIZE, SUBSETS, kernel_distance, precision_recall
from wcgan.evaluate.protocol import METRICS, Features, Plan, score_name, shape_to_words
from wcgan.evaluate.reference import Meter, Reference, load_reference
from wcgan.evaluate.small_classifier import Classifier


def evaluate_generator(
    sample: Sample,
    reference: Dataset,
    networks: Sequence[Features],
    plan: Plan,
    *,
    classes: int | None = None,
    seed: int = 0,
    **options: Any,
) -> dict[str, Any]:
    """Score a generator.

    Args:
        sample: `sample(n, labels, seed)` gives n uint8 images, from the seed alone.
        reference: the real images.
        networks: the feature networks: `load_inception`, `load_small_classifier`, or both.
        plan: the numbers of images, from `protocol_to_plan`.
        classes: number of classes, from which labels are drawn uniformly; None for a generator without labels.
        seed: seed for labels, images and the subsets of KID.
        options: as for `evaluate_images`.

    Returns:
        The same as `evaluate_images`, and "accuracy(classifier)": the share of the images that the classifier assigns
        to the class they were generated for.
    """
    source = GeneratedImages(sample, classes, seed)
    labels = None if classes is None else "uniform"
    return _evaluate(source, reference, networks, plan, {"labels": labels}, seed=seed, **options)


def evaluate_images(
    images: Dataset, reference: Dataset, networks: Sequence[Features], plan: Plan, *, seed: int = 0, **options: Any
) -> dict[str, Any]:
    """Score images from any source.

    Args:
        images: the images to score, in any order.
        reference: the real images.
        networks: the feature networks: `load_inception`, `load_small_classifier`, or both.
        plan: the numbers of images, from `protocol_to_plan`.
        seed: seed for the subsets of KID.
        options: `metrics`, of "is", "fid", "kid" and "pr", by default the first two; `kid_subset_size`; `rank`, the
            processes that share the work; `batch`, images through a network at once; `cache`, the cache folder;
            `progress`, called with what is being done, how much of it is done, and how much there is.

    Returns:
        "FID", "KID", "precision", "recall" and, where its weights are complete, "IS" by the Inception network;
        "FID(classifier)" and so on by the classifier; "protocol", all that must be equal for figures to be comparable,
        and the standard deviations "std" of IS and KID; "seconds", "device" and "versions".

    Raises:
        ValueError: for too few images, an IS that the weights cannot give, or images that do not fit the network or the
            reference.
    """
    shapes = [tuple(each.images.shape[1:]) for each in (images, reference)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"the images of {images.name} are {shape_to_words(shapes[0])} and those of {reference.name} "
            f"{shape_to_words(shapes[1])}: bring both to one size and mode with --resolution and --channels"
        )
    scored = {"scored": {"dataset": images.name, "images": len(images), "fingerprint": images.fingerprint}}
    return _evaluate(StoredImages(images), reference, networks, plan, scored, seed=seed, **options)


def _evaluate(
    source: ChunkedImages,
    reference: Dataset,
    networks: Sequence[Features],
    plan: Plan,
    facts: dict[str, Any],
    *,
    seed: int,
    metrics: Sequence[str] = ("is", "fid"),
    kid_subset_size: int = SUBSET_SIZE,
    rank: Rank | None = None,
    batch: int | None = None,
    cache: Path | None = None,
    progress: OnProgress | None = None,
) -> dict[str, Any]:
    began, rank = time.monotonic(), rank or Rank()
    check_metrics(metrics, networks)
    if batch is not None and batch < 1:
        raise ValueError(f"batch must be at least 1 image, got {batch}")
    if "kid" in metrics and min(plan.reference, plan.generated) < kid_subset_size:
        raise ValueError(
            f"KID draws subsets of {kid_subset_size:,} images, and {plan.generated:,} are scored against "
            f"{plan.reference:,}: score more, or give --kid-subset-size N"
        )
    if "pr" in metrics and min(plan.reference, plan.generated) <= NEIGHBOURS:
        raise ValueError(
            f"precision and recall need more than {NEIGHBOURS} images of each set, and {plan.generated:,} are scored "
            f"against {plan.reference:,}"
        )
    references = [
        load_reference(
            reference, plan.reference, network, metrics, rank=rank, batch=batch, cache=cache, progress=progress
        )
        for network in networks
    ]
    meters = [Meter(network, plan, metrics) for network in networks]
    count = plan.images(metrics)
    for start, images, labels in batches(source, count, batch or min(n.batch for n in networks), rank):
        for meter in meters:
            meter.update(start, images, labels)
        if progress is not None:
            progress("images to score", min(count, start + len(images)), count)
    scores: dict[str, Any] = {}
    deviations: dict[str, float] = {}
    for meter, known in zip(meters, references, strict=True):
        meter.share(rank)
        _add_scores(meter, known, metrics, kid_subset_size, seed, rank, scores, deviations)
    protocol = {
        "name": plan.name,
        **_networks_to_facts(networks),
        "reference": {
            "dataset": reference.name,
            "split": reference.split,
            "images": plan.reference,
            "of": len(reference),
            "fingerprint": reference.fingerprint,
        },
        **facts,
        **({"generated": plan.generated} if set(metrics) - {"is"} else {}),
        **({"splits": plan.sets, "scored_by_IS": plan.scored} if "is" in metrics else {}),
        **({"kid_subsets": SUBSETS, "kid_subset_size": kid_subset_size} if "kid" in metrics else {}),
        **({"neighbours": NEIGHBOURS} if "pr" in metrics else {}),
        "seed": seed,
        "std": deviations,
    }
    return {
        **scores,
        "protocol": protocol,
        "seconds": round(time.monotonic() - began, 3),
        "device": _device_to_words(networks[0].device),
        "versions": _versions(networks),
    }


def check_metrics(metrics: Sequence[str], networks: Sequence[Features]) -> None:
    """Raises a ValueError for an unknown metric, or one that none of the networks supports."""
    unknown = [metric for metric in metrics if metric not in METRICS]
    if unknown or not metrics:
        raise ValueError(f"metrics must be some of {', '.join(METRICS)}, got {', '.join(unknown) or 'none'}")
    if "is" in metrics and all(network.classes is None for network in networks):
        raise ValueError(
            "IS needs the predictions of the Inception network and these weights lack its last layer (fc.weight): "
            "leave IS out of --metrics, give complete weights, or use IS(classifier) with --features classifier"
        )


def _add_scores(
    meter: Meter,
    reference: Reference,
    metrics: Sequence[str],
    subset_size: int,
    seed: int,
    rank: Rank,
    scores: dict[str, Any],
    deviations: dict[str, float],
) -> None:
    """Add the scores of one network under their names."""
    network = meter.features
    if meter.moments is not None and reference.moments is not None:
        moments = meter.moments.moments()
        scores[score_name("fid", network)] = frechet_distance(moments, reference.moments, reference.factor)
    if meter.score is not None:
        name = score_name("is", network)
        scores[name], deviations[name] = meter.score.score()
    if "kid" in metrics and meter.kept is not None and reference.features is not None:
        name = score_name("kid", network)
        distance = kernel_distance(meter.kept, reference.features, SUBSETS, subset_size, seed, rank)
        scores[name], deviations[name] = distance
    if "pr" in metrics and meter.kept is not None and reference.features is not None:
        names = [score_name(metric, network) for metric in ("precision", "recall")]
        scores |= dict(zip(names, precision_recall(meter.kept, reference.features, rank=rank), strict=True))
    if isinstance(network, Classifier) and meter.accuracy is not None:
        scores[score_name("accuracy", network)] = meter.accuracy


def _networks_to_facts(networks: Sequence[Features]) -> dict[str, Any]:
    facts: dict[str, Any] = {"features": " and ".join(network.name for network in networks)}
    for network in networks:
        if isinstance(network, Classifier):
            known = network.facts
            kept = ("trained_on", "images", "tested_on", "accuracy", "weights")
            facts["classifier"] = {key: getattr(known, key) for key in kept}
        else:
            facts["inception"] = {"weights": network.fingerprint}
    return facts


def _versions(networks: Sequence[Features]) -> dict[str, str]:
    versions = {"wcgan": __version__, "torch": torch.__version__}
    if any(isinstance(network, Inception) for network in networks):
        versions["torch-fidelity"] = fidelity_version()
    return versions


def _device_to_words(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    count = torch.get_num_threads()
    return f"{platform.processor() or platform.machine()} CPU, {counted(count, 'thread')}"
