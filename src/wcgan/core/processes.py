"""Several processes, one run: `torchrun --nproc-per-node N -m wcgan train ...`.

Each process takes an equal share of every global batch. Whitening statistics are shared inside the layers
(`sync=True`); gradients are averaged here, in one sum over processes for each update. That, rather than
`DistributedDataParallel`, because a gradient penalty differentiates twice, and because the networks then have the same
names and state whatever runs them.
"""

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

LONGEST_WAIT = timedelta(hours=1)  # for the first process, which may have a classifier to train


@dataclass(frozen=True)
class Rank:
    """This process among all."""

    index: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        return self.index == 0

    def share(self, batch: Tensor, dim: int = 0) -> Tensor:
        """This process's equal part of a global batch, whose samples lie along a dimension."""
        size = batch.shape[dim] // self.count
        return batch.narrow(dim, self.index * size, size)

    def check_share(self, name: str, size: int) -> None:
        """Raises a ValueError for a global batch that cannot be shared equally."""
        if size % self.count:
            raise ValueError(
                f"{name}={size} cannot be shared equally by {self.count} processes: "
                f"set it to a multiple of {self.count}"
            )

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """The mean of all processes' gradients, in place, by one sum."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        if self.count == 1 or not gradients:
            return
        flat = torch.cat([g.flatten() for g in gradients])
        dist.all_reduce(flat)
        flat /= self.count
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def total(self, value: Tensor) -> Tensor:
        """The sum of every process's tensor, on every process."""
        if self.count == 1:
            return value
        total = value.clone()
        dist.all_reduce(total)
        return total

    def mean(self, value: Tensor) -> Tensor:
        """The mean over processes of a scalar for the log."""
        return self.total(value) / self.count

    def any(self, flag: bool) -> bool:
        """Whether any process raises its flag: a signal may reach only one of them. It waits for no GPU."""
        if self.count == 1:
            return flag
        total = torch.tensor(float(flag))  # on the CPU, through gloo
        dist.all_reduce(total)
        return bool(total > 0)


def process_count() -> int:
    """How many processes `torchrun` started, before a group is joined."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def processes_here() -> int:
    """How many of them are on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def process_here() -> int:
    """This process's number among them."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def is_first_process() -> bool:
    """Whether this process is the one that writes, before a group is joined."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def process_group(device: torch.device) -> Iterator[Rank]:
    """Joins the processes that `torchrun` started, on a device that becomes the current one."""
    count, gpu = process_count(), device.type == "cuda"
    with torch.cuda.device(device) if gpu else nullcontext():
        if count == 1:
            yield Rank()
            return
        dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo", timeout=LONGEST_WAIT)
        try:
            yield Rank(dist.get_rank(), count)
        finally:
            dist.destroy_process_group()


class StopRequest:
    """The signal that asks for an end, once there is one."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def requested(self, rank: Rank) -> bool:
        """Whether to stop now: all processes, or none."""
        return rank.any(self.signal is not None)


@contextmanager
def stop_requests(interrupt: bool = False) -> Iterator[StopRequest]:
    """Remembers a signal; with `interrupt` it also ends what is going on, by KeyboardInterrupt.

    Only a process's main thread can ask for signals: in another nothing is ever requested.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def remember(number: int, frame: object) -> None:
        stop.signal = number
        if interrupt:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
