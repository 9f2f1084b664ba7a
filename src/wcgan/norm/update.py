"""Statistics measured anew over a data set, as weights that were averaged or changed need them."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from wcgan.norm._base import WhiteningLayer


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
