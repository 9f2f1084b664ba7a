"""GPU kernels. Each computes the same as a plain PyTorch function in `wcgan.functional`; tests compare the two."""

import functools

import torch


@functools.cache
def capability(device: torch.device) -> tuple[int, int]:
    """The compute capability of a GPU, asked once: a layer asks at each call."""
    return torch.cuda.get_device_capability(device)
