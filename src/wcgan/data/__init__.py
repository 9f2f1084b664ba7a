"""Load a named dataset or a folder of images as uint8 tensors, decoded once and memory-mapped afterwards."""

from importlib.util import find_spec

if any(find_spec(package) is None for package in ("numpy", "PIL", "yaml")):
    raise ImportError("wcgan.data needs NumPy, Pillow and PyYAML: pip install 'wcgan[train]'")

from wcgan.data.dataset import (
    Dataset,
    DatasetStatus,
    Glance,
    check_present,
    describe,
    from_tensors,
    glance,
    load,
    names,
    splits,
)
from wcgan.data.fetch import download

__all__ = [
    "Dataset",
    "DatasetStatus",
    "Glance",
    "check_present",
    "describe",
    "download",
    "from_tensors",
    "glance",
    "load",
    "names",
    "splits",
]
