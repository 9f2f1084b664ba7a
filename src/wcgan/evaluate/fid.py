"""Frechet distance between two sets of features, each summed up by its mean and covariance."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from wcgan.core.processes import Rank


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
        device: where the sums are kept; features come from there, or are moved.

    Example:
        >>> import torch
        >>> running = RunningMoments(2)
        >>> running.update(torch.tensor([[1.0, 2.0]]))
        >>> running.update(torch.tensor([[3.0, 6.0]]))
        >>> running.moments()
        Moments(mean=tensor([2., 4.], dtype=torch.float64), covariance=tensor([[2., 4.],
            [4., 8.]], dtype=torch.float64))
    """

    def __init__(self, size: int, device: torch.device | str = "cpu") -> None:
        self.count = 0
        self.mean = torch.zeros(size, dtype=torch.float64, device=device)
        self.scatter = torch.zeros(size, size, dtype=torch.float64, device=device)

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
        batch = features.detach().to(self.mean.device, torch.float64)
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

    def share(self, rank: Rank) -> None:
        """Every process's features become those of all processes."""
        if rank.count == 1:
            return
        own, mean = self.count, self.mean
        sums = rank.total(torch.cat([mean * own, mean.new_tensor([own])]))
        self.count = round(float(sums[-1]))
        self.mean = sums[:-1] / max(1, self.count)
        difference = mean - self.mean
        # as in `update`: what each process has, and the scatter of its mean around the common one
        self.scatter = rank.total(self.scatter + difference.outer(difference) * own)

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


def frechet_distance(first: Moments, second: Moments, factor: Tensor | None = None) -> float:
    r"""Squared Frechet distance between the Gaussians with these moments.

    .. math:: |\mu_1 - \mu_2|^2 + \operatorname{tr} \Sigma_1 + \operatorname{tr} \Sigma_2
              - 2 \operatorname{tr} (\Sigma_1 \Sigma_2)^{1/2}

    With :math:`\Sigma_i = F_i F_i^\top`, the last trace is the sum of the singular values of :math:`F_1^\top F_2`, or
    of the square roots of the eigenvalues of :math:`F_2^\top \Sigma_1 F_2`. On a CPU it is the former: no square root
    magnifies the rounding of an eigenvalue that is 0, and the distance keeps its precision where there are fewer images
    than features. On a GPU, where singular values of 2048 features take many times as long, it is the latter. That
    costs nothing where the first set has at least as many images as features; where it has fewer, an error of up to f
    times 1e-8 of the largest such root.

    Args:
        first: mean and covariance of one set.
        second: the same of the other.
        factor: `covariance_to_factor` of the second, where it is at hand.

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
        raise ValueError("the moments contain NaN or infinite values: no distance can be computed from them")
    mean, covariance = (part.double() for part in first)
    other_mean, other_covariance = (part.to(mean) for part in second)
    other_factor = covariance_to_factor(other_covariance) if factor is None else factor.to(mean)
    trace = _trace_by_eigenvalues if mean.is_cuda else _trace_by_singular_values
    spread = covariance.trace() + other_covariance.trace() - 2 * trace(covariance, other_factor)
    return max(0.0, float((mean - other_mean).square().sum() + spread))


def covariance_to_factor(covariance: Tensor) -> Tensor:
    """F `(f, rank)` with F F^T = the covariance; directions whose variance is 0 up to rounding are left out."""
    if covariance.is_cuda:
        return _factor_by_eigenvectors(covariance)
    from scipy.linalg.lapack import dpstrf  # type: ignore[import-untyped]

    # Cholesky with pivoting stops at the rank. For 2048 features it takes a tenth of the time of the eigenvectors.
    lower, order, rank, _ = dpstrf(covariance.double().numpy(), lower=1)
    factor = torch.empty(len(covariance), rank, dtype=torch.float64)
    factor[torch.from_numpy(order).long() - 1] = torch.from_numpy(lower[:, :rank]).tril()  # LAPACK counts from 1
    return factor


def _factor_by_eigenvectors(covariance: Tensor) -> Tensor:
    """The same from the eigenvectors: slower on a CPU, and the only one of the two that PyTorch has for a GPU."""
    values, vectors = torch.linalg.eigh((covariance + covariance.mT) / 2)  # ascending
    kept = values > len(values) * torch.finfo(values.dtype).eps * values[-1]
    return vectors[:, kept] * values[kept].sqrt()


def _trace_by_singular_values(covariance: Tensor, factor: Tensor) -> Tensor:
    """tr (S1 S2)^(1/2) from S1 and the factor of S2."""
    return torch.linalg.svdvals(covariance_to_factor(covariance).mT @ factor).sum()


def _trace_by_eigenvalues(covariance: Tensor, factor: Tensor) -> Tensor:
    """The same by one eigenvalue problem; eigenvalues that rounding made negative count as 0."""
    product = factor.mT @ covariance @ factor
    return torch.linalg.eigvalsh((product + product.mT) / 2).clamp_min(0).sqrt().sum()
