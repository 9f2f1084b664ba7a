"""The paper's tables with their figures, and a preset for every row."""

from wcgan.paper.architectures import ARCHITECTURES
from wcgan.paper.classifier_presets import CLASSIFIERS
from wcgan.paper.presets import DEFAULT, PRESETS, configure, configure_classifier, preset
from wcgan.paper.tables import TABLES

__all__ = [
    "ARCHITECTURES",
    "CLASSIFIERS",
    "DEFAULT",
    "PRESETS",
    "TABLES",
    "configure",
    "configure_classifier",
    "preset",
]
