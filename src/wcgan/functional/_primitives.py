"""The passes as differentiable operators. The gradient of each is made of the others, so any order can be taken.

After them, the same in plain PyTorch operations, for `vmap` and forward-mode differentiation to any order. The results
are equal up to rounding, but take more time and memory. Nothing there branches on the data, which `vmap` forbids.
"""

from typing import Optional

import torch
import torch.distributed as dist
from torch import Tensor

from wcgan.functional import _passes
from wcgan.functional._operators import register, register_gradient
from wcgan.functional._passes import compute_dtype
from wcgan.functional.affine import apply_map


def _fake_moments(x: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    d, dtype = x.shape[1], compute_dtype(x)
    return x.new_empty(d, dtype=dtype), x.new_empty(groups, d // groups, d // groups, dtype=dtype)


@register("moments", fake=_fake_moments)
def batch_moments(x: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Mean `(d,)` and covariance `(g, p, p)` of a batch, in one pass."""
    count, mean, scatter = _passes.moments_pass(x, groups)
    return mean, scatter / (count - 1)


def _moments_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0], output[0])


def _moments_backward(ctx, grad_mean, grad_covariance):
    x, mean = ctx.saved_tensors
    count = x.numel() // x.shape[1]
    curvature = (grad_covariance + grad_covariance.mT) / (count - 1)
    return map_batch(x, curvature.unsqueeze(0), mean, grad_mean.unsqueeze(0) / count, None), None


register_gradient(batch_moments, _moments_backward, _moments_context)


@register("map", fake=lambda x, matrix, mean, offset, index: torch.empty_like(x))
def map_batch(x: Tensor, matrix: Tensor, mean: Optional[Tensor], offset: Tensor, index: Optional[Tensor]) -> Tensor:
    """`z_n = matrix_k(n) (x_n - mean) + offset_k(n)`, in one pass; matrix `(K, g, p, p)`, offset `(K, d)`."""
    out = torch.empty_like(x)
    _passes.map_pass(out, offset, [(x, matrix, mean)], index)
    return out


def _map_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _map_backward(ctx, grad):
    x, matrix, mean, offset, index = ctx.saved_tensors
    products, sums = cross_batches(grad, x, mean, index, *matrix.shape[:3])
    grad_x = map_batch(grad, matrix.mT, None, torch.zeros_like(offset), index)
    grad_mean = None if mean is None else -transposed_times(matrix, sums)
    return grad_x, products, grad_mean, sums.sum(0, keepdim=True) if offset.shape[0] == 1 else sums, None


register_gradient(map_batch, _map_backward, _map_context)


def _fake_cross(z, x, mean, index, slots, groups, p) -> tuple[Tensor, Tensor]:
    dtype = compute_dtype(x)
    return x.new_empty(slots, groups, p, p, dtype=dtype), x.new_empty(slots, x.shape[1], dtype=dtype)


@register("cross", fake=_fake_cross)
def cross_batches(
    z: Tensor, x: Tensor, mean: Optional[Tensor], index: Optional[Tensor], slots: int, groups: int, p: int
) -> tuple[Tensor, Tensor]:
    """`sum z_n (x_n - mean)^T` of each slot, `(K, g, p, p)`, and `sum z_n`, `(K, d)`, in one pass."""
    return _passes.cross_pass(z, x, mean, (slots, groups, p), index)


def _cross_context(ctx, inputs, output) -> None:
    z, x, mean, index, *_ = inputs
    ctx.save_for_backward(z, x, mean, index, output[1])


def _cross_backward(ctx, grad_products, grad_sums):
    z, x, mean, index, sums = ctx.saved_tensors
    grad_z = map_batch(x, grad_products, mean, grad_sums, index)
    grad_x = map_batch(z, grad_products.mT, None, torch.zeros_like(grad_sums), index)
    grad_mean = None if mean is None else -transposed_times(grad_products, sums)
    return grad_z, grad_x, grad_mean, None, None, None, None


register_gradient(cross_batches, _cross_backward, _cross_context)


def transposed_times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """`sum over k of matrix_k^T v_k` for a map `(K, g, p, p)` and vectors `(K, d)` -> `(d,)`."""
    slots, groups, p, _ = matrix.shape
    if p == 1:
        return (matrix.reshape(vectors.shape) * vectors).sum(0)
    rows = matrix.transpose(0, 1).reshape(groups, slots * p, p)  # the sum over slots is part of the product
    return (rows.mT @ vectors.reshape(slots, groups, p).transpose(0, 1).reshape(groups, slots * p, 1)).reshape(-1)


@register("all_reduce", fake=lambda values, process_group: torch.empty_like(values))
def all_reduce(values: Tensor, process_group: str) -> Tensor:
    """The sum over the ranks of a process group, given by name. Its gradient is the same sum."""
    total = values.clone()
    dist.all_reduce(total, group=name_to_process_group(process_group))
    return total


def name_to_process_group(name: str) -> dist.ProcessGroup:
    """Name -> process group. Unlike the group, its name can be copied, pickled and passed to an operator."""
    from torch.distributed.distributed_c10d import _resolve_process_group

    return _resolve_process_group(name)  # type: ignore[arg-type]


def _all_reduce_context(ctx, inputs, output) -> None:
    ctx.process_group = inputs[1]


def _all_reduce_backward(ctx, grad):
    return all_reduce(grad.contiguous(), ctx.process_group), None


register_gradient(all_reduce, _all_reduce_backward, _all_reduce_context)


def reduce_moments(count: Tensor, mean: Tensor, scatter: Tensor, process_group: str) -> tuple[Tensor, Tensor, Tensor]:
    """Moments of the batches of all ranks together, which may differ in size, from one all-reduce.

    Sums about zero would cancel if the mean is large, so they are taken in float64, which is enough for float32 data.
    """
    n, mu = count.double(), mean.double()
    groups = scatter.shape[0]
    centre = mu.view(groups, -1, 1)
    gram = scatter.double() + n * centre * centre.mT
    n, total, gram = reduce_sums(process_group, n, n * mu, gram)
    mu = total / n
    centre = mu.view(groups, -1, 1)
    gram = gram - n * centre * centre.mT
    return n.to(count.dtype), mu.to(mean.dtype), gram.to(scatter.dtype)


def reduce_sums(process_group: str, *parts: Tensor) -> list[Tensor]:
    """The sum of each tensor over the ranks, in one call."""
    total = all_reduce(torch.cat([part.flatten() for part in parts]), process_group)
    return [t.view_as(part) for t, part in zip(total.split([p.numel() for p in parts]), parts, strict=True)]


# The same in plain operations, for transforms


def plain_moments(x: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Mean `(d,)` and covariance `(g, p, p)` of a batch."""
    features = _passes.as_positions(x).to(compute_dtype(x)).transpose(0, 1).flatten(1)  # (d, m)
    mean = features.mean(1)
    centred = (features - mean.unsqueeze(1)).reshape(groups, -1, features.shape[1])
    return mean, centred @ centred.mT / (features.shape[1] - 1)


def plain_map(x: Tensor, matrix: Tensor, mean: Tensor, offset: Tensor, index: Tensor | None) -> Tensor:
    """`z_n = matrix_k(n) (x_n - mean) + offset_k(n)`, like `x`."""
    centred = x - mean.reshape(-1, *[1] * (x.dim() - 2))
    return apply_map(centred, matrix, offset, index, None).to(x.dtype)


def square_root(matrix: Tensor) -> Tensor:
    """The symmetric square root of symmetric positive definite matrices, `(..., p, p)`.

    Its derivatives divide by sums of eigenvalues, not by differences as those of `torch.linalg.eigh`, so eigenvalues
    may coincide.
    """
    return _SquareRoot.apply(matrix)


class _SquareRoot(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(matrix: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(matrix)
        return (vectors * values.sqrt().unsqueeze(-2)) @ vectors.mT

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, grad):
        (root,) = ctx.saved_tensors
        return _Lyapunov.apply(root, grad)

    @staticmethod
    def jvp(ctx, tangent):
        (root,) = ctx.saved_tensors
        return _Lyapunov.apply(root, tangent)


class _Lyapunov(torch.autograd.Function):
    """S with `root S + S root = right` for a symmetric positive definite `root`: linear in `right`, self-adjoint."""

    generate_vmap_rule = True

    @staticmethod
    def forward(root: Tensor, right: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(root)
        inner = vectors.mT @ right @ vectors
        return vectors @ (inner / (values.unsqueeze(-1) + values.unsqueeze(-2))) @ vectors.mT

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(inputs[0], output)
        ctx.save_for_forward(inputs[0], output)

    @staticmethod
    def backward(ctx, grad):
        root, solution = ctx.saved_tensors
        right = _Lyapunov.apply(root, grad)
        return -(right @ solution.mT + solution.mT @ right), right

    @staticmethod
    def jvp(ctx, root_tangent, right_tangent):
        root, solution = ctx.saved_tensors
        change = torch.zeros_like(solution) if right_tangent is None else right_tangent
        if root_tangent is not None:
            change = change - root_tangent @ solution - solution @ root_tangent
        return _Lyapunov.apply(root, change)
