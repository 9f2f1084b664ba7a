"""Copies of a model for inference: whitening layers become constant maps, merged into their neighbours if possible."""

from wcgan.norm.fold.folding import OneClass, fold
from wcgan.norm.fold.maps import AbsorbedMap, FoldedMap

__all__ = ["AbsorbedMap", "FoldedMap", "OneClass", "fold"]
