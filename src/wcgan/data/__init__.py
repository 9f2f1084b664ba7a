"""A name or a folder -> uint8 images and labels, packed once and memory-mapped from then on."""

from importlib.util import find_spec

if any(find_spec(package) is None for package in ("numpy", "PIL", "yaml")):
    raise ImportError("wcgan.data needs NumPy, Pillow and PyYAML: pip install 'wcgan[train]'")

from wcgan.data.dataset import Dataset, Status, check_present, describe, load, names, splits
from wcgan.data.fetch import download

__all__ = ["Dataset", "Status", "check_present", "describe", "download", "load", "names", "splits"]
