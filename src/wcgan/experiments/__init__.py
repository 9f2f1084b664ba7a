"""What to train and how to measure: presets, a run from start to report, and the evaluation of anything."""

from wcgan.experiments.bars import progress_bars
from wcgan.experiments.burst import estimate
from wcgan.experiments.evaluation import Evaluation, EvaluationConfig, evaluate
from wcgan.experiments.measurements import MEASUREMENTS
from wcgan.experiments.presets import DEFAULT, PRESETS, configure, preset, preset_to_folder
from wcgan.experiments.reproduce import Result, rebuild, reproduce
from wcgan.experiments.tables import EXPERIMENTS, Reproduction, default_folder, plan_table
from wcgan.experiments.training import dry_run, go_on, start

__all__ = [
    "DEFAULT",
    "EXPERIMENTS",
    "MEASUREMENTS",
    "PRESETS",
    "Evaluation",
    "EvaluationConfig",
    "Reproduction",
    "Result",
    "configure",
    "default_folder",
    "dry_run",
    "estimate",
    "evaluate",
    "go_on",
    "plan_table",
    "preset",
    "preset_to_folder",
    "progress_bars",
    "rebuild",
    "reproduce",
    "start",
]
