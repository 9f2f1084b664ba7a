"""Running statistics of a whole network: freeze them, measure them again, or keep those of several batches apart."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from wcgan.norm._base import WhiteningLayer


def freeze_statistics(model: nn.Module, frozen: bool = True) -> nn.Module:
    """Keeps the running statistics of every layer of this library, in training too, as detection on few images needs.

    A frozen layer uses its running statistics and leaves them alone, whatever `train()` is called with; its coloring
    still learns. `requires_grad_(False)` on its parameters freezes that as well.

    Args:
        model: changed in place.
        frozen: False undoes it.

    Returns:
        The model.

    Raises:
        ValueError: for a layer with `track_running_stats=False`, which has no statistics to keep.

    Example:
        >>> import torch, wcgan
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), wcgan.WhiteningColoring2d(8))
        >>> wcgan.freeze_statistics(model).train()[1].training
        False
    """
    layers = {name: m for name, m in model.named_modules() if isinstance(m, WhiteningLayer) and m.whitening != "none"}
    for name, layer in layers.items():
        if not layer.track_running_stats:
            raise ValueError(f"{name or 'the model'} keeps no running statistics, so there is nothing to freeze")
    if not layers:
        warnings.warn("freeze_statistics found no whitening layer in the model", stacklevel=2)
    training = model.training or any(m.training for m in model.modules() if m not in layers.values())
    for layer in layers.values():
        layer.frozen = frozen
        layer.train(training)
    return model


@torch.no_grad()
def update_statistics(
    loader: Iterable[Any],
    model: nn.Module,
    device: torch.device | str | None = None,
    forward: Callable[[nn.Module, Any], Any] | None = None,
) -> None:
    """Replaces running statistics by averages over a data set: `torch.optim.swa_utils.update_bn` for this library too.

    One pass in training mode, in which all batches weigh the same. Layers of this library are updated, and PyTorch's
    batch normalisations. Frozen layers are left alone. Modes and momenta are restored.

    Args:
        loader: batches. Where one is a list or tuple, its first entry is the input, as for `update_bn`.
        model: changed in place.
        device: where the input goes first; None leaves it where it is.
        forward: `forward(model, batch)` runs one batch, for models with several inputs; `device` is then unused.

    Raises:
        ValueError: if the loader is empty: the statistics are then those of a new layer.

    Example:
        >>> import torch, wcgan
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), wcgan.WhiteningColoring2d(8))
        >>> wcgan.update_statistics([torch.randn(4, 3, 8, 8) for _ in range(5)], model)
        >>> model[1].num_batches_tracked
        tensor(5)

        A conditional layer takes labels:

        >>> layer = wcgan.ConditionalWhiteningColoring2d(8, classes=10)
        >>> batches = [(torch.randn(4, 8, 6, 6), torch.arange(4)) for _ in range(5)]
        >>> wcgan.update_statistics(batches, layer, forward=lambda layer, batch: layer(*batch))
    """
    layers = [
        module
        for module in model.modules()
        if isinstance(module, WhiteningLayer | _BatchNorm)
        and module.track_running_stats
        and not getattr(module, "frozen", False)
    ]
    if not layers:
        warnings.warn("update_statistics found no layer with running statistics to update", stacklevel=2)
        return
    modes = {module: module.training for module in model.modules()}
    momenta = [layer.momentum for layer in layers]
    seen = False
    model.train()
    try:
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None
        for batch in loader:
            seen = True
            if forward is not None:
                forward(model, batch)
                continue
            x: Tensor = batch[0] if isinstance(batch, list | tuple) else batch
            model(x if device is None else x.to(device))
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for module, mode in modes.items():
            module.training = mode
        for layer in layers:
            layer.train(layer.training)  # the inference matrix is made from the new statistics
    if not seen:
        raise ValueError("the loader held no batch, so that the statistics are those of a new layer")


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
