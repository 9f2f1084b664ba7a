"""The folder of a run: its config, its metrics, its checkpoints, and the generator in them."""

from wcgan.runs.checkpoint import CheckpointError
from wcgan.runs.config import (
    ClassifyConfig,
    ClassifyTrainConfig,
    Config,
    DataConfig,
    TrainConfig,
    read_config,
    write_config,
)
from wcgan.runs.folder import Run, new_run, resumed_run
from wcgan.runs.sampler import Sampler, load_generator

__all__ = [
    "CheckpointError",
    "ClassifyConfig",
    "ClassifyTrainConfig",
    "Config",
    "DataConfig",
    "Run",
    "Sampler",
    "TrainConfig",
    "load_generator",
    "new_run",
    "read_config",
    "resumed_run",
    "write_config",
]
