"""Devices: what a training runs on, and random numbers that are the same on each of them."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch

from wcgan.core.processes import process_count, process_here, processes_here
from wcgan.core.terminal import counted


class HardwareSettings(Protocol):
    """The fields of a config that decide what a training runs on."""

    @property
    def device(self) -> str: ...

    @property
    def precision(self) -> str: ...

    @property
    def compile(self) -> str: ...

    @property
    def channels_last(self) -> str: ...

    @property
    def cuda_graph(self) -> str: ...

    @property
    def deterministic(self) -> bool: ...


@dataclass(frozen=True)
class Hardware:
    """The choices behind `auto`."""

    device: torch.device
    precision: torch.dtype
    compile: bool
    channels_last: bool
    eager_because: str | None
    """Reason an iteration is not one CUDA graph, empty if the config asks for none; None if it is one."""

    def describe(self) -> dict[str, str]:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "CPU"
        count = torch.get_num_threads()
        threads = "" if self.device.type == "cuda" else f", {counted(count, 'thread')}"
        return {
            "device": f"{name}{threads}",
            "precision": str(self.precision).removeprefix("torch."),
            "compile": "yes" if self.compile else "no",
            "cuda_graph": "yes" if self.eager_because is None else f"no: {self.eager_because}".removesuffix(": "),
            "memory_format": "channels_last" if self.channels_last else "contiguous",
            "torch": torch.__version__,
        }


def find_device(wanted: str) -> torch.device:
    """A device by its name; `auto` is a GPU if there is one, a different one for each process of a machine."""
    if wanted not in ("auto", "cpu", "cuda") and not re.fullmatch(r"cuda:\d{1,3}", wanted):
        raise ValueError(f"the device must be auto, cpu, cuda or cuda:N, got {wanted!r}")
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    count, processes = torch.cuda.device_count(), processes_here()
    index = torch.device(wanted).index if ":" in wanted else None
    if (index or 0) >= count:
        raise ValueError(f"there is no GPU {wanted} on this machine ({count} found): use the device auto or cpu")
    if index is None and processes > count:
        raise ValueError(
            f"{processes} processes cannot have a GPU each on this machine ({count} found): "
            f"start at most {count}, or use the device cpu"
        )
    return torch.device("cuda", process_here() if index is None else index)


def find_hardware(train: HardwareSettings) -> Hardware:
    device = find_device(train.device)
    gpu = device.type == "cuda"
    if gpu and train.deterministic:
        fix_cublas_workspace()

    def choose(setting: str) -> bool:
        return gpu if setting == "auto" else setting == "yes"

    wants_half = train.precision == "bfloat16" or (train.precision == "auto" and gpu and torch.cuda.is_bf16_supported())
    return Hardware(
        device,
        torch.bfloat16 if wants_half else torch.float32,
        choose(train.compile),
        choose(train.channels_last),
        why_eager(train, device),
    )


def why_eager(train: HardwareSettings, device: torch.device) -> str | None:
    """Reason an iteration is not captured in one CUDA graph, or None."""
    if train.cuda_graph == "no":
        return ""
    if device.type != "cuda":
        why = f"the device is {device.type}"
    elif process_count() > 1:
        why = "several processes share the run"
    else:
        return None
    if train.cuda_graph == "yes":
        raise ValueError(f"train.cuda_graph=yes needs a single process on a GPU, but {why}: use auto or no")
    return why


# Determinism

_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_FIXED_WORKSPACES = (":4096:8", ":16:8")  # with any other, cuBLAS may sum in another order when streams overlap


def fix_cublas_workspace() -> None:
    """Gives cuBLAS the workspace that deterministic sums need. It stays: the variable is read once, when CUDA starts.

    Raises:
        ValueError: if CUDA has started without it, or the variable has another value.
    """
    wanted = f"train.deterministic needs {_WORKSPACE}={_FIXED_WORKSPACES[0]} in the environment"
    if _WORKSPACE not in os.environ and torch.cuda.is_initialized():
        raise ValueError(f"{wanted} before CUDA starts: set it at the top of your program, or start a new process")
    if os.environ.setdefault(_WORKSPACE, _FIXED_WORKSPACES[0]) not in _FIXED_WORKSPACES:
        raise ValueError(f"{wanted}, got {os.environ[_WORKSPACE]}")


@contextmanager
def deterministic_algorithms(wanted: bool) -> Iterator[None]:
    """Has PyTorch compute in one order only, here and in what it compiles; its settings are restored afterwards."""
    if not wanted:
        yield
        return
    cudnn, memory = torch.backends.cudnn, cast(Any, torch.utils.deterministic)
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    timed, filled = cudnn.benchmark, memory.fill_uninitialized_memory
    try:
        torch.use_deterministic_algorithms(True)  # cuDNN's as well
        memory.fill_uninitialized_memory = False  # nothing here reads such memory, and filling it takes time
        if timed:  # else cuDNN's choice depends on the clock
            cudnn.benchmark = False
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = filled
        if timed:
            cudnn.benchmark = True


# Random numbers


def random_generator(seed: int, purpose: str, step: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A random generator for one purpose and step, independent of all others."""
    digest = hashlib.blake2b(f"{seed}/{purpose}/{step}".encode(), digest_size=8).digest()
    generator = torch.Generator(device=device)
    generator.manual_seed(int.from_bytes(digest, "little") >> 1)
    return generator
