"""Launches the Triton kernels of `programs`: the passes over a batch, for full matrices on a CUDA device.

Each function computes the same as a pass in `functional._passes`, with products of bfloat16, float16 or tf32 numbers
that are summed in float32. A float32 number may be split into bfloat16 parts instead: two are more exact than tf32, and
three as exact as float32. Tensor cores of Hopper read tiles of 32-bit numbers only along the axis that is summed over,
tiles of 16-bit numbers along either. The type decides how the kernels avoid cancellation if the mean is large:

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

from wcgan.kernels import Launcher, capability, programs, tf32_allowed

Result = TypeVar("Result")

CENTRE_ROWS = 64
SUMS = {"B": 128, "S": 32, "num_warps": 4}
PART = torch.bfloat16  # as in `programs`
MULTIPLY: dict[str, dict[str, Any]] = {  # parts of a number, and how Triton multiplies whole ones
    "tf32": {"PARTS": 1, "PRECISION": "tf32"},
    "tf32x3": {"PARTS": 1, "PRECISION": "tf32x3"},
    "bf16x3": {"PARTS": 2, "PRECISION": "tf32"},
    "bf16x6": {"PARTS": 3, "PRECISION": "tf32"},
}
# By kernel and `precision_of` the batch: the way to multiply, and tiles. Of the `programs` that a multiprocessor runs
# at a time, one multiplies while another splits; two of 8 warps fit if a thread has 128 registers.
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "cross": {
        "half": {"multiply": "tf32", "D": 128, "P": 64, "num_warps": 4, "num_stages": 4},
        "tf32": {"multiply": "tf32", "D": 128, "P": 32, "num_warps": 4, "num_stages": 4},
        "float32": {"multiply": "tf32x3", "D": 128, "P": 32, "num_warps": 4, "num_stages": 4},
        "hopper tf32": {"multiply": "bf16x3", "D": 128, "P": 32, "num_warps": 8, "num_stages": 3}
        | {"maxnreg": 128, "programs": 2},
        "hopper float32": {"multiply": "bf16x6", "D": 128, "P": 64, "num_warps": 8, "num_stages": 3},
    },
    "map": {
        "half": {"multiply": "tf32", "P": 128, "N": 128, "K": 64, "num_warps": 4, "num_stages": 3},
        "tf32": {"multiply": "tf32", "P": 64, "N": 128, "K": 32, "num_warps": 4, "num_stages": 3},
        "float32": {"multiply": "tf32x3", "P": 64, "N": 128, "K": 32, "num_warps": 4, "num_stages": 3},
        "hopper tf32": {"multiply": "tf32", "P": 128, "N": 128, "K": 32, "num_warps": 4, "num_stages": 3},
        "hopper float32": {"multiply": "bf16x6", "P": 64, "N": 128, "K": 32, "num_warps": 4, "num_stages": 3},
    },
}
remember = functools.lru_cache(maxsize=1024)  # launchers by shapes and strides, of which a network has few


def on_its_device(function: Callable[..., Result]) -> Callable[..., Result]:
    """Makes the batch's device the current one, on which Triton launches kernels."""

    @functools.wraps(function)
    def call(batch: Tensor, *args: Any, **kwargs: Any) -> Result:
        if not batch.is_cuda or batch.get_device() == torch._C._cuda_getDevice():  # there is a batch: CUDA has started
            return function(batch, *args, **kwargs)
        with torch.cuda.device_of(batch):
            return function(batch, *args, **kwargs)

    return call


def supports(x: Tensor) -> bool:
    """Whether the kernels support this batch `(N, d, ...)`: at most 2048 channels, on a GPU with bfloat16 units."""
    known = x.dtype in (torch.bfloat16, torch.float16, torch.float32)
    return known and x.shape[1] <= 2048 and capability(x.device) >= (8, 0)


# Sums over a batch


@on_its_device
def moments(x: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Means `(parts, d)` and scatters `(parts, d, d)` of equal consecutive parts of a batch `(N, d, L)`."""
    n, d, length = x.shape
    mean, scatter, count = _empty(x, parts, d), _empty(x, parts, d, d), n // parts * length
    centre = _empty(x, parts, d) if x.dtype != torch.bfloat16 else None
    if centre is not None:
        centre_launcher(parts, count, length, d, x.stride())(x, centre)
    products, sums = _cross(x, x, centre, parts, count, None, None, symmetric=True)
    launch = moments_launcher(d, parts, count, products.shape[0], centre is not None, 1)
    launch(products, sums, centre, mean, scatter)
    return mean, scatter


@remember
def centre_launcher(parts: int, count: int, length: int, d: int, strides: tuple[int, ...]) -> Launcher:
    constants = {"R": CENTRE_ROWS, "BLOCK": 64, "num_warps": 4}
    return Launcher(programs.centre_kernel, (triton.cdiv(d, 64), parts), (count, length, d, *strides), constants)


@remember
def moments_launcher(
    d: int, parts: int, count: int, splits: int, centred: bool, divisor: int, groups: int = 1
) -> Launcher:
    """For scatters `(parts, d, d)`, or their blocks on the diagonal `(parts, g, d / g, d / g)`."""
    grid = (d, triton.cdiv(d, SUMS["B"]), parts)
    numbers = (count, d, splits, parts, divisor, d // groups)
    return Launcher(programs.moments_kernel, grid, numbers, {"CENTRED": centred, "BLOCKS": groups > 1, **SUMS})


@on_its_device
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
    out, out_sums = _empty(x, slots, d, d), _empty(x, slots, d)
    launch = products_launcher(d, slots, products.shape[0], mean is not None and not centred)
    launch(products, sums, mean, out, out_sums)
    return out, out_sums


@remember
def products_launcher(d: int, slots: int, splits: int, shifted: bool) -> Launcher:
    grid = (d, triton.cdiv(d, SUMS["B"]), slots)
    return Launcher(programs.products_kernel, grid, (d, splits, slots), {"SHIFTED": shifted, **SUMS})


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
    d = x.shape[1]
    flags = (symmetric, centre is not None, order is not None, order is None and _flat(z) and _flat(x))
    fixed = (count, slots, programs_that_fill(x), precision_of(x))
    launch, splits = cross_launcher(d, x.shape[2], z.stride(), x.stride(), flags, *fixed)
    products, sums = _empty(x, splits, slots, d, d), _empty(x, splits, slots, d)
    launch(z, x, centre, products, sums, order, bounds)
    return products, sums


@remember
def cross_launcher(
    d: int,
    length: int,
    z_strides: tuple[int, ...],
    x_strides: tuple[int, ...],
    flags: tuple[bool, ...],
    count: int,
    slots: int,
    workers: int,
    precision: str,
) -> tuple[Launcher, int]:
    """The launcher for these shapes, and the number of splits."""
    symmetric, centred, grouped, flat = flags
    options = cross_options(d, precision)
    workers *= options.pop("programs", 1)
    side = triton.cdiv(d, options["D"])
    tiles = side * (side + 1) // 2 if symmetric else side * side
    expected = count // slots if grouped else count  # rows of a slot
    splits = max(1, min(workers // (tiles * slots), expected // (2 * options["P"])))
    numbers = (count, length, d, *z_strides, *x_strides, splits)
    constants = {"SYMMETRIC": symmetric, "CENTRED": centred, "GROUPED": grouped, "FLAT": flat}
    return Launcher(programs.cross_kernel, (tiles, splits, slots), numbers, constants | options), splits


def cross_options(d: int, precision: str) -> dict[str, Any]:
    """How `cross_kernel` multiplies, and its tiles for d channels."""
    options = dict(OPTIONS["cross"][precision])
    options |= MULTIPLY[options.pop("multiply")]
    if d < options["D"]:
        options |= {"D": max(16, triton.next_power_of_2(d)), "num_warps": 4}
        options.pop("maxnreg", None)
    return options


# Maps

Term = tuple[Tensor, Tensor, Tensor | None]
Folded = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]  # x, and what `_fold` returns


@on_its_device
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
    parts = max([mean.shape[0] for _, _, mean in terms if mean is not None], default=1)
    kind = (out.dtype, precision_of(out))
    folded = [(x, *_fold(matrix, mean, *kind, scaled=n == 1)) for n, (x, matrix, mean) in enumerate(terms)]
    index = None if index is None else index.contiguous()
    _map(out, offset.contiguous(), folded, index, parts, relu)


def _map(out: Tensor, offset: Tensor | None, terms: list[Folded], index: Tensor | None, parts: int, relu: bool) -> None:
    (x1, m1, mean1, pulls1, _), (x2, m2, mean2, pulls2, scales) = terms[0], terms[-1]
    offset_slots = 1 if offset is None else offset.shape[0]
    after = (pulls1 is not None, pulls2 is not None, scales is not None)
    flags = (offset is not None, relu, mean1 is not None, mean2 is not None, *after, index is not None)
    slots = (offset_slots, m1.shape[-3], m2.shape[-3])
    fixed = (slots, parts, len(terms), flags, precision_of(out))
    launch = map_launcher(out.shape, out.stride(), x1.stride(), x2.stride(), *fixed)
    launch(out, offset, x1, m1, mean1, pulls1, x2, m2, mean2, pulls2, scales, index)


@remember
def map_launcher(
    shape: tuple[int, int, int],
    out_strides: tuple[int, ...],
    strides1: tuple[int, ...],
    strides2: tuple[int, ...],
    slots: tuple[int, int, int],
    parts: int,
    terms: int,
    flags: tuple[bool, ...],
    precision: str,
) -> Launcher:
    n, d, length = shape
    slotted = max(slots) > 1 or parts > 1
    options = map_options(d, length if slotted else None, precision)
    rows = triton.cdiv(length, options["P"]) * n if slotted else triton.cdiv(n * length, options["P"])
    flat = all(n == 1 or strides[0] == length * strides[2] for strides in (out_strides, strides1, strides2))
    names = ("OFFSET", "RELU", "CENTRED1", "CENTRED2", "PULLED1", "PULLED2", "SCALED", "INDEXED")
    constants = dict(zip(names, flags, strict=True)) | {"TERMS": terms, "SLOTTED": slotted}
    sizes = (n * length, length, n // parts, n // max(slots), d)
    numbers = (*sizes, *out_strides, *strides1, *strides2, *slots)
    grid = (rows * triton.cdiv(d, options["N"]),)
    return Launcher(programs.map_kernel, grid, numbers, constants | {"FLAT": flat and not slotted} | options)


def map_options(d: int, length: int | None, precision: str) -> dict[str, Any]:
    """How `map_kernel` multiplies, and its tiles for d channels, and if the samples have slots, for their length."""
    options = dict(OPTIONS["map"][precision])
    options |= MULTIPLY[options.pop("multiply")]
    options["N"] = min(options["N"], max(16, triton.next_power_of_2(d)))
    options["K"] = min(options["K"], options["N"])
    if length is not None:
        options["P"] = min(options["P"], max(16, triton.next_power_of_2(length)))
    if options["P"] * options["N"] < 128 * 128:
        options["num_warps"] = 4
        options.pop("maxnreg", None)
    return options


def form_of_maps(dtype: torch.dtype, precision: str) -> tuple[torch.dtype, int]:
    """The type of maps for a batch of that one, and the number of their parts, which follow each other."""
    parts = MULTIPLY[OPTIONS["map"][precision]["multiply"]]["PARTS"]
    return (dtype, 1) if parts == 1 else (PART, parts)


def _fold(
    matrix: Tensor, mean: Tensor | None, dtype: torch.dtype, precision: str, scaled: bool = False
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The map in its form; the mean if it is subtracted before the map; M mean if it is subtracted after.

    If `scaled`, a map in float16 has its rows divided by the last result; there is one map then.
    """
    after = mean is not None and dtype == torch.bfloat16
    form, parts = form_of_maps(dtype, precision)
    if not after and matrix.dtype == form and matrix.is_contiguous():
        return matrix, mean, None, None
    slots, d, _ = matrix.shape
    rounded = matrix.new_empty(parts, slots, d, d, dtype=form)
    pulls = _empty(matrix, slots, d) if after else None
    scales = _empty(matrix, d) if scaled and dtype == torch.float16 else None
    per_part = slots // mean.shape[0] if mean is not None and after else 1
    launch = fold_launcher(slots, d, matrix.stride(), per_part, shifted=after, scaled=scales is not None, parts=parts)
    launch(matrix, mean if after else None, None, rounded, pulls, scales)
    return rounded, None if after else mean, pulls, scales


@remember
def fold_launcher(
    slots: int,
    d: int,
    strides: tuple[int, ...],
    per_part: int = 1,
    share: float = 1.0,
    factor: float = 1.0,
    shifted: bool = False,
    retried: bool = False,
    scaled: bool = False,
    parts: int = 1,
    groups: int = 1,
) -> Launcher:
    """For `factor` times the maps, in so many parts each.

    If `shifted`, also for their products with `share` times the mean of each `per_part` maps. If `retried`, so many
    blocks on the diagonal have a shrinkage each.
    """
    k = min(128, triton.next_power_of_2(d))
    constants = {"SHIFTED": shifted, "RETRIED": retried, "SCALED": scaled, "PARTS": parts}
    constants |= {"D": 16, "K": k, "num_warps": 4}
    numbers = (d, *strides, per_part, float(share), float(factor), d // groups)
    return Launcher(programs.fold_kernel, (triton.cdiv(d, 16), slots), numbers, constants)


# Counters and labels


@on_its_device
def update(
    mean: Tensor,
    variance: Tensor,
    poison: Tensor | None,
    running: tuple[Tensor, Tensor, Tensor] | None,
    counters: tuple[Tensor, Tensor],
    step: float,
) -> None:
    """Eq. 8 with its counters for variances, in place: a batch that is not finite, or is poisoned, is only counted.

    Args:
        mean: `(d,)`, like all tensors contiguous, and like all but the numbers of batches float32.
        variance: d numbers.
        poison: a scalar, NaN if a label was out of range.
        running: the running mean, its variances, and the number of batches in them; None for none.
        counters: numbers of batches that were retried, and that were not finite.
        step: the momentum.
    """
    launch = update_launcher(mean.shape[0], float(step), False, poison is not None, running is not None, False)
    launch(mean, variance, None, poison, *(running or (None, None, None)), *counters)
    count_changes(running, counters)


def count_changes(running: tuple[Tensor, ...] | None, counters: tuple[Tensor, ...]) -> None:
    """Tells autograd of a change in place, as PyTorch's own operators do."""
    for tensor in (*(running or ()), *counters):
        torch.autograd.graph.increment_version(tensor)


@remember
def update_launcher(
    d: int, step: float, full: bool, poisoned: bool, tracked: bool, retried: bool, groups: int = 1
) -> Launcher:
    """For a covariance in so many blocks if `full`, else for variances."""
    flags = {"FULL": full, "POISONED": poisoned, "TRACKED": tracked, "RETRIED": retried}
    constants = flags | {"D": triton.next_power_of_2(d), "num_warps": 4}
    return Launcher(programs.update_kernel, (d if full else 1,), (d, d // groups, step), constants)


@on_its_device
def check_labels(labels: Tensor, classes: int, found: Tensor) -> tuple[Tensor, Tensor]:
    """Indices within range `(N,)`, int64, and a scalar: NaN if a label was out of range, else 0.

    If `found` is zeros, `(2,)` int64, it gets the number of labels out of range, and one of them.
    """
    index, poison = torch.empty(labels.shape, dtype=torch.int64, device=labels.device), _empty(labels)
    _labels_launcher(labels.shape[0], classes)(labels.contiguous(), index, poison, found)
    return index, poison


@remember
def _labels_launcher(n: int, classes: int) -> Launcher:
    return Launcher(programs.labels_kernel, (1,), (n, classes), {"B": 1024, "num_warps": 4})


def _empty(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def _flat(x: Tensor) -> bool:
    """Whether the positions of all samples are evenly spaced in memory."""
    return x.shape[0] == 1 or x.stride(0) == x.shape[2] * x.stride(2)


def programs_that_fill(x: Tensor) -> int:
    """The number of programs that fill the GPU once, one per multiprocessor."""
    return _multiprocessors(x.device) if x.is_cuda else 8


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def precision_of(x: Tensor) -> str:
    """How exact products have to be, and on which GPU: a key of the options.

    Those of float32 numbers are as exact as tf32 if PyTorch's may be, else as float32.
    """
    if x.dtype != torch.float32:
        return "half"
    precision = "tf32" if tf32_allowed() else "float32"
    # Others have not been measured; for Blackwell, Triton 3.6 and 3.7 make a kernel of three parts that does nothing.
    return f"hopper {precision}" if not x.is_cuda or capability(x.device)[0] == 9 else precision
