"""Several batches in one pass through a network."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from wcgan.norm._base import WhiteningLayer


@contextmanager
def sub_batches(module: nn.Module, parts: int) -> Iterator[None]:
    """Within it, whitening layers in training mode take a batch as equal consecutive sub-batches.

    Each has statistics of its own, and the running ones are updated by one after the other: the result is that of a
    call for each sub-batch, in one pass. Meant for batches that need no gradient.

    Args:
        module: a layer, or a network with such layers.
        parts: how many sub-batches a batch is; its size must be a multiple.

    Raises:
        ValueError: for less than one; and, by the layers, for a batch that cannot be cut so.

    Example:
        >>> import torch, wcgan
        >>> layer = wcgan.WhiteningColoring1d(4)
        >>> with torch.no_grad(), wcgan.norm.sub_batches(layer, 2):
        ...     z = layer(torch.randn(16, 4))
    """
    if parts < 1:
        raise ValueError(f"a batch is at least 1 sub-batch, got parts={parts}")
    layers = [layer for layer in module.modules() if isinstance(layer, WhiteningLayer)]
    before = [layer.parts for layer in layers]
    for layer in layers:
        layer.parts = parts
    try:
        yield
    finally:
        for layer, old in zip(layers, before, strict=True):
            layer.parts = old
