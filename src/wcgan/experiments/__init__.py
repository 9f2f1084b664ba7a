"""What to train and how to measure: presets, a run from start to report, and the evaluation of anything."""

from wcgan.experiments.bars import progress_bars
from wcgan.experiments.burst import estimate
from wcgan.experiments.classification import (
    configure_classifier,
    dry_run_classifiers,
    folder_to_runs,
    go_on_with_classifiers,
    start_classifiers,
)
from wcgan.experiments.classifiers import CLASSIFIERS, classifier_to_name
from wcgan.experiments.evaluation import Evaluation, EvaluationConfig, evaluate
from wcgan.experiments.measurements import find_measurement
from wcgan.experiments.presets import DEFAULT, PRESETS, configure, preset, preset_to_folder
from wcgan.experiments.reproduce import INCOMPLETE, Result, rebuild, reproduce
from wcgan.experiments.tables import EXPERIMENTS, Reproduction, default_folder, plan_table
from wcgan.experiments.training import dry_run, go_on, start

__all__ = [
    "CLASSIFIERS",
    "DEFAULT",
    "EXPERIMENTS",
    "INCOMPLETE",
    "PRESETS",
    "Evaluation",
    "EvaluationConfig",
    "Reproduction",
    "Result",
    "classifier_to_name",
    "configure",
    "configure_classifier",
    "default_folder",
    "dry_run",
    "dry_run_classifiers",
    "estimate",
    "evaluate",
    "find_measurement",
    "folder_to_runs",
    "go_on",
    "go_on_with_classifiers",
    "plan_table",
    "preset",
    "preset_to_folder",
    "progress_bars",
    "rebuild",
    "reproduce",
    "start",
    "start_classifiers",
]
