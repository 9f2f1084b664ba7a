"""Training of GANs and of classifiers: from a config and images to the folder of a run."""

from wcgan.train.classifier import train_classifiers
from wcgan.train.custom import (
    AdversarialLoss,
    Callback,
    Custom,
    MLflowLogger,
    TensorBoard,
    Training,
    WandbLogger,
    load_own_generator,
)
from wcgan.train.gan import train
from wcgan.train.loop import DivergedError, Outcome
from wcgan.train.start import dry_run, fit_config, go_on, start
from wcgan.train.start_classifier import (
    Predictor,
    dry_run_classifiers,
    dry_run_to_go_on,
    fit_classifier,
    go_on_with_classifiers,
    load_classifier,
    load_splits,
    start_classifiers,
)

__all__ = [
    "AdversarialLoss",
    "Callback",
    "Custom",
    "DivergedError",
    "MLflowLogger",
    "Outcome",
    "Predictor",
    "TensorBoard",
    "Training",
    "WandbLogger",
    "dry_run",
    "dry_run_classifiers",
    "dry_run_to_go_on",
    "fit_classifier",
    "fit_config",
    "go_on",
    "go_on_with_classifiers",
    "load_classifier",
    "load_own_generator",
    "load_splits",
    "start",
    "start_classifiers",
    "train",
    "train_classifiers",
]
