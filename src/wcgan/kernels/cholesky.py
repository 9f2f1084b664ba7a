"""Covariance -> whitening matrix in one kernel: factorisation, triangular inverse, shrinkage and retries."""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from wcgan.kernels.nvrtc import compile_kernel

LARGEST = 512
THREADS, TILE, STRIDE, COLUMNS = 256, 32, 40, 2 * 8 * 36  # as in cholesky.cu


def supports(covariance: Tensor, levels: tuple[float, ...]) -> bool:
    """Float32 matrices up to 512 x 512 on a GPU with thread block clusters, where the kernel compiles."""
    return (
        covariance.dtype == torch.float32
        and covariance.shape[-1] <= LARGEST
        and torch.version.cuda is not None
        and torch.cuda.get_device_capability(covariance.device) >= (9, 0)
        and _launcher(covariance, levels) is not None
    )


def factorise(covariance: Tensor, eps: float, levels: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """Whitening matrices `(g, p, p)` of the symmetric parts of covariances, and the shrinkage of retries `(g,)`.

    Args:
        covariance: `(g, p, p)`, float32.
        eps: the shrinkage.
        levels: four shrinkages towards (trace / p) I, tried in turn until one suffices.
    """
    covariance = covariance.contiguous()
    matrix, retry = torch.empty_like(covariance), covariance.new_empty(covariance.shape[0])
    launch = _launcher(covariance, levels)
    assert launch is not None
    launch(covariance.shape[0] * _blocks(covariance), THREADS, covariance, matrix, retry, covariance.shape[-1], float(eps))
    return matrix, retry


def _tiles(covariance: Tensor) -> int:
    return -(-covariance.shape[-1] // TILE)


def _blocks(covariance: Tensor) -> int:
    """Thread blocks that share a matrix: one a row of tiles, eight at most."""
    return next(blocks for blocks in (1, 2, 4, 8) if blocks >= _tiles(covariance) or blocks == 8)


def _shared_memory(covariance: Tensor) -> int:
    """Bytes of a block's shared memory."""
    tiles = _tiles(covariance)
    rows = 2 if tiles > _blocks(covariance) else 1
    width = (tiles + tiles % 2) * TILE + 8
    return 4 * ((rows + 1) * TILE * width + (rows + 2) * TILE * STRIDE + 8 + COLUMNS)


def _launcher(covariance: Tensor, levels: tuple[float, ...]) -> Callable[..., None] | None:
    return _compile(_blocks(covariance), covariance.device.index, _shared_memory(covariance), levels)


@functools.cache
def _compile(blocks: int, device: int, shared_memory: int, levels: tuple[float, ...]) -> Callable[..., None] | None:
    numbers = ", ".join(f"{level:.8e}f" for level in levels)
    defines = f"#define C {blocks}\n#define LEVELS {{{numbers}}}\n"
    source = Path(__file__).with_name("cholesky.cu").read_text(encoding="utf-8")
    try:
        return compile_kernel(defines + source, "factorise", (), device, shared_memory)
    except RuntimeError as error:
        warnings.warn(f"whitening falls back to the library's factorisation, slower: {error}", stacklevel=2)
        return None
