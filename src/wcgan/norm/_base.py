"""The base class of all layers: whitens with batch or running statistics, colors, and updates the running statistics.

Running statistics themselves are in `_running`; the colorings are in `unconditional` and `conditional`.
"""

import math
from numbers import Integral, Real
from types import UnionType
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, fx, nn
from torch.nn.functional import batch_norm

from wcgan.functional._by_kernels import map_by_kernels
from wcgan.functional._eager import whiten_color_eagerly
from wcgan.functional._factorisations import SMALLEST_EPS, WhiteningKind
from wcgan.functional._operators import check_batch, check_groups, is_eager, kernels_for, layer_kernels, transformed
from wcgan.functional._passes import compute_dtype
from wcgan.functional._primitives import name_to_process_group
from wcgan.functional.affine import Shared, add_shared, affine, as_slots, compose, map_eagerly
from wcgan.functional.normalize import Statistics
from wcgan.functional.parts import batch_norm_parts, color_diagonally, whiten_color_parts
from wcgan.functional.whitening import check_whitening
from wcgan.norm._running import RunningStatistics


def check_types(kind: type | UnionType, what: str, **values: object) -> None:
    """Raises a TypeError that names the first argument of another kind."""
    for name, value in values.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be {what}, got {value!r}")


def check_module(name: str, value: object) -> None:
    """Raises a TypeError that names an argument which is not a module."""
    if not isinstance(value, nn.Module):
        given = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise TypeError(f"{name} must be a torch.nn.Module, got {given}")


class NotScriptable:
    """A mixin for modules that TorchScript cannot compile."""

    def __prepare_scriptable__(self) -> NoReturn:  # called by torch.jit.script
        raise NotImplementedError(
            f"TorchScript cannot compile {type(self).__name__}: use torch.export or torch.jit.trace(model, inputs)"
        )


class WhiteningLayer(NotScriptable, RunningStatistics):
    """Base class of the layers: whitening, running statistics, and the steps of a forward pass.

    A subclass sets the input ranks it accepts (`_ranks`), and computes a coloring from its parameters, and from labels
    if it is conditional (`coloring_slots`).
    """

    _ranks: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        *,
        whitening: WhiteningKind,
        groups: int,
        iterations: int,
        track_running_stats: bool,
        sync: bool,
        process_group: "dist.ProcessGroup | None",
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        check_types(Integral, "a whole number", num_features=num_features, groups=groups, iterations=iterations)
        check_types(Real, "a number", eps=eps, momentum=0 if momentum is None else momentum)
        if num_features < 1:
            raise ValueError(f"num_features must be at least 1, got {num_features}")
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be in [0, 1] or None for a cumulative average, got {momentum}")
        check_whitening(whitening, eps, iterations)
        check_groups(num_features, groups)
        if groups > 1 and whitening in ("standardize", "none"):
            raise ValueError(f"groups={groups} has no meaning for whitening={whitening!r}; leave groups at 1")
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.whitening = whitening
        self.groups = groups
        self.iterations = iterations
        self.sync = sync
        self.parts = 1
        self.process_group = None if process_group is None else process_group.group_name
        self.track_running_stats = track_running_stats and whitening != "none"
        self._build_statistics(device, dtype)

    def coloring_slots(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Coloring matrices `(K, d, d)` or `(K, d)`, shifts `(K, d)`, and the slot `(N,)` of each sample.

        Matrices and shifts are None for no coloring. Slots are None if K is 1 (shared) or N (one per sample).
        """
        raise NotImplementedError

    def _uses_batch(self) -> bool:
        """Whether this forward pass uses the statistics of the batch, not the running ones."""
        return self.whitening != "none" and (self.training or not self.track_running_stats)

    def sync_group(self) -> str:
        """Name of the process group whose ranks share batch statistics; empty if none."""
        return _group_name(self.process_group) if self.sync else ""

    def _check_input(self, x: Tensor) -> None:
        minimum = 0
        if self._uses_batch() and not self.sync_group():
            minimum = 2 * (self.parts if self.training else 1)
        check_batch(x, minimum=minimum, empty=True)
        if x.dim() not in self._ranks:
            ranks = " or ".join(f"{rank}D" for rank in self._ranks)
            raise ValueError(f"{type(self).__name__} expects a {ranks} input, got {x.dim()}D: shape {tuple(x.shape)}")
        if x.shape[1] != self.num_features:
            raise ValueError(f"expected {self.num_features} channels, got {x.shape[1]}: shape {tuple(x.shape)}")

    def _normalize(
        self,
        x: Tensor,
        color: Tensor | None,
        shift: Tensor | None,
        index: Tensor | None,
        poison: Tensor | None = None,
        relu: bool = False,
        shared: Shared | None = None,
    ) -> Tensor:
        """Whitening, coloring and an optional ReLU in one map; in training, also updates the running statistics.

        Args:
            x: a checked batch.
            color: from `coloring_slots`, or `(d, d)` or `(d,)` for one that all samples share.
            shift: from `coloring_slots`, or `(d,)` for one that all samples share.
            index: from `coloring_slots`.
            poison: a scalar added to the output: NaN if a label was out of range, else 0 (see `labels`).
            relu: whether a ReLU follows.
            shared: a full matrix and a shift to add to those of all slots; None for none.
        """
        if not self._uses_batch():
            return self._normalize_by_running(x, color, shift, index, poison, relu, shared)
        process_group, parts = self.sync_group(), self.parts if self.training else 1
        if parts == 1 and not process_group and x.numel():
            out = self._normalize_eagerly(x, color, shift, index, poison, relu, shared)
            if out is not None:
                return out
        if color is not None and shift is not None:
            color, shift = add_shared(color, shift, shared)
        shift = _poisoned(shift, poison)
        if x.numel() == 0 and not process_group:
            return self._color_empty_batch(x, *_as_slots(color, shift), index)
        if x.shape[0] % parts:
            raise ValueError(f"a batch of {x.shape[0]} cannot be divided into {parts} equal sub-batches")
        if self._is_batch_norm(color, shift) and not process_group:
            out, statistics = batch_norm_parts(x, color, shift, index, self.eps, parts)
            out = out.relu() if relu else out
        else:
            out, statistics = whiten_color_parts(
                x,
                *_as_slots(color, shift),
                index,
                parts=parts,
                whitening=self.whitening,
                groups=self._covariance_groups,
                eps=self.eps,
                iterations=self.iterations,
                process_group=process_group,
                relu=relu,
            )
        if self.training:
            for part in statistics:
                self._update(part, poison)
        return out

    def _normalize_eagerly(
        self,
        x: Tensor,
        color: Tensor | None,
        shift: Tensor | None,
        index: Tensor | None,
        poison: Tensor | None,
        relu: bool,
        shared: Shared | None,
    ) -> Tensor | None:
        """`_normalize` of one batch in one process, in few calls; None: not here."""
        if self.whitening == "standardize" and is_shared(color) and is_eager((x, color, shift)):
            out = self._batch_norm_eagerly(x, color, shift) if self._is_batch_norm(color, shift) else None
            return out.relu() if relu and out is not None else out
        if self.whitening != "cholesky" or not is_full(color, shift):
            return None
        updates = self._updates_by_kernels if self.training else None
        found = whiten_color_eagerly(x, color, shift, index, poison, shared, self.eps, relu, updates, self.groups)
        if found is None:
            return None
        out, mean, covariance, retry, kept, updated = found
        if updated or not self.training:
            return out
        if kept is not None:
            mean, covariance, retry = layer_kernels().statistics(kept, self.num_features, self.groups)
        assert mean is not None
        assert covariance is not None
        if retry is None and poison is None:
            self._update_on_cpu(mean, covariance)
        else:
            retry = mean.new_zeros(1) if retry is None else retry
            self._update(Statistics(mean, covariance.view(-1, *covariance.shape[-2:]), retry), poison)
        return out

    def _normalize_by_running(
        self,
        x: Tensor,
        color: Tensor | None,
        shift: Tensor | None,
        index: Tensor | None,
        poison: Tensor | None,
        relu: bool,
        shared: Shared | None,
    ) -> Tensor:
        """`_normalize` with the running statistics."""
        whitening = None
        # Past `nn.Module.__getattr__`, which takes ten times as long. None where a parametrization replaces the buffer.
        running_mean = None if torch.compiler.is_compiling() else self._buffers.get("running_mean")
        given = (x, color, shift, index, *(shared or ()), running_mean)
        if running_mean is not None and self.whitening != "none" and is_eager(given) and x.numel():
            if self._is_batch_norm(color, shift):
                mapped = self._batch_norm_by_running(x, color, _poisoned(shift, poison), index, running_mean)
                if mapped is not None:
                    return mapped.relu() if relu else mapped
            whitening = self._running_whitening()
            if color is not None and shift is not None and is_full(color, shift):
                mapped = None
                if self.whitening == "cholesky" or self._covariance_groups == 1:
                    mapped = map_by_kernels(x, color, shift, index, poison, shared, whitening, running_mean, relu)
                if mapped is None and color.dim() == 2:
                    mapped = map_eagerly(x, color, shift, whitening, running_mean, relu)
                if mapped is not None:
                    return mapped
        if color is not None and shift is not None:
            color, shift = add_shared(color, shift, shared)
        shift = _poisoned(shift, poison)
        matrix, offset, mean = self.as_map(*_as_slots(color, shift), whitening)
        out = affine(x, matrix, offset, index, mean)
        return out.relu() if relu else out

    def _batch_norm_by_running(
        self, x: Tensor, color: Tensor | None, shift: Tensor | None, index: Tensor | None, mean: Tensor
    ) -> Tensor | None:
        """Standardisation and a diagonal coloring by PyTorch's batch normalisation, as in training; None: not here."""
        variance = getattr(self, self._second)
        if variance.dtype != compute_dtype(x) or mean.requires_grad or variance.requires_grad:
            return None
        if is_shared(color):
            scale, bias = (None if t is None else t.to(variance.dtype) for t in (color, shift))
            return batch_norm(x, mean, variance, scale, bias, eps=self.eps)
        assert color is not None
        assert shift is not None
        return color_diagonally(batch_norm(x, mean, variance, eps=self.eps), color, shift, index)

    def _batch_norm_eagerly(self, x: Tensor, scale: Tensor | None, bias: Tensor | None) -> Tensor | None:
        """`batch_norm_parts` of one part, and the update of the running statistics, in few calls; None: not here."""
        kernels = found = None
        if x.device.type != "cpu":
            kernels, found = kernels_for(x), self._updates_by_kernels(x.get_device())
            if kernels is None or found is None:
                return None
        dtype = compute_dtype(x)
        mean, variance = torch.zeros(2, self.num_features, dtype=dtype, device=x.device).unbind()
        if scale is not None and bias is not None and scale.dtype != dtype:
            scale, bias = scale.to(dtype), bias.to(dtype)
        out = batch_norm(x, mean, variance, scale, bias, True, 1.0, self.eps)  # fills both
        if not self.training:
            return out
        if kernels is not None and found is not None:
            kernels.update(mean, variance, None, *found)
        elif math.isfinite(variance.amax().item()):
            self._update_on_cpu(mean, variance)
        else:
            self.num_nonfinite.add_(1)
        return out

    def _is_batch_norm(self, color: Tensor | None, shift: Tensor | None) -> bool:
        """Whether PyTorch's own batch normalisation computes the same result."""
        if self.whitening != "standardize":
            return False
        return not is_full(color, shift) and self.eps >= SMALLEST_EPS and not transformed()

    def _color_empty_batch(self, x: Tensor, color: Tensor | None, shift: Tensor | None, index: Tensor | None) -> Tensor:
        """An empty batch, handled like `torch.nn.BatchNorm2d`: statistics do not change, gradients are zero."""
        matrix = compose(color, x.new_ones(self.num_features, 1, 1))
        offset = matrix.new_zeros(matrix.shape[0], self.num_features) if shift is None else shift
        return affine(x, matrix, offset, index)

    def as_map(
        self, color: Tensor | None, shift: Tensor | None, whitening: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Coloring -> the whole layer at inference: maps `(K, g, p, p)`, offsets `(K, d)`, mean to subtract first.

        `whitening` is W of the running covariance, where it is known already.
        """
        if self.whitening == "none":
            assert color is not None
            whitening, mean = color.new_ones(self.num_features, 1, 1), None
        else:
            whitening, mean = self._running_whitening() if whitening is None else whitening, self.running_mean
        if color is not None and color.dtype != whitening.dtype:
            dtype = torch.promote_types(color.dtype, whitening.dtype)
            color, whitening = color.to(dtype), whitening.to(dtype)
        matrix = compose(color, whitening)
        offset = matrix.new_zeros(matrix.shape[0], self.num_features) if shift is None else shift
        return matrix, offset, mean

    def extra_repr(self) -> str:
        parts = [
            str(self.num_features),
            *(f"{name}={getattr(self, name)!r}" for name in ("eps", "momentum", "whitening")),
        ]
        if self.groups > 1:
            parts.append(f"groups={self.groups}")
        if self.whitening == "newton":
            parts.append(f"iterations={self.iterations}")
        if self.whitening != "none" and not self.track_running_stats:
            parts.append("track_running_stats=False")
        if self.sync:
            parts.append("sync=True")
        if self.frozen:
            parts.append("frozen=True")
        return ", ".join(parts)


def _as_slots(color: Tensor | None, shift: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    return (color, shift) if color is None or shift is None else as_slots(color, shift)


def _poisoned(shift: Tensor | None, poison: Tensor | None) -> Tensor | None:
    """Shifts that make the whole output NaN if the poison is."""
    return shift if shift is None or poison is None else shift + poison


def is_full(color: Tensor | None, shift: Tensor | None) -> bool:
    """Whether a coloring is of full matrices: one dimension more than a shift has."""
    return color is not None and shift is not None and color.dim() > shift.dim()


def is_shared(color: Tensor | None) -> bool:
    """Whether a diagonal coloring is the same for all samples."""
    return color is None or color.dim() == 1


def _group_name(name: str | None) -> str:
    """The name of a process group with more than one rank (None: the default group); empty if there is none."""
    if not (dist.is_available() and dist.is_initialized()):
        return ""
    group = dist.group.WORLD if name is None else name_to_process_group(name)
    assert group is not None
    return group.group_name if dist.get_world_size(group) > 1 else ""


# The effect of torch.compiler.assume_constant_result, without importing the compiler.
_group_name._dynamo_marked_constant = True  # type: ignore[attr-defined]


# torch.fx records a model by calling it with proxies. A layer becomes one node of the graph, like PyTorch's own layers.


def is_fx_proxy(x: Any) -> bool:
    """Whether torch.fx is recording this call."""
    return isinstance(x, fx.Proxy)


def as_fx_node(module: nn.Module, *args: Any) -> Any:
    """Records a call of the module as one node of the torch.fx graph."""
    tracer = args[0].tracer
    path = tracer.path_of_module(module)
    if not path:
        raise TypeError(f"torch.fx cannot trace a {type(module).__name__} by itself: trace a network that contains it")
    return tracer.create_proxy("call_module", path, args, {})
