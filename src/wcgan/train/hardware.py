"""Settings that default to what is fastest for the hardware found."""

import re
from dataclasses import dataclass

import torch

from wcgan.train.config import TrainConfig


@dataclass(frozen=True)
class Hardware:
    """The choices behind `auto`."""

    device: torch.device
    precision: torch.dtype
    compile: bool
    channels_last: bool

    def describe(self) -> dict[str, str]:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "CPU"
        threads = "" if self.device.type == "cuda" else f", {torch.get_num_threads()} threads"
        return {
            "device": f"{name}{threads}",
            "precision": str(self.precision).removeprefix("torch."),
            "compile": "yes" if self.compile else "no",
            "memory_format": "channels_last" if self.channels_last else "contiguous",
            "torch": torch.__version__,
        }


def find_device(wanted: str, local_rank: int = 0) -> torch.device:
    """A device by its name; `auto` is a GPU where there is one, each process of a machine its own."""
    if wanted == "auto":
        return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if wanted not in ("cpu", "cuda") and not re.fullmatch(r"cuda:\d{1,3}", wanted):
        raise ValueError(f"the device must be auto, cpu, cuda or cuda:N, got {wanted!r}")
    device = torch.device(wanted)
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise ValueError(f"there is no GPU {wanted} on this machine ({count} found): use the device auto or cpu")
        device = torch.device("cuda", local_rank if device.index is None else device.index)
    return device


def find_hardware(train: TrainConfig, local_rank: int = 0) -> Hardware:
    device = find_device(train.device, local_rank)
    gpu = device.type == "cuda"

    def choose(setting: str) -> bool:
        return gpu if setting == "auto" else setting == "yes"

    wants_half = train.precision == "bfloat16" or (train.precision == "auto" and gpu and torch.cuda.is_bf16_supported())
    return Hardware(
        device, torch.bfloat16 if wants_half else torch.float32, choose(train.compile), choose(train.channels_last)
    )
