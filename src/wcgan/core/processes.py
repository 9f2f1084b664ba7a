"""The processes of one run: ranks, how they meet and what ends them, and signals that ask for an end.

`torchrun --nproc-per-node N -m wcgan train ...` starts N processes. Each takes an equal share of every global batch.
Whitening statistics are shared inside the layers (`sync=True`); gradients are averaged here, in one sum over processes
per update. `DistributedDataParallel` is not used, because a gradient penalty differentiates twice, and because the
networks have the same names and state this way however many processes there are.
"""

import importlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

PATIENCE = "WCGAN_PATIENCE"
"""Environment variable: minutes that a process waits for the others before it gives up."""
MINUTES = 10.0  # of patience, by default
LONGEST_WAIT = timedelta(hours=6)  # for the first process, where it works alone: it may have a classifier to train


class LostProcessError(ValueError):
    """Another process of the run has ended, or does not answer."""


@dataclass(frozen=True)
class Rank:
    """This process's number, and how many there are."""

    index: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        return self.index == 0

    def share(self, batch: Tensor, dim: int = 0) -> Tensor:
        """This process's equal part of a global batch; `dim` is the dimension of the samples."""
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
        """Replaces gradients by their mean over all processes, with one all-reduce."""
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
        """The mean of a scalar over processes, for the log."""
        return self.total(value) / self.count

    def any(self, flag: bool) -> bool:
        """Whether any process raises its flag: a signal may reach only one of them. No GPU sync."""
        if self.count == 1:
            return flag
        total = torch.tensor(float(flag))  # on the CPU, through gloo
        dist.all_reduce(total)
        return bool(total > 0)

    @contextmanager
    def first_goes_ahead(self) -> Iterator[None]:
        """Runs the block in the first process, then in the others, which may wait for long."""
        if self.count == 1:
            yield
            return
        patient = dist.new_group(backend="gloo", timeout=LONGEST_WAIT)
        if not self.first:
            dist.all_reduce(torch.zeros(1), group=patient)
        yield
        if self.first:
            dist.all_reduce(torch.zeros(1), group=patient)
        dist.destroy_process_group(patient)  # each group has threads and connections of its own


ALONE = Rank()
"""The only process there is."""


def process_count() -> int:
    """How many processes `torchrun` started; known before they have met."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def processes_here() -> int:
    """How many of them are on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def process_here() -> int:
    """This process's number among them."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def is_first_process() -> bool:
    """Whether this process is the one that writes; known before they have met."""
    return int(os.environ.get("RANK", "0")) == 0


@contextmanager
def join_processes(device: torch.device) -> Iterator[Rank]:
    """Connects the processes that `torchrun` started, and makes the device the current one.

    Raises:
        LostProcessError: if another process ends or does not answer; it has its own message, which tells why.
    """
    count, gpu = process_count(), device.type == "cuda"
    with torch.cuda.device(device) if gpu else nullcontext():
        if count == 1:
            yield Rank()
            return
        patience = find_patience()
        try:
            with process_group("cpu:gloo,cuda:nccl" if gpu else "gloo", timeout=patience):
                yield Rank(dist.get_rank(), count)
        except RuntimeError as error:
            if (sentence := _lost_process(error, patience)) is None:
                raise
            raise LostProcessError(sentence) from error


@contextmanager
def process_group(backend: str, **where: Any) -> Iterator[None]:
    """The default process group; `where` is as for `init_process_group`. None of its threads outlives the block."""
    # Imported while a group exists, this module keeps the group alive in default arguments, and threads that are left
    # over can abort the process while the interpreter shuts down. Optimisers import it.
    importlib.import_module("torch._dynamo")
    dist.init_process_group(backend, **where)
    try:
        yield
    finally:
        dist.destroy_process_group()


def find_patience() -> timedelta:
    """How long a process waits for the others: `WCGAN_PATIENCE` minutes, or ten."""
    text = os.environ.get(PATIENCE) or str(MINUTES)
    try:
        minutes = float(text)
        if not 0 < minutes <= 1e6:
            raise ValueError
    except ValueError:
        raise ValueError(f"{PATIENCE} takes a number of minutes, such as 10; got {text!r}") from None
    return timedelta(minutes=minutes)


def _lost_process(error: RuntimeError, patience: timedelta) -> str | None:
    """The sentence for an error of the connection to other processes; None for any other error."""
    text = str(error)
    if not isinstance(error, dist.DistError) and "gloo" not in text.lower() and "Connection" not in text:
        return None
    if "timed out" in text.lower() or "timeout" in text.lower():
        minutes = patience.total_seconds() / 60
        return f"another process of this run has not answered for {minutes:g} minutes; {PATIENCE} sets how many"
    return "another process of this run has ended; its own message says why"


class StopRequest:
    """Remembers the signal that asked for an end, if any, and whether the program itself did."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.asked = False

    def ask(self) -> None:
        """Asks for an end without a signal."""
        self.asked = True

    def requested(self, rank: Rank) -> bool:
        """Whether to stop now: all processes, or none."""
        return rank.any(self.signal is not None or self.asked)


@contextmanager
def stop_requests(interrupt: bool = False) -> Iterator[StopRequest]:
    """Remembers SIGINT and SIGTERM; with `interrupt` they also raise KeyboardInterrupt.

    Only the main thread of a process can handle signals: in any other thread, nothing is ever requested.
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
