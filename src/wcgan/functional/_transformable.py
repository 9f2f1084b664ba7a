"""The same passes in plain PyTorch operations, for `vmap` and forward-mode differentiation to any order.

The results equal those of the operators in `_primitives` up to rounding, but take more time and memory. Nothing
branches on the data, which `vmap` does not allow.
"""

import torch
from torch import Tensor

from wcgan.functional import _passes
from wcgan.functional.affine import apply_map


def batch_moments(x: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Mean `(d,)` and covariance `(g, p, p)` of a batch."""
    features = _passes.as_positions(x).to(_passes.compute_dtype(x)).transpose(0, 1).flatten(1)  # (d, m)
    mean = features.mean(1)
    centred = (features - mean.unsqueeze(1)).reshape(groups, -1, features.shape[1])
    return mean, centred @ centred.mT / (features.shape[1] - 1)


def map_batch(x: Tensor, matrix: Tensor, mean: Tensor, offset: Tensor, index: Tensor | None) -> Tensor:
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
