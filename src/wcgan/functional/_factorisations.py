"""Covariances -> whitening matrices `(g, p, p)`: Cholesky, ZCA, Newton, standardisation and none.

`FACTORISATIONS`, at the end, lists them by name. Each is a pair of functions: `factorise` computes whitening matrices
from covariances, and `pull_back` computes the gradient of the covariance in closed form, from matrix products with the
results of `factorise`. `pull_back` is made of differentiable operations, so it can be differentiated again. `factorise`
is differentiable only where `transformed()` is True.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from wcgan.functional._operators import cholesky_for, is_eager, jacobi_for, register, register_gradient, transformed
from wcgan.functional._primitives import square_root

WhiteningKind = Literal["cholesky", "zca", "zca-decomposition", "newton", "standardize", "none"]
# A covariance that cannot be factorised is shrunk towards (trace / d) I, or I if the trace is 0, by the first of these
# amounts that is enough. The last one leaves a multiple of the identity, which can always be factorised.
RETRY_SHRINKAGE = (0.0, 1e-4, 1e-2, 1.0)
# The smallest eps that survives rounding: from here on, a covariance of zeros can be factorised.
SMALLEST_EPS = torch.finfo(torch.float32).tiny


class Whitening(NamedTuple):
    """Whitening matrices, and what their gradient needs.

    Attributes:
        matrix: `(g, p, p)`, the whitening matrices W.
        retry: `(g,)`, the shrinkage added after a failure; 0 if the first attempt succeeded.
        roots: `(g, p)`, square roots of the eigenvalues (zca; empty otherwise).
        vectors: `(g, p, p)`, eigenvectors in columns (zca; empty otherwise).
    """

    matrix: Tensor
    retry: Tensor
    roots: Tensor
    vectors: Tensor


class Factorisation(NamedTuple):
    """`factorise(covariance, eps, iterations)`, and its derivative `pull_back` from Wbar, for Cholesky `Wbar W^T`."""

    factorise: Callable[[Tensor, float, int], Whitening]
    pull_back: Callable[[Tensor, Whitening, Tensor, float, int], Tensor]


def shrink(covariance: Tensor, eps: float, retry: Tensor | None = None) -> Tensor:
    """Eq. 7: `(1 - eps) covariance + eps I`; after a failure, first shrinks by `retry` towards (trace / d) I."""
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    if retry is not None:
        delta = retry[..., None, None]
        level = _mean_variance(covariance)
        covariance = (1 - delta) * covariance + delta * torch.where(level > 0, level, 1) * eye
    return (1 - eps) * covariance + eps * eye


def _mean_variance(covariance: Tensor) -> Tensor:
    return covariance.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]


def _shrink_linear(matrix: Tensor, eps: float, retry: Tensor, factor: float = 1.0) -> Tensor:
    """`factor` times the linear part of `shrink`, which is its own adjoint: it carries gradients back through it."""
    if first_attempts_succeeded(retry):
        return factor * (1 - eps) * matrix
    delta = retry[..., None, None]
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return factor * (1 - eps) * ((1 - delta) * matrix + delta * _mean_variance(matrix) * eye)


def first_attempts_succeeded(retry: Tensor) -> bool:
    """Whether it is known that no covariance had to be shrunk further. On a GPU that would take a host sync."""
    return retry.device.type == "cpu" and is_eager((retry,)) and not any(retry.tolist())


def symmetric(matrix: Tensor) -> Tensor:
    """The symmetric part of a matrix."""
    return (matrix + matrix.mT) / 2


def _retry_levels(like: Tensor) -> Tensor:
    """`RETRY_SHRINKAGE` as a tensor, filled on the device: a copy from the host would be a sync."""
    return torch.stack([like.new_full((), level) for level in RETRY_SHRINKAGE])


def _empty(like: Tensor) -> Tensor:
    return like.new_empty(0)


# Cholesky: W = L^-1 with L L^T = Sigma


def _factorise_cholesky(covariance: Tensor, eps: float, iterations: int) -> Whitening:
    following = transformed()
    if not following and (fused := cholesky_for(covariance, RETRY_SHRINKAGE)):
        matrix, retry = fused.factorise(covariance, eps, RETRY_SHRINKAGE)
        return Whitening(matrix, retry, _empty(covariance), _empty(covariance))
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    blocks = None  # the kernel for blocks of matrices that are larger than it supports
    if covariance.device.type == "cpu" and not following:
        lower, failed = torch.linalg.cholesky_ex(shrink(covariance, eps))
        retry = covariance.new_zeros(covariance.shape[0])
        # Anything infinite leaves something infinite on the diagonal; NaN makes the factorisation fail.
        if not any(failed.tolist()) and math.isfinite(lower.diagonal(dim1=-2, dim2=-1).sum()):
            matrix = torch.linalg.solve_triangular(lower, eye, upper=False, left=False).contiguous()
            return Whitening(matrix, retry, _empty(matrix), _empty(matrix))
        levels = _retry_levels(covariance)
        for level in levels[1:]:
            if not failed.any():
                break
            retry = torch.where(failed != 0, level, retry)
            lower, failed = torch.linalg.cholesky_ex(shrink(covariance, eps, retry))
        succeeded = failed == 0
    else:
        # All attempts at once, then the first that succeeded: checking after each attempt would be a host sync, and
        # is impossible under vmap.
        levels = _retry_levels(covariance)
        attempts = shrink(covariance.unsqueeze(1), eps, levels.expand(covariance.shape[0], -1))  # (g, attempts, p, p)
        blocks = None if following else cholesky_for(covariance[:, :1, :1], RETRY_SHRINKAGE)
        if blocks:
            found, good = blocks.factorise_in_blocks(attempts.flatten(0, 1).double(), RETRY_SHRINKAGE)
            found, good = found.view_as(attempts).float(), good.view(attempts.shape[:2])
        else:
            found, failed = torch.linalg.cholesky_ex(attempts)
            good = failed == 0
        succeeded, first = good.max(1)  # max returns the first of equals
        retry = levels[first]
        lower = torch.take_along_dim(found, first.view(-1, 1, 1, 1), 1).squeeze(1)
    succeeded = succeeded & lower.isfinite().flatten(1).all(1)
    retry = torch.where(succeeded, retry, 0)
    if not blocks:
        lower = torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False, left=False)
    matrix = lower.masked_fill(~succeeded.view(-1, 1, 1), torch.nan)
    return Whitening(matrix.contiguous(), retry, _empty(matrix), _empty(matrix))


def _pull_back_cholesky(covariance: Tensor, w: Whitening, inner: Tensor, eps: float, iterations: int) -> Tensor:
    # Appendix B, for Sigma = L L^T:  Sbar = -1/2 W^T (P o inner + its transpose) W  with  inner = Wbar W^T
    both = inner.tril() + inner.tril(-1).mT
    return _shrink_linear(w.matrix.mT @ both @ w.matrix, eps, w.retry, -0.5)


# ZCA: W = Sigma^-1/2 = U diag(lambda)^-1/2 U^T. Two names, which differ in the gradient only.

ZCA: tuple[WhiteningKind, ...] = ("zca", "zca-decomposition")


def _factorise_zca(covariance: Tensor, eps: float, iterations: int) -> Whitening:
    if transformed():
        return _factorise_zca_transformable(covariance, eps)
    finite = covariance.isfinite().all(-1).all(-1)[:, None, None]
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    values, vectors = _eigen(torch.where(finite, covariance, eye))
    attempts, first = _shrink_eigenvalues(values, eps)
    roots = torch.take_along_dim(attempts, first.view(1, -1, 1), 0).squeeze(0).sqrt()
    matrix = torch.where(finite, (vectors / roots.unsqueeze(-2)) @ vectors.mT, torch.nan)
    return Whitening(matrix, _retry_levels(values)[first], roots, vectors.contiguous())


def _shrink_eigenvalues(values: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """All attempts `(attempts, g, p)` and the first that can be inverted `(g,)`, from eigenvalues `(g, p)`.

    Shrinkage changes the eigenvalues but not the eigenvectors, so a retry needs no second factorisation.
    """
    levels = _retry_levels(values).view(-1, 1, 1)
    mean = values.mean(-1, keepdim=True)
    attempts = (1 - eps) * ((1 - levels) * values + levels * torch.where(mean > 0, mean, 1)) + eps
    rounding = torch.finfo(values.dtype).eps * values.shape[-1] * attempts.amax(-1)
    return attempts, (attempts.amin(-1) > rounding).max(0).indices


def _factorise_zca_transformable(covariance: Tensor, eps: float) -> Whitening:
    """`_factorise_zca` without eigenvectors, whose derivatives do not exist if eigenvalues coincide."""
    finite = covariance.isfinite().all(-1).all(-1)[:, None, None]
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    safe = torch.where(finite, covariance, eye)
    _, first = _shrink_eigenvalues(torch.linalg.eigvalsh(safe), eps)
    retry = _retry_levels(safe)[first]
    matrix = torch.linalg.inv(square_root(shrink(safe, eps, retry)))
    return Whitening(torch.where(finite, matrix, torch.nan), retry, _empty(matrix), _empty(matrix))


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues in any order, and their vectors in columns."""
    fused = jacobi_for(matrix)
    values, vectors = torch.linalg.eigh(matrix) if fused is None else fused.eigen(matrix)
    return values, vectors


def _pull_back_zca(covariance: Tensor, w: Whitening, grad: Tensor, eps: float, iterations: int) -> Tensor:
    # With R = Sigma^1/2 and W = R^-1:  dW = -W dR W  and  R dR + dR R = dSigma. Solving this Lyapunov equation divides
    # by sums of square roots of eigenvalues, never by differences, so coinciding eigenvalues do no harm.
    root = shrink(symmetric(covariance), eps, w.retry) @ w.matrix
    right = -w.matrix @ symmetric(grad) @ w.matrix
    return _shrink_linear(symmetric(solve_lyapunov(root, right, w.roots, w.vectors)), eps, w.retry)


@register("solve_lyapunov", fake=lambda root, right, roots, vectors: torch.empty_like(right))
def solve_lyapunov(root: Tensor, right: Tensor, roots: Tensor, vectors: Tensor) -> Tensor:
    """S with `root S + S root = right`, from the eigenvalues and eigenvectors of the symmetric `root`."""
    inner = vectors.mT @ right @ vectors
    return vectors @ (inner / (roots.unsqueeze(-1) + roots.unsqueeze(-2))) @ vectors.mT


def _lyapunov_context(ctx, inputs, output) -> None:
    root, _, roots, vectors = inputs
    ctx.save_for_backward(root, roots, vectors, output)


def _lyapunov_backward(ctx, grad):
    root, roots, vectors, solution = ctx.saved_tensors
    right = solve_lyapunov(root, grad, roots, vectors)
    return -(right @ solution.mT + solution.mT @ right), right, None, None


register_gradient(solve_lyapunov, _lyapunov_backward, _lyapunov_context)


def _pull_back_decomposition(covariance: Tensor, w: Whitening, grad: Tensor, eps: float, iterations: int) -> Tensor:
    # The textbook gradient, through U and lambda separately: U^T Ubar is divided by differences of eigenvalues. If two
    # are close, the quotients at (i, j) and (j, i) nearly cancel and leave rounding errors; if two are equal, NaN.
    values, vectors = w.roots**2, w.vectors
    if torch.is_grad_enabled():  # as functions of the covariance, to be differentiated again
        values, vectors = torch.linalg.eigh(shrink(symmetric(covariance), eps, w.retry))
    inner = vectors.mT @ (grad + grad.mT) @ vectors
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1)  # lambda_j - lambda_i
    diagonal = torch.eye(values.shape[-1], dtype=torch.bool, device=values.device)
    of_vectors = inner * values.rsqrt().unsqueeze(-2) / gaps.masked_fill(diagonal, 1)
    of_values = -(values**-1.5) * inner.diagonal(dim1=-2, dim2=-1) / 4
    inner = of_vectors.masked_fill(diagonal, 0) + torch.diag_embed(of_values)
    return _shrink_linear(symmetric(vectors @ inner @ vectors.mT), eps, w.retry)


# Newton: W ~ Sigma^-1/2 by the coupled iteration


def _newton_steps(sigma: Tensor, iterations: int) -> tuple[list[tuple[Tensor, Tensor, Tensor]], Tensor]:
    """`(Y, Z, T)` of each step, and the last Z: Z -> 1/sqrt(N) and Y = N Z, with N = sigma / trace, from Z = I.

    All are polynomials in N, so that they are symmetric and commute.
    """
    eye = torch.eye(sigma.shape[-1], dtype=sigma.dtype, device=sigma.device).expand_as(sigma)
    y = sigma / _trace(sigma)
    z = t = torch.sub(1.5 * eye, y, alpha=0.5)  # the first step
    steps = [(y, eye, t)]
    for _ in range(iterations - 1):
        y = torch.bmm(y, t)
        t = torch.baddbmm(eye, z, y, beta=1.5, alpha=-0.5)
        steps.append((y, z, t))
        z = torch.bmm(t, z)
    return steps, z


def _trace(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]


def _factorise_newton(covariance: Tensor, eps: float, iterations: int) -> Whitening:
    retry = covariance.new_zeros(covariance.shape[0])
    if eps >= SMALLEST_EPS:
        sigma = shrink(covariance, eps)
    else:
        retry = torch.where(_mean_variance(covariance).flatten() > 0, retry, 1)
        sigma = shrink(covariance, eps, retry)
    _, inverse_root = _newton_steps(sigma, iterations)
    return Whitening(inverse_root / _trace(sigma).sqrt(), retry, _empty(sigma), _empty(sigma))


def _pull_back_newton(covariance: Tensor, w: Whitening, grad: Tensor, eps: float, iterations: int) -> Tensor:
    sigma = shrink(symmetric(covariance), eps, w.retry)
    trace = _trace(sigma)
    ((first, eye, t), *steps), inverse_root = _newton_steps(sigma, iterations)
    grad_z, grad_y = grad / trace.sqrt(), torch.zeros_like(grad)
    for y, z, factor in reversed(steps):
        grad_t = torch.baddbmm(torch.bmm(y, grad_y), grad_z, z)
        grad_y = torch.baddbmm(torch.bmm(grad_y, factor), z, grad_t, alpha=-0.5)
        grad_z = torch.baddbmm(torch.bmm(factor, grad_z), grad_t, y, alpha=-0.5)
    grad_y = torch.bmm(grad_y, t) - torch.baddbmm(grad_z, first, grad_y) / 2  # the first step, from the identity
    grad_trace = -(grad_y * sigma).sum((-2, -1)) / trace.flatten() ** 2
    grad_trace = grad_trace - (grad * inverse_root).sum((-2, -1)) / (2 * trace.flatten() ** 1.5)
    return _shrink_linear(symmetric(grad_y / trace + grad_trace[:, None, None] * eye), eps, w.retry)


# Standardize: W = diag(Sigma + eps)^-1/2, and none: W = I


def _factorise_standardize(covariance: Tensor, eps: float, iterations: int) -> Whitening:
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    retry = covariance.new_zeros(covariance.shape[0])
    if eps < SMALLEST_EPS:  # a constant channel is not scaled: it is 0 once centred
        nothing = variance <= 0
        variance, retry = torch.where(nothing, 1, variance), torch.where(nothing.any(-1), 1, retry)
    matrix = torch.diag_embed(torch.where(variance.isfinite(), (variance + eps).rsqrt(), torch.nan))
    return Whitening(matrix, retry, _empty(matrix), _empty(matrix))


def _pull_back_standardize(covariance: Tensor, w: Whitening, grad: Tensor, eps: float, iterations: int) -> Tensor:
    scale = w.matrix.diagonal(dim1=-2, dim2=-1)
    return torch.diag_embed(-grad.diagonal(dim1=-2, dim2=-1) * scale**3 / 2)


def _factorise_none(covariance: Tensor, eps: float, iterations: int) -> Whitening:
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    matrix = eye.repeat(covariance.shape[0], 1, 1)
    return Whitening(matrix, covariance.new_zeros(covariance.shape[0]), _empty(matrix), _empty(matrix))


def _pull_back_none(covariance: Tensor, w: Whitening, grad: Tensor, eps: float, iterations: int) -> Tensor:
    return torch.zeros_like(covariance)


FACTORISATIONS: dict[str, Factorisation] = {  # the values of `WhiteningKind`
    "cholesky": Factorisation(_factorise_cholesky, _pull_back_cholesky),
    "zca": Factorisation(_factorise_zca, _pull_back_zca),
    "zca-decomposition": Factorisation(_factorise_zca, _pull_back_decomposition),
    "newton": Factorisation(_factorise_newton, _pull_back_newton),
    "standardize": Factorisation(_factorise_standardize, _pull_back_standardize),
    "none": Factorisation(_factorise_none, _pull_back_none),
}
