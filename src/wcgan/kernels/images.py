r"""3x3 convolutions between images of few channels and maps of many, with stride 1 and padding 1, and their gradients.

A library's convolution multiplies tiles of 64 and more channels, of which an image fills three. These kernels are meant
to take as long as reading or writing the maps. With the nine neighbours of each position v, and a one, as a row,
an image is a matrix:

.. math:: C_{v, (k, i)} = x_i(v + s_k), \qquad C_{v, 9c} = 1

A kernel and its bias are the columns of a matrix M. Everything else is a product:

- `expand`, image to features and the gradient of `reduce`: :math:`y = C M^\top`, with an optional ReLU.
- `reduce`, features to image and the gradient of `expand`: :math:`x_i(v) = \sum_k (y M)_{v - s_k, (k, i)}`.
- `outer`, the gradient of M in both: :math:`y^\top C`.

Features are `(N, d, H, W)` in channels-last memory, in float16 or bfloat16. Products are summed in float32.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from wcgan.kernels import Launcher, programs
from wcgan.kernels.batch import SUMS, on_its_device, programs_that_fill, remember

LAST = torch.channels_last
# Tiles: P positions, D or K channels. `programs` of a kernel that loops over positions run on a multiprocessor at once.
EXPAND: dict[str, Any] = {"P": 64, "D": 128, "num_warps": 4, "num_stages": 1, "programs": 4}
REDUCE: dict[str, Any] = {"P": 128, "K": 64, "num_warps": 4, "num_stages": 3}
OUTER: dict[str, Any] = {"P": 32, "D": 256, "num_warps": 8, "num_stages": 3, "programs": 2}
SHIFT: dict[str, Any] = {"B": 256, "num_warps": 4}


# Kernels. Names in capitals are compile-time constants: C channels of an image of H by W, T columns, of which those
# after the ones are 0. Division by H and W takes a third of the instructions of `expand` if they are not.
# fmt: off


@triton.jit
def _columns(
    image, v, count, sn, sc, sh, sw,
    dtype: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, T: tl.constexpr,
):
    """Rows v of the matrix C, in a type: nine neighbours of each channel, which are 0 outside the image, and a 1."""
    t = tl.arange(0, T)
    tap, channel = t // C, t % C
    x, y, sample = v % W, v // W % H, v // (W * H)
    row, column = y[:, None] + (tap // 3 - 1)[None, :], x[:, None] + (tap % 3 - 1)[None, :]
    inside = (row >= 0) & (row < H) & (column >= 0) & (column < W)
    inside = inside & (v < count)[:, None] & (t < 9 * C)[None, :]
    places = (image + sample.to(tl.int64) * sn)[:, None] + (row * sh + column * sw + (channel * sc)[None, :])
    values = tl.load(places, mask=inside, other=0).to(dtype)
    return tl.where((t == 9 * C)[None, :], tl.full((1, T), 1.0, dtype), values)


@triton.jit
def _features(features, saved, v, channels, count, d, MASKED: tl.constexpr):
    """A tile of the features, or of the gradient of a ReLU whose output was saved: 0 where that is 0 or less."""
    places = v.to(tl.int64)[:, None] * d + channels[None, :]
    inside = (v < count)[:, None] & (channels < d)[None, :]
    values = tl.load(features + places, mask=inside, other=0)
    if MASKED:
        values = tl.where(tl.load(saved + places, mask=inside, other=0) <= 0, 0.0, values).to(values.dtype)
    return values


@triton.jit
def expand_kernel(
    image, matrix, out, count, d, sn, sc, sh, sw,
    RELU: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, T: tl.constexpr,
    D: tl.constexpr, P: tl.constexpr,
):
    """Tiles of C M^T. A program keeps its D rows of M, and every so many tiles of P positions are its own."""
    t, channels = tl.arange(0, T), tl.program_id(1) * D + tl.arange(0, D)
    m = tl.load(matrix + channels[:, None] * T + t[None, :], mask=(channels < d)[:, None], other=0)
    for tile in range(tl.program_id(0), tl.cdiv(count, P), tl.num_programs(0)):
        v = tile * P + tl.arange(0, P)
        c = _columns(image, v, count, sn, sc, sh, sw, m.dtype, C, H, W, T)
        y = tl.dot(c, tl.trans(m))
        if RELU:
            y = tl.where(y < 0, 0.0, y)  # NaN stays
        places = out + v.to(tl.int64)[:, None] * d + channels[None, :]
        tl.store(places, y.to(out.dtype.element_ty), mask=(v < count)[:, None] & (channels < d)[None, :])


@triton.jit
def reduce_kernel(
    features, saved, matrix, taps, count, d,
    MASKED: tl.constexpr, C: tl.constexpr, T: tl.constexpr, K: tl.constexpr, P: tl.constexpr,
):
    """Rows of y M, the positions of each column next to each other."""
    t, v = tl.arange(0, T), tl.program_id(0) * P + tl.arange(0, P)
    total = tl.zeros((P, T), tl.float32)
    for start in range(0, d, K):
        channels = start + tl.arange(0, K)
        y = _features(features, saved, v, channels, count, d, MASKED)
        m = tl.load(matrix + channels[:, None] * T + t[None, :], mask=(channels < d)[:, None], other=0)
        total = tl.dot(y, m, total)
    places = taps + t.to(tl.int64)[None, :] * count + v[:, None]
    tl.store(places, total, mask=(v < count)[:, None] & (t < 9 * C)[None, :])


@triton.jit
def shift_kernel(
    taps, bias, out, count, on, oc, oh, ow,
    BIASED: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, B: tl.constexpr,
):
    """A channel of the image: nine columns of y M, each from the position that it belongs to, and a bias."""
    v, channel = tl.program_id(0) * B + tl.arange(0, B), tl.program_id(1)
    x, y, sample = v % W, v // W % H, v // (W * H)
    total = tl.zeros((B,), tl.float32)
    for tap in tl.static_range(9):
        down, right = tap // 3 - 1, tap % 3 - 1
        inside = (y >= down) & (y < H + down) & (x >= right) & (x < W + right) & (v < count)
        places = (tap * C + channel).to(tl.int64) * count + v - (down * W + right)
        total += tl.load(taps + places, mask=inside, other=0)
    if BIASED:
        total += tl.load(bias + channel).to(tl.float32)
    places = out + sample.to(tl.int64) * on + channel * oc + y * oh + x * ow
    tl.store(places, total.to(out.dtype.element_ty), mask=v < count)


@triton.jit
def outer_kernel(
    image, features, saved, parts, count, d, sn, sc, sh, sw,
    MASKED: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, T: tl.constexpr,
    D: tl.constexpr, P: tl.constexpr,
):
    """D rows of y^T C over a share of the positions."""
    t, channels = tl.arange(0, T), tl.program_id(1) * D + tl.arange(0, D)
    total = tl.zeros((D, T), tl.float32)
    share = tl.cdiv(tl.cdiv(count, tl.num_programs(0)), P) * P
    first = tl.program_id(0) * share
    last = tl.minimum(first + share, count)
    for start in range(first, last, P):
        v = start + tl.arange(0, P)
        y = _features(features, saved, v, channels, last, d, MASKED)
        c = _columns(image, v, last, sn, sc, sh, sw, y.dtype, C, H, W, T)
        total = tl.dot(tl.trans(y), c, total)
    places = parts + (tl.program_id(0).to(tl.int64) * d + channels)[:, None] * T + t[None, :]
    tl.store(places, total, mask=(channels < d)[:, None])


# fmt: on
# Launches


@on_its_device
def expand(image: Tensor, matrix: Tensor, relu: bool) -> Tensor:
    """`(N, c, H, W)`, of any type and strides, and M `(d, columns)` -> `(N, d, H, W)` in the type of M."""
    image = _within_reach(image)
    n, _, height, width = image.shape
    out = torch.empty((n, len(matrix), height, width), dtype=matrix.dtype, device=image.device, memory_format=LAST)
    launch = _expand_launcher(image.shape, image.stride(), *matrix.shape, relu, programs_that_fill(image))
    launch(image, matrix.contiguous(), out)
    return out


@on_its_device
def reduce(
    features: Tensor, matrix: Tensor, saved: Tensor | None, bias: Tensor | None, channels: int, dtype: torch.dtype
) -> Tensor:
    """`(N, d, H, W)` and M `(d, columns)` -> `(N, c, H, W)` in a type, with a bias `(c,)` if there is one.

    If `saved` is given, the features are the gradient by the output of a ReLU, which it is.
    """
    n, _, height, width = features.shape
    taps = torch.empty(9 * channels, n * height * width, dtype=torch.float32, device=features.device)
    out = torch.empty((n, channels, height, width), dtype=dtype, device=features.device, memory_format=LAST)
    launch, shift = _reduce_launchers(out.shape, out.stride(), *matrix.shape, saved is not None, bias is not None)
    launch(_channels_last(features), _channels_last(saved), matrix.contiguous(), taps)
    shift(taps, None if bias is None else bias.contiguous(), out)
    return out


@on_its_device
def outer(image: Tensor, features: Tensor, saved: Tensor | None, columns: int) -> Tensor:
    """`(N, c, H, W)` and `(N, d, H, W)`, or what `reduce` takes for it -> `(d, columns)` in float32.

    Shares of the positions are added in a fixed order, so that the result is always the same.
    """
    image = _within_reach(image)
    d = features.shape[1]
    fixed = (d, columns, saved is not None, programs_that_fill(image))
    launch, total, splits = _outer_launchers(image.shape, image.stride(), *fixed)
    parts = torch.empty(splits, d, columns, dtype=torch.float32, device=image.device)
    launch(image, _channels_last(features), _channels_last(saved), parts)
    out = torch.empty(d, columns, dtype=torch.float32, device=image.device)
    total(parts, out)
    return out


def _within_reach(image: Tensor) -> Tensor:
    """The image, copied if offsets within a sample are not 32-bit."""
    extent = sum((size - 1) * stride for size, stride in zip(image.shape[1:], image.stride()[1:], strict=True))
    return image if extent < 2**31 else image.contiguous()


def _channels_last(x: Any) -> Any:
    return None if x is None else x.contiguous(memory_format=LAST)


@remember
def _expand_launcher(
    shape: torch.Size, strides: tuple[int, ...], d: int, columns: int, relu: bool, workers: int
) -> Launcher:
    n, _, height, width = shape
    options = _fit(EXPAND, "D", d)
    sides, tiles = triton.cdiv(d, options["D"]), triton.cdiv(n * height * width, options["P"])
    grid = (max(1, min(tiles, workers * options.pop("programs") // sides)), sides)
    constants = {"RELU": relu, **_sizes(shape), "T": columns, **options}
    return Launcher(expand_kernel, grid, (n * height * width, d, *strides), constants)


@remember
def _reduce_launchers(
    shape: torch.Size, strides: tuple[int, ...], d: int, columns: int, masked: bool, biased: bool
) -> tuple[Launcher, Launcher]:
    n, channels, height, width = shape
    count, options = n * height * width, _fit(REDUCE, "K", d)
    constants = {"MASKED": masked, "C": channels, "T": columns, **options}
    launch = Launcher(reduce_kernel, (triton.cdiv(count, options["P"]),), (count, d), constants)
    constants = {"BIASED": biased, **_sizes(shape), **SHIFT}
    grid = (triton.cdiv(count, SHIFT["B"]), channels)
    return launch, Launcher(shift_kernel, grid, (count, *strides), constants)


@remember
def _outer_launchers(
    shape: torch.Size, strides: tuple[int, ...], d: int, columns: int, masked: bool, workers: int
) -> tuple[Launcher, Launcher, int]:
    """The launchers of the shares and of their sum, and the number of shares."""
    n, _, height, width = shape
    count, options = n * height * width, _fit(OUTER, "D", d)
    if masked:  # the tiles of further stages wait in registers, and two programs share those of a multiprocessor
        options["num_stages"] = 2
    sides = triton.cdiv(d, options["D"])
    splits = max(1, min(workers * options.pop("programs") // sides, count // (2 * options["P"])))
    constants = {"MASKED": masked, **_sizes(shape), "T": columns, **options}
    launch = Launcher(outer_kernel, (splits, sides), (count, d, *strides), constants)
    size = d * columns
    grid = (triton.cdiv(size, SUMS["B"]),)
    return launch, Launcher(programs.total_kernel, grid, (size, splits), dict(SUMS)), splits


def _sizes(shape: torch.Size) -> dict[str, int]:
    return dict(zip("CHW", shape[1:], strict=True))


def _fit(options: dict[str, Any], name: str, d: int) -> dict[str, Any]:
    """Options whose tile has no more channels than there are; with few, half as many warps."""
    size = min(options[name], triton.next_power_of_2(d))
    return options | {name: size, "num_warps": 4 if size <= 128 else options["num_warps"]}
