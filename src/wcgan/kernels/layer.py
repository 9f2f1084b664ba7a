"""A layer's forward and backward pass, each as one `Sequence` of kernels that is found by the batch's shape.

In eager code the host's calls take longer than the kernels of most batches. A pass here allocates its result and its
workspaces, and is launched with their addresses. Arrays that the backward pass needs are in the workspace `kept`, all
others in `scratch`. Compiled code runs the same passes as operators. What the kernels compute, and in which precision,
is explained in `batch`.
"""

import math
from collections.abc import Callable

import torch
import triton
from torch import Tensor

from wcgan.kernels import Launcher, Sequence, programs
from wcgan.kernels.batch import (
    SUMS,
    centre_launcher,
    count_changes,
    cross_launcher,
    fold_launcher,
    form_of_maps,
    map_launcher,
    moments_launcher,
    on_its_device,
    precision_of,
    products_launcher,
    programs_that_fill,
    remember,
    update_launcher,
)

TILE = 32  # rows and columns of a product that one program computes
INNER = 256  # as much as it sums up: a long sum is a long chain of loads
WIDE, WIDE_INNER = 512, 2048  # products with more rows and columns fill a GPU without shares of the sums
Factorise = Callable[[Sequence, int, int, float, int], None]
"""Adds the factorisation, for d, a device, a shrinkage and groups, of "covariance" into "w" and "retry" to a sequence.

All three have one matrix or number for each group.
"""
Update = tuple[tuple[Tensor, Tensor, Tensor] | None, tuple[Tensor, Tensor], float]
"""The running statistics, the counters and the momentum, as `batch.update` takes them."""


@on_its_device
def forward(
    x: Tensor,
    color: Tensor,
    shift: Tensor,
    index: Tensor | None,
    poison: Tensor | None,
    shared: tuple[Tensor, Tensor] | None,
    fixed: tuple[Tensor, Tensor] | None,
    eps: float,
    relu: bool,
    factorise: Factorise,
    update: Update | None = None,
    keep: bool = True,
    groups: int = 1,
) -> tuple[Tensor, Tensor | None]:
    """`C_k W (x - mean) + b_k`, and an optional ReLU -> the output, and what the backward pass keeps.

    Args:
        x: a batch `(N, d, ...)` that `batch.supports`, whose positions can be flattened without a copy.
        color: the matrices C, `(K, d, d)` or `(d, d)`; contiguous and float32, as all that follow.
        shift: b, `(K, d)` or `(d,)`.
        index: `(N,)`, the slot k of each sample; None if K is 1 or N.
        poison: a scalar that is added to the matrices: 0, or NaN if the output has to be.
        shared: a matrix and a shift that are added to all of them, or None.
        fixed: W `(g, d / g, d / g)` and the mean; None for those of the batch, which are kept.
        eps: the shrinkage of a covariance.
        relu: whether to apply a ReLU.
        factorise: for the batch's covariance.
        update: what to update with the batch's mean and covariance, as `batch.update` does; None for nothing.
        keep: whether there will be a backward pass; if not, nothing is kept.
        groups: g, the number of diagonal blocks that W is made of.
    """
    out, device = torch.empty_like(x), x.get_device()
    layout = (x.shape, x.stride(), out.stride(), x.dtype, device)
    slots = color.shape[0] if color.dim() == 3 else 1
    given = (index is not None, poison is not None, shared is not None, fixed is not None)
    changes, changed = None, ()
    if update is not None:
        running, counters, step = update
        changes, changed = (running is not None, float(step)), (*(running or (None,) * 3), *counters)
    workers = programs_that_fill(x) if fixed is None else 0  # of the sums over a batch
    options = (eps, relu, workers, precision_of(x), factorise, changes, keep, groups)
    sequence = _forward(*layout, slots, *given, *options)
    kept, scratch = _room(sequence, "kept", color) if keep else None, _room(sequence, "scratch", color)
    others = (*(shared or (None, None)), *(fixed or (None, None)))
    sequence(device, x, out, color, shift, index, poison, *others, kept, scratch, *changed)
    if update is not None:
        count_changes(running, counters)
    return out, kept


@remember
def _forward(
    shape: torch.Size,
    strides: tuple[int, ...],
    out_strides: tuple[int, ...],
    dtype: torch.dtype,
    device: int,
    slots: int,
    indexed: bool,
    poisoned: bool,
    shared: bool,
    fixed: bool,
    eps: float,
    relu: bool,
    workers: int,
    precision: str,
    factorise: Factorise,
    changes: tuple[bool, float] | None,
    keep: bool,
    groups: int = 1,
) -> Sequence:
    n, d, length = _sizes(shape)
    x, out = _strides(shape, strides), _strides(shape, out_strides)
    given = ("x", "out", "color", "shift", "index", "poison", "shared_color", "shared_shift", "w", "mean")
    running, counters = ("running_mean", "running_second", "tracked"), ("retried", "nonfinite")
    s = Sequence(*given, "kept", "scratch", *(() if changes is None else (*running, *counters)))
    w = _lay_out_kept(s, d, slots, fixed, shared, groups, "kept" if keep else "scratch")
    color, shift = "color", "shift"
    if shared:
        color, shift = "colors", s.lay_out("scratch", "shifts", slots * d)
        grid = (triton.cdiv(slots * d * d, 1024),)
        launch = Launcher(programs.shared_kernel, grid, (d * d, d, slots), {"B": 1024, "num_warps": 4})
        s.add(launch, "color", "shift", "shared_color", "shared_shift", color, shift)
    if not fixed:
        centre, count = None, n * length
        if dtype != torch.bfloat16:
            centre = s.lay_out("scratch", "centre", d)
            s.add(centre_launcher(1, count, length, d, x), "x", centre)
        kind = (True, centre is not None, False, _is_flat(n, length, x))
        launch, splits = cross_launcher(d, length, x, x, kind, count, 1, workers, precision)
        products, sums = _lay_out_sums(s, splits, d)
        s.add(launch, "x", "x", centre, products, sums, None, None)
        moments = moments_launcher(d, 1, count, splits, centre is not None, count - 1, groups)
        s.add(moments, products, sums, centre, "mean", "covariance")
        factorise(s, d, device, eps, groups)
    if groups > 1:
        grid, numbers = (triton.cdiv(d * d, 1024),), (d, d // groups)
        s.add(Launcher(programs.diagonal_kernel, grid, numbers, {"B": 1024, "num_warps": 4}), "w", w)
    poison = "poison" if poisoned else None
    _add_product(s, color, w, "mapping", (slots * d, d, d), (d, 1), (d, 1), poison=poison, groups=groups)
    matrix, mean, pulls = _fold(s, "mapping", slots, d, (d * d, d, 1), dtype, precision, "mean")
    term = ("x", matrix, mean, pulls)
    flags = (True, relu, *(2 * (mean is not None,)), *(2 * (pulls is not None,)), False, indexed)
    last = map_launcher((n, d, length), out, x, x, (slots, slots, slots), 1, 1, flags, precision)
    s.add(last, "out", shift, *term, *term, None, "index" if indexed else None)
    if changes is not None:
        tracked, step = changes
        launch = update_launcher(d, step, True, poisoned, tracked, True, groups)
        arrays = ("poison" if poisoned else None, *(running if tracked else (None, None, None)), *counters)
        s.add(launch, "mean", "covariance", "retry", *arrays)
    return s


@on_its_device
def backward(
    x: Tensor,
    grad: Tensor,
    color: Tensor,
    shift: Tensor,
    index: Tensor | None,
    shared: bool,
    fixed: tuple[Tensor, Tensor] | None,
    kept: Tensor,
    eps: float,
    wanted: tuple[bool, bool],
    groups: int = 1,
) -> tuple[Tensor | None, ...]:
    """Gradients of the batch, the matrices and shifts, and those that all slots share.

    Args:
        x: as given to `forward`.
        grad: the gradient of the output, a batch as `x` is, with strides of its own.
        color: as given to `forward`.
        shift: as given to `forward`.
        index: as given to `forward`.
        shared: whether `forward` was given something that all slots share.
        fixed: as given to `forward`.
        kept: what `forward` kept.
        eps: as given to `forward`.
        wanted: whether the batch's gradient is, and whether those of the coloring are.
        groups: as given to `forward`.
    """
    device, slots = x.get_device(), color.shape[0] if color.dim() == 3 else 1
    grad_x = torch.empty_like(x) if wanted[0] else None
    through = wanted[0] and fixed is None  # the gradient through the statistics needs that of the coloring
    gradients: tuple[Tensor | None, ...] = (None,) * 4
    if wanted[1] or through:
        of_shared = (torch.empty_like(color[0]), torch.empty_like(shift[0])) if shared else (None, None)
        gradients = (torch.empty_like(color), torch.empty_like(shift), *of_shared)
    layout = (x.shape, x.stride(), grad.stride(), x.stride() if grad_x is None else grad_x.stride(), x.dtype)
    options = (slots, index is not None, shared, fixed is not None, eps, programs_that_fill(x), precision_of(x))
    sequence = _backward(*layout, *options, grad_x is not None, gradients[0] is not None, groups)
    scratch = _room(sequence, "scratch", color)
    w, mean = fixed or (None, None)
    sequence(device, x, grad, color, index, w, mean, kept, scratch, grad_x, *gradients)
    return grad_x, *gradients


@remember
def _backward(
    shape: torch.Size,
    strides: tuple[int, ...],
    grad_strides: tuple[int, ...],
    out_strides: tuple[int, ...],
    dtype: torch.dtype,
    slots: int,
    indexed: bool,
    shared: bool,
    fixed: bool,
    eps: float,
    workers: int,
    precision: str,
    of_batch: bool,
    of_coloring: bool,
    groups: int = 1,
) -> Sequence:
    n, d, length = _sizes(shape)
    count = n * length
    x, z, out = (_strides(shape, each) for each in (strides, grad_strides, out_strides))
    results = ("grad_x", "grad_color", "sums", "grad_shared", "shared_sums")
    s = Sequence("x", "z", "color", "index", "w", "mean", "kept", "scratch", *results)
    w = _lay_out_kept(s, d, slots, fixed, shared, groups)
    if of_coloring:
        order = bounds = None
        if slots > 1:
            order = s.lay_out("scratch", "order", n, torch.int32)
            bounds = s.lay_out("scratch", "bounds", slots + 1, torch.int32)
            grid = (triton.cdiv(max(n, slots + 1), 64),)
            group = Launcher(programs.group_kernel, grid, (n, slots), {"INDEXED": indexed, "B": 64, "num_warps": 4})
            s.add(group, order, bounds, "index" if indexed else None)
        centred = dtype != torch.bfloat16
        kind = (False, centred, slots > 1, slots == 1 and _is_flat(n, length, x) and _is_flat(n, length, z))
        launch, splits = cross_launcher(d, length, z, x, kind, count, slots, workers, precision)
        products, partial_sums = _lay_out_sums(s, splits * slots, d)
        s.add(launch, "z", "x", "mean" if centred else None, products, partial_sums, order, bounds)
        cross = s.lay_out("scratch", "cross", slots * d * d)
        mean = None if centred else "mean"
        s.add(products_launcher(d, slots, splits, not centred), products, partial_sums, mean, cross, "sums")
        _add_product(s, cross, w, "grad_color", (slots * d, d, d), (d, 1), (1, d), groups=groups)
        if shared:
            _add_total(s, "grad_color", "grad_shared", d * d, slots)
            _add_total(s, "sums", "shared_sums", d, slots)
    if not of_batch:
        return s
    mapping = ("mapping", slots, d, (d * d, 1, d), dtype, precision)  # transposed
    indices = "index" if indexed else None
    if fixed:
        matrix, _, _ = _fold(s, *mapping)
        term = ("z", matrix, None, None)
        flags, maps = (*[False] * 7, indexed), (slots, slots, slots)
        last = map_launcher((n, d, length), out, z, z, maps, 1, 1, flags, precision)
        s.add(last, "grad_x", None, *term, *term, None, indices)
        return s
    # Appendix B, with inner = Wbar W^T = C^T Cbar: the gradient of the covariance is W^T (inner, mirrored) W. Only the
    # blocks of inner on the diagonal are those of a group's own W.
    inner, half, curvature = (s.lay_out("scratch", name, d * d) for name in ("inner", "half", "curvature"))
    left, sizes = "colors" if shared else "color", (d, d, slots * d)
    _add_product(s, left, "grad_color", inner, sizes, (1, d), (d, 1), groups=groups, pruned=True)
    _add_product(s, w, inner, half, (d, d, d), (1, d), (d, 1), mirrored=True, groups=groups)
    _add_product(s, half, w, curvature, (d, d, d), (d, 1), (d, 1), groups=groups)
    factor = -(1 - eps) / (count - 1)
    scales = s.lay_out("scratch", "scales", d) if dtype == torch.float16 else None
    shrunk = ("mean", factor, "retry", scales, groups)
    second, mean, pulls = _fold(s, curvature, 1, d, (d * d, d, 1), dtype, precision, *shrunk)
    offset = own = None
    if slots == 1:  # less the mean of the first term
        form, parts = form_of_maps(dtype, precision)
        matrix, own = s.lay_out("scratch", "matrix", parts * d * d, form), s.lay_out("scratch", "own", d)
        fold = fold_launcher(1, d, (d * d, 1, d), 1, 1 / count, shifted=True, parts=parts)
        s.add(fold, "mapping", "sums", None, matrix, own, None)
    else:
        matrix, _, _ = _fold(s, *mapping)
        offset = s.lay_out("scratch", "offset", d)
        _add_product(s, "sums", "mapping", offset, (1, d, slots * d), (0, 1), (d, 1), -1 / count)
    after = (own is not None, pulls is not None, scales is not None)
    flags, kinds = (offset is not None, False, False, mean is not None, *after, indexed), (1, slots, 1)
    last = map_launcher((n, d, length), out, z, x, kinds, 1, 2, flags, precision)
    s.add(last, "grad_x", offset, "z", matrix, None, own, "x", second, mean, pulls, scales, indices)
    return s


def statistics(kept: Tensor, d: int, groups: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Views: the mean `(d,)`, covariances `(g, d / g, d / g)` or `(d, d)`, and retries `(g,)` that `forward` kept."""
    s = Sequence("kept")
    _lay_out_kept(s, d, 1, fixed=False, shared=False, groups=groups)
    mean, covariance, retry = (s.array(name, kept) for name in ("mean", "covariance", "retry"))
    return mean, covariance.view(d, d) if groups == 1 else covariance.view(groups, d // groups, -1), retry


# Parts of sequences


def _lay_out_kept(s: Sequence, d: int, slots: int, fixed: bool, shared: bool, groups: int, where: str = "kept") -> str:
    """Returns the array of W as one matrix. Statistics come first: where they lie does not depend on the slots."""
    if not fixed:
        size = d // groups
        for name, numel in (("mean", d), ("retry", groups), ("covariance", d * size), ("w", d * size)):
            s.lay_out(where, name, numel)
    s.lay_out(where, "mapping", slots * d * d)
    if shared:
        s.lay_out(where, "colors", slots * d * d)
    return "w" if groups == 1 else s.lay_out(where, "whole w", d * d)


def _lay_out_sums(s: Sequence, number: int, d: int) -> tuple[str, str]:
    return s.lay_out("scratch", "products", number * d * d), s.lay_out("scratch", "partial_sums", number * d)


def _room(sequence: Sequence, workspace: str, like: Tensor) -> Tensor:
    """A workspace where another float32 tensor is."""
    return like.new_empty(sequence.sizes[workspace])


def _add_product(
    s: Sequence,
    a: str,
    b: str,
    out: str,
    sizes: tuple[int, int, int],
    a_strides: tuple[int, int],
    b_strides: tuple[int, int],
    factor: float = 1.0,
    mirrored: bool = False,
    poison: str | None = None,
    groups: int = 1,
    pruned: bool = False,
) -> None:
    """Adds the product of two float32 matrices, whatever PyTorch may round to: they are small, and W ill-conditioned.

    Args:
        s: the sequence.
        a: the left matrix.
        b: the right one; if `mirrored`, the lower triangle of a symmetric one.
        out: their product.
        sizes: rows, columns and the inner dimension.
        a_strides: of the left matrix.
        b_strides: of the right one.
        factor: of the product.
        mirrored: see `b`.
        poison: a scalar to add to it.
        groups: the right matrix is made of so many blocks on its diagonal; if `mirrored`, what else it has is not read.
        pruned: instead, the product only has to be known in so many blocks on its diagonal.
    """
    rows, columns, inner = sizes
    tile, share = product_tile(rows, columns)
    blocks = groups > 1 and not pruned
    share = inner if blocks else share  # which is then little more than a block
    splits = triton.cdiv(inner, share)
    grid = (triton.cdiv(rows, TILE), triton.cdiv(columns, tile), splits)
    numbers = (*sizes, share, *a_strides, *b_strides, float(factor), columns // groups)
    flags = {"MIRRORED": mirrored, "POISONED": poison is not None, "BLOCKS": blocks, "PRUNED": groups > 1 and pruned}
    constants = flags | {"T": TILE, "N": tile, "K": 32, "num_warps": 4}
    target = out if splits == 1 else s.lay_out("scratch", f"parts of {out}", splits * rows * columns)
    s.add(Launcher(programs.product_kernel, grid, numbers, constants), a, b, target, poison)
    if splits > 1:
        _add_total(s, target, out, rows * columns, splits)


def product_tile(rows: int, columns: int) -> tuple[int, int]:
    """Columns of a product that one program computes, of `TILE` rows, and how much it sums up."""
    if min(rows, columns) <= WIDE:
        return TILE, INNER
    return (64 if columns <= 1024 else 128), WIDE_INNER


def _add_total(s: Sequence, parts: str, out: str, size: int, splits: int) -> None:
    """Adds the sum of arrays of `size` numbers that follow each other."""
    s.add(Launcher(programs.total_kernel, (triton.cdiv(size, SUMS["B"]),), (size, splits), dict(SUMS)), parts, out)


def _fold(
    s: Sequence,
    matrix: str,
    slots: int,
    d: int,
    strides: tuple[int, int, int],
    dtype: torch.dtype,
    precision: str,
    mean: str | None = None,
    factor: float = 1.0,
    retry: str | None = None,
    scales: str | None = None,
    groups: int = 1,
) -> tuple[str, str | None, str | None]:
    """The map in the form for the batch's type; the mean if it is subtracted before the map; M mean if it is after."""
    after = mean is not None and dtype == torch.bfloat16
    form, parts = form_of_maps(dtype, precision)
    if form == torch.float32 and strides[2] == 1 and factor == 1.0 and retry is None:
        return matrix, mean, None
    rounded = s.lay_out("scratch", f"{matrix} rounded", parts * slots * d * d, form)
    pulls = s.lay_out("scratch", f"{matrix} pulls", slots * d) if after else None
    flags = (after, retry is not None, scales is not None)
    launch = fold_launcher(slots, d, strides, slots, 1.0, factor, *flags, parts, groups)
    s.add(launch, matrix, mean if after else None, retry, rounded, pulls, scales)
    return rounded, None if after else mean, pulls


def _sizes(shape: torch.Size) -> tuple[int, int, int]:
    return shape[0], shape[1], math.prod(shape[2:])


def _strides(shape: torch.Size, strides: tuple[int, ...]) -> tuple[int, int, int]:
    """Strides of samples, channels and positions, of a batch whose positions are evenly spaced."""
    among = [stride for size, stride in zip(shape[2:], strides[2:], strict=True) if size > 1]
    return strides[0], strides[1], min(among, default=strides[0])


def _is_flat(n: int, length: int, strides: tuple[int, int, int]) -> bool:
    """Whether the positions of all samples are evenly spaced."""
    return n == 1 or strides[0] == length * strides[2]
