"""What all layers share: statistics of the batch or of the past, and one affine map made from them."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from wcgan.functional._checks import check_batch, check_groups
from wcgan.functional._passes import compute_dtype
from wcgan.functional._primitives import resolve_group
from wcgan.functional.affine import affine
from wcgan.functional.normalize import Statistics, compose
from wcgan.functional.parts import whiten_color_parts
from wcgan.functional.standardize import batch_norm_parts
from wcgan.functional.whitening import check_whitening, factorise


class WhiteningLayer(nn.Module):
    """Whitening, its running statistics, and the order of things in a forward pass.

    A subclass says which inputs it takes (`_ranks`) and turns its parameters, and labels if any, into a coloring.
    """

    _ranks: tuple[int, ...] = ()
    frozen = False
    """Whether it stays in evaluation mode while its network trains; see `freeze_statistics`."""
    running_mean: Tensor
    num_batches_tracked: Tensor
    num_retried: Tensor
    num_nonfinite: Tensor
    _whitening: Tensor

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        *,
        whitening: str,
        groups: int,
        iterations: int,
        track_running_stats: bool,
        sync: bool,
        process_group: "dist.ProcessGroup | None",
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
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

    def _build_statistics(self, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        d, groups = self.num_features, self._covariance_groups
        blocks = (groups, d // groups, d // groups)
        shapes = {"running_var": (d,), "running_covariance": (d, d) if groups == 1 else blocks}
        self._second = "running_var" if self.whitening == "standardize" else "running_covariance"

        def buffer(*shape: int) -> Tensor | None:
            return torch.empty(shape, device=device, dtype=dtype) if self.track_running_stats else None

        count = torch.zeros((), dtype=torch.int64, device=device)
        # Tensors first: torch.export miscounts buffers that are None and stand before others.
        self.register_buffer("num_retried", count.clone(), persistent=False)
        self.register_buffer("num_nonfinite", count.clone(), persistent=False)
        self.register_buffer("running_mean", buffer(d))
        self.register_buffer(self._second, buffer(*shapes[self._second]))
        self.register_buffer("num_batches_tracked", count if self.track_running_stats else None)
        self.register_buffer("_whitening", buffer(*blocks), persistent=False)
        self._whitening_key: tuple[int, int] | None = None

    # Statistics

    @property
    def _covariance_groups(self) -> int:
        return self.num_features if self.whitening == "standardize" else self.groups

    @property
    def _covariance(self) -> Tensor:
        """The running covariance as `(g, p, p)`; a view."""
        p = self.num_features // self._covariance_groups
        second: Tensor = getattr(self, self._second)
        return second.view(-1, p, p)

    @torch.no_grad()
    def reset_running_stats(self) -> None:
        """Back to mean 0 and covariance I, with which whitening is the identity."""
        self.num_retried.zero_()
        self.num_nonfinite.zero_()
        if self.track_running_stats:
            self.running_mean.zero_()
            self.num_batches_tracked.zero_()
            covariance = self._covariance
            covariance.copy_(torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device))
            self._refresh()

    @torch.no_grad()
    def _update(self, statistics: Statistics, poison: Tensor | None) -> None:
        """Eq. 8, for the unshrunk covariance. A batch that is not finite is counted and left out; no wait for a GPU."""
        mean, covariance, retry = statistics
        good = mean.isfinite().all() & covariance.isfinite().all()
        if poison is not None:
            good = good & poison.isfinite()
        self.num_nonfinite.add_(~good)
        self.num_retried.add_(good & (retry > 0).any())
        if self.track_running_stats:
            self.num_batches_tracked.add_(good)
            seen = self.num_batches_tracked.clamp_min(1)
            for running, batch in ((self.running_mean, mean), (self._covariance, covariance)):
                step = 1 / seen.to(running.dtype) if self.momentum is None else self.momentum
                moved = running + step * (batch.to(running.dtype) - running)
                running.copy_(torch.where(good, moved, running))

    # The inference matrix

    def _key(self) -> tuple[int, int] | None:
        """Changes whenever the running covariance does; None where nothing tells, for tensors of inference mode."""
        second: Tensor = getattr(self, self._second)
        return None if second.is_inference() else (second._version, second.data_ptr())

    def _refresh_if_stale(self) -> None:
        if self._whitening_key is None or self._whitening_key != self._key():
            self._refresh()

    @torch.no_grad()
    def _refresh(self) -> None:
        covariance = self._covariance
        if covariance.device.type != "meta":
            wide = covariance.to(compute_dtype(covariance))
            self._whitening.copy_(factorise(wide, self.whitening, self.eps, self.iterations).matrix)
            self._whitening_key = self._key()

    def _running_whitening(self) -> Tensor:
        """W of the running covariance, factorised once and kept until that changes.

        Inside a compiled graph nothing can be asked of a version counter: there the matrix is the one that `eval()`,
        or loading a state, left.
        """
        if not torch.compiler.is_compiling():
            self._refresh_if_stale()
        return self._whitening

    def train(self, mode: bool = True) -> "WhiteningLayer":
        super().train(mode and not self.frozen)
        if not self.training and self.track_running_stats:
            self._refresh_if_stale()
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> "WhiteningLayer":
        super()._apply(fn, recurse)
        if self.track_running_stats and not self.training:
            self._refresh()  # in the new precision, not a rounded one carried over
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        if self.track_running_stats:
            self._refresh()

    # The forward pass

    def coloring_slots(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Coloring matrices `(K, d, d)` or `(K, d)`, shifts `(K, d)`, and the index of each sample's slot."""
        raise NotImplementedError

    def _uses_batch(self) -> bool:
        """Whether the statistics are the batch's own."""
        return self.whitening != "none" and (self.training or not self.track_running_stats)

    def _group(self) -> str:
        """Name of the process group whose ranks share batch statistics; empty where there is none."""
        return _group_name(self.process_group) if self.sync else ""

    def _check_input(self, x: Tensor) -> None:
        parts = self.parts if self.training else 1
        check_batch(x, minimum=2 * parts if self._uses_batch() and not self._group() else 0)
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
    ) -> Tensor:
        """The map in, by statistics, the map out, by `coloring_slots`, and a rectifier where it is wanted, as one."""
        if poison is not None and shift is not None:
            shift = shift + poison
        if not self._uses_batch():
            matrix, offset, mean = self.as_map(color, shift)
            out = affine(x, matrix, offset, index, mean)
            return out.relu() if relu else out
        group, parts = self._group(), self.parts if self.training else 1
        if x.shape[0] % parts:
            raise ValueError(f"a batch of {x.shape[0]} cannot be taken as {parts} equal sub-batches")
        if self.whitening == "standardize" and (color is None or color.dim() == 2) and not group:
            out, statistics = batch_norm_parts(x, color, shift, index, self.eps, parts)
            out = out.relu() if relu else out
        else:
            out, statistics = whiten_color_parts(
                x,
                color,
                shift,
                index,
                parts=parts,
                whitening=self.whitening,
                groups=self._covariance_groups,
                eps=self.eps,
                iterations=self.iterations,
                group=group,
                relu=relu,
            )
        if self.training:
            for part in statistics:
                self._update(part, poison)
        return out

    def as_map(self, color: Tensor | None, shift: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """A coloring at inference: matrices `(K, g, p, p)`, offsets `(K, d)`, and the mean to subtract first."""
        if self.whitening == "none":
            assert color is not None
            whitening, mean = color.new_ones(self.num_features, 1, 1), None
        else:
            whitening, mean = self._running_whitening(), self.running_mean
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


def _group_name(name: str | None) -> str:
    """The name of a process group with more than one rank; empty where there is none."""
    if not (dist.is_available() and dist.is_initialized()):
        return ""
    group = dist.group.WORLD if name is None else resolve_group(name)
    assert group is not None
    return group.group_name if dist.get_world_size(group) > 1 else ""


# What torch.compiler.assume_constant_result does, without importing the compiler.
_group_name._dynamo_marked_constant = True  # type: ignore[attr-defined]
