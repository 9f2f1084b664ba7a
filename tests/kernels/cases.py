"""Batches for the kernels, the plain passes in float64 as their reference, and what rounding allows between the two.

Bounds are taken element by element, from the same passes over absolute values. A product of rounded operands is off by
a share of its size; a sum in float32 by a share of the sum of sizes for each addition, of which tensor cores make one
for several products, and cut where others round.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from wcgan.functional import _passes

ADDITION = 2.0**-23


class Precision(NamedTuple):
    """How far products may be off.

    Attributes:
        dtype: of the batch.
        sums: relative error of a product in moments and cross products.
        maps: the same where a matrix, rounded to the batch's type, is applied.
        run: rows that one addition in float32 stands for.
        centred: whether the kernels centre a batch before they multiply.
    """

    dtype: torch.dtype
    sums: float
    maps: float
    run: int
    centred: bool = True


PRECISIONS = {
    "float32": Precision(torch.float32, 2**-20, 2**-20, 32),  # products of parts, added up in runs of 32
    "tf32": Precision(torch.float32, 2 * 2**-10, 2 * 2**-10, 8),  # 10 bits, the rest cut off
    "float16": Precision(torch.float16, 2 * 2**-11, 2 * 2**-11, 16),
    "bfloat16": Precision(torch.bfloat16, 0.0, 2**-8, 16, centred=False),  # a product of two is exact in float32
    "float16 for bfloat16": Precision(torch.float16, 0.0, 2**-11, 16, centred=False),  # and so is one of these
}
LAYOUTS = ("contiguous", "channels last")
Term = tuple[Tensor, Tensor, Tensor | None]


def make_batch(
    shape: tuple[int, int, int],
    precision: str = "float32",
    layout: str = "channels last",
    device: str = "cpu",
    mean: float = 3.0,
    condition: float = 10.0,
) -> Tensor:
    """A fresh batch `(N, d, L)` of correlated channels: means of so many deviations, a covariance of that condition."""
    n, d, length = shape
    wide = {"dtype": torch.float64, "device": device}
    rotation, _ = torch.linalg.qr(torch.randn(d, d, **wide))
    mixing = rotation * torch.logspace(0, -0.5, d, base=condition, **wide)  # its square is the covariance
    signs = torch.randn(d, **wide).sign()
    rows = torch.randn(n * length, d, **wide) @ mixing.mT + mean * signs * mixing.norm(dim=1)
    return in_layout(rows.to(PRECISIONS[precision].dtype).view(n, length, d).transpose(1, 2), layout)


def in_layout(x: Tensor, layout: str) -> Tensor:
    """`(N, d, L)` with positions or channels innermost."""
    return x.contiguous() if layout == "contiguous" else x.transpose(1, 2).contiguous().transpose(1, 2)


def split_into_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of float32 numbers are of float16 and not of bfloat16, whose products Triton's interpreter gets wrong."""
    from triton import language

    from wcgan.kernels import batch, programs

    monkeypatch.setattr(programs, "PART", language.constexpr(language.float16))
    monkeypatch.setattr(batch, "PART", torch.float16)


def assert_within(actual: Tensor, expected: Tensor, bound: Tensor, what: str) -> None:
    """No element is further off than its bound, and none is NaN."""
    ratio = (actual.double() - expected).abs() / bound
    ratio = torch.where(actual.double() == expected, 0.0, ratio).nan_to_num(torch.inf)
    assert ratio.max() <= 1, f"{what}: off by {ratio.max():.2g} times what rounding allows"


def rows_of_a_program(x: Tensor, slots: int) -> float:
    """Rows that one program adds up, at most, where the programs fill a device once."""
    rows, tiles = x.numel() // x.shape[1], (-(-x.shape[1] // 128)) ** 2
    programs = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 8
    return max(256.0, rows / max(1, programs // (tiles * slots)))


def additions(rows: float, precision: Precision) -> float:
    """Relative error of a sum of so many products, and of the few partial sums that follow."""
    return (rows / precision.run + 16) * ADDITION


def check_moments(kernels: ModuleType, x: Tensor, parts: int, name: str) -> None:
    """Mean and scatter of each part against float64."""
    precision = PRECISIONS[name]
    means, scatters = kernels.moments(x, parts)
    assert torch.equal(scatters, scatters.mT), "a scatter is not symmetric"
    for mean, scatter, part in zip(means, scatters, x.double().chunk(parts), strict=True):
        rows = part.transpose(1, 2).flatten(0, 1)  # (m, d)
        wanted = rows.mean(0)
        centred = rows - wanted
        # The centre is the mean of 64 rows, nearer to the batch's than half a deviation.
        sizes = 1.25 * centred.abs() if precision.centred else rows.abs()
        slip = precision.sums + additions(rows_of_a_program(x, parts), precision)
        assert_within(mean, wanted, slip * sizes.mean(0) + ADDITION * wanted.abs(), "mean")
        assert_within(scatter, centred.mT @ centred, slip * (sizes.mT @ sizes), "scatter")


def check_cross(
    kernels: ModuleType, z: Tensor, x: Tensor, mean: Tensor | None, slots: int, index: Tensor | None, name: str
) -> None:
    """Cross products and sums of each slot against the plain pass in float64."""
    precision, d = PRECISIONS[name], x.shape[1]
    products, sums = kernels.cross(z, x, mean, slots, index)
    wide, shift = x.double(), torch.zeros(d, device=x.device, dtype=torch.float64) if mean is None else mean.double()
    wanted, wanted_sums = _passes.cross_pass(z.double(), wide, shift, (slots, 1, d), index)
    centred = (wide - shift.view(-1, 1)).abs() if precision.centred else wide.abs() + shift.abs().view(-1, 1)
    sizes, sum_sizes = _passes.cross_pass(z.double().abs(), centred, None, (slots, 1, d), index)
    slip = additions(rows_of_a_program(x, slots), precision)
    assert_within(products, wanted[:, 0], (precision.sums + slip) * sizes[:, 0], "products")
    assert_within(sums, wanted_sums, slip * sum_sizes, "sums")


def check_maps(
    kernels: ModuleType, offset: Tensor, terms: list[Term], index: Tensor | None, name: str, relu: bool = False
) -> None:
    """Maps against the plain pass in float64."""
    out = torch.full_like(terms[0][0], torch.nan)
    kernels.apply_maps(out, offset, terms, index, relu)
    check_mapped(out, offset, terms, index, name, relu)


def check_mapped(
    out: Tensor, offset: Tensor, terms: list[Term], index: Tensor | None, name: str, relu: bool = False
) -> None:
    """The result of a map, of terms `(x, matrix, mean (parts, d) or None)`, against the plain pass in float64."""
    precision, (n, d, _) = PRECISIONS[name], out.shape
    wide, sizes, squares, reaches = [], [], [], []
    for x, matrix, mean in terms:
        centre = torch.zeros(1, d, device=x.device) if mean is None else mean
        shift = centre.double().repeat_interleave(n // centre.shape[0], 0).unsqueeze(2)  # (N, d, 1)
        centred, full = x.double() - shift, matrix.double().unsqueeze(1)
        reach = centred.abs() if precision.centred else x.double().abs() + shift.abs()
        wide.append((centred, full, None))
        sizes.append((centred.abs(), full.abs(), None))
        squares.append((centred.square(), full.square(), None))
        reaches.append((reach, full.abs(), None))
    expected, size, square, reach = (torch.empty_like(out, dtype=torch.float64) for _ in range(4))
    nothing = torch.zeros_like(offset, dtype=torch.float64)
    _passes.map_pass(expected, offset.double(), wide, index, relu)
    _passes.map_pass(size, nothing, sizes, index)
    _passes.map_pass(square, nothing, squares, index)
    _passes.map_pass(reach, offset.double().abs(), reaches, index)
    rounding = 0.0 if out.dtype == torch.float32 else torch.finfo(out.dtype).eps / 2
    slip = additions(len(terms) * d, precision)
    assert_within(out, expected, precision.maps * size + slip * reach + rounding * expected.abs(), "map")
    # Over the whole batch, the roundings of a row's many terms do not add up in one direction.
    allowed = precision.maps * torch.maximum(square.sum().sqrt(), expected.norm()) + slip * reach.norm()
    assert (out.double() - expected).norm() <= allowed + rounding * expected.norm(), "map, in the mean of squares"


def make_symmetric(count: int, p: int, condition: float, device: str = "cpu") -> Tensor:
    """Fresh symmetric matrices `(count, p, p)` with eigenvalues from 1 down to 1 / condition, in float32."""
    vectors = torch.linalg.qr(torch.randn(count, p, p, dtype=torch.float64, device=device)).Q
    values = torch.logspace(0, -math.log10(condition), p, dtype=torch.float64, device=device)
    matrix = (vectors * values) @ vectors.mT
    return ((matrix + matrix.mT) / 2).float()


def check_eigen(kernels: ModuleType, matrix: Tensor) -> None:
    """Orthogonal vectors that turn the matrix into its eigenvalues, up to a rounding a rotation of a row."""
    values, vectors = (part.double() for part in kernels.eigen(matrix))
    p = matrix.shape[-1]
    bound = 8 * p * 2**-23  # about eight sweeps
    eye = torch.eye(p, dtype=torch.float64, device=matrix.device)
    size = matrix.double().norm(dim=(-2, -1), keepdim=True)
    assert (vectors.mT @ vectors - eye).abs().max() <= bound
    assert bool((((vectors * values.unsqueeze(-2)) @ vectors.mT - matrix.double()).abs() <= bound * size).all())
    expected = torch.linalg.eigvalsh(matrix.double())
    assert bool(((values.sort(-1).values - expected).abs() <= bound * size.squeeze(-1)).all())
