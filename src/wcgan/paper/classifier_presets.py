"""Presets for classifiers: one for every figure of the paper's table, and a few for the embedded digits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from wcgan.nets import ClassifierConfig
from wcgan.paper.tables import TABLES
from wcgan.runs.config import ClassifyConfig, ClassifyTrainConfig, DataConfig

_DIGITS = ("BN", "WC", "DBN", "IterNorm")
_WARM_UP = {110: 400}  # He et al.: without a warm-up, the deepest network does not start to learn

# All other data sets are trained as in He et al. Here, a mirrored digit is no digit, and the embedded digits are few
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


def dataset_to_classifier(dataset: str, depth: int | None = None) -> ClassifyConfig:
    """He et al.'s training for a data set or a folder; `depth` is 32 by default, 8 for the digits.

    Example:
        >>> dataset_to_classifier("cifar10").train.drops, dataset_to_classifier("cifar10", depth=110).train.warm_up
        ((32000, 48000), 400)
    """
    network = _NETWORKS.get(dataset, ClassifierConfig())
    network = network if depth is None else replace(network, depth=depth)
    train = replace(_TRAINING.get(dataset, ClassifyTrainConfig()), warm_up=_WARM_UP.get(network.depth, 0))
    return ClassifyConfig(DataConfig(name=dataset), network, train)


def name_to_classifier(name: str) -> ClassifyConfig:
    """The config of a preset, given its name such as `cifar10/ResNet-32 WC`."""
    dataset, _, row = name.partition("/")
    network, _, normalization = row.partition(" ")
    config = dataset_to_classifier(dataset, int(network.removeprefix("ResNet-")))
    return replace(config, classifier=replace(config.classifier, normalization=normalization))


def classifier_to_name(config: ClassifyConfig) -> str:
    """The name of a preset with this data and this network, whether or not there is one.

    Example:
        >>> classifier_to_name(dataset_to_classifier("cifar10", depth=56))
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
