"""Launches the Triton kernels of `programs`: the passes over a batch, for full matrices on a CUDA device.

Each function computes the same as a pass in `functional._passes`, with products of bfloat16, float16 or tf32 numbers
that are summed in float32. The type decides how the kernels avoid cancellation if the mean is large:

- float32 and float16 batches are centred before they are rounded and multiplied.
- bfloat16 batches are multiplied without centring, and the sums of products are moved to the mean afterwards. Rounding
  x to bfloat16 has already added a variance of about (2^-8 mu)^2 / 12 = 1.3e-6 mu^2, more than the error 3e-7 mu^2 of
  sums of exact products in float32. For the same reason a map is applied as `M x + (b - M mu)`, with the offset
  computed in float32 from the rounded M, so that the rounding of M acts on x - mu only.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import triton
from torch import Tensor

from wcgan.kernels import capability, programs

Result = TypeVar("Result")

CENTRE_ROWS = 64
SUMS = {"B": 128, "S": 32, "num_warps": 4}
OPTIONS = {
    "cross": {"D": 128, "P": 64, "num_warps": 4, "num_stages": 4},
    "map": {"P": 128, "N": 128, "K": 64, "num_warps": 4, "num_stages": 3},
}


def _on_its_device(function: Callable[..., Result]) -> Callable[..., Result]:
    """Makes the batch's device the current one, on which Triton launches kernels."""

    @functools.wraps(function)
    def call(batch: Tensor, *args: Any, **kwargs: Any) -> Result:
        with torch.cuda.device_of(batch):
            return function(batch, *args, **kwargs)

    return call


def supports(x: Tensor) -> bool:
    """Whether the kernels support this batch `(N, d, ...)`: at most 1024 channels, on a GPU with bfloat16 units."""
    known = x.dtype in (torch.bfloat16, torch.float16, torch.float32)
    return known and x.shape[1] <= 1024 and capability(x.device) >= (8, 0)


@_on_its_device
def moments(x: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Means `(parts, d)` and scatters `(parts, d, d)` of equal consecutive parts of a batch `(N, d, L)`."""
    n, d, length = x.shape
    count = n // parts * length
    centred = x.dtype != torch.bfloat16
    centre = x.new_empty(parts, d, dtype=torch.float32)
    if centred:
        grid = (triton.cdiv(d, 64), parts)
        programs.centre_kernel[grid](x, centre, count, length, d, *x.stride(), R=CENTRE_ROWS, BLOCK=64, num_warps=4)
    products, sums = _cross(x, x, centre if centred else None, parts, count, None, None, symmetric=True)
    mean, scatter = torch.empty_like(centre), centre.new_empty(parts, d, d)
    programs.moments_kernel[d, triton.cdiv(d, SUMS["B"]), parts](
        products, sums, centre, mean, scatter, count, d, len(products), parts, CENTRED=centred, **SUMS
    )
    return mean, scatter


@_on_its_device
def cross(z: Tensor, x: Tensor, mean: Tensor | None, slots: int, index: Tensor | None) -> tuple[Tensor, Tensor]:
    """`sum z_n (x_n - mean)^T` of each slot, `(K, d, d)`, and `sum z_n`, `(K, d)`."""
    n, d, length = x.shape
    order = bounds = None
    if slots > 1:
        if index is None:
            order = bounds = torch.arange(slots + 1, device=x.device)
        else:
            ordered, order = index.sort()
            bounds = torch.searchsorted(ordered, torch.arange(slots + 1, device=x.device))
    centred = mean is not None and x.dtype != torch.bfloat16
    products, sums = _cross(z, x, mean if centred else None, slots, n * length, order, bounds, symmetric=False)
    out, out_sums = products.new_empty(slots, d, d), products.new_empty(slots, d)
    shifted = mean is not None and not centred
    programs.products_kernel[d, triton.cdiv(d, SUMS["B"]), slots](
        products, sums, mean, out, out_sums, d, len(products), slots, SHIFTED=shifted, **SUMS
    )
    return out, out_sums


def _cross(
    z: Tensor,
    x: Tensor,
    centre: Tensor | None,
    slots: int,
    count: int,
    order: Tensor | None,
    bounds: Tensor | None,
    symmetric: bool,
) -> tuple[Tensor, Tensor]:
    """Partial sums `(splits, slots, d, d)` and `(splits, slots, d)`."""
    d, length = x.shape[1:]
    options = cross_options(d, x.element_size())
    side = triton.cdiv(d, options["D"])
    tiles = side * (side + 1) // 2 if symmetric else side * side
    expected = count // slots if order is not None else count  # rows of a slot
    splits = max(1, min(_programs(x) // (tiles * slots), expected // (2 * options["P"])))
    products = x.new_empty(splits, slots, d, d, dtype=torch.float32)
    sums = x.new_empty(splits, slots, d, dtype=torch.float32)
    # fmt: off
    programs.cross_kernel[tiles, splits, slots](
        z, x, centre, products, sums, order, bounds, count, length, d, *z.stride(), *x.stride(), splits,
        SYMMETRIC=symmetric, CENTRED=centre is not None, GROUPED=order is not None,
        FLAT=order is None and _flat(z) and _flat(x), PRECISION=_precision(x), **options,
    )
    # fmt: on
    return products, sums


def cross_options(d: int, element_size: int) -> dict[str, int]:
    """Tiles of `cross_kernel` for d channels."""
    options = dict(OPTIONS["cross"])
    if d < options["D"]:
        options |= {"D": max(16, triton.next_power_of_2(d)), "num_warps": 4}
    return options | {"P": 32} if element_size == 4 else options


Term = tuple[Tensor, Tensor, Tensor | None]


@_on_its_device
def apply_maps(out: Tensor, offset: Tensor, terms: list[Term], index: Tensor | None = None, relu: bool = False) -> None:
    """`out_n = offset_k(n) + sum over terms of M_k(n) (x_n - mean)`, and an optional ReLU.

    Args:
        out: `(N, d, L)`, overwritten.
        offset: `(K or 1, d)`.
        terms: `(x, M, mean)` with x like `out`, M `(K or 1, d, d)`, and mean None or `(parts, d)` for equal consecutive
            parts of the batch.
        index: `(N,)`, the slot of each sample; None if K equal consecutive parts of the batch have one slot each.
        relu: whether to apply a ReLU to the result.
    """
    n, d, length = out.shape
    parts = max([mean.shape[0] for _, _, mean in terms if mean is not None], default=1)
    folded = [(x, *_fold(matrix, mean, out.dtype)) for x, matrix, mean in terms]
    (x1, m1, mean1, pulls1), (x2, m2, mean2, pulls2) = folded[0], folded[-1]
    slots = max(offset.shape[0], m1.shape[0], m2.shape[0])
    flat = all(_flat(t) for t in (out, x1, x2))
    slotted = slots > 1 or parts > 1
    options = map_options(d, length if slotted else None, out.element_size())
    rows = triton.cdiv(length, options["P"]) * n if slotted else triton.cdiv(n * length, options["P"])
    # fmt: off
    programs.map_kernel[rows, triton.cdiv(d, options["N"])](
        out, offset.contiguous(), x1, m1, mean1, pulls1, x2, m2, mean2, pulls2, index,
        n * length, length, n // parts, n // slots, d, *out.stride(), *x1.stride(), *x2.stride(),
        offset.shape[0], m1.shape[0], m2.shape[0],
        TERMS=len(terms), RELU=relu, CENTRED1=mean1 is not None, CENTRED2=mean2 is not None,
        PULLED1=pulls1 is not None, PULLED2=pulls2 is not None, SLOTTED=slotted, INDEXED=index is not None,
        FLAT=flat and not slotted, PRECISION=_precision(out), **options,
    )
    # fmt: on


def map_options(d: int, length: int | None, element_size: int) -> dict[str, int]:
    """Tiles of `map_kernel` for d channels, and if the samples have slots, for their length."""
    options = dict(OPTIONS["map"])
    if element_size == 4:
        options |= {"P": 64, "N": 128, "K": 32}
    options["N"] = min(options["N"], max(16, triton.next_power_of_2(d)))
    options["K"] = min(options["K"], options["N"])
    if length is not None:
        options["P"] = min(options["P"], max(16, triton.next_power_of_2(length)))
    if options["P"] * options["N"] < 128 * 128:
        options["num_warps"] = 4
    return options


def _fold(matrix: Tensor, mean: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The map in the batch's type; the mean if it is subtracted before the map; M mean if it is subtracted after."""
    slots, d, _ = matrix.shape
    after = mean is not None and dtype == torch.bfloat16
    rounded = matrix.new_empty(slots, d, d, dtype=dtype)
    pulls = matrix.new_empty(slots, d) if after else None
    # fmt: off
    programs.fold_kernel[triton.cdiv(d, 16), slots](
        matrix, mean, rounded, pulls, d, *matrix.stride(), slots // (1 if mean is None else mean.shape[0]),
        SHIFTED=after, D=16, K=min(128, triton.next_power_of_2(d)), num_warps=4
    )
    # fmt: on
    return rounded, None if after else mean, pulls


def _flat(x: Tensor) -> bool:
    """Whether the positions of all samples are evenly spaced in memory."""
    return x.shape[0] == 1 or x.stride(0) == x.shape[2] * x.stride(2)


def _programs(x: Tensor) -> int:
    """The number of programs that fill the GPU once, one per multiprocessor."""
    return _multiprocessors(x.device) if x.is_cuda else 8


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _precision(x: Tensor) -> str:
    """How to multiply float32 numbers: in tf32 if PyTorch may, else in three tf32 products, as exact as float32."""
    return "tf32" if x.dtype != torch.float32 or _tf32_allowed() else "tf32x3"


def _tf32_allowed() -> bool:
    """Whether PyTorch may round float32 products to tf32. The old flag cannot be read once the new one is set."""
    settings = torch.backends.cuda.matmul
    return bool(settings.fp32_precision == "tf32" if hasattr(settings, "fp32_precision") else settings.allow_tf32)
