"""Covariance -> Cholesky whitening matrix in one CUDA kernel: shrinkage, factorisation, inverse and retries."""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from wcgan.kernels import capability
from wcgan.kernels.nvrtc import compile_kernel

LARGEST = 512
SHARED_MEMORY = 232_448  # bytes that a thread block may have
THREADS, TILE, STRIDE, COLUMNS = 512, 32, 40, 2 * 8 * 36  # as in cholesky.cu


def supports(covariance: Tensor, levels: tuple[float, ...]) -> bool:
    """Whether the kernel supports these matrices: float32, up to 512 x 512, on a GPU with thread block clusters."""
    return (
        covariance.dtype == torch.float32
        and covariance.shape[-1] <= LARGEST
        and torch.version.cuda is not None
        and capability(covariance.device) >= (9, 0)
        and _launcher(covariance, levels) is not None
    )


def factorise(covariance: Tensor, eps: float, levels: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Whitening matrices `(g, p, p)` of the symmetric parts of covariances, and the shrinkage of retries `(g,)`.

    Args:
        covariance: `(g, p, p)`, float32.
        eps: the shrinkage.
        levels: four shrinkages towards (trace / p) I, tried in order until one is enough.
    """
    covariance = covariance.contiguous()
    matrix, retry = torch.empty_like(covariance), covariance.new_empty(covariance.shape[0])
    launch = _launcher(covariance, levels)
    assert launch is not None
    launch(covariance, matrix, retry, covariance.shape[-1], float(eps), matrices=covariance.shape[0])
    return matrix, retry


def _launcher(covariance: Tensor, levels: tuple[float, ...]) -> Callable[..., None] | None:
    return _compile(-(-covariance.shape[-1] // TILE), covariance.device.index, levels)


@functools.cache
def _compile(tiles: int, device: int, levels: tuple[float, ...]) -> Callable[..., None] | None:
    """The kernel for matrices of tiles x tiles, with one thread block per row of tiles; None if it does not compile."""
    blocks = next(blocks for blocks in (1, 2, 4, 8, 16) if blocks >= tiles)
    buffers = 2 if _shared_memory(tiles, 2) <= SHARED_MEMORY else 1
    numbers = ", ".join(f"{level:.8e}f" for level in levels)
    defines = f"#define C {blocks}\n#define BUFFERS {buffers}\n#define LEVELS {{{numbers}}}\n"
    source = Path(__file__).with_name("cholesky.cu").read_text(encoding="utf-8")
    try:
        kernel = compile_kernel(defines + source, "factorise", device, _shared_memory(tiles, buffers))
    except RuntimeError as error:
        warnings.warn(f"whitening falls back to the library's factorisation, slower: {error}", stacklevel=2)
        return None
    return lambda *arguments, matrices: kernel(matrices * blocks, THREADS, *arguments)


def _shared_memory(tiles: int, buffers: int) -> int:
    """Shared memory of a thread block, in bytes."""
    rows = (1 + buffers) * TILE * (tiles * TILE + 8)
    return 4 * (rows + (2 + tiles) * TILE * STRIDE + COLUMNS + 8)
