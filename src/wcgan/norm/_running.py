"""The state of a layer that is not learnt: running statistics, counters, and the whitening matrix for inference."""

import math
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from wcgan.functional._by_kernels import Update
from wcgan.functional._factorisations import WhiteningKind
from wcgan.functional._operators import is_eager, within_transform
from wcgan.functional._passes import compute_dtype
from wcgan.functional.normalize import Statistics
from wcgan.functional.whitening import factorise

COUNTERS = ("num_retried", "num_nonfinite")
_OF_BATCH_NORM = "these weights are of batch norm: load them into the network before wcgan.convert_batchnorm"
_DERIVED = ("_source", "_made_from", "_alias")


class RunningStatistics(nn.Module):
    """Running mean and covariance as buffers, in float32 or wider whatever the layer's type.

    The counters and the whitening matrix are plain tensors, not buffers: code that iterates over the buffers of a
    model, such as an exponential moving average, finds the same ones as in batch normalisation.
    """

    num_features: int
    eps: float
    momentum: float | None
    whitening: WhiteningKind
    groups: int
    iterations: int
    track_running_stats: bool
    frozen = False
    """Whether the layer stays in evaluation mode while its network trains; see `freeze_statistics`."""
    running_mean: Tensor
    num_batches_tracked: Tensor
    num_retried: Tensor
    num_nonfinite: Tensor

    def _build_statistics(self, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        d, groups = self.num_features, self._covariance_groups
        blocks = (groups, d // groups, d // groups)
        shapes = {"running_var": (d,), "running_covariance": (d, d) if groups == 1 else blocks}
        self._second = "running_var" if self.whitening == "standardize" else "running_covariance"
        wide = torch.promote_types(dtype or torch.get_default_dtype(), torch.float32)
        count = torch.zeros((), dtype=torch.int64, device=device)
        buffers = {
            "running_mean": torch.empty(d, device=device, dtype=wide),
            self._second: torch.empty(shapes[self._second], device=device, dtype=wide),
            "num_batches_tracked": count,
        }
        for name, buffer in buffers.items():
            if self.track_running_stats:
                self.register_buffer(name, buffer)
            else:
                setattr(self, name, None)  # torch.export of PyTorch 2.6 fails on buffers that are None
        for name in COUNTERS:
            setattr(self, name, count.clone())
        self._whitening: Tensor | None = None
        self._forget_whitening()

    # Statistics

    @property
    def _covariance_groups(self) -> int:
        return self.num_features if self.whitening == "standardize" else self.groups

    @property
    def _covariance(self) -> Tensor:
        """A view of the running covariance as `(g, p, p)`."""
        p = self.num_features // self._covariance_groups
        second: Tensor = getattr(self, self._second)
        return second.reshape(-1, p, p)

    @torch.no_grad()
    def reset_running_stats(self) -> None:
        """Resets to mean 0 and covariance I, with which whitening is the identity, and sets all counters to 0."""
        for name in COUNTERS:
            getattr(self, name).zero_()
        if self.track_running_stats:
            self.running_mean.zero_()
            self.num_batches_tracked.zero_()
            covariance = self._covariance
            covariance.copy_(torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device))
            self._refresh()

    @torch.no_grad()
    def _update(self, statistics: Statistics, poison: Tensor | None) -> None:
        """Eq. 8, for the unshrunk covariance. A batch that is not finite is only counted. No sync with a GPU."""
        mean, covariance, retry = statistics
        # Variances show everything: where a mean or a covariance is not finite, neither is the variance.
        largest = torch.linalg.vector_norm(covariance.diagonal(dim1=-2, dim2=-1), torch.inf)
        if mean.device.type == "cpu" and poison is None and is_eager((mean, self.num_retried)):
            if not math.isfinite(largest):
                self.num_nonfinite.add_(1)
                return
            if any(retry.tolist()):
                self.num_retried.add_(1)
            if self.track_running_stats:
                self._update_on_cpu(mean, covariance.reshape(getattr(self, self._second).shape))
            return
        good = largest < torch.inf
        if poison is not None:
            good = good & poison.isfinite()
        if within_transform():
            self._update_within_transform(mean, covariance, good)
            return
        if self.num_retried.device != mean.device:  # `to` cannot move a layer without parameters and buffers
            self._move_counters(mean.device)
        self.num_nonfinite.add_(~good)
        self.num_retried.add_(good & (retry > 0).any())
        if self.track_running_stats:
            self._average(mean, covariance, good)

    def _updates_by_kernels(self, place: int) -> Update | None:
        """What a kernel on this device updates, if it can: statistics, None if there are none, counters, momentum."""
        counters = (self.num_retried, self.num_nonfinite)
        running = None
        if self.track_running_stats:
            running = (self.running_mean, getattr(self, self._second), self.num_batches_tracked)
            if not (running[0].dtype == running[1].dtype == torch.float32):
                return None
        for tensor in (*(running or ()), *counters):
            if type(tensor) is not Tensor or tensor.get_device() != place or not tensor.is_contiguous():
                return None
            if not torch.compiler.is_compiling() and tensor.is_inference():
                return None
        return None if self.momentum is None else (running, counters, self.momentum)

    @torch.no_grad()
    def _update_on_cpu(self, mean: Tensor, second: Tensor) -> None:
        """`_average` of a batch that is known to be finite: fewer and shorter operations, the same result."""
        if self.track_running_stats:
            running, count = self.running_mean, self.num_batches_tracked.add_(1)
            step = 1 / int(count) if self.momentum is None else self.momentum
            if running.dtype != mean.dtype:
                mean, second = mean.to(running.dtype), second.to(running.dtype)
            running.lerp_(mean, step)
            getattr(self, self._second).lerp_(second, step)

    def _average(self, mean: Tensor, covariance: Tensor, good: Tensor) -> None:
        self.num_batches_tracked.add_(good)
        for running, batch in ((self.running_mean, mean), (self._covariance, covariance)):
            dtype = running.dtype
            step = 1 / self.num_batches_tracked.clamp_min(1).to(dtype) if self.momentum is None else self.momentum
            # Not `lerp_`, for which `vmap` has no rule: it would go through the batch one by one, with a warning.
            running.copy_(torch.lerp(running, torch.where(good, batch.to(dtype), running), step))

    def _update_within_transform(self, mean: Tensor, covariance: Tensor, good: Tensor) -> None:
        """Within `torch.func`, whose functions may only change tensors they were given: updates no counters."""
        if not self.track_running_stats:
            return
        try:
            self._average(mean, covariance, good)
        except RuntimeError as error:
            raise RuntimeError(
                "a torch.func transform can only update running statistics that are passed to it: use eval(), "
                "track_running_stats=False, or torch.func.functional_call with buffers that are arguments of the "
                "transformed function or copies made inside it"
            ) from error

    # The whitening matrix for inference: factorised once, and again when the running covariance has changed

    def _forget_whitening(self) -> None:
        """Marks the matrix as out of date, after the buffers were replaced."""
        self._source: Tensor | None = getattr(self, self._second)
        self._made_from: tuple[int, int, float, int] | None = None
        self._alias: Tensor | None = None

    def _is_fresh(self) -> bool:
        """Whether the matrix was computed from `_source` as it is now."""
        return self._made_from is not None and self._made_from == self._key()

    def _key(self) -> tuple[int, int, float, int] | None:
        """A key that changes with `_source`. `_alias` keeps the memory, so no other tensor can get its address."""
        source = self._source
        # Inference tensors have no version, and subclasses such as fake tensors may have no memory.
        if source is None or source.is_inference() or type(source) is not Tensor:
            return None
        return source._version, source.data_ptr(), self.eps, self.iterations

    def _factorise(self) -> Tensor:
        covariance = self._covariance
        wide = covariance.to(compute_dtype(covariance))
        return factorise(wide, self.whitening, self.eps, self.iterations).matrix

    def _refresh(self) -> None:
        """Recomputes the matrix from the buffer, in the same memory, which a CUDA graph may read."""
        source: Tensor = getattr(self, self._second)
        fresh = source is self._source and self._is_fresh()
        self._forget_whitening()
        if source.is_meta:
            self._whitening = None
            return
        with torch.inference_mode(False), torch.no_grad():  # a normal tensor, which a backward pass can save
            matrix, kept = self._factorise(), self._whitening
            kind = (matrix.shape, matrix.dtype, matrix.device)
            if kept is None or kept.is_inference() or (kept.shape, kept.dtype, kept.device) != kind:
                self._whitening = matrix
            else:
                # If no change is known, the values are most likely the same: writing through `.data` leaves the version
                # alone, so that a pending backward pass that saved the matrix does not fail.
                (kept.data if fresh else kept).copy_(matrix)
            self._made_from, self._alias = self._key(), source.detach()

    def _running_whitening(self) -> Tensor:
        """W of the running covariance, factorised once and cached until the covariance changes.

        A compiled graph cannot read version counters, so it uses the matrix computed by the last `eval()` or
        `load_state_dict`. A tensor that `functional_call` or an assignment put in place of the buffer is factorised at
        each call and not cached.
        """
        if torch.compiler.is_compiling():
            # Under torch.export the buffer is always a proxy, so its identity tells nothing.
            known = getattr(self, self._second) is self._source or not torch.compiler.is_dynamo_compiling()
            return self._whitening if known and self._whitening is not None else self._factorise()
        source = self._buffers.get(self._second)  # past `nn.Module.__getattr__`, which takes ten times as long
        if self._whitening is not None and source is self._source and self._is_fresh():
            return self._whitening
        if source is None or source is not self._source or source.is_meta or within_transform():
            return self._factorise()
        self._refresh()
        assert self._whitening is not None
        return self._whitening

    # Hooks into nn.Module: modes, moves, loading and pickling

    def train(self, mode: bool = True) -> "RunningStatistics":
        super().train(mode and not self.frozen)
        if not self.training and self.track_running_stats:
            self._refresh()  # always: a write through `.data` cannot be detected
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "RunningStatistics":
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        self._move_counters(fn(self.num_retried).device)
        if self._buffers.get(self._second) is not None:  # with `use_batch_statistics` too, which does not read it
            empty = self._is_meta(before[self._second]) and not self._is_meta(self._buffers[self._second])
            self._widen({} if empty else before)
            self._forget_whitening()
            self._whitening = None  # a new tensor next time: a pending backward pass may need the old one
            if not self.training and not empty and self.track_running_stats:
                self._refresh()  # in the new precision, instead of a rounded copy
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        errors: list[str] = kwargs["error_msgs"] if "error_msgs" in kwargs else args[-1]
        before = len(errors)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        of_batch_norm = f"{prefix}running_var" in state_dict and self._second != "running_var"
        if of_batch_norm and len(errors) > before and _OF_BATCH_NORM not in errors:
            errors.insert(0, _OF_BATCH_NORM)
        tensor = next(chain(self.parameters(recurse=False), self.buffers(recurse=False)), None)
        if tensor is not None:
            self._move_counters(tensor.device)
        if self.track_running_stats:
            self._widen({})
            self._refresh()

    def _widen(self, before: dict[str, Tensor | None]) -> None:
        """Converts statistics in half precision to float32, from the values they had `before` if those are known."""
        for name in ("running_mean", self._second):
            now = self._buffers[name]
            assert now is not None
            if now.dtype != compute_dtype(now):
                old = before.get(name)
                values = now if old is None or now.is_meta else old
                self._buffers[name] = values.to(device=now.device, dtype=compute_dtype(now))

    @staticmethod
    def _is_meta(tensor: Tensor | None) -> bool:
        return tensor is not None and tensor.is_meta

    def _move_counters(self, device: torch.device) -> None:
        for name in COUNTERS:
            count = getattr(self, name)
            moved = torch.zeros_like(count, device=device) if count.is_meta else count.to(device)
            setattr(self, name, moved)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _DERIVED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for name in (*COUNTERS, "_whitening"):
            if name in self._buffers:  # pickled when these were buffers
                self._non_persistent_buffers_set.discard(name)
                self.__dict__[name] = self._buffers.pop(name)
        self._forget_whitening()
