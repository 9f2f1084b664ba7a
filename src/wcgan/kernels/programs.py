"""The Triton kernels over a batch, launched by `batch`. Names in capitals are compile-time constants."""

# fmt: off
import triton
import triton.language as tl

PART = tl.constexpr(tl.bfloat16)  # what float32 numbers are split into


@triton.jit
def _split(a, PARTS: tl.constexpr):
    """Two or three numbers of 8 bits that add up to a float32 one, but for what is below the last."""
    first = a.to(PART)
    rest = a - first.to(tl.float32)
    second = rest.to(PART)
    third = second
    if PARTS == 3:
        third = (rest - second.to(tl.float32)).to(PART)
    return first, second, third


@triton.jit
def _add_dot(total, a1, a2, a3, b1, b2, b3, PARTS: tl.constexpr):
    """total + a b of numbers in parts, less products of two parts that are below the last of one."""
    if PARTS == 2:
        total = tl.dot(a2, b1, total)
        total = tl.dot(a1, b2, total)
        return tl.dot(a1, b1, total)
    # Tensor cores cut off where they add: three parts are added up from the smallest, and to the total in float32.
    product = tl.dot(a3, b1)
    product = tl.dot(a1, b3, product)
    product = tl.dot(a2, b2, product)
    product = tl.dot(a2, b1, product)
    product = tl.dot(a1, b2, product)
    return total + tl.dot(a1, b1, product)


@triton.jit
def _rows(x, slot, v, count, order, bounds, length, sn, sl, FLAT: tl.constexpr, GROUPED: tl.constexpr):
    """Pointers to the rows v of a slot: the samples of a class, or an equal part of the batch."""
    if GROUPED:
        sample = tl.load(order + tl.load(bounds + slot) + v // length, mask=v < count, other=0)
        return x + sample.to(tl.int64) * sn + (v % length) * sl
    if FLAT:
        return x + (slot.to(tl.int64) * count + v) * sl
    return x + (slot.to(tl.int64) * (count // length) + v // length) * sn + (v % length) * sl


@triton.jit
def centre_kernel(x, out, count, length, d, sn, sd, sl, R: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of R rows spread evenly over a part of the batch."""
    part = tl.program_id(1)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = (tl.arange(0, R).to(tl.int64) * count // R).to(tl.int32)
    pointers = _rows(x, part, v, count, x, x, length, sn, sl, False, False)
    values = tl.load(pointers[:, None] + columns[None, :] * sd, mask=columns[None, :] < d, other=0).to(tl.float32)
    tl.store(out + part * d + columns, tl.sum(values, 0) / R, mask=columns < d)


@triton.jit
def cross_kernel(
    z, x, centre, products, sums, order, bounds, count, length, d, zn, zd, zl, xn, xd, xl, splits,
    SYMMETRIC: tl.constexpr, CENTRED: tl.constexpr, GROUPED: tl.constexpr, FLAT: tl.constexpr,
    PARTS: tl.constexpr, PRECISION: tl.constexpr, D: tl.constexpr, P: tl.constexpr,
):
    """A tile of `sum (z - a)(x - c)^T` over a share of a slot's rows, and of `sum (z - a)`; a = c if symmetric."""
    tile, split, slot = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if SYMMETRIC:  # tiles on and below the diagonal
        i = ((tl.sqrt(8.0 * tile + 1.0) - 1.0) * 0.5).to(tl.int32)
        j = tile - i * (i + 1) // 2
    else:
        side = tl.cdiv(d, D)
        i, j = tile // side, tile % side
    if GROUPED:
        count = (tl.load(bounds + slot + 1) - tl.load(bounds + slot)) * length
    left, right = i * D + tl.arange(0, D), j * D + tl.arange(0, D)
    in_left, in_right = left < d, right < d
    shift_left, shift_right = tl.zeros((D,), tl.float32), tl.zeros((D,), tl.float32)
    if CENTRED:
        base = centre + slot * d if SYMMETRIC else centre
        shift_right = tl.load(base + right, mask=in_right, other=0)
        if SYMMETRIC:
            shift_left = tl.load(base + left, mask=in_left, other=0)
    total = tl.zeros((D, D), tl.float32)
    HALF: tl.constexpr = z.dtype.element_ty != tl.float32
    ones = tl.full((P, 16), 1.0, z.dtype.element_ty)
    column = tl.zeros((D, 16) if HALF else (16, D), tl.float32)
    share = tl.cdiv(tl.cdiv(count, splits), P) * P
    first = split * share
    last = tl.minimum(first + share, count)
    for start in range(first, last, P):
        v = start + tl.arange(0, P)
        inside = v < last
        z_rows = _rows(z, slot, v, count, order, bounds, length, zn, zl, FLAT, GROUPED)
        x_rows = _rows(x, slot, v, count, order, bounds, length, xn, xl, FLAT, GROUPED)
        a = tl.load(z_rows[:, None] + left[None, :] * zd, mask=inside[:, None] & in_left[None, :], other=0)
        b = tl.load(x_rows[:, None] + right[None, :] * xd, mask=inside[:, None] & in_right[None, :], other=0)
        if CENTRED:
            b = tl.where(inside[:, None], b.to(tl.float32) - shift_right[None, :], 0.0).to(b.dtype)
            if SYMMETRIC:
                a = tl.where(inside[:, None], a.to(tl.float32) - shift_left[None, :], 0.0).to(a.dtype)
        # Half-precision sums are products with ones: for a tile that is read both into registers and by asynchronous
        # products, Triton (3.6 and 3.9) allocates one buffer too few and overwrites it while a product still reads.
        if HALF:
            column = tl.dot(tl.trans(a), ones, column)
        else:
            column += tl.sum(tl.reshape(a, (P // 16, 16, D)), 0)
        if PARTS == 1:
            total = tl.dot(tl.trans(a), b, total, input_precision=PRECISION)
        else:
            if not SYMMETRIC:  # changes nothing, but parts are transposed then, and not numbers twice as wide
                a = tl.where(inside[:, None], a, 0.0)
            a1, a2, a3 = _split(a, PARTS)
            b1, b2, b3 = _split(b, PARTS)
            total = _add_dot(total, tl.trans(a1), tl.trans(a2), tl.trans(a3), b1, b2, b3, PARTS)
    place = (split * tl.num_programs(2) + slot).to(tl.int64)
    target = products + place * d * d + left[:, None] * d + right[None, :]
    tl.store(target, total, mask=in_left[:, None] & in_right[None, :])
    if j == 0:
        tl.store(sums + place * d + left, tl.sum(column, 1) / 16 if HALF else tl.sum(column, 0), mask=in_left)


@triton.jit
def _sum_splits(parts, size, place, step, splits, at, inside, B: tl.constexpr, S: tl.constexpr):
    """The sum over splits of B entries: `parts[split * step + place] [at]`, entries of `size` floats."""
    total = tl.zeros((B,), tl.float32)
    for start in range(0, splits, S):
        split = start + tl.arange(0, S)
        base = parts + (split * step + place).to(tl.int64) * size
        values = tl.load(base[:, None] + at[None, :], mask=(split < splits)[:, None] & inside[None, :], other=0)
        total += tl.sum(values, 0)
    return total


@triton.jit
def moments_kernel(
    products, sums, centre, mean, scatter, count, d, splits, parts, divisor, size,
    CENTRED: tl.constexpr, BLOCKS: tl.constexpr, B: tl.constexpr, S: tl.constexpr,
):
    """Partial sums -> a row of the scatter about the mean, up to the diagonal, and the column that mirrors it.

    The scatter is divided by `divisor`: 1, or the number of rows less 1 for a covariance. If BLOCKS, only the blocks on
    its diagonal are stored, matrices of `size` rows that follow each other; else `size` is d.
    """
    row, part = tl.program_id(0), tl.program_id(2)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    inside = columns <= row
    if tl.program_id(1) * B <= row:
        total = _sum_splits(products, d * d, part, parts, splits, row * d + columns, inside, B, S)
        sum_columns = _sum_splits(sums, d, part, parts, splits, columns, inside, B, S)
        sum_row = tl.sum(tl.where(columns == row, sum_columns, 0.0))
        if tl.program_id(1) * B + B <= row:  # the row's own sum lies in another block
            sum_row = tl.sum(
                _sum_splits(sums, d, part, parts, splits, row + tl.arange(0, 1), row + tl.arange(0, 1) < d, 1, S)
            )
        total = (total - sum_columns * (sum_row / count)) / divisor
        base = scatter + part.to(tl.int64) * d * size
        kept, i, j = inside, row, columns
        if BLOCKS:
            kept, i, j = inside & (columns // size == row // size), row % size, columns % size
        tl.store(base + row * size + j, total, mask=kept)
        tl.store(base + columns * size + i, total, mask=kept)
        shift = sum_columns / count
        if CENTRED:
            shift += tl.load(centre + part * d + columns, mask=inside, other=0)
        tl.store(mean + part * d + columns, shift, mask=inside & (columns == row))


@triton.jit
def products_kernel(
    products, sums, mean, out, out_sums, d, splits, slots, SHIFTED: tl.constexpr, B: tl.constexpr, S: tl.constexpr,
):
    """Partial sums -> a row of `sum z (x - mean)^T`, and its entry of `sum z`."""
    row, slot = tl.program_id(0), tl.program_id(2)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    inside = columns < d
    total = _sum_splits(products, d * d, slot, slots, splits, row * d + columns, inside, B, S)
    own = row + tl.arange(0, 1)
    sum_row = _sum_splits(sums, d, slot, slots, splits, own, own < d, 1, S)
    if SHIFTED:
        total -= tl.sum(sum_row) * tl.load(mean + columns, mask=inside, other=0)
    tl.store(out + slot.to(tl.int64) * d * d + row * d + columns, total, mask=inside)
    tl.store(out_sums + slot * d + own, sum_row, mask=own < d)


@triton.jit
def _map_tile(source, rows, columns, d, si, sj, kept, level, RETRIED: tl.constexpr):
    """A tile of a map, each row times its `kept`; if RETRIED, plus its `level` on the diagonal."""
    inside = (rows < d)[:, None] & (columns < d)[None, :]
    m = tl.load(source + rows[:, None] * si + columns[None, :] * sj, mask=inside, other=0) * kept[:, None]
    if RETRIED:
        m += tl.where(rows[:, None] == columns[None, :], level[:, None], 0.0)
    return m


@triton.jit
def fold_kernel(
    matrix, mean, retry, rounded, pulls, scales, d, sk, si, sj, slots_per_part, share, factor, size,
    SHIFTED: tl.constexpr, RETRIED: tl.constexpr, SCALED: tl.constexpr, PARTS: tl.constexpr,
    D: tl.constexpr, K: tl.constexpr,
):
    """`factor` times the maps, in the batch's type or in parts, and their products with `share` times the mean.

    If RETRIED, the maps are made of blocks of `size` rows on the diagonal, and each is first shrunk by its `retry`
    towards (trace / size) I. If SCALED, each row is divided by the power of two below its largest element, which goes
    to `scales`: small rows would be rounded to little or nothing.
    """
    slot = tl.program_id(1)
    rows = tl.program_id(0) * D + tl.arange(0, D)
    source, target = matrix + slot.to(tl.int64) * sk, rounded + slot.to(tl.int64) * d * d
    kept, level = tl.zeros((D,), tl.float32) + factor, tl.zeros((D,), tl.float32)
    if RETRIED:
        own = rows // size
        trace = tl.zeros((D, K), tl.float32)
        for start in range(0, d, K):
            at = start + tl.arange(0, K)
            diagonal = tl.load(source + at * (si + sj), mask=at < d, other=0)
            trace += tl.where(own[:, None] == (at // size)[None, :], diagonal[None, :], 0.0)
        shrinkage = tl.load(retry + own, mask=rows < d, other=0)
        level = factor * shrinkage * (tl.sum(trace, 1) / size)
        kept = factor * (1.0 - shrinkage)
    scale = tl.full((D,), 1.0, tl.float32)
    if SCALED:
        largest = tl.zeros((D,), tl.float32)
        for start in range(0, d, K):
            columns = start + tl.arange(0, K)
            m = _map_tile(source, rows, columns, d, si, sj, kept, level, RETRIED)
            largest = tl.maximum(largest, tl.max(tl.abs(m), 1))
        known = (largest > 1e-30) & (largest < 1e30)
        scale = tl.where(known, tl.exp2(tl.floor(tl.log2(tl.where(known, largest, 1.0)))), 1.0)
        tl.store(scales + slot * d + rows, scale, mask=rows < d)
    pull = tl.zeros((D,), tl.float32)
    for start in range(0, d, K):
        columns = start + tl.arange(0, K)
        inside = (rows < d)[:, None] & (columns < d)[None, :]
        m = _map_tile(source, rows, columns, d, si, sj, kept, level, RETRIED)
        if SCALED:
            m /= scale[:, None]
        pointers = target + rows[:, None] * d + columns[None, :]
        if PARTS == 1:
            m = m.to(rounded.dtype.element_ty)
            tl.store(pointers, m, mask=inside)
        else:
            step = tl.num_programs(1).to(tl.int64) * d * d
            m1, m2, m3 = _split(m, PARTS)
            tl.store(pointers, m1, mask=inside)
            tl.store(pointers + step, m2, mask=inside)
            if PARTS == 3:
                tl.store(pointers + 2 * step, m3, mask=inside)
        if SHIFTED:
            centre = tl.load(mean + slot // slots_per_part * d + columns, mask=columns < d, other=0) * share
            pull += tl.sum(m.to(tl.float32) * centre[None, :], 1)
    if SHIFTED:
        tl.store(pulls + slot * d + rows, pull, mask=rows < d)


@triton.jit
def product_kernel(
    a, b, out, poison, rows, columns, inner, share, ai, aj, bi, bj, factor, size,
    MIRRORED: tl.constexpr, POISONED: tl.constexpr, BLOCKS: tl.constexpr, PRUNED: tl.constexpr,
    T: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):
    """T x N of `factor a b`, as exact as float32.

    If MIRRORED, b is the symmetric matrix with this lower triangle. Programs of the third axis sum over a share of the
    inner dimension each, into matrices of their own. If POISONED, a scalar is added: 0, or NaN.

    If BLOCKS, b is made of blocks of `size` rows on its diagonal. Products with zeros are left out, and if MIRRORED,
    what is not in a block counts as zero. If PRUNED, tiles of the result without a part of a block are left out.
    """
    if PRUNED:
        up, left = tl.program_id(0) * T, tl.program_id(1) * N
        if (up // size > (left + N - 1) // size) | (left // size > (up + T - 1) // size):
            return
    i, j = tl.program_id(0) * T + tl.arange(0, T), tl.program_id(1) * N + tl.arange(0, N)
    a_rows = a + i.to(tl.int64)[:, None] * ai
    acc = tl.zeros((T, N), tl.float32)
    first = tl.program_id(2) * share
    last = tl.minimum(first + share, inner)
    if BLOCKS:
        begin = tl.program_id(1) * N
        first = tl.maximum(first, begin // size * size // K * K)
        last = tl.minimum(last, ((begin + N - 1) // size + 1) * size)
    for start in range(first, last, K):
        k = start + tl.arange(0, K)
        x = tl.load(a_rows + k[None, :] * aj, mask=(i < rows)[:, None] & (k < last)[None, :], other=0)
        known = (k < last)[:, None] & (j < columns)[None, :]
        if MIRRORED:
            if BLOCKS:
                known = known & ((k // size)[:, None] == (j // size)[None, :])
            low, high = tl.minimum(k[:, None], j[None, :]), tl.maximum(k[:, None], j[None, :])
            source = b + high * bi + low * bj
        else:
            source = b + k.to(tl.int64)[:, None] * bi + j[None, :] * bj
        y = tl.load(source, mask=known, other=0)
        acc = tl.dot(x, y, acc, input_precision="tf32x3")  # adds K products on tensor cores, and their sum in float32
    target = out + (tl.program_id(2).to(tl.int64) * rows + i)[:, None] * columns + j[None, :]
    acc *= factor
    if POISONED:
        acc += tl.load(poison)
    tl.store(target, acc, mask=(i < rows)[:, None] & (j < columns)[None, :])


@triton.jit
def shared_kernel(color, shift, shared_color, shared_shift, colors, shifts, size, d, slots, B: tl.constexpr):
    """The coloring of each slot plus the one that all share; matrices have `size` numbers, shifts d."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    inside = at < slots * size
    value = tl.load(color + at, mask=inside, other=0) + tl.load(shared_color + at % size, mask=inside, other=0)
    tl.store(colors + at, value, mask=inside)
    inside = at < slots * d
    value = tl.load(shift + at, mask=inside, other=0) + tl.load(shared_shift + at % d, mask=inside, other=0)
    tl.store(shifts + at, value, mask=inside)


@triton.jit
def diagonal_kernel(blocks, out, d, size, B: tl.constexpr):
    """The matrix `(d, d)` with these blocks `(d / size, size, size)` on its diagonal."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    i, j = at // d, at % d
    inside = at < d * d
    value = tl.load(blocks + i * size + j % size, mask=inside & (i // size == j // size), other=0.0)
    tl.store(out + at, value, mask=inside)


@triton.jit
def total_kernel(parts, out, size, splits, B: tl.constexpr, S: tl.constexpr):
    """The sum of matrices of `size` numbers that follow each other."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    inside = at < size
    tl.store(out + at, _sum_splits(parts, size, 0, 1, splits, at, inside, B, S), mask=inside)


@triton.jit
def group_kernel(order, bounds, index, n, slots, INDEXED: tl.constexpr, B: tl.constexpr):
    """Samples sorted by slot, those of slot k from bounds[k] to bounds[k + 1]; without an index each is its own."""
    own = tl.program_id(0) * B + tl.arange(0, B)
    place, below = own, own
    if INDEXED:
        slot = tl.load(index + own, mask=own < n, other=0)
        place, below = tl.zeros((B,), tl.int32), tl.zeros((B,), tl.int32)
        for start in range(0, n, B):
            other = start + tl.arange(0, B)
            theirs = tl.load(index + other, mask=other < n, other=slots)
            same = (theirs[None, :] == slot[:, None]) & (other[None, :] < own[:, None])
            place += tl.sum(((theirs[None, :] < slot[:, None]) | same).to(tl.int32), 1)
            below += tl.sum((theirs[None, :] < own[:, None]).to(tl.int32), 1)
    tl.store(order + place, own, mask=own < n)
    tl.store(bounds + own, below, mask=own <= slots)


@triton.jit
def update_kernel(
    mean, second, retry, poison, running_mean, running_second, tracked, retried, nonfinite, d, size, step,
    FULL: tl.constexpr, POISONED: tl.constexpr, TRACKED: tl.constexpr, RETRIED: tl.constexpr, D: tl.constexpr,
):
    """Eq. 8: a row of the running covariance, or all variances; the first program also updates mean and counters.

    Covariances have `size` rows each and follow each other, and each has a retry.
    """
    row = tl.program_id(0)
    columns = tl.arange(0, D)
    inside = columns < d
    # Variances show everything: where a mean or a covariance is not finite, neither is the variance.
    variances = tl.load(second + (columns * size + columns % size if FULL else columns), mask=inside, other=0.0)
    bad = tl.sum(tl.where(tl.abs(variances) < float("inf"), 0, 1))
    if POISONED:
        bad += tl.where(tl.abs(tl.load(poison)) < float("inf"), 0, 1)
    good = bad == 0
    kept = tl.where(good, columns, d) < d  # the columns to update
    if TRACKED:
        place = row * size + columns
        within = columns < (size if FULL else d)
        _lerp(running_second + place, tl.load(second + place, mask=within, other=0.0), step, kept & within)
    if row == 0:
        if TRACKED:
            _lerp(running_mean + columns, tl.load(mean + columns, mask=inside, other=0.0), step, kept)
            tl.store(tracked, tl.load(tracked) + tl.where(good, 1, 0))
        tl.store(nonfinite, tl.load(nonfinite) + tl.where(good, 0, 1))
        if RETRIED:
            more = tl.sum(tl.where(tl.load(retry + columns, mask=columns < d // size, other=0.0) > 0, 1, 0))
            tl.store(retried, tl.load(retried) + tl.where(good & (more > 0), 1, 0))


@triton.jit
def labels_kernel(labels, index, poison, found, n, classes, B: tl.constexpr):
    """Labels clamped into range; poison, NaN if one was not; and into an empty report, how many and one of them."""
    number, low, high = 0, tl.full((), 0, tl.int64), tl.full((), 0, tl.int64)
    for start in range(0, n, B):
        at = start + tl.arange(0, B)
        values = tl.load(labels + at, mask=at < n, other=0).to(tl.int64)
        number += tl.sum(tl.where((values < 0) | (values >= classes), 1, 0))
        low, high = tl.minimum(low, tl.min(values)), tl.maximum(high, tl.max(values))
        tl.store(index + at, tl.minimum(tl.maximum(values, 0), classes - 1), mask=at < n)
    tl.store(poison, tl.where(number > 0, float("nan"), 0.0))
    earlier, one = tl.load(found), tl.load(found + 1)
    tl.store(found, tl.where(earlier > 0, earlier, number))
    tl.store(found + 1, tl.where((earlier > 0) | (number == 0), one, tl.where(low < 0, low, high)))


@triton.jit
def _lerp(at, end, step, mask):
    """`torch.lerp` in place."""
    start = tl.load(at, mask=mask, other=0.0)
    moved = tl.where(step < 0.5, start + step * (end - start), end - (end - start) * (1.0 - step))
    tl.store(at, moved, mask=mask)


@triton.jit
def _add_term(
    acc, x_rows, inside, sd, matrix, slot, slots, mean, part, pulls, outputs, d,
    CENTRED: tl.constexpr, PULLED: tl.constexpr, PARTS: tl.constexpr, PRECISION: tl.constexpr, K: tl.constexpr,
):
    """acc + (x - mean) M^T, over the channels of x; if M comes in parts, those of all slots follow each other."""
    base = matrix + slot.to(tl.int64) * d * d
    step = (slot * 0 + slots).to(tl.int64) * d * d
    for start in range(0, d, K):
        inputs = start + tl.arange(0, K)
        there = inputs < d
        a = tl.load(x_rows[:, None] + inputs[None, :] * sd, mask=inside[:, None] & there[None, :], other=0)
        if CENTRED:
            a = (a.to(tl.float32) - tl.load(mean + part * d + inputs, mask=there, other=0)[None, :]).to(a.dtype)
        pointers, known = base + outputs[:, None] * d + inputs[None, :], (outputs < d)[:, None] & there[None, :]
        w = tl.trans(tl.load(pointers, mask=known, other=0))
        if PARTS == 1:
            acc = tl.dot(a, w, acc, input_precision=PRECISION)
        else:
            a1, a2, a3 = _split(a, PARTS)
            w2 = tl.trans(tl.load(pointers + step, mask=known, other=0))
            w3 = w2
            if PARTS == 3:
                w3 = tl.trans(tl.load(pointers + 2 * step, mask=known, other=0))
            acc = _add_dot(acc, a1, a2, a3, w, w2, w3, PARTS)
    if PULLED:
        acc -= tl.load(pulls + slot * d + outputs, mask=outputs < d, other=0)[None, :]
    return acc


@triton.jit
def map_kernel(
    out, offset, x1, m1, mean1, pulls1, x2, m2, mean2, pulls2, scales, index, count, length, per_part, per_slot, d,
    on, od, ol, an, ad, al, bn, bd, bl, offset_slots, slots1, slots2,
    TERMS: tl.constexpr, OFFSET: tl.constexpr, RELU: tl.constexpr, CENTRED1: tl.constexpr, CENTRED2: tl.constexpr,
    PULLED1: tl.constexpr, PULLED2: tl.constexpr, SCALED: tl.constexpr, SLOTTED: tl.constexpr, INDEXED: tl.constexpr,
    FLAT: tl.constexpr, PARTS: tl.constexpr, PRECISION: tl.constexpr,
    N: tl.constexpr, K: tl.constexpr, P: tl.constexpr,
):
    """A tile of `offset_k + sum of M_k (x - mean)`: P positions (of one sample if there are slots), N channels.

    If SCALED, the rows of the second map are to be multiplied by `scales`, which all slots share.
    """
    sides = tl.cdiv(d, N)  # tiles of the same positions follow each other, and find them in the cache
    tile, side = tl.program_id(0) // sides, tl.program_id(0) % sides
    zero = tile * 0
    if SLOTTED:
        tiles = tl.cdiv(length, P)
        sample = tile // tiles
        place = (tile % tiles) * P + tl.arange(0, P)
        inside = place < length
        v = sample * length + place
        slot = tl.load(index + sample).to(tl.int32) if INDEXED else sample // per_slot
        part = sample // per_part
    else:
        v = tile * P + tl.arange(0, P)
        inside = v < count
        slot = zero
        part = zero
    outputs = side * N + tl.arange(0, N)
    acc = tl.zeros((P, N), tl.float32)
    rows1 = _rows(x1, zero, v, count, index, index, length, an, al, FLAT, False)
    slot1 = tl.minimum(slot, slots1 - 1)
    acc = _add_term(
        acc, rows1, inside, ad, m1, slot1, slots1, mean1, part, pulls1, outputs, d,
        CENTRED1, PULLED1, PARTS, PRECISION, K,
    )
    if TERMS == 2:
        rows2 = _rows(x2, zero, v, count, index, index, length, bn, bl, FLAT, False)
        slot2 = tl.minimum(slot, slots2 - 1)
        if SCALED:
            scale = tl.load(scales + outputs, mask=outputs < d, other=1.0)[None, :]
            acc /= scale
        acc = _add_term(
            acc, rows2, inside, bd, m2, slot2, slots2, mean2, part, pulls2, outputs, d,
            CENTRED2, PULLED2, PARTS, PRECISION, K,
        )
        if SCALED:
            acc *= scale
    if OFFSET:
        base = offset + tl.minimum(slot, offset_slots - 1).to(tl.int64) * d
        acc += tl.load(base + outputs, mask=outputs < d, other=0)[None, :]
    if RELU:
        acc = tl.where(acc < 0, 0.0, acc)  # NaN stays
    rows = _rows(out, zero, v, count, index, index, length, on, ol, FLAT, False)
    mask = inside[:, None] & (outputs < d)[None, :]
    tl.store(rows[:, None] + outputs[None, :] * od, acc.to(out.dtype.element_ty), mask=mask)
