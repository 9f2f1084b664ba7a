"""The three passes over a batch: moments, maps and cross products. Only this file and `kernels` touch all positions.

A batch is viewed as `(N, d, L)`: samples, channels, positions within a sample. Each pass reads it once, in blocks that
fit in cache, and allocates nothing of the batch's size except the result. Within a block the data is centred before it
is multiplied: `M (x - mu)`, never `M x - M mu`, which would cancel if `|mu|` is large. If the GPU kernels support the
batch (`_operators.kernels_for`), they run instead. They compute full matrices, of which the diagonal blocks are then
taken: reading the batch costs more than the products that are thrown away.

A *map* is a tensor `(K, g, p, p)` with `d = g p`: K slots (one shared by all samples, one per class or one per sample),
each made of g diagonal blocks of size p. `p = 1` is a diagonal matrix, `g = 1` a full one.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from wcgan.functional._operators import kernels_for

# Elements of a block: small enough for a CPU's cache, large enough to fill a GPU.
BLOCK_ELEMENTS = {"cpu": 2**20, "cuda": 2**22}


def as_positions(x: Tensor) -> Tensor:
    """`(N, d)`, `(N, d, L)` or `(N, d, H, W, ...)` -> `(N, d, L)`, without a copy where strides allow."""
    return x.unsqueeze(2) if x.dim() == 2 else x.flatten(2)


def compute_dtype(x: Tensor) -> torch.dtype:
    """The type of statistics and products: float32, or float64 for a float64 batch."""
    return torch.promote_types(x.dtype, torch.float32)


def moments_pass(x: Tensor, groups: int) -> tuple[int, Tensor, Tensor]:
    """One pass -> number of positions, mean `(d,)`, scatter `sum (x-mu)(x-mu)^T` of each group `(g, p, p)`.

    Sums are taken about c, the mean of the first block, and moved to the mean at the end. If that block has a share w
    of the positions, `(mu-c)(mu-c)^T <= Sigma / w`: however large the mean, at most log10(1/w) digits are lost, and
    none if the block is like the rest.
    """
    positions = as_positions(x)
    d = x.shape[1]
    p = d // groups
    if kernels := kernels_for(x):
        mean, scatter = kernels.moments(positions, parts=1)
        return x.numel() // d, mean[0], full_to_blocks(scatter, groups)[0]
    centre = total = torch.zeros(d, dtype=compute_dtype(x), device=x.device)
    scatter = torch.zeros(groups, p, p, dtype=centre.dtype, device=x.device)
    count = 0
    for samples, places in _blocks(positions, d):
        block = positions[samples, :, places]
        if count == 0:
            centre = block.mean((0, 2), dtype=centre.dtype)
        features = _features(block, centre)  # (d, n l)
        total = total + features.sum(1)
        grouped = features.view(groups, p, -1)
        _add_product(scatter, grouped, grouped)
        count += features.shape[1]
    shift = total / max(count, 1)
    scatter = scatter - count * shift.view(groups, p, 1) * shift.view(groups, 1, p)
    return count, centre + shift, (scatter + scatter.mT) / 2


def map_pass(
    out: Tensor,
    offset: Tensor,
    terms: list[tuple[Tensor, Tensor, Tensor | None]],
    index: Tensor | None,
    relu: bool = False,
) -> None:
    """One pass: `out_n = offset_k(n) + sum over terms of map_k(n) (x_n - mean)`, in place.

    Args:
        out: `(N, d, ...)`, overwritten.
        offset: `(K, d)`.
        terms: `(x, map, mean)` with x like `out`, map `(K or 1, g, p, p)`, mean `(d,)` or None.
        index: `(N,)`, the slot of each sample; None if K is 1 (shared) or N (one slot per sample).
        relu: whether to apply a ReLU to the result.
    """
    target = as_positions(out)
    diagonal = all(matrix.shape[2] == 1 for _, matrix, _ in terms)
    if not diagonal and (kernels := kernels_for(out, *(x for x, _, _ in terms))):
        full = [(as_positions(x), blocks_to_full(m), None if mu is None else mu.view(1, -1)) for x, m, mu in terms]
        kernels.apply_maps(target, offset, full, index, relu)
        return
    n_slots = max([offset.shape[0]] + [matrix.shape[0] for _, matrix, _ in terms])
    for samples, places in _blocks(target, out.shape[1] if n_slots == 1 else out.shape[1] ** 2):
        view = target[samples, :, places]
        direct = view.dtype == offset.dtype
        block = view if direct else torch.empty_like(view, dtype=offset.dtype)
        block.copy_(_slots(offset, index, samples).unsqueeze(2))
        for x, matrix, mean in terms:
            part = as_positions(x)[samples, :, places]
            centred = part.to(offset.dtype) if mean is None else part - mean.view(-1, 1)
            _add_map(block, _slots(matrix, index, samples), centred)
        if relu:
            block.relu_()
        if not direct:
            view.copy_(block)
    if target.data_ptr() != out.data_ptr():  # strides that no view can flatten
        out.copy_(target.view(out.shape))


def cross_pass(
    z: Tensor, x: Tensor, mean: Tensor | None, shape: tuple[int, int, int], index: Tensor | None
) -> tuple[Tensor, Tensor]:
    """One pass over two batches -> `sum_n z_n (x_n - mean)^T` of each slot `(K, g, p, p)`, and `sum_n z_n` `(K, d)`."""
    slots, groups, p = shape
    z3, x3, d = as_positions(z), as_positions(x), x.shape[1]
    if p > 1 and (kernels := kernels_for(x, z)):
        products, sums = kernels.cross(z3, x3, mean, slots, index)
        return full_to_blocks(products, groups), sums
    dtype = compute_dtype(x)
    products = torch.zeros(slots, groups, p, p, dtype=dtype, device=x.device)
    sums = torch.zeros(slots, d, dtype=dtype, device=x.device)
    shift = torch.zeros(d, dtype=dtype, device=x.device) if mean is None else mean
    for samples, places in _blocks(z3, d if slots == 1 else d * p):
        left, right = z3[samples, :, places], x3[samples, :, places]
        n, _, size = left.shape
        sample_sums = left.sum(2, dtype=dtype)
        if slots == 1 and p > 1:
            matrix = (groups, p, n * size)
            _add_product(products[0], _features(left, None, dtype).view(matrix), _features(right, shift).view(matrix))
            sums[0] += sample_sums.sum(0)
            continue
        left, right = left.to(dtype), right - shift.view(-1, 1)
        if p == 1:
            each = (left * right).sum(2).view(n, groups, 1, 1)
        else:
            each = torch.stack([torch.bmm(*pair) for pair in _group_pairs(left, right, groups)], 1)
        if slots == 1:
            products += each.sum(0)
            sums += sample_sums.sum(0)
        elif index is None:
            products[samples] += each
            sums[samples] += sample_sums
        else:
            products.index_add_(0, index[samples], each)
            sums.index_add_(0, index[samples], sample_sums)
    return products, sums


def full_to_blocks(matrix: Tensor, groups: int) -> Tensor:
    """The diagonal blocks `(K, g, p, p)` of matrices `(K, d, d)`."""
    p = matrix.shape[1] // groups
    return matrix.view(-1, groups, p, groups, p).diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2).contiguous()


def blocks_to_full(blocks: Tensor) -> Tensor:
    """`(K, g, p, p)` -> matrices `(K, d, d)` with these blocks on the diagonal."""
    slots, groups, p, _ = blocks.shape
    if groups == 1:
        return blocks[:, 0]
    full = blocks.new_zeros(slots, groups, p, groups, p)
    full.diagonal(dim1=1, dim2=3).copy_(blocks.permute(0, 2, 3, 1))
    return full.view(slots, groups * p, groups * p)


def _blocks(positions: Tensor, per_sample: int) -> Iterator[tuple[slice, slice]]:
    """Slices of samples and of positions that cut `(N, d, L)` into blocks: several whole samples, or a part of one."""
    n, d, size = positions.shape
    budget = BLOCK_ELEMENTS["cpu" if positions.device.type == "cpu" else "cuda"]
    step = max(1, budget // max(1, d * size, per_sample))
    run = size if step > 1 else max(1, min(size, budget // d))
    for first in range(0, n, step):
        for start in range(0, size, run):
            yield slice(first, first + step), slice(start, start + run)


def _channels_innermost(block: Tensor) -> bool:
    return block.shape[2] == 1 or block.stride(1) == 1


def _features(block: Tensor, mean: Tensor | None, dtype: torch.dtype | None = None) -> Tensor:
    """`(n, d, l)` -> centred `(d, n l)`, stored as `(n l, d)` if the channels are innermost in memory."""
    n, d, size = block.shape
    dtype = dtype if mean is None else mean.dtype
    if _channels_innermost(block):
        rows = torch.empty(n, size, d, dtype=dtype, device=block.device)
        target, result = rows.permute(2, 0, 1), rows.view(n * size, d).mT
    else:
        target = torch.empty(d, n, size, dtype=dtype, device=block.device)
        result = target.view(d, n * size)
    source = block.transpose(0, 1)
    if mean is None:
        target.copy_(source)
    else:
        torch.sub(source, mean.view(-1, 1, 1), out=target)
    return result


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """`total (g, p, p) += left (g, p, k) right (g, p, k)^T`."""
    if total.shape[1] == 1:
        total += (left * right).sum(2, keepdim=True)
    else:
        total.baddbmm_(left, right.mT)


def _slots(table: Tensor, index: Tensor | None, samples: slice) -> Tensor:
    """The rows of a per-slot table for these samples; a single shared row stays single."""
    if table.shape[0] == 1:
        return table
    return table[samples] if index is None else table.index_select(0, index[samples])


def _add_map(block: Tensor, matrix: Tensor, centred: Tensor) -> None:
    """`block (n, d, l) += matrix (n or 1, g, p, p) centred (n, d, l)`."""
    slots, groups, p, _ = matrix.shape
    n, d, size = block.shape
    if p == 1:
        block.addcmul_(matrix.view(slots, d, 1), centred)
    elif slots == 1 and _channels_innermost(block) and _channels_innermost(centred):
        rows = block.permute(0, 2, 1).view(n * size, groups, p).transpose(0, 1)  # (g, n l, p)
        rows.baddbmm_(centred.permute(0, 2, 1).reshape(n * size, groups, p).transpose(0, 1), matrix[0].mT)
    else:
        for g, (part, source) in enumerate(zip(block.split(p, 1), centred.split(p, 1), strict=True)):
            part.baddbmm_(matrix[:, g].expand(n, p, p), source)


def _group_pairs(left: Tensor, right: Tensor, groups: int) -> Iterator[tuple[Tensor, Tensor]]:
    """`(n, p, l)` and `(n, l, p)` of each group."""
    p = left.shape[1] // groups
    for a, b in zip(left.split(p, 1), right.split(p, 1), strict=True):
        yield a, b.mT
