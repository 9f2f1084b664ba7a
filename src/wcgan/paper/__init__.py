"""The paper's tables and their figures, and a preset for every row."""

from wcgan.paper.classifier_presets import CLASSIFIERS
from wcgan.paper.presets import DEFAULT, PRESETS, configure, configure_classifier, preset
from wcgan.paper.printed import ARCHITECTURES
from wcgan.paper.tables import ALIASES, TABLES

__all__ = [
    "ALIASES",
    "ARCHITECTURES",
    "CLASSIFIERS",
    "DEFAULT",
    "PRESETS",
    "TABLES",
    "configure",
    "configure_classifier",
    "preset",
]
