"""Running statistics of a whole network: re-estimate them, freeze them, or update them per sub-batch."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from wcgan.norm._base import WhiteningLayer, check_module
from wcgan.norm._running import COUNTERS


@torch.no_grad()
def update_statistics(
    loader: Iterable[Any],
    model: nn.Module,
    device: torch.device | str | None = None,
    forward: Callable[[nn.Module, Any], Any] | None = None,
) -> None:
    r"""Replaces the running statistics of a network by exact averages over a data set.

    .. math:: \mu_E = \frac1T \sum_{t=1}^T \mu_t, \qquad \Sigma_E = \frac1T \sum_{t=1}^T \hat\Sigma_t

    Like `torch.optim.swa_utils.update_bn`, this runs all T batches through the model in training mode, each with
    the same weight. It updates whitening layers and PyTorch's batch normalisations, except frozen ones, and restores
    training modes and momenta afterwards.

    Args:
        loader: iterable of batches. If a batch is a list or tuple, its first entry is the input, as for `update_bn`.
        model: a layer or a network, changed in place.
        device: the input is moved to this device first; None does not move it.
        forward: `forward(model, batch)` runs one batch, for models with several inputs; `device` is then unused.

    Raises:
        TypeError: if the model is not a module.
        ValueError: if the loader is empty. After this or any other error, statistics and counters are as before.

    Example:
        >>> import torch, wcgan
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), wcgan.WhiteningColoring2d(8))
        >>> wcgan.update_statistics([torch.randn(4, 3, 8, 8) for _ in range(5)], model)
        >>> model[1].num_batches_tracked
        tensor(5)

        A conditional layer needs labels:

        >>> layer = wcgan.ConditionalWhiteningColoring2d(8, classes=10)
        >>> batches = [(torch.randn(4, 8, 6, 6), torch.arange(4)) for _ in range(5)]
        >>> wcgan.update_statistics(batches, layer, forward=lambda layer, batch: layer(*batch))
    """
    check_module("model", model)
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
    changed = [buffer for layer in layers for buffer in layer.buffers(recurse=False) if not is_lazy(buffer)]
    changed += [getattr(layer, name) for layer in layers if isinstance(layer, WhiteningLayer) for name in COUNTERS]
    kept = [(tensor, tensor.clone()) for tensor in changed]
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
        if not seen:
            raise ValueError("the loader has no batches: the statistics stay as they were")
    except BaseException:
        for tensor, before in kept:
            tensor.copy_(before)
        raise
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
        for module, mode in modes.items():
            module.training = mode
        for layer in layers:
            layer.train(layer.training)  # recomputes the whitening matrix from the new statistics


def freeze_statistics(model: nn.Module, frozen: bool = True) -> nn.Module:
    """Freezes the running statistics of every whitening layer, for fine-tuning with small batches.

    A frozen layer stays in evaluation mode even if `train()` is called: it uses its running statistics and does not
    update them. Its coloring is still trained; to freeze that too, call `requires_grad_(False)` on its parameters.

    Args:
        model: a layer or a network, changed in place.
        frozen: False unfreezes.

    Returns:
        The model.

    Raises:
        TypeError: if the model is not a module.
        ValueError: for a layer with `track_running_stats=False`, which has no statistics to freeze.

    Example:
        >>> import torch, wcgan
        >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), wcgan.WhiteningColoring2d(8))
        >>> wcgan.freeze_statistics(model).train()[1].training
        False
    """
    check_module("model", model)
    layers = {name: m for name, m in model.named_modules() if isinstance(m, WhiteningLayer) and m.whitening != "none"}
    for name, layer in layers.items():
        if not layer.track_running_stats:
            raise ValueError(f"{name or 'the model'} has no running statistics to freeze: track_running_stats is False")
    if not layers:
        warnings.warn("freeze_statistics found no whitening layer in the model", stacklevel=2)
    training = model.training or any(m.training for m in model.modules() if m not in layers.values())
    for layer in layers.values():
        layer.frozen = frozen
        layer.train(training)
    return model


def use_batch_statistics(model: nn.Module) -> nn.Module:
    """Makes every whitening layer use the statistics of its batch in evaluation mode too, as in training.

    Some published GAN scores are of images that were normalised batch by batch. The running statistics stay in the
    state dict, but are no longer used or updated, not even in training mode. Each process uses its own batch, whatever
    `sync` was. PyTorch's batch normalisations are left alone.

    Args:
        model: a layer or a network, changed in place.

    Returns:
        The model.

    Raises:
        TypeError: if the model is not a module.

    Example:
        >>> import torch, wcgan
        >>> layer = wcgan.norm.use_batch_statistics(wcgan.WhiteningColoring1d(4, init="identity").eval())
        >>> layer(5 + torch.randn(64, 4)).mean().abs() < 1e-5
        tensor(True)
    """
    check_module("model", model)
    for layer in model.modules():
        if isinstance(layer, WhiteningLayer):
            layer.track_running_stats = layer.sync = False
    return model


@contextmanager
def sub_batches(module: nn.Module, parts: int) -> Iterator[None]:
    """Context manager in which whitening layers in training mode treat a batch as equal consecutive sub-batches.

    Each sub-batch is whitened with its own statistics, and updates the running statistics in turn. The result is that
    of one call per sub-batch, in one pass. Intended for batches that need no gradient.

    Args:
        module: a layer or a network.
        parts: number of sub-batches in a batch; must divide the batch size.

    Raises:
        TypeError: if `module` is not a module.
        ValueError: if `parts` is less than 1. The layers raise it for a batch size that `parts` does not divide.

    Example:
        >>> import torch, wcgan
        >>> layer = wcgan.WhiteningColoring1d(4)
        >>> with torch.no_grad(), wcgan.norm.sub_batches(layer, 2):
        ...     z = layer(torch.randn(16, 4))
    """
    check_module("module", module)
    if parts < 1:
        raise ValueError(f"parts must be at least 1, got {parts}")
    layers = [layer for layer in module.modules() if isinstance(layer, WhiteningLayer)]
    before = [layer.parts for layer in layers]
    for layer in layers:
        layer.parts = parts
    try:
        yield
    finally:
        for layer, old in zip(layers, before, strict=True):
            layer.parts = old
