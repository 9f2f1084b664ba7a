"""From a generator to its scores, with the protocol that makes them comparable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wcgan.data import Dataset
from wcgan.evaluate.classifier import Classifier, ClassifierSettings
from wcgan.evaluate.frechet import RunningMoments, frechet_distance
from wcgan.evaluate.inception_score import inception_score
from wcgan.evaluate.train_classifier import Progress, load_classifier

Sample = Callable[[int, "Tensor | None", int], Tensor]
"""`sample(n, labels, seed)`: n uint8 images `(n, C, H, W)`, for labels `(n,)` or None, from the seed alone."""


def evaluate_generator(
    sample: Sample,
    reference: Dataset,
    count: int = 5000,
    features: str | Classifier = "classifier",
    seed: int = 0,
    device: torch.device | str | None = None,
    batch: int = 256,
    *,
    conditional: bool = True,
    training: Dataset | None = None,
    splits: int | None = None,
    settings: ClassifierSettings | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Scores of a generator by the features and predictions of a small classifier.

    The names say whose features they are: none of these figures can be compared with an FID or IS by Inception.

    Args:
        sample: `sample(n, labels, seed)` gives n uint8 images, from the seed alone.
        reference: the real images of the distance, all of them.
        count: how many images are generated.
        features: "classifier", or a classifier that is at hand (and keeps what it knows of the reference).
        seed: of the labels (uniform over the classes) and, batch by batch, of the images.
        device: where the classifier runs; by default the GPU, if there is one.
        batch: how many images are generated at a time. Part of the protocol: each batch has a seed of its own.
        conditional: whether `sample` is given labels; it gets None if not.
        training: what the classifier learns from, where the reference is another split.
        splits: parts of the images that get an inception score each; by default 10, or fewer of two images each.
        settings: how the classifier is made.
        cache: the cache folder.
        progress: called with (epochs done, epochs) if the classifier has to be trained.

    Returns:
        "FID(classifier)"; "IS(classifier)", the mean over the splits; "accuracy(classifier)", the share of the
        generated images that the classifier takes for the class asked for, None if not conditional; and "protocol",
        all that must be equal for figures to be comparable, with the standard deviation "IS_std" beside it.

    Raises:
        ValueError: for too few images, unknown features, or images that do not fit the classifier.
    """
    if count < 2:
        raise ValueError(f"count must be at least 2 images, got {count}")
    if batch < 1:
        raise ValueError(f"batch must be at least 1 image, got {batch}")
    splits = min(10, count // 2) if splits is None else splits
    if not 1 <= splits <= count:
        raise ValueError(f"splits must be from 1 to the number of images, {count}, got {splits}")
    if len(reference) < 2:
        raise ValueError(f"the reference {reference.name!r} must have at least 2 images, got {len(reference)}")
    if isinstance(features, Classifier):
        classifier = features
    elif features == "classifier":
        classifier = _classifier_for(reference, training, settings, device, cache, progress)
    else:
        raise ValueError(f"features must be 'classifier' or a Classifier, got {features!r}")

    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(classifier.facts.classes), (count,), generator=generator) if conditional else None
    running = RunningMoments(classifier.size)
    logits = []
    for start in range(0, count, batch):
        size = min(batch, count - start)
        wanted = None if labels is None else labels[start : start + size]
        images = sample(size, wanted, int(torch.randint(2**63 - 1, (), generator=generator)))
        if len(images) != size:
            raise ValueError(f"sample must return the {size} images asked for, got {len(images)}")
        batch_features, batch_logits = classifier.predict(images)
        running.update(batch_features)
        logits.append(batch_logits.cpu())
    predictions = torch.cat(logits)
    score, deviation = inception_score(predictions, splits)
    return {
        "FID(classifier)": frechet_distance(running.moments(), classifier.moments(reference)),
        "IS(classifier)": score,
        "accuracy(classifier)": None if labels is None else float((predictions.argmax(1) == labels).double().mean()),
        "protocol": {
            "features": "classifier",
            "classifier": {
                "trained_on": classifier.facts.trained_on,
                "images": classifier.facts.images,
                "tested_on": classifier.facts.tested_on,
                "accuracy": classifier.facts.accuracy,
                "weights": classifier.facts.weights,
            },
            "reference": {
                "dataset": reference.name,
                "split": reference.split,
                "images": len(reference),
                "fingerprint": reference.fingerprint,
            },
            "generated": count,
            "labels": "uniform" if conditional else None,
            "splits": splits,
            "seed": seed,
            "batch": batch,
            "IS_std": deviation,
        },
    }


def _classifier_for(
    reference: Dataset,
    training: Dataset | None,
    settings: ClassifierSettings | None,
    device: torch.device | str | None,
    cache: Path | None,
    progress: Progress | None,
) -> Classifier:
    """The classifier that learns from the training split, tested on the reference where that is another one."""
    if training is None:
        if reference.split != "train":
            raise ValueError(
                f"the reference is the split {reference.split!r} of {reference.name!r}, and the classifier must not "
                "learn from that: give its training split as training="
            )
        training = reference
    test = None if training.fingerprint == reference.fingerprint or reference.labels is None else reference
    return load_classifier(training, test, settings, device=device, cache=cache, progress=progress)
