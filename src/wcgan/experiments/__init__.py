"""What to train and how to measure: presets, a run from start to report, and the evaluation of anything."""

from wcgan.experiments.bars import progress_bars
from wcgan.experiments.evaluation import Evaluation, EvaluationConfig, evaluate
from wcgan.experiments.presets import DEFAULT, PRESETS, configure, preset
from wcgan.experiments.training import dry_run, go_on, start

__all__ = [
    "DEFAULT",
    "PRESETS",
    "Evaluation",
    "EvaluationConfig",
    "configure",
    "dry_run",
    "evaluate",
    "go_on",
    "preset",
    "progress_bars",
    "start",
]
