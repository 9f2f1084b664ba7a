"""Eigenvalues and eigenvectors of small symmetric matrices in one kernel, without a host sync.

`torch.linalg.eigh` makes the host wait for the GPU, so it cannot be captured in a CUDA graph.
"""

import functools
import warnings

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.errors import TritonError

from wcgan.kernels import capability

LARGEST = 32
SWEEPS = 12  # at most; a matrix of 32 rows takes about 7
# Relative to the sum of squares: what may be left off the diagonal, and entries too small to rotate away.
TINY = tl.constexpr(1e-13)
NOTHING = tl.constexpr(1e-17)


@triton.jit
def jacobi_kernel(a, values, vectors, p, P: tl.constexpr, SWEEPS: tl.constexpr):  # noqa: N803
    """Jacobi's method in turns of P / 2 independent rotations: in turn r, row i is paired with row i xor r.

    P is a power of two, at least p. Rows beyond p are rows of the identity, and no rotation mixes them with others.
    """
    row = tl.arange(0, P)
    place = tl.program_id(0).to(tl.int64) * p * p + row[:, None] * p + row[None, :]
    inside = (row[:, None] < p) & (row[None, :] < p)
    diagonal = row[:, None] == row[None, :]
    unit = tl.where(diagonal, 1.0, 0.0)
    m = tl.load(a + place, mask=inside, other=0.0)
    m = tl.where(inside, m, unit)
    v = unit
    total = tl.sum(tl.sum(m * m, 1), 0)
    sweep = 0
    left = tl.sum(tl.sum(tl.where(diagonal, 0.0, m * m), 1), 0)
    while (sweep < SWEEPS) & (left > total * TINY):
        for turn in range(1, P):
            partner = row[:, None] ^ turn == row[None, :]
            own = tl.sum(tl.where(diagonal, m, 0.0), 1)
            between = tl.where(partner, m, 0.0)
            off = (tl.sum(between, 1) + tl.sum(between, 0)) / 2.0  # bitwise equal for both rows, or they would diverge
            other = tl.sum(tl.where(partner, own[None, :], 0.0), 1)
            low = row < (row ^ turn)
            tau = tl.where(low, other - own, own - other) / (2.0 * tl.where(off == 0.0, 1.0, off))
            tangent = tl.where(tau < 0.0, -1.0, 1.0) / (tl.abs(tau) + tl.sqrt(1.0 + tau * tau))
            tangent = tl.where(off * off <= total * NOTHING, 0.0, tangent)
            cosine = 1.0 / tl.sqrt(1.0 + tangent * tangent)
            sine = tl.where(low, -tangent, tangent) * cosine
            # Column j of a product with the rotation: its own times the cosine, its partner's times the sine.
            index = tl.broadcast_to((row ^ turn)[None, :], (P, P))
            m = m * cosine[None, :] + tl.gather(m, index, 1) * sine[None, :]
            m = m * cosine[:, None] + tl.gather(m, tl.trans(index), 0) * sine[:, None]
            v = v * cosine[None, :] + tl.gather(v, index, 1) * sine[None, :]
        left = tl.sum(tl.sum(tl.where(diagonal, 0.0, m * m), 1), 0)
        sweep += 1
    own = tl.sum(tl.where(diagonal, m, 0.0), 1)
    tl.store(values + tl.program_id(0) * p + row, own, mask=row < p)
    tl.store(vectors + place, v, mask=inside)


def supports(matrix: Tensor) -> bool:
    """Whether the kernel supports these matrices `(g, p, p)`: float32, at most 32 rows, on a GPU where it `works`."""
    known = matrix.dtype == torch.float32 and matrix.shape[-1] <= LARGEST
    return known and capability(matrix.device) >= (8, 0) and works(matrix.device)


@functools.cache
def works(device: torch.device) -> bool:
    """Whether the kernel is right for a known matrix on this device; checked once, with a host sync."""
    places = torch.arange(LARGEST, dtype=torch.float32, device=device)
    matrix = torch.cos(places[:, None] * places).add(torch.diag(places)).unsqueeze(0)
    try:
        values, vectors = eigen(matrix)
        wide = vectors.double()  # whose product is exact even where PyTorch may round float32 products to TF32
        error = ((wide * values.unsqueeze(-2)) @ wide.mT - matrix).abs().max().item()
        why = None if error < 1e-3 else f"its kernel is off by {error:.1g}"
    except (RuntimeError, TritonError) as problem:
        why = str(problem).partition("\n")[0]
    if why is not None:
        warnings.warn(f"ZCA falls back to the library's eigenvalues, and waits for them: {why}", stacklevel=2)
    return why is None


def eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues `(g, p)`, in no order, and eigenvectors in columns `(g, p, p)` of symmetric matrices `(g, p, p)`."""
    matrix = matrix.contiguous()
    groups, p, _ = matrix.shape
    values, vectors = matrix.new_empty(groups, p), torch.empty_like(matrix)
    with torch.cuda.device_of(matrix):
        size = max(2, triton.next_power_of_2(p))
        jacobi_kernel[(groups,)](matrix, values, vectors, p, P=size, SWEEPS=SWEEPS, num_warps=1)
    return values, vectors
