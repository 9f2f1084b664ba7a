"""Mean and covariance of a batch."""

from torch import Tensor

from wcgan.functional import _transformable
from wcgan.functional._operators import check_batch, transformed
from wcgan.functional._primitives import batch_moments


def moments(x: Tensor, groups: int = 1) -> tuple[Tensor, Tensor]:
    r"""Mean and covariance of the channels over all other dimensions, in one read of the batch.

    .. math:: \mu = \frac1m \sum_i x_i, \qquad \hat\Sigma = \frac{1}{m-1} \sum_i (x_i - \mu)(x_i - \mu)^\top

    Args:
        x: `(N, d, ...)`, a floating-point batch of at least two positions.
        groups: where more than 1, channels in different groups are taken to be uncorrelated.

    Returns:
        The mean `(d,)` and the covariance `(d, d)`, or `(groups, d / groups, d / groups)`; float32 or better,
        differentiable any number of times.

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
