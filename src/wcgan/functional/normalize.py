"""Batch whitening and coloring with the batch's own statistics: forward pass, and the backward pass in closed form.

Coloring and whitening are multiplied into one affine map per slot, so that the batch is read once for its moments and
once for the map. The backward pass (appendix B of the paper) takes two more passes.
"""

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from wcgan.functional import _passes
from wcgan.functional._factorisations import FACTORISATIONS, ZCA, Whitening, WhiteningKind
from wcgan.functional._operators import check_batch, register, register_gradient, transformed
from wcgan.functional._primitives import (
    cross_batches,
    map_batch,
    plain_map,
    plain_moments,
    reduce_moments,
    reduce_sums,
    transposed_times,
)
from wcgan.functional.affine import compose, compose_pull_back
from wcgan.functional.whitening import check_whitening, factorise


class Statistics(NamedTuple):
    """Statistics of a batch.

    Attributes:
        mean: `(d,)`.
        covariance: `(g, p, p)`, unbiased (divided by m - 1) and not shrunk.
        retry: `(g,)`, extra shrinkage that was needed to factorise the covariance; normally 0.
    """

    mean: Tensor
    covariance: Tensor
    retry: Tensor


def whiten(
    x: Tensor, whitening: WhiteningKind = "cholesky", eps: float = 1e-3, groups: int = 1, iterations: int = 5
) -> Tensor:
    r"""Whitens a batch with its own statistics.

    .. math:: y = W (x - \mu)

    With Cholesky or ZCA the result has mean 0 and, because of the shrinkage, covariance
    :math:`(I - \epsilon W W^\top) / (1 - \epsilon)`, which is close to the identity.

    Args:
        x: floating-point batch of at least two positions.
        whitening: see `covariance_to_whitening`.
        eps: the shrinkage :math:`\epsilon`, in [0, 1).
        groups: whitens within this many equal groups of channels.
        iterations: steps of Newton's iteration.

    Returns:
        A tensor like `x`, in the same memory format.

    Shape:
        `(N, d, ...)` -> the same.

    Raises:
        TypeError: if `x` is not a floating-point tensor.
        ValueError: for fewer than two positions, an unknown `whitening`, an `eps` outside [0, 1), or groups that do not
            divide the channels.

    Example:
        >>> import torch, wcgan
        >>> x = torch.randn(64, 2, 8, 8) @ torch.randn(8, 8)
        >>> _, covariance = wcgan.functional.moments(wcgan.functional.whiten(x, eps=1e-6))
        >>> torch.allclose(covariance, torch.eye(2), atol=1e-4)
        True

    Reference:
        Siarohin, Sangineto and Sebe, "Whitening and Coloring batch transform for GANs", ICLR 2019, Eq. 3.
    """
    check_whitening(whitening, eps, iterations)
    check_batch(x, groups)
    if whitening == "none":
        return x.clone()
    groups = x.shape[1] if whitening == "standardize" else groups
    return whiten_color(x, whitening=whitening, groups=groups, eps=eps, iterations=iterations)[0]


def whiten_color(
    x: Tensor,
    color: Tensor | None = None,
    shift: Tensor | None = None,
    index: Tensor | None = None,
    *,
    whitening: WhiteningKind = "cholesky",
    groups: int = 1,
    eps: float = 1e-3,
    iterations: int = 5,
    process_group: str = "",
    relu: bool = False,
) -> tuple[Tensor, Statistics]:
    r"""Whitens a batch with its own statistics and colors it, as one affine map per sample.

    .. math:: z_n = C_{k(n)} W (x_n - \mu) + b_{k(n)}

    This is the layers' forward pass in training. It does not check its arguments; `whiten` and the layers do.

    Args:
        x: floating-point batch of at least two positions.
        color: the K coloring matrices C, full or diagonal; None for the identity.
        shift: the K shifts b; None for zero.
        index: int64, the slot k(n) of each sample. None if K is 1 (all samples share one coloring) or N (one coloring
            per sample).
        whitening: any name that `covariance_to_whitening` takes, except `"none"`.
        groups: whitens within this many equal groups of channels; for `"standardize"`, the number of channels.
        eps: the shrinkage.
        iterations: steps of Newton's iteration.
        process_group: name of the process group whose ranks share statistics; empty for this process alone.
        relu: also applies a ReLU; on a GPU within the same pass.

    Returns:
        z, a tensor like `x`, and the batch's `Statistics`.

    Shape:
        x `(N, d, ...)`; color `(K, d, d)`, or `(K, d)` if diagonal; shift `(K, d)`; index `(N,)`.

    Example:
        >>> import torch, wcgan
        >>> x, labels = torch.randn(8, 4, 5, 5), torch.arange(8) % 3
        >>> color, shift = torch.randn(3, 4, 4), torch.zeros(3, 4)
        >>> z, statistics = wcgan.functional.whiten_color(x, color, shift, labels)
        >>> z.shape, statistics.covariance.shape
        (torch.Size([8, 4, 5, 5]), torch.Size([1, 4, 4]))

    Reference:
        Siarohin, Sangineto and Sebe, "Whitening and Coloring batch transform for GANs", ICLR 2019, Eq. 2 and 3.
    """
    dtype = _passes.compute_dtype(x)
    color, shift = (None if t is None else t.to(dtype) for t in (color, shift))
    if transformed():
        return _whiten_color_transformable(
            x, color, shift, index, whitening, groups, eps, iterations, process_group, relu
        )
    d = x.shape[1]
    if color is not None and color.dim() == 3 and color.shape[0] * d > 2 * (x.numel() // d):
        # The matrices together have more rows than the batch has positions: multiplying them first would cost more.
        whitened, statistics = whiten_color(
            x, whitening=whitening, groups=groups, eps=eps, iterations=iterations, process_group=process_group
        )
        offset = torch.zeros_like(color[:, 0]) if shift is None else shift
        colored = map_batch(whitened, color.unsqueeze(1), None, offset, index)
        return colored.relu() if relu else colored, statistics
    out, mean, covariance, _, _, retry, *_ = _whiten_color(
        x, color, shift, index, whitening, groups, eps, iterations, process_group, relu
    )
    return out, Statistics(mean, covariance, retry)


def _whiten_color_transformable(
    x, color, shift, index, whitening, groups, eps, iterations, process_group, relu
) -> tuple[Tensor, Statistics]:
    """`whiten_color` from plain operations, for `vmap` and forward-mode differentiation."""
    if process_group:
        raise NotImplementedError(
            "statistics shared between processes support neither forward-mode derivatives nor vmap: use sync=False"
        )
    mean, covariance = plain_moments(x, groups)
    sigma = biased_if_standardize(covariance, whitening, x.numel() // x.shape[1])
    w = factorise(sigma, whitening, eps, iterations)
    mapping = compose(color, w.matrix)
    offset = mean.new_zeros(mapping.shape[0], x.shape[1]) if shift is None else shift
    out = plain_map(x, mapping, mean, offset, index)
    return out.relu() if relu else out, Statistics(mean, covariance, w.retry)


def biased_if_standardize(covariance: Tensor, whitening: str, count: float | Tensor) -> Tensor:
    """The covariance to whiten with: batch normalisation divides by the biased variance, and averages the unbiased."""
    return covariance * ((count - 1) / count) if whitening == "standardize" else covariance


# The forward pass


def _fake_whiten_color(
    x, color, shift, index, whitening, groups, eps, iterations, process_group, relu
) -> tuple[Tensor, ...]:
    d, dtype = x.shape[1], _passes.compute_dtype(x)
    p = d // groups
    slots = 1 if color is None else color.shape[0]

    def new(*shape: int) -> Tensor:
        return x.new_empty(shape, dtype=dtype)

    eigen = (new(groups, p), new(groups, p, p)) if whitening in ZCA else (new(0), new(0))
    full = color is not None and color.dim() == 3
    mapping = new(slots, 1, d, d) if full else new(slots, groups, p, p)
    count = new() if process_group else new(0)
    return torch.empty_like(x), new(d), new(groups, p, p), count, new(groups, p, p), new(groups), *eigen, mapping


@register("whiten_color", fake=_fake_whiten_color)
def _whiten_color(
    x: Tensor,
    color: Optional[Tensor],
    shift: Optional[Tensor],
    index: Optional[Tensor],
    whitening: str,
    groups: int,
    eps: float,
    iterations: int,
    process_group: str,
    relu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    positions, mean, scatter = _passes.moments_pass(x, groups)
    count = mean.new_empty(0)  # of all ranks, if there are several
    if process_group:
        count, mean, scatter = reduce_moments(mean.new_full((), positions), mean, scatter, process_group)
    covariance = scatter / (_positions(x, count) - 1)
    sigma = biased_if_standardize(covariance, whitening, _positions(x, count))
    w = FACTORISATIONS[whitening].factorise(sigma, eps, iterations)
    mapping = compose(color, w.matrix)
    out = torch.empty_like(x)
    offset = mean.new_zeros(mapping.shape[0], x.shape[1]) if shift is None else shift
    _passes.map_pass(out, offset, [(x, mapping, mean)], index, relu)
    mapping = mapping.clone() if color is None else mapping  # results of an operator may not share memory
    return out, mean, covariance, count, *w, mapping


def _positions(x: Tensor, count: Tensor) -> int | Tensor:
    """The number of positions that the statistics are of: this batch's, unless there is a `count` of all ranks."""
    return count if count.numel() else x.numel() // x.shape[1]


# The backward pass


def _context(ctx, inputs, output) -> None:
    x, color, shift, index, *ctx.options = inputs
    ctx.has_shift = shift is not None
    ctx.save_for_backward(x, color, index, output[0] if ctx.options[-1] else None, *output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx, grad, grad_mean, grad_covariance, _count, grad_whitening, *_):
    x, color, index, out, mean, covariance, count, *rest = ctx.saved_tensors
    *factors, mapping = rest
    w = Whitening(*factors)
    whitening, _, eps, iterations, process_group, relu = ctx.options
    if torch.is_grad_enabled():
        mapping = compose(color, w.matrix)  # recomputed, so that the graph of a second derivative reaches both
    if grad is None:
        grad = torch.zeros_like(x)
    elif relu:
        grad = torch.where(out > 0, grad, 0)

    # First pass: Mbar = Zbar (X - mu)^T of each slot, and the sums of Zbar.
    grad_map, grad_shift = cross_batches(grad, x, mean, index, *mapping.shape[:3])
    grad_color, grad_w = compose_pull_back(color, w.matrix, grad_map, through=whitening == "cholesky")
    grad_x = None
    if ctx.needs_input_grad[0]:
        count = _positions(x, count)
        if grad_whitening is not None:
            grad_w = grad_w + (grad_whitening @ w.matrix.mT if whitening == "cholesky" else grad_whitening)
        grad_mu = -transposed_times(mapping, grad_shift)
        grad_mu = grad_mu if grad_mean is None else grad_mu + grad_mean
        given = [] if grad_covariance is None else [grad_covariance]
        if process_group:  # all ranks share the statistics, so their gradients add up
            grad_mu, grad_w, *given = reduce_sums(process_group, grad_mu, grad_w, *given)
        sigma = biased_if_standardize(covariance, whitening, count)
        grad_sigma = FACTORISATIONS[whitening].pull_back(sigma, w, grad_w, eps, iterations)
        grad_sigma = sum(given, biased_if_standardize(grad_sigma, whitening, count))
        curvature = (grad_sigma + grad_sigma.mT if given else grad_sigma) * ((1 if given else 2) / (count - 1))
        # Second pass: Xbar = M^T Zbar + 2/(m-1) Sbar (X - mu) + mubar / m.
        grad_x = _two_maps(grad, mapping.mT, index, x, curvature.unsqueeze(0), mean, grad_mu.unsqueeze(0) / count)
    return grad_x, grad_color, grad_shift if ctx.has_shift else None, *[None] * 7


def _two_maps(
    z: Tensor, first: Tensor, index: Tensor | None, x: Tensor, second: Tensor, mean: Tensor, offset: Tensor
) -> Tensor:
    """`first_k(n) z_n + second (x_n - mean) + offset` in one pass; under double backward in two, differentiable."""
    if torch.is_grad_enabled():
        return map_batch(z, first, None, torch.zeros_like(offset), index) + map_batch(x, second, mean, offset, None)
    return _two_maps_fused(z, first, index, x, second, mean, offset)


@register("two_maps", fake=lambda z, first, index, x, second, mean, offset: torch.empty_like(x))
def _two_maps_fused(
    z: Tensor, first: Tensor, index: Optional[Tensor], x: Tensor, second: Tensor, mean: Tensor, offset: Tensor
) -> Tensor:
    out = torch.empty_like(x)
    _passes.map_pass(out, offset, [(z, first, None), (x, second, mean)], index)
    return out


register_gradient(_whiten_color, _backward, _context)
