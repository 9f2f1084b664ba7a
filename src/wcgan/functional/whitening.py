"""Batch -> mean and covariance -> whitening matrix, with argument checks. `_factorisations` has the algorithms."""

import torch
from torch import Tensor

from wcgan.functional._factorisations import FACTORISATIONS, ZCA, Whitening, WhiteningKind, symmetric
from wcgan.functional._operators import check_batch, register, register_gradient, transformed
from wcgan.functional._primitives import batch_moments, plain_moments


def moments(x: Tensor, groups: int = 1) -> tuple[Tensor, Tensor]:
    r"""Computes the mean and covariance of the channels over all other dimensions, in one pass over the batch.

    .. math:: \mu = \frac1m \sum_i x_i, \qquad \hat\Sigma = \frac{1}{m-1} \sum_i (x_i - \mu)(x_i - \mu)^\top

    Args:
        x: floating-point batch of m >= 2 positions.
        groups: number of equal groups of channels; covariances between groups are not computed.

    Returns:
        The mean and the covariance, in float32 or wider, differentiable any number of times.

    Shape:
        x `(N, d, ...)` -> mean `(d,)`, covariance `(d, d)`, or `(groups, d / groups, d / groups)` if groups > 1.

    Raises:
        TypeError: if `x` is not a floating-point tensor.
        ValueError: for fewer than two positions, or groups that do not divide the channels.

    Example:
        >>> import torch, wcgan
        >>> mean, covariance = wcgan.functional.moments(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
        >>> mean, covariance
        (tensor([2., 4.]), tensor([[2., 4.],
                [4., 8.]]))
    """
    check_batch(x, groups)
    mean, covariance = (plain_moments if transformed() else batch_moments)(x, groups)
    return mean, covariance if groups > 1 else covariance[0]


def covariance_to_whitening(
    covariance: Tensor, whitening: WhiteningKind = "cholesky", eps: float = 1e-3, iterations: int = 5
) -> Tensor:
    r"""Computes the whitening matrix W of a covariance, after shrinkage.

    .. math:: W \Sigma W^\top = I, \qquad \Sigma = (1-\epsilon)\hat\Sigma + \epsilon I

    A covariance that cannot be factorised is shrunk further until it can.

    Args:
        covariance: symmetric positive semi-definite matrices :math:`\hat\Sigma`; only the symmetric part is used.
        whitening: how W is computed.

            - `"cholesky"`: the inverse of the lower Cholesky factor, as in the paper.
            - `"zca"`: the symmetric inverse square root, from eigenvalues.
            - `"zca-decomposition"`: the same matrix with the textbook gradient of an eigendecomposition, for comparison
              only: the gradient is inaccurate if two eigenvalues are close.
            - `"newton"`: an approximation of the same matrix by Newton's iteration.
            - `"standardize"`: diagonal, :math:`1/\sqrt{\sigma^2 + \epsilon}` as in batch normalisation.
            - `"none"`: the identity.
        eps: the shrinkage :math:`\epsilon`, in [0, 1).
        iterations: steps of Newton's iteration.

    Returns:
        W, differentiable twice. NaN if the covariance is not finite, except with `"none"`.

    Shape:
        `(..., d, d)` -> the same.

    Raises:
        TypeError: if the covariance is not a floating-point tensor.
        ValueError: for an unknown `whitening`, an `eps` outside [0, 1), or a covariance that is not square.

    Example:
        >>> import torch, wcgan
        >>> covariance = torch.tensor([[4.0, 2.0], [2.0, 3.0]])
        >>> W = wcgan.functional.covariance_to_whitening(covariance, eps=0.0)
        >>> (W @ covariance @ W.mT).round(decimals=5)
        tensor([[1., 0.],
                [0., 1.]])

    Reference:
        Siarohin, Sangineto and Sebe, "Whitening and Coloring batch transform for GANs", ICLR 2019, Eq. 3 and 7.
    """
    check_whitening(whitening, eps, iterations)
    if not isinstance(covariance, Tensor) or not covariance.is_floating_point():
        raise TypeError(
            f"covariance must be a floating-point tensor, got {getattr(covariance, 'dtype', type(covariance))}"
        )
    if covariance.dim() < 2 or covariance.shape[-1] != covariance.shape[-2]:
        raise ValueError(f"covariance must be square matrices (..., d, d), got shape {tuple(covariance.shape)}")
    batch = covariance.reshape(-1, *covariance.shape[-2:])
    return factorise(batch, whitening, eps, iterations).matrix.reshape(covariance.shape)


def check_whitening(whitening: str, eps: float, iterations: int) -> None:
    """Raises a ValueError that names the wrong value and the allowed ones."""
    if whitening not in FACTORISATIONS:
        raise ValueError(f"unknown whitening {whitening!r}; choose one of {', '.join(FACTORISATIONS)}")
    if not 0 <= eps < 1:
        raise ValueError(f"eps must be in [0, 1), got {eps}")
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, got {iterations}")


def factorise(covariance: Tensor, whitening: str, eps: float, iterations: int) -> Whitening:
    """`covariance_to_whitening` without argument checks, returning everything that a backward pass needs."""
    if transformed():
        return FACTORISATIONS[whitening].factorise(symmetric(covariance), eps, iterations)
    return Whitening(*_factorise(covariance, whitening, eps, iterations))


def _fake_factorise(covariance: Tensor, whitening: str, eps: float, iterations: int) -> tuple[Tensor, ...]:
    groups, p, _ = covariance.shape
    eigen = (covariance.new_empty(groups, p), torch.empty_like(covariance))
    empty = (covariance.new_empty(0), covariance.new_empty(0))
    matrix = covariance.new_empty(groups, p, p)
    return matrix, covariance.new_empty(groups), *(eigen if whitening in ZCA else empty)


@register("factorise", fake=_fake_factorise)
def _factorise(
    covariance: Tensor, whitening: str, eps: float, iterations: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    w = FACTORISATIONS[whitening].factorise(symmetric(covariance), eps, iterations)
    return w.matrix, w.retry, w.roots, w.vectors


def _factorise_context(ctx, inputs, output) -> None:
    covariance, *ctx.options = inputs
    ctx.save_for_backward(covariance, *output)
    ctx.set_materialize_grads(False)


def _factorise_backward(ctx, grad, *_):
    if grad is None:
        return None, None, None, None
    covariance, *saved = ctx.saved_tensors
    whitening, eps, iterations = ctx.options
    w = Whitening(*saved)
    grad = grad @ w.matrix.mT if whitening == "cholesky" else grad
    return FACTORISATIONS[whitening].pull_back(covariance, w, grad, eps, iterations), None, None, None


register_gradient(_factorise, _factorise_backward, _factorise_context)
