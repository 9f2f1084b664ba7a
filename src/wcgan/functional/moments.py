"""Batch -> mean and covariance of its channels."""

from torch import Tensor

from wcgan.functional import _transformable
from wcgan.functional._operators import check_batch, transformed
from wcgan.functional._primitives import batch_moments


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
    mean, covariance = (_transformable.batch_moments if transformed() else batch_moments)(x, groups)
    return mean, covariance if groups > 1 else covariance[0]
