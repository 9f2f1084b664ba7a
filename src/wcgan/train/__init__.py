"""Training: configs, losses, one iteration, the loop, checkpoints and the folder of a run."""

from wcgan.train.checkpoint import CheckpointError
from wcgan.train.config import Config, DataConfig, TrainConfig, override, read_config, write_config
from wcgan.train.fitting import fit_config
from wcgan.train.gan import train
from wcgan.train.loading import load_generator
from wcgan.train.loop import DivergedError, Outcome
from wcgan.train.run import Run, new_run, resumed_run
from wcgan.train.sampling import Sampler

__all__ = [
    "CheckpointError",
    "Config",
    "DataConfig",
    "DivergedError",
    "Outcome",
    "Run",
    "Sampler",
    "TrainConfig",
    "fit_config",
    "load_generator",
    "new_run",
    "override",
    "read_config",
    "resumed_run",
    "train",
    "write_config",
]
