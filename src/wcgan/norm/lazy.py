"""Layers that take the number of channels from their first batch, like `torch.nn.LazyBatchNorm2d`."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy

from wcgan.functional._passes import compute_dtype
from wcgan.norm._base import WhiteningLayer
from wcgan.norm.conditional import (
    ConditionalWhiteningColoring1d,
    ConditionalWhiteningColoring2d,
    ConditionalWhiteningColoring3d,
)
from wcgan.norm.unconditional import WhiteningColoring1d, WhiteningColoring2d, WhiteningColoring3d


class LazyLayer(LazyModuleMixin, WhiteningLayer):
    """A layer whose tensors get their shapes from the first batch; it then becomes a `cls_to_become`.

    Before that it has no statistics and no coloring, so all that reads or resets them does nothing.
    """

    def __init__(
        self, *args: Any, device: torch.device | str | None = None, dtype: torch.dtype | None = None, **options: Any
    ) -> None:
        # On the meta device, with as few channels as possible: this checks the arguments and names the tensors.
        super().__init__(max(options.get("groups", 1), 1), *args, device="meta", dtype=dtype, **options)
        self.num_features = 0
        self._arguments = (args, options)
        parameter_kind: Any = UninitializedParameter
        buffer_kind: Any = UninitializedBuffer
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._parameters[name] = parameter_kind(device=device, dtype=parameter.dtype)
        for name, buffer in self._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                self._buffers[name] = buffer_kind(device=device, dtype=buffer.dtype)
            elif buffer is not None:
                self._buffers[name] = torch.zeros_like(buffer, device=device or torch.get_default_device())
        self._move_counters(torch.empty(0, device=device).device)

    @torch.no_grad()
    def initialize_parameters(self, x: Tensor, *_: Any, **__: Any) -> None:
        """Gives the tensors their shapes and initial values, except those that were loaded."""
        args, options = self._arguments
        lazy, kind = type(self), self.cls_to_become
        assert kind is not None
        like: WhiteningLayer = kind(x.shape[1], *args, device="meta", **options)
        loaded = {name: tensor.clone() for name, tensor in self._tensors() if not is_lazy(tensor)}
        for name, tensor in self._tensors():
            shape = getattr(like, name).shape
            if name in self._parameters and is_lazy(tensor):
                tensor.materialize(shape)
            elif name in self._buffers:  # plain tensors: PyTorch registers the others wherever they are assigned
                self._buffers[name] = torch.empty(shape, dtype=_wide(tensor), device=tensor.data.device)
        del self._arguments
        self.num_features = x.shape[1]
        self.__class__ = kind
        self._forget_whitening()
        self.reset_parameters()
        for name, tensor in lazy._tensors(self):
            if name in loaded:
                tensor.copy_(loaded[name])
        self.train(self.training)
        self.__class__ = lazy  # PyTorch changes it at the end of the initialisation

    def _tensors(self) -> list[tuple[str, Any]]:
        return [item for item in chain(self._parameters.items(), self._buffers.items()) if item[1] is not None]

    def reset_parameters(self) -> None:
        pass

    def reset_running_stats(self) -> None:
        pass

    def _forget_whitening(self) -> None:
        pass

    def train(self, mode: bool = True) -> "LazyLayer":
        nn.Module.train(self, mode and not self.frozen)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "LazyLayer":
        nn.Module._apply(self, fn, recurse)
        self._move_counters(fn(self.num_retried).device)
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        nn.Module._load_from_state_dict(self, *args, **kwargs)


def _wide(buffer: Tensor) -> torch.dtype:
    """Statistics are in float32 or wider, whatever `half()` made of them."""
    return compute_dtype(buffer.data) if buffer.is_floating_point() else buffer.dtype


class LazyWhiteningColoring1d(LazyLayer, WhiteningColoring1d):
    """A `WhiteningColoring1d` that takes `num_features` from its first batch; the other arguments are the same.

    Example:
        >>> import torch, wcgan
        >>> layer = wcgan.LazyWhiteningColoring1d(momentum=0.1)
        >>> layer(torch.randn(8, 16)).shape
        torch.Size([8, 16])
    """

    cls_to_become = WhiteningColoring1d

    def __init__(self, eps: float = 1e-3, momentum: float | None = 0.01, **options: Any) -> None:
        super().__init__(eps, momentum, **options)


class LazyWhiteningColoring2d(LazyLayer, WhiteningColoring2d):
    """A `WhiteningColoring2d` that takes `num_features` from its first batch; the other arguments are the same.

    Example:
        >>> import torch, wcgan
        >>> layer = wcgan.LazyWhiteningColoring2d()
        >>> layer(torch.randn(8, 16, 4, 4)).shape
        torch.Size([8, 16, 4, 4])
        >>> layer
        WhiteningColoring2d(16, eps=0.001, momentum=0.01, whitening='cholesky', coloring='full')
    """

    cls_to_become = WhiteningColoring2d

    def __init__(self, eps: float = 1e-3, momentum: float | None = 0.01, **options: Any) -> None:
        super().__init__(eps, momentum, **options)


class LazyWhiteningColoring3d(LazyLayer, WhiteningColoring3d):
    """A `WhiteningColoring3d` that takes `num_features` from its first batch; the other arguments are the same.

    Example:
        >>> import torch, wcgan
        >>> wcgan.LazyWhiteningColoring3d()(torch.randn(8, 16, 2, 4, 4)).shape
        torch.Size([8, 16, 2, 4, 4])
    """

    cls_to_become = WhiteningColoring3d

    def __init__(self, eps: float = 1e-3, momentum: float | None = 0.01, **options: Any) -> None:
        super().__init__(eps, momentum, **options)


class LazyConditionalWhiteningColoring1d(LazyLayer, ConditionalWhiteningColoring1d):
    """A `ConditionalWhiteningColoring1d` that takes `num_features` from its first batch.

    Example:
        >>> import torch, wcgan
        >>> wcgan.LazyConditionalWhiteningColoring1d(10)(torch.randn(8, 16), torch.arange(8)).shape
        torch.Size([8, 16])
    """

    cls_to_become = ConditionalWhiteningColoring1d

    def __init__(
        self, classes: int | None = None, eps: float = 1e-3, momentum: float | None = 0.01, **options: Any
    ) -> None:
        super().__init__(classes, eps, momentum, **options)


class LazyConditionalWhiteningColoring2d(LazyLayer, ConditionalWhiteningColoring2d):
    """A `ConditionalWhiteningColoring2d` that takes `num_features` from its first batch.

    Example:
        >>> import torch, wcgan
        >>> layer = wcgan.LazyConditionalWhiteningColoring2d(10)
        >>> layer(torch.randn(8, 16, 4, 4), torch.arange(8)).shape
        torch.Size([8, 16, 4, 4])
    """

    cls_to_become = ConditionalWhiteningColoring2d

    def __init__(
        self, classes: int | None = None, eps: float = 1e-3, momentum: float | None = 0.01, **options: Any
    ) -> None:
        super().__init__(classes, eps, momentum, **options)


class LazyConditionalWhiteningColoring3d(LazyLayer, ConditionalWhiteningColoring3d):
    """A `ConditionalWhiteningColoring3d` that takes `num_features` from its first batch.

    Example:
        >>> import torch, wcgan
        >>> layer = wcgan.LazyConditionalWhiteningColoring3d(10)
        >>> layer(torch.randn(8, 16, 2, 4, 4), torch.arange(8)).shape
        torch.Size([8, 16, 2, 4, 4])
    """

    cls_to_become = ConditionalWhiteningColoring3d

    def __init__(
        self, classes: int | None = None, eps: float = 1e-3, momentum: float | None = 0.01, **options: Any
    ) -> None:
        super().__init__(classes, eps, momentum, **options)
