"""Train the small classifier for a dataset, once, and keep it in the cache."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from wcgan.core.device import find_device
from wcgan.core.tensor_files import fingerprint, load_cached, save_cached
from wcgan.core.terminal import counted
from wcgan.data import Dataset
from wcgan.evaluate.small_classifier import (
    Classifier,
    ClassifierFacts,
    ClassifierNetwork,
    ClassifierSettings,
    images_to_predictions,
    pixels_to_input,
    reproducible,
)

OnEpoch = Callable[[int, int], None]
_FORMAT = 1  # increase when the network or its training changes, so that old classifiers are not loaded


def load_small_classifier(
    training: Dataset,
    test: Dataset | None = None,
    settings: ClassifierSettings | None = None,
    *,
    device: torch.device | str | None = None,
    cache: Path | None = None,
    progress: OnEpoch | None = None,
) -> Classifier:
    """The classifier for a dataset: loaded from the cache, or trained now and stored there.

    Args:
        training: images and labels to learn from.
        test: images and labels for its accuracy; by default, every tenth image of `training` is held out.
        settings: its size and training.
        device: where it is trained and runs; by default the GPU, if there is one.
        cache: the cache folder; by default `WCGAN_CACHE`, else `~/.cache/wcgan`.
        progress: called with (epochs done, epochs) during training.

    Raises:
        ValueError: for a dataset without labels, with one class only or with too few images, or a test set that does
            not match it.
    """
    settings = settings or ClassifierSettings()
    place = find_device("auto" if device is None else str(device))
    check_learnable(training, test)
    name = _name(training, test, settings)
    stored = load_cached("classifiers", name, cache)
    if stored is None:
        classifier = train_small_classifier(training, test, settings, device=place, progress=progress)
        save_cached("classifiers", name, classifier.network.state_dict(), asdict(classifier.facts), cache)
        return classifier
    weights, record = stored
    record |= {"shape": tuple(record["shape"]), "classes": tuple(record["classes"]), "settings": settings}
    facts = ClassifierFacts(**record)
    network = _build(facts.shape, len(facts.classes), settings)
    network.load_state_dict(weights)
    return Classifier(network, facts, place)


def train_small_classifier(
    training: Dataset,
    test: Dataset | None = None,
    settings: ClassifierSettings | None = None,
    *,
    device: torch.device | str | None = None,
    progress: OnEpoch | None = None,
) -> Classifier:
    """Train a classifier without the cache; the arguments are those of `load_small_classifier`."""
    settings = settings or ClassifierSettings()
    place = find_device("auto" if device is None else str(device))
    check_learnable(training, test)
    images, labels = _tensors(training)
    channels, height, width = images.shape[1:]
    kept_out = torch.arange(len(images)) % 10 == 9
    if test is not None:
        kept_out[:] = False
    learnt = (~kept_out).nonzero().flatten()
    network = _build((channels, height, width), len(training.classes), settings).to(place)
    _fit(network, images, labels, learnt, settings, place, progress)

    trained_on = f"{training.name} {training.split}"
    if test is None:
        tested_on = f"every tenth image of {trained_on} (kept out of its training)"
        accuracy = _accuracy(network, images[kept_out], labels[kept_out], place)
    else:
        tested_on = f"{test.name} {test.split}"
        accuracy = _accuracy(network, *_tensors(test), place)
    facts = ClassifierFacts(
        trained_on=trained_on,
        images=len(learnt),
        shape=(channels, height, width),
        classes=tuple(training.classes),
        tested_on=tested_on,
        accuracy=accuracy,
        weights=fingerprint(network.state_dict()),
        settings=settings,
    )
    return Classifier(network, facts, place)


def _fit(
    network: ClassifierNetwork,
    images: Tensor,
    labels: Tensor,
    learnt: Tensor,
    settings: ClassifierSettings,
    device: torch.device,
    progress: OnEpoch | None,
) -> None:
    """Train on the images with the indices `learnt`, with AdamW and a learning rate that rises and falls once."""
    generator = torch.Generator().manual_seed(settings.seed)
    batch = min(settings.batch, len(learnt))
    per_epoch = len(learnt) // batch
    steps = settings.epochs * per_epoch
    rise = max(1, round(0.3 * steps))
    optimizer = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / rise, (steps - step) / max(1, steps - rise))
    )
    network.train()
    if device.type == "cuda" and images.numel() < torch.cuda.mem_get_info(device)[0] / 2:
        images, labels = images.to(device), labels.to(device)
    with torch.autocast(device.type, enabled=False), reproducible():
        for epoch in range(settings.epochs):
            order = learnt[torch.randperm(len(learnt), generator=generator)].to(images.device)
            for step in range(per_epoch):
                chosen = order[step * batch : (step + 1) * batch]
                pixels = _shifted(images[chosen], settings.shift, generator)
                _, logits = network(pixels_to_input(pixels.to(device)))
                loss = functional.cross_entropy(logits, labels[chosen].to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
            if progress is not None:
                progress(epoch + 1, settings.epochs)
    network.eval()


def _shifted(images: Tensor, reach: int, generator: torch.Generator) -> Tensor:
    """Each image moved by up to `reach` pixels each way; its border pixels fill the gap."""
    n, channels, height, width = images.shape
    place = images.device
    down, across = torch.randint(-reach, reach + 1, (2, n, 1), generator=generator).to(place)
    rows = (torch.arange(height, device=place) + down).clamp(0, height - 1)  # (n, height)
    columns = (torch.arange(width, device=place) + across).clamp(0, width - 1)  # (n, width)
    sample = torch.arange(n, device=place).view(-1, 1, 1, 1)
    channel = torch.arange(channels, device=place).view(1, -1, 1, 1)
    return images[sample, channel, rows.view(n, 1, height, 1), columns.view(n, 1, 1, width)]


def _accuracy(network: ClassifierNetwork, images: Tensor, labels: Tensor, device: torch.device) -> float:
    """Share of the images that are classified correctly."""
    predicted = [images_to_predictions(network, part, device)[1].argmax(1).cpu() for part in images.split(256)]
    return float((torch.cat(predicted) == labels).double().mean())


def _build(shape: tuple[int, int, int], classes: int, settings: ClassifierSettings) -> ClassifierNetwork:
    """An untrained network; the caller's random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return ClassifierNetwork(shape[0], min(shape[1:]), classes, settings.width)


def _tensors(dataset: Dataset) -> tuple[Tensor, Tensor]:
    assert dataset.labels is not None
    return dataset.images, dataset.labels


def _name(training: Dataset, test: Dataset | None, settings: ClassifierSettings) -> str:
    """The classifier's name in the cache, which depends on the data and the settings."""
    key = {
        "format": _FORMAT,
        "training": training.fingerprint,
        "shape": list(training.images.shape),
        "classes": list(training.classes),
        "test": None if test is None else [test.name, test.split, test.fingerprint],
        "settings": asdict(settings),
    }
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '-', training.name)}-{digest}"


def check_learnable(training: Dataset, test: Dataset | None) -> None:
    """Raises a ValueError for sets that no classifier can be trained on and tested with."""
    if training.labels is None:
        raise ValueError(
            f"dataset {training.name!r} has no labels, so no classifier can learn from it: "
            "use one with a sub-folder per class"
        )
    if len(training.classes) < 2:
        raise ValueError(
            f"dataset {training.name!r} has {counted(len(training.classes), 'class')}: a classifier needs at least 2"
        )
    least = 10 if test is None else 2
    if len(training) < least:
        raise ValueError(
            f"dataset {training.name!r} has {counted(len(training), 'image')}: a classifier needs at least {least}"
        )
    if test is None:
        return
    if test.labels is None or len(test) == 0:
        raise ValueError(f"dataset {test.name!r} has no labelled images in its split {test.split!r} to test with")
    if tuple(test.classes) != tuple(training.classes):
        raise ValueError(
            f"the classes of {test.name!r} ({test.split}) differ from those of {training.name!r} ({training.split}): "
            "both must be splits of one dataset, with the same sub-folders"
        )
    if tuple(test.images.shape[1:]) != tuple(training.images.shape[1:]):
        raise ValueError(
            f"images of {test.name!r} ({test.split}) are {tuple(test.images.shape[1:])} and those to learn from "
            f"{tuple(training.images.shape[1:])}: load both at one resolution and with the same channels"
        )
