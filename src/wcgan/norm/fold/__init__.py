"""Inference copies: every layer a constant map, and that map in the layer beside it where it can be."""

from wcgan.norm.fold.folding import OneClass, fold
from wcgan.norm.fold.maps import AbsorbedMap, FoldedMap

__all__ = ["AbsorbedMap", "FoldedMap", "OneClass", "fold"]
