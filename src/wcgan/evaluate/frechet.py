"""Frechet distance between two sets of features, each summed up by its mean and covariance."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Moments(NamedTuple):
    """Mean `(f,)` and covariance `(f, f)` of a set of features, in float64."""

    mean: Tensor
    covariance: Tensor


class RunningMoments:
    """Mean and covariance of features that arrive batch by batch, in float64, whatever the batches.

    Each batch is summed up around its own mean and the two sums are merged, so that a large common offset of the
    features costs no precision.

    Args:
        size: the number f of features.

    Example:
        >>> import torch
        >>> running = RunningMoments(2)
        >>> running.update(torch.tensor([[1.0, 2.0]]))
        >>> running.update(torch.tensor([[3.0, 6.0]]))
        >>> running.moments()
        Moments(mean=tensor([2., 4.], dtype=torch.float64), covariance=tensor([[2., 4.],
            [4., 8.]], dtype=torch.float64))
    """

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean = torch.zeros(size, dtype=torch.float64)
        self.scatter = torch.zeros(size, size, dtype=torch.float64)

    def update(self, features: Tensor) -> None:
        """Add a batch `(n, f)`.

        Raises:
            ValueError: for another shape, or features that are not finite; nothing is added then.
        """
        if features.dim() != 2 or features.shape[1] != len(self.mean):
            raise ValueError(f"features must be (n, {len(self.mean)}), got shape {tuple(features.shape)}")
        n = len(features)
        if n == 0:
            return
        batch = features.detach().to("cpu", torch.float64)
        broken = int((~batch.isfinite()).any(1).sum())
        if broken:
            raise ValueError(
                f"the features of {broken} of {n} images are NaN or infinite: no distance can be computed from them; "
                "check the weights of the network that made them"
            )
        mean = batch.mean(0)
        centered = batch - mean
        difference = mean - self.mean
        total = self.count + n
        self.mean = self.mean + difference * (n / total)
        # scatter of a union = the two scatters + that of the two means: (f, n) (n, f) -> (f, f)
        self.scatter = self.scatter + centered.mT @ centered + difference.outer(difference) * (self.count * n / total)
        self.count = total

    def moments(self) -> Moments:
        """Mean, and covariance with 1 / (n - 1).

        Raises:
            ValueError: for fewer than two images.
        """
        if self.count < 2:
            raise ValueError(f"a covariance needs at least 2 images, got {self.count}")
        return Moments(self.mean, self.scatter / (self.count - 1))


def features_to_moments(features: Tensor) -> Moments:
    """Mean and covariance of features `(n, f)` that are all at hand."""
    if features.dim() != 2:
        raise ValueError(f"features must be (n, f), got shape {tuple(features.shape)}")
    running = RunningMoments(features.shape[1])
    running.update(features)
    return running.moments()


def frechet_distance(first: Moments, second: Moments) -> float:
    r"""Squared Frechet distance between the Gaussians with these moments.

    .. math:: |\mu_1 - \mu_2|^2 + \operatorname{tr} \Sigma_1 + \operatorname{tr} \Sigma_2
              - 2 \operatorname{tr} (\Sigma_1 \Sigma_2)^{1/2}

    The last trace is the sum of the square roots of the eigenvalues of the symmetric
    :math:`\Sigma_1^{1/2} \Sigma_2 \Sigma_1^{1/2}`. They are taken as the singular values of
    :math:`\Sigma_2^{1/2} \Sigma_1^{1/2}`, so that no square root magnifies the rounding of an eigenvalue that is 0:
    the distance keeps its precision where there are fewer images than features.

    Args:
        first: mean and covariance of one set.
        second: the same of the other.

    Returns:
        The distance, 0 for equal moments and never negative.

    Raises:
        ValueError: for sets with different numbers of features, or moments that are not finite.

    Example:
        >>> import torch
        >>> zero, one = torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
        >>> round(frechet_distance(Moments(zero, one), Moments(zero + 1, 4 * one)), 9)
        6.0
    """
    if first.mean.shape != second.mean.shape:
        raise ValueError(
            f"the two sets have {len(first.mean)} and {len(second.mean)} features: both must come from the same network"
        )
    if not all(bool(part.isfinite().all()) for part in (*first, *second)):
        raise ValueError("the moments hold NaN or infinite values: no distance can be computed from them")
    mean, covariance = (part.double() for part in first)
    other_mean, other_covariance = (part.double() for part in second)
    roots = torch.linalg.svdvals(_square_root(other_covariance) @ _square_root(covariance))
    distance = (mean - other_mean).square().sum() + covariance.trace() + other_covariance.trace() - 2 * roots.sum()
    return max(0.0, float(distance))


def _square_root(covariance: Tensor) -> Tensor:
    """The symmetric square root; eigenvalues that rounding cannot tell from 0 count as 0."""
    values, vectors = torch.linalg.eigh((covariance + covariance.mT) / 2)  # ascending
    rounding = len(values) * torch.finfo(values.dtype).eps * values[-1]
    return (vectors * torch.where(values > rounding, values, 0).sqrt()) @ vectors.mT
