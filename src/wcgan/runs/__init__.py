"""The folder of a run: config, metrics, status, checkpoints, and the generator loaded from them."""
