"""What to train: presets, and the one function that trains them from start to report."""

from wcgan.experiments.presets import DEFAULT, PRESETS, configure, preset
from wcgan.experiments.training import dry_run, go_on, start

__all__ = ["DEFAULT", "PRESETS", "configure", "dry_run", "go_on", "preset", "start"]
