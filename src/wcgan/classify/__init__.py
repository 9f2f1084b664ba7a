"""Classification: whitening and coloring in the networks of He et al., trained by their protocol."""

from wcgan.classify.config import ClassifyConfig, ClassifyTrainConfig
from wcgan.classify.loading import Predictor, load_classifier
from wcgan.classify.splits import fit_classifier, load_splits
from wcgan.classify.training import train_classifiers

__all__ = [
    "ClassifyConfig",
    "ClassifyTrainConfig",
    "Predictor",
    "fit_classifier",
    "load_classifier",
    "load_splits",
    "train_classifiers",
]
