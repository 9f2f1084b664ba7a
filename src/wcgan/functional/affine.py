"""Affine maps with known matrices, as layers use them at inference: apply one, or compose coloring with whitening.

Made of plain PyTorch operations only, so that every exporter understands them, and of `reshape` instead of `view`,
which fails under `vmap`; `map_eagerly`, at the end, is for eager code.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv1d, conv2d, linear

from wcgan.functional._operators import check_batch, is_eager, without_autocast
from wcgan.functional._passes import as_positions, compute_dtype, features_of, is_flat

Shared = tuple[Tensor, Tensor]
"""A matrix and a shift that are added to those of all slots."""


def affine(
    x: Tensor, matrix: Tensor, offset: Tensor, index: Tensor | None = None, mean: Tensor | None = None
) -> Tensor:
    r"""Applies one of K affine maps to each sample of a batch.

    .. math:: z_n = M_{k(n)} (x_n - \mu) + b_{k(n)}

    Args:
        x: floating-point batch.
        matrix: the K matrices M, each made of g diagonal blocks of size p. `p = 1` is a diagonal matrix, `g = 1` a full
            one.
        offset: the K offsets b.
        index: int64, the map k(n) of each sample. None if K is 1 (all samples share one map) or N (one map per sample).
        mean: subtracted first; None for zero.

    Returns:
        A tensor like `x`.

    Shape:
        x `(N, d, ...)`; matrix `(K, g, p, p)` with `g p = d`; offset `(K, d)`; index `(N,)`; mean `(d,)`.

    Raises:
        TypeError: if `x` is not a floating-point tensor.
        ValueError: if a shape or the type of `index` is not as above.

    Example:
        >>> import torch, wcgan
        >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> wcgan.functional.affine(x, swap.view(1, 1, 2, 2), torch.zeros(1, 2))
        tensor([[2., 1.],
                [4., 3.]])
    """
    check_batch(x, minimum=0)
    _check_slots(x, matrix, offset, index)
    with without_autocast(x.device):
        return apply_map(x, matrix, offset, index, mean)


def _check_slots(x: Tensor, matrix: Tensor, offset: Tensor, index: Tensor | None) -> None:
    """Raises an error unless a map `(K, g, p, p)` and an offset `(K, d)` fit the batch, with a slot for each sample."""
    d = x.shape[1]
    if matrix.dim() != 4 or matrix.shape[2] != matrix.shape[3] or matrix.shape[1] * matrix.shape[2] != d:
        raise ValueError(f"matrix must be (K, g, p, p) with g p = {d} channels, got shape {tuple(matrix.shape)}")
    slots = matrix.shape[0]
    if offset.shape != (slots, d):
        raise ValueError(f"offset must be ({slots}, {d}), got shape {tuple(offset.shape)}")
    if index is None:
        if slots not in (1, x.shape[0]):
            raise ValueError(f"without an index, the {slots} maps must be 1 or one for each of {x.shape[0]} samples")
    elif index.shape != (x.shape[0],) or index.dtype != torch.int64:
        raise ValueError(f"index must be int64 of shape ({x.shape[0]},), got {index.dtype} {tuple(index.shape)}")


def apply_map(x: Tensor, matrix: Tensor, offset: Tensor, index: Tensor | None, mean: Tensor | None) -> Tensor:
    """`affine` without argument checks."""
    slots, groups, p, _ = matrix.shape
    n, d = x.shape[:2]
    if mean is not None:
        if x.dtype in (torch.float16, torch.bfloat16):
            # Centre first: with M rounded, M mean would not cancel against the offset.
            x = (x - mean.reshape(-1, *[1] * (x.dim() - 2))).to(x.dtype)
        else:
            offset = offset - (matrix @ mean.reshape(groups, p, 1)).flatten(1)
    if index is not None and slots > 1:
        matrix, offset = matrix.index_select(0, index), offset.index_select(0, index)
    matrix, offset = matrix.to(x.dtype), offset.to(x.dtype)
    if p == 1:
        per_channel = (-1, d, *[1] * (x.dim() - 2))
        return torch.addcmul(offset.reshape(per_channel), x, matrix.reshape(per_channel))
    slots = matrix.shape[0]
    if slots == 1 and x.numel() > 0:  # convolutions reject empty batches
        return _shared(x, matrix[0], offset[0])
    places = math.prod(x.shape[2:])
    if x.dim() > 2 and x.stride(1) == 1:  # channels_last stays channels_last
        rows = x.movedim(1, -1)
        mapped = (rows.reshape(n, places, groups, p).transpose(1, 2) @ matrix.mT).transpose(1, 2)  # (N, L, g, p)
        return (mapped + offset.reshape(slots, 1, groups, p)).reshape(rows.shape).movedim(-1, 1)
    mapped = matrix @ x.reshape(n, groups, p, places)
    return (mapped + offset.reshape(slots, groups, p, 1)).reshape(x.shape)


def _shared(x: Tensor, matrix: Tensor, offset: Tensor) -> Tensor:
    """One map `(g, p, p)` for all samples: a 1x1 convolution, or the same product in a form that runs faster."""
    groups, p, _ = matrix.shape
    d = groups * p
    if groups == 1 and (x.dim() == 2 or x.stride(1) == 1):
        return linear(x.movedim(1, -1), matrix[0], offset).movedim(-1, 1)
    if x.dim() == 2:
        return (matrix @ x.reshape(-1, groups, p, 1)).flatten(1) + offset
    # torch.jit.trace compares graphs recorded with and without gradients, which have to be the same.
    differentiated = (torch.is_grad_enabled() and matrix.requires_grad) or torch.jit.is_tracing()
    if groups == 1 and x.device.type == "cpu" and not differentiated:
        return torch.baddbmm(offset.reshape(1, d, 1), matrix.expand(x.shape[0], d, d), x.flatten(2)).reshape(x.shape)
    if x.dim() == 4:
        return conv2d(x, matrix.reshape(d, p, 1, 1), offset, groups=groups)
    return conv1d(x.flatten(2), matrix.reshape(d, p, 1), offset, groups=groups).reshape(x.shape)


def compose(color: Tensor | None, whitening: Tensor) -> Tensor:
    """Multiplies coloring and whitening matrices into one map: `M = C W`.

    Args:
        color: coloring matrices C: `(K, d, d)` full, `(K, d)` diagonal, or None for the identity.
        whitening: whitening matrix W, as g diagonal blocks `(g, p, p)` with `g p = d`.

    Returns:
        M as `affine` takes it: `(K, 1, d, d)` if the coloring is full, else `(K, g, p, p)`.

    Example:
        >>> import torch, wcgan
        >>> whitening = torch.tensor([[[0.5, 0.0], [0.0, 2.0]]])
        >>> wcgan.functional.compose(torch.tensor([[10.0, 100.0]]), whitening)
        tensor([[[[  5.,   0.],
                  [  0., 200.]]]])
    """
    groups, p, _ = whitening.shape
    if color is None:
        return whitening.unsqueeze(0)
    if color.dim() == 2:
        return color.reshape(-1, groups, p, 1) * whitening
    if p == 1:
        return (color * whitening.reshape(groups)).unsqueeze(1)
    if groups == 1:
        return (color @ whitening[0]).unsqueeze(1)
    slots, d = color.shape[:2]
    blocks = color.reshape(slots, d, groups, p).transpose(1, 2) @ whitening  # (K, g, d, p)
    return blocks.transpose(1, 2).reshape(slots, 1, d, d)


def as_slots(color: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """A coloring that all samples share, as one slot."""
    return (color, shift) if shift.dim() == 2 else (color.unsqueeze(0), shift.unsqueeze(0))


def add_shared(color: Tensor, shift: Tensor, shared: Shared | None) -> tuple[Tensor, Tensor]:
    """Matrices and shifts of all slots, with what they share."""
    return (color, shift) if shared is None else (color + shared[0], shift + shared[1])


def compose_pull_back(
    color: Tensor | None, whitening: Tensor, grad: Tensor, through: bool = False
) -> tuple[Tensor | None, Tensor]:
    """Gradients of `compose`: `Cbar = Mbar W^T` and `Wbar = C^T Mbar`, the latter summed over the K slots.

    If `through`, the second is `Wbar W^T = C^T Cbar`, which is what the gradient of a Cholesky factor needs.
    """
    groups, p, _ = whitening.shape
    if color is not None and color.dim() == 3:
        grad = grad.squeeze(1)  # (K, d, d)
        if p == 1:
            grad_color = grad * whitening.reshape(groups)
            return grad_color, ((grad_color if through else grad) * color).sum((0, 1)).reshape(groups, 1, 1)
        rows = color.shape[0] * color.shape[1]
        left = color.reshape(rows, groups, p).transpose(0, 1)  # (g, K d, p)
        right = grad.reshape(rows, groups, p).transpose(0, 1)
        product = right @ whitening.mT
        grad_color = product.transpose(0, 1).reshape(color.shape)
        return grad_color, left.mT @ (product if through else right)
    scaled = grad if color is None else grad * color.reshape(-1, groups, p, 1)
    grad_w = scaled.sum(0)
    diagonal = None if color is None else (grad * whitening).sum(3).reshape(color.shape)
    return diagonal, grad_w @ whitening.mT if through else grad_w


# The layers at inference on a CPU in eager code: one autograd function with few calls, which are what takes a small
# batch its time. For a GPU see `_by_kernels`.

LARGEST_ON_CPU = 2**17  # elements of a batch


def map_eagerly(x: Tensor, color: Tensor, shift: Tensor, w: Tensor, mean: Tensor, relu: bool) -> Tensor | None:
    """`color w (x - mean) + shift` on a CPU, with constants `w (1, d, d)` and `mean (d,)`, or None: ask `affine`.

    The others are a batch, not empty, and a coloring `(d, d)` and a shift `(d,)`, for which `is_eager` is True.
    """
    if w.shape[0] != 1 or w.requires_grad or mean.requires_grad or not is_flat(x) or not is_eager((w,)):
        return None
    if x.device.type != "cpu" or x.numel() > LARGEST_ON_CPU:
        return None
    if not (color.dtype == shift.dtype == mean.dtype == w.dtype == x.dtype) or x.dtype != compute_dtype(x):
        return None
    if torch.is_grad_enabled() and (x.requires_grad or color.requires_grad or shift.requires_grad):
        out: Tensor = _Map.apply(x, color, shift, w[0], mean, relu)
        return out
    return _map(x, color, shift, w[0], mean, relu)[0]


class _Map(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, color: Tensor, shift: Tensor, w: Tensor, mean: Tensor, relu: bool) -> Tensor:
        out, mapping = _map(x, color, shift, w, mean, relu)
        ctx.save_for_backward(x, color, shift, w, mean, mapping, out if relu else None)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, color, shift, w, mean, mapping, out = ctx.saved_tensors
        with without_autocast(grad.device):
            if torch.is_grad_enabled() or not is_eager((grad,)):
                plain = lambda: affine(x, (color @ w)[None, None], shift[None], None, mean)  # noqa: E731
                return (*derive_again(ctx, grad, plain, out is not None), None, None, None)
            if out is not None:
                grad = torch.where(out > 0, grad, 0)
            grad, grad_x, grad_color, grad_shift = like(grad, x), None, None, None
            if ctx.needs_input_grad[0]:
                grad_x = _apply(grad, mapping.mT, torch.zeros_like(mean), None)
            if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
                z, positions = as_positions(grad), as_positions(x)
                features = features_of(z)
                grad_color = torch.mm(torch.mm(features, features_of(positions, mean).mT), w.mT)
                grad_shift = features.sum(1)
            return grad_x, grad_color, grad_shift, None, None, None


def _map(x: Tensor, color: Tensor, shift: Tensor, w: Tensor, mean: Tensor, relu: bool) -> tuple[Tensor, Tensor]:
    mapping = torch.mm(color, w)
    return _apply(x, mapping, shift, mean, relu), mapping


def _apply(x: Tensor, matrix: Tensor, offset: Tensor, mean: Tensor | None, relu: bool = False) -> Tensor:
    """`matrix (x - mean) + offset`. A new tensor: a view could not be changed in place by what follows."""
    out = torch.empty_like(x)
    source, target = as_positions(x), as_positions(out)
    n, d, _ = source.shape
    if mean is not None:
        offset = torch.addmv(offset, matrix, mean, alpha=-1)
    if _is_rows(source) and _is_rows(target):
        rows = target.transpose(1, 2).view(-1, d)
        torch.addmm(offset, source.transpose(1, 2).view(-1, d), matrix.mT, out=rows)
    else:
        torch.baddbmm(offset.view(1, d, 1), matrix.expand(n, d, d), source, out=target)
    return out.relu_() if relu else out


def _is_rows(positions: Tensor) -> bool:
    """Whether `(N, d, L)` is a matrix `(N L, d)` in memory: sequences `(L, N, d)` have channels innermost too."""
    n, _, length = positions.shape
    step, inner, place = positions.stride()
    return inner == 1 and (n == 1 or length == 1 or step == length * place)


def like(grad: Tensor, x: Tensor) -> Tensor:
    """A gradient whose positions can be viewed; expanded ones, such as that of a sum, are copied."""
    return grad if is_flat(grad) else torch.empty_like(x).copy_(grad)


def derive_again(
    ctx: Any, grad: Tensor, forward: Callable[[], Tensor], relu: bool, inputs: int = 3
) -> list[Tensor | None]:
    """Gradients of the first inputs as differentiable functions of everything, from another forward pass."""
    needed = [t for t, wanted in zip(ctx.saved_tensors[:inputs], ctx.needs_input_grad, strict=False) if wanted]
    with torch.enable_grad():
        out = forward()
        out = out.relu() if relu else out
    gradients = iter(torch.autograd.grad(out, needed, grad, create_graph=torch.is_grad_enabled()))
    return [next(gradients) if wanted else None for wanted in ctx.needs_input_grad[:inputs]]
