"""Statistics that stay what they are while the rest of a network learns."""

import warnings

from torch import nn

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
