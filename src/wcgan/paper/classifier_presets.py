"""Presets of classifiers: every cell of the paper's table, and a few on the embedded digits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from wcgan.nets import ClassifierConfig
from wcgan.paper.tables import TABLES
from wcgan.runs.config import ClassifyConfig, ClassifyTrainConfig, DataConfig

_DIGITS = ("BN", "WC", "DBN", "IterNorm")
_WARM_UP = {110: 400}  # He et al.: without it, the deepest network does not begin to learn

# Every data set is trained on as He et al. did, but for these: a mirrored digit is none, and the embedded ones are few
# and small.
_TRAINING: dict[str, ClassifyTrainConfig] = {
    "mnist": ClassifyTrainConfig(flip=False),
    "fashion-mnist": ClassifyTrainConfig(flip=False),
    "digits": ClassifyTrainConfig(
        iterations=200,
        batch=64,
        drops=(100, 150),
        crop=1,
        flip=False,
        log_every=20,
        checkpoint_every=50,
        evaluate_every=50,
    ),
}
_NETWORKS: dict[str, ClassifierConfig] = {
    "mnist": ClassifierConfig(channels=1),
    "fashion-mnist": ClassifierConfig(channels=1),
    "digits": ClassifierConfig(depth=8, channels=1),
    "cifar100": ClassifierConfig(classes=100),
}


def protocol_of(dataset: str, depth: int | None = None) -> ClassifyConfig:
    """He et al.'s protocol for a data set or a folder; `depth` is that of their networks, 8 for the digits.

    Example:
        >>> protocol_of("cifar10").train.drops, protocol_of("cifar10", depth=110).train.warm_up
        ((32000, 48000), 400)
    """
    network = _NETWORKS.get(dataset, ClassifierConfig())
    network = network if depth is None else replace(network, depth=depth)
    train = replace(_TRAINING.get(dataset, ClassifyTrainConfig()), warm_up=_WARM_UP.get(network.depth, 0))
    return ClassifyConfig(DataConfig(name=dataset), network, train)


def name_to_classifier(name: str) -> ClassifyConfig:
    """A preset by its name: `cifar10/ResNet-32 WC`."""
    dataset, _, row = name.partition("/")
    network, _, normalization = row.partition(" ")
    config = protocol_of(dataset, int(network.removeprefix("ResNet-")))
    return replace(config, classifier=replace(config.classifier, normalization=normalization))


def classifier_to_name(config: ClassifyConfig) -> str:
    """What a preset with this data and this network is called, or would be.

    Example:
        >>> classifier_to_name(protocol_of("cifar10", depth=56))
        'cifar10/ResNet-56 WC'
    """
    network = config.classifier
    everywhere = " all" if network.where == "all" else ""
    return f"{Path(config.data.name).name}/ResNet-{network.depth} {network.normalization}{everywhere}"


_ROWS = (row.preset for table in TABLES.values() if table.classifiers for row in table.rows)
CLASSIFIERS: dict[str, Callable[[], ClassifyConfig]] = {
    name: (lambda name=name: name_to_classifier(name))  # type: ignore[misc]
    for name in (*(f"digits/ResNet-8 {normalization}" for normalization in _DIGITS), *_ROWS)
}
