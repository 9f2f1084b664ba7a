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

from wcgan.functional._operators import MOST_SLOTS, kernels_for

# Elements of a block: small enough for a CPU's cache, large enough to fill a GPU.
BLOCK_ELEMENTS = {"cpu": 2**20, "cuda": 2**22}
NARROW = 64  # positions of a sample

Term = tuple[Tensor, Tensor, Tensor | None]


def as_positions(x: Tensor) -> Tensor:
    """`(N, d)`, `(N, d, L)` or `(N, d, H, W, ...)` -> `(N, d, L)`, without a copy where strides allow."""
    return x.unsqueeze(2) if x.dim() == 2 else x.flatten(2)


def is_flat(x: Tensor) -> bool:
    """Whether `as_positions` is a view."""
    return x.dim() < 4 or x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last)


def compute_dtype(x: Tensor) -> torch.dtype:
    """The type of statistics and products: float32, or float64 for a float64 batch."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


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
    blocks = _blocks(positions, d)
    if blocks == WHOLE:
        mean = positions.mean((0, 2), dtype=compute_dtype(x))
        features = features_of(positions, mean)
        scatter = _product(features.view(groups, p, -1), features.view(groups, p, -1))
        return x.numel() // d, mean, (scatter + scatter.mT).mul_(0.5)
    centre = total = torch.zeros(d, dtype=compute_dtype(x), device=x.device)
    scatter = torch.zeros(groups, p, p, dtype=centre.dtype, device=x.device)
    count = 0
    for block in (_cut(positions, place) for place in blocks):
        if count == 0:
            centre = block.mean((0, 2), dtype=centre.dtype)
        features = features_of(block, centre)  # (d, n l)
        total = total + features.sum(1)
        grouped = features.view(groups, p, -1)
        scatter += _product(grouped, grouped)
        count += features.shape[1]
    shift = total / max(count, 1)
    scatter = scatter - count * shift.view(groups, p, 1) * shift.view(groups, 1, p)
    return count, centre + shift, (scatter + scatter.mT) / 2


def map_pass(
    out: Tensor,
    offset: Tensor,
    terms: list[Term],
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
    few = all(matrix.shape[0] <= MOST_SLOTS for _, matrix, _ in terms)
    if not diagonal and few and (kernels := kernels_for(out, *(x for x, _, _ in terms))):
        full = [(as_positions(x), blocks_to_full(m), None if mu is None else mu.view(1, -1)) for x, m, mu in terms]
        kernels.apply_maps(target, offset, full, index, relu)
        return
    shared = offset.shape[0] == 1 and all(matrix.shape[0] == 1 for _, matrix, _ in terms)
    sources = [as_positions(x) for x, _, _ in terms]
    for place in _blocks(target, out.shape[1] if shared else out.shape[1] ** 2):
        block, parts = _cut(target, place), [_cut(source, place) for source in sources]
        if shared and not diagonal and _is_narrow(block):
            _map_features(block, offset, parts, terms, relu)
            continue
        direct = block.dtype == offset.dtype
        mapped = block if direct else torch.empty_like(block, dtype=offset.dtype)
        mapped.copy_(_slots(offset, index, place).unsqueeze(2))
        for part, (_, matrix, mean) in zip(parts, terms, strict=True):
            centred = part.to(offset.dtype) if mean is None else part - mean.view(-1, 1)
            _add_map(mapped, _slots(matrix, index, place), centred)
        if relu:
            mapped.relu_()
        if not direct:
            block.copy_(mapped)
    if target.data_ptr() != out.data_ptr():  # strides that no view can flatten
        out.copy_(target.view(out.shape))


def cross_pass(
    z: Tensor, x: Tensor, mean: Tensor | None, shape: tuple[int, int, int], index: Tensor | None
) -> tuple[Tensor, Tensor]:
    """One pass over two batches -> `sum_n z_n (x_n - mean)^T` of each slot `(K, g, p, p)`, and `sum_n z_n` `(K, d)`."""
    slots, groups, p = shape
    z3, x3, d = as_positions(z), as_positions(x), x.shape[1]
    if p > 1 and slots <= MOST_SLOTS and (kernels := kernels_for(x, z)):
        products, sums = kernels.cross(z3, x3, mean, slots, index)
        return full_to_blocks(products, groups), sums
    dtype = compute_dtype(x)
    shift = torch.zeros(d, dtype=dtype, device=x.device) if mean is None else mean
    blocks = _blocks(z3, d if slots == 1 else d * p)
    products = sums = None
    if slots > 1 or not blocks:
        products = torch.zeros(slots, groups, p, p, dtype=dtype, device=x.device)
        sums = torch.zeros(slots, d, dtype=dtype, device=x.device)
    for place in blocks:
        left, right = _cut(z3, place), _cut(x3, place)
        if slots == 1 and p > 1:
            features = features_of(left, None, dtype)
            product = _product(features.view(groups, p, -1), features_of(right, shift).view(groups, p, -1))
            products, sums = _plus(products, product.unsqueeze(0)), _plus(sums, features.sum(1).unsqueeze(0))
            continue
        sample_sums = left.sum(2, dtype=dtype)
        left, right = left.to(dtype), right - shift.view(-1, 1)
        if p == 1:
            each = (left * right).sum(2).view(-1, groups, 1, 1)
        elif groups == 1:
            each = torch.bmm(left, right.mT).unsqueeze(1)
        else:
            each = torch.stack([torch.bmm(*pair) for pair in _group_pairs(left, right, groups)], 1)
        if slots == 1:
            products, sums = _plus(products, each.sum(0, keepdim=True)), _plus(sums, sample_sums.sum(0, keepdim=True))
        elif index is None:
            products[place[0]] += each
            sums[place[0]] += sample_sums
        else:
            chosen = _cut(index, place)
            products.index_add_(0, chosen, each)
            sums.index_add_(0, chosen, sample_sums)
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


Place = tuple[slice, ...]
WHOLE: list[Place] = [(slice(None), slice(None))]


def _blocks(positions: Tensor, per_sample: int) -> list[Place]:
    """Slices of samples and of positions that cut `(N, d, L)` into blocks: several whole samples, or a part of one."""
    n, d, size = positions.shape
    budget = BLOCK_ELEMENTS["cpu" if positions.device.type == "cpu" else "cuda"]
    step = max(1, budget // max(1, d * size, per_sample))
    run = size if step > 1 else max(1, min(size, budget // d))
    if 0 < n <= step and 0 < size <= run:
        return WHOLE
    return [
        (slice(first, first + step), slice(start, start + run))
        for first in range(0, n, step)
        for start in range(0, size, run)
    ]


def _cut(values: Tensor, place: Place) -> Tensor:
    """A block of `(N, d, L)`, or of `(N,)`."""
    if place[0] == WHOLE[0][0]:
        return values
    return values[place[0]] if values.dim() == 1 else values[place[0], :, place[1]]


def _channels_innermost(block: Tensor) -> bool:
    return block.shape[2] == 1 or block.stride(1) == 1


def features_of(block: Tensor, mean: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """`(n, d, l)` -> centred `(d, n l)`, stored as `(n l, d)` if the channels are innermost in memory."""
    n, d, size = block.shape
    dtype = dtype or block.dtype if mean is None else mean.dtype
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


def _product(left: Tensor, right: Tensor) -> Tensor:
    """`left (g, p, k) right (g, p, k)^T`, `(g, p, p)`."""
    if left.shape[1] == 1:
        return (left * right).sum(2, keepdim=True)
    return torch.bmm(left, right.mT)


def _plus(total: Tensor | None, summand: Tensor) -> Tensor:
    return summand if total is None else total.add_(summand)


def _slots(table: Tensor, index: Tensor | None, place: Place) -> Tensor:
    """The rows of a per-slot table for these samples; a single shared row stays single."""
    if table.shape[0] == 1:
        return table
    return table[place[0]] if index is None else table.index_select(0, _cut(index, place))


def _is_narrow(block: Tensor) -> bool:
    """Whether a product for each sample is slower than one of all, with a copy before and after."""
    return block.shape[2] < NARROW and not _channels_innermost(block)


def _map_features(block: Tensor, offset: Tensor, parts: list[Tensor], terms: list[Term], relu: bool) -> None:
    """A block of a map that all samples share, as products with matrices `(d, n l)`."""
    n, d, size = block.shape
    total = offset
    for part, (_, matrix, mean) in zip(parts, terms, strict=True):
        _, groups, p, _ = matrix.shape
        features, total = features_of(part, mean, offset.dtype).view(groups, p, -1), total.view(groups, p, -1)
        product = torch.addcmul if p == 1 else torch.baddbmm
        total = product(total, matrix[0], features)
    block.copy_((total.relu_() if relu else total).view(d, n, size).transpose(0, 1))


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
