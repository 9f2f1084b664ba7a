"""When a GPU's own kernels do the work, and a switch to do without them."""

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch
from torch import Tensor

_state = {"kernels": True}


@contextmanager
def plain_passes() -> Iterator[None]:
    """Computes with PyTorch's operators alone, to compare the kernels with.

    Example:
        >>> import torch, wcgan
        >>> with wcgan.functional.plain_passes():
        ...     z = wcgan.functional.whiten(torch.randn(8, 4))
    """
    before = _state["kernels"]
    _state["kernels"] = False
    try:
        yield
    finally:
        _state["kernels"] = before


def kernels_for(*batches: Tensor) -> ModuleType | None:
    """The kernels, which know full matrices, where they take these batches `(N, d, ...)`; else None."""
    first = batches[0]
    if not (_state["kernels"] and first.is_cuda and first.shape[1] > 1 and first.numel()):
        return None
    if any(x.dtype != first.dtype or not _is_view(x) for x in batches):
        return None
    kernels = _import_kernels()
    return kernels if kernels is not None and kernels.supports(first) else None


def cholesky_for(covariance: Tensor, levels: tuple[float, ...]) -> ModuleType | None:
    """The module of the fused factorisation, where it takes these covariances `(g, p, p)`; else None."""
    if not (_state["kernels"] and covariance.is_cuda and covariance.numel()):
        return None
    from wcgan.kernels import cholesky

    return cholesky if cholesky.supports(covariance, levels) else None


def jacobi_for(matrix: Tensor) -> ModuleType | None:
    """The module that finds eigenvalues without a wait for the GPU, where it takes these `(g, p, p)`; else None."""
    if not (_state["kernels"] and matrix.is_cuda and matrix.numel()) or _import_kernels() is None:
        return None
    from wcgan.kernels import jacobi

    return jacobi if jacobi.supports(matrix) else None


def _is_view(x: Tensor) -> bool:
    """Whether positions can be flattened without a copy."""
    return x.dim() < 4 or x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)


@functools.cache
def _import_kernels() -> ModuleType | None:
    try:
        from wcgan.kernels import batch
    except ImportError:
        warnings.warn("Triton is not installed: whitening runs on plain PyTorch operators, slower", stacklevel=2)
        return None
    return batch
