"""Covariance -> Cholesky whitening matrix of more channels than `cholesky` supports, in blocks, for a sequence.

Blocks on the diagonal are factorised by that kernel, in float32. What goes between them is float64: float32 products
on tensor cores are not exact enough. As in `cholesky.cu`, `[A | I]` is reduced in place to `[L | W]`. One array has a
row of R below the diagonal, where R = I at first, and of the symmetric A above it. Step k with U = W(A_kk) takes two
launches for all other blocks:

- panel: `P = U [R_k0 ... | A_k(k+1) ...]`, the row k of W and of L^T;
- eliminate: row i > k less `P_i^T P`, which eliminates column k from both A and R.

A covariance that cannot be factorised is tried again with more shrinkage: all further attempts run side by side, and
their kernels return at once if the first attempt succeeded. Names in capitals are compile-time constants.
"""

# fmt: off
from collections.abc import Callable

import torch
import triton
import triton.language as tl

from wcgan.kernels import Kernel, Launcher, Sequence

LARGEST = 2048
BLOCK = 512  # the largest that `cholesky` supports: as few launches as possible
TILE, INNER = 64, 32  # rows and columns of a program, and how many products it adds at a time
COPIED = 4096  # numbers that a program copies, if it has to
APART = 32  # float32 numbers between the reports of two blocks, each aligned as a kernel's array

KernelFor = Callable[[int, int], Kernel]
"""Rows, and a number of matrices -> a kernel: matrices, their whitening matrices, retries, and whether to run."""


@triton.jit
def _failures(reports, blocks, APART: tl.constexpr, MOST: tl.constexpr):
    """The number of blocks that could not be factorised without more shrinkage."""
    at = tl.arange(0, MOST)
    return tl.sum(tl.where(tl.load(reports + at * APART, mask=at < blocks, other=0.0) != 0.0, 1, 0))


@triton.jit
def start_kernel(
    covariance, reports, work, block, wanted, d, size, blocks, eps, level1, level2, level3,
    RETRY: tl.constexpr, APART: tl.constexpr, MOST: tl.constexpr, T: tl.constexpr, K: tl.constexpr,
):
    """A tile of `(1 - eps) S + eps I`, S the symmetric part of the covariance; of its first block in float32 too.

    If RETRY, S is first shrunk towards (trace / d) I by the level of the attempt, and only if the first attempt failed.
    """
    i, j, attempt = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    delta, level, share = tl.zeros((), tl.float64), tl.zeros((), tl.float64), tl.zeros((), tl.float64)
    if RETRY:
        failed = _failures(reports, blocks, APART, MOST)
        tl.store(wanted, tl.where(failed > 0, 1.0, 0.0), mask=i + j + attempt == 0)
        if failed == 0:
            return
        trace = tl.zeros((K,), tl.float64)
        for start in range(0, d, K):
            place = start + tl.arange(0, K)
            trace += tl.load(covariance + place * (d + 1), mask=place < d, other=0.0).to(tl.float64)
        mean = tl.sum(trace) / d
        level = tl.where(mean > 0.0, mean, 1.0)
        delta += tl.where(attempt == 0, level1, tl.where(attempt == 1, level2, level3))
    if j < i:
        return
    rows, columns = i * T + tl.arange(0, T), j * T + tl.arange(0, T)
    inside = (rows < d)[:, None] & (columns < d)[None, :]
    value = tl.load(covariance + rows[:, None] * d + columns[None, :], mask=inside, other=0.0).to(tl.float64)
    across = (columns < d)[:, None] & (rows < d)[None, :]
    other = tl.load(covariance + columns[:, None] * d + rows[None, :], mask=across, other=0.0).to(tl.float64)
    value = (value + tl.trans(other)) * 0.5
    diagonal = rows[:, None] == columns[None, :]
    share += eps
    value = (1.0 - delta) * value + tl.where(diagonal, delta * level, 0.0)
    value = (1.0 - share) * value + tl.where(diagonal, share, 0.0)
    tl.store(work + attempt * d * d + rows[:, None] * d + columns[None, :], value, mask=inside)
    _store_block(block + attempt * size * size, value, rows, columns, size)


@triton.jit
def _store_block(block, value, rows, columns, size):
    """A tile on or above the diagonal of the block for the next factorisation, and the one that mirrors it."""
    there = (rows[:, None] <= columns[None, :]) & (columns < size)[None, :]
    tl.store(block + rows[:, None] * size + columns[None, :], value.to(tl.float32), mask=there)
    there = (rows[None, :] < columns[:, None]) & (columns < size)[:, None]
    tl.store(block + columns[:, None] * size + rows[None, :], tl.trans(value).to(tl.float32), mask=there)


@triton.jit
def panel_kernel(
    work, inverse, panel, whitening, flags, wanted, d, first, size,
    RETRY: tl.constexpr, T: tl.constexpr, K: tl.constexpr,
):
    """A tile of row k of W and L^T: W in float32, both in float64, and whether W is not finite there."""
    i, j, attempt = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if RETRY:
        if tl.load(wanted) == 0.0:
            return
    rows, columns = i * T + tl.arange(0, T), j * T + tl.arange(0, T)
    inverse += attempt * size * size
    work += attempt * d * d + first * d
    inside = (rows < size)[:, None] & (columns < d)[None, :]
    acc = tl.zeros((T, T), tl.float64)
    own = (j * T >= first) & (j * T < first + size)
    if own:
        at = columns - first
        known = inside & (at < size)[None, :]
        acc += tl.load(inverse + rows[:, None] * size + at[None, :], mask=known, other=0.0).to(tl.float64)
    else:
        for start in range(0, tl.minimum(size, i * T + T), K):  # the inverse is lower triangular
            t = start + tl.arange(0, K)
            known = (rows < size)[:, None] & (t < size)[None, :]
            x = tl.load(inverse + rows[:, None] * size + t[None, :], mask=known, other=0.0).to(tl.float64)
            known = (t < size)[:, None] & (columns < d)[None, :]
            y = tl.load(work + t[:, None] * d + columns[None, :], mask=known, other=0.0)
            acc = tl.dot(x, y, acc, out_dtype=tl.float64)
    target = panel + attempt * size * d + rows[:, None] * d + columns[None, :]
    tl.store(target, acc, mask=inside)
    of_w = (columns < first + size)[None, :]
    value = tl.where(of_w, acc, 0.0).to(tl.float32)
    target = whitening + attempt * d * d + (first + rows)[:, None] * d + columns[None, :]
    tl.store(target, value, mask=inside)
    bad = tl.sum(tl.where(inside & ((value - value) != 0.0), 1, 0))
    side = tl.num_programs(1)
    tl.store(flags + (attempt * side + first // T + i) * side + j, tl.where(bad > 0, 1.0, 0.0))


@triton.jit
def eliminate_kernel(
    work, panel, block, wanted, d, first, size, following,
    RETRY: tl.constexpr, T: tl.constexpr, K: tl.constexpr,
):
    """A tile of a row below k: R before the column k + 1, or A on and above the diagonal, less `P_i^T P`.

    The next block on the diagonal, which has `following` rows, is stored in float32.
    """
    begin = first + size
    i, j, attempt = tl.program_id(0) + begin // T, tl.program_id(1), tl.program_id(2)
    if RETRY:
        if tl.load(wanted) == 0.0:
            return
    if (j * T >= begin) & (j < i):
        return
    rows, columns = i * T + tl.arange(0, T), j * T + tl.arange(0, T)
    panel += attempt * size * d
    acc = tl.zeros((T, T), tl.float64)
    for start in range(0, size, K):
        t = start + tl.arange(0, K)
        x = tl.load(panel + t[:, None] * d + rows[None, :], mask=(t < size)[:, None] & (rows < d)[None, :], other=0.0)
        known = (t < size)[:, None] & (columns < d)[None, :]
        y = tl.load(panel + t[:, None] * d + columns[None, :], mask=known, other=0.0)
        acc = tl.dot(tl.trans(x), y, acc, out_dtype=tl.float64)
    inside = (rows < d)[:, None] & (columns < d)[None, :]
    not_there = tl.where((columns >= first) & (columns < begin), 1, 0)  # R begins as 0 in column k
    target = work + attempt * d * d + rows[:, None] * d + columns[None, :]
    value = tl.load(target, mask=inside & (not_there == 0)[None, :], other=0.0) - acc
    tl.store(target, value, mask=inside)
    if j * T >= begin:
        _store_block(block + attempt * following * following, value, rows - begin, columns - begin, following)


@triton.jit
def finish_kernel(
    reports, flags, again_reports, again_flags, again, whitening, retry, d, blocks, tiles, level1, level2, level3,
    APART: tl.constexpr, MOST: tl.constexpr, FLAGS: tl.constexpr, B: tl.constexpr,
):
    """Takes the first attempt that succeeded, and its level: NaN and 0 if W is not finite there, or if none did."""
    failed = _failures(reports, blocks, APART, MOST)
    others = tl.where(failed > 0, blocks, 0)  # without a failure, no other attempt was made
    first = _failures(again_reports, others, APART, MOST)
    second = _failures(again_reports + 1, others, APART, MOST)
    third = _failures(again_reports + 2, others, APART, MOST)
    attempt = tl.where(failed == 0, 0, tl.where(first == 0, 1, tl.where(second == 0, 2, 3)))
    at = tl.arange(0, FLAGS)
    bad = tl.load(flags + at, mask=(at < tiles) & (attempt == 0), other=0.0)
    bad += tl.load(again_flags + (attempt - 1) * tiles + at, mask=(at < tiles) & (attempt > 0), other=0.0)
    lost = (tl.sum(bad) > 0.0) | ((attempt == 3) & (third > 0))
    level = tl.where(attempt == 1, level1, tl.where(attempt == 2, level2, level3))
    tl.store(retry, tl.where(lost | (attempt == 0), 0.0, level), mask=tl.program_id(0) == 0)
    if lost | (attempt > 0):
        place = tl.program_id(0) * B + tl.arange(0, B)
        inside = place < d * d
        value = tl.load(again + (attempt - 1) * d * d + place, mask=inside & (attempt > 0), other=0.0)
        tl.store(whitening + place, tl.where(lost, float("nan"), value), mask=inside)


# fmt: on
def block_sizes(d: int) -> list[int]:
    """Rows of the blocks on the diagonal: as few as possible, of about the same size, and but for the last in tiles."""
    number = -(-d // BLOCK)
    size = -(-d // (number * TILE)) * TILE
    return [min(size, d - first) for first in range(0, d, size)]


def add_factorisation(s: Sequence, d: int, eps: float, levels: tuple[float, ...], kernel_for: KernelFor) -> None:
    """Adds the factorisation of the array "covariance" `(d, d)` into "w" `(d, d)` and "retry" `(1,)` to a sequence.

    Args:
        s: the sequence, with a workspace "scratch".
        d: the number of channels, at most `LARGEST`.
        eps: the shrinkage.
        levels: four shrinkages towards (trace / d) I, of which the first is 0, tried in order until one is enough.
        kernel_for: for blocks. A matrix of which a block needs a retry could not be factorised.
    """
    assert d <= LARGEST
    again, tiles = len(levels) - 1, triton.cdiv(d, TILE) ** 2
    sizes = block_sizes(d)
    size, number = max(sizes), {"APART": APART, "MOST": triton.next_power_of_2(len(sizes))}
    s.lay_out("scratch", "work", again * d * d, torch.float64)
    s.lay_out("scratch", "panel", again * size * d, torch.float64)
    for name in ("block", "inverse"):
        s.lay_out("scratch", name, again * size * size)
    s.lay_out("scratch", "wanted", 1)
    s.lay_out("scratch", "w again", again * d * d)
    for which, attempts in (("", 1), (" again", again)):
        s.lay_out("scratch", f"flags{which}", attempts * tiles)
        s.lay_out("scratch", f"reports{which}", len(sizes) * APART)
        _add_attempts(s, d, eps, levels, attempts, which, sizes, kernel_for)
    names = ("reports", "flags", "reports again", "flags again", "w again", "w", "retry")
    constants = {**number, "FLAGS": triton.next_power_of_2(tiles), "B": COPIED, "num_warps": 4}
    numbers = (d, len(sizes), tiles, *levels[1:])
    s.add(Launcher(finish_kernel, (triton.cdiv(d * d, COPIED),), numbers, constants), *names)


def _add_attempts(
    s: Sequence,
    d: int,
    eps: float,
    levels: tuple[float, ...],
    attempts: int,
    which: str,
    sizes: list[int],
    kernel_for: KernelFor,
) -> None:
    """Adds the first attempt, or all the others side by side, which do nothing if the first one succeeded."""
    side, wanted = triton.cdiv(d, TILE), "wanted" if which else None
    options = {"RETRY": wanted is not None, "T": TILE}
    products = options | {"K": INNER, "num_warps": 4, "num_stages": 3}
    begin = options | {"APART": APART, "MOST": triton.next_power_of_2(len(sizes)), "K": 256, "num_warps": 4}
    numbers = (d, sizes[0], len(sizes), float(eps), *levels[1:])
    launch = Launcher(start_kernel, (side, side, attempts), numbers, begin)
    s.add(launch, "covariance", "reports" if which else None, "work", "block", wanted)
    first = 0
    for k, size in enumerate(sizes):
        report = s.part(f"report {k}{which}", f"reports{which}", k * APART, attempts)
        s.add(kernel_for(size, attempts), "block", "inverse", report, wanted)
        launch = Launcher(panel_kernel, (triton.cdiv(size, TILE), side, attempts), (d, first, size), products)
        s.add(launch, "work", "inverse", "panel", f"w{which}", f"flags{which}", wanted)
        if k + 1 < len(sizes):
            grid = (side - (first + size) // TILE, side, attempts)
            launch = Launcher(eliminate_kernel, grid, (d, first, size, sizes[k + 1]), products)
            s.add(launch, "work", "panel", "block", wanted)
        first += size
