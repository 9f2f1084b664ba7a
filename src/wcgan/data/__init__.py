"""A name or a folder -> uint8 images and labels, packed once and memory-mapped from then on."""

from importlib.util import find_spec

if find_spec("numpy") is None or find_spec("PIL") is None:
    raise ImportError("wcgan.data needs NumPy and Pillow: pip install 'wcgan[train]'")

from wcgan.data.dataset import Dataset, Status, describe, load, names, splits
from wcgan.data.fetch import download
from wcgan.data.recipe import Progress

__all__ = ["Dataset", "Progress", "Status", "describe", "download", "load", "names", "splits"]
