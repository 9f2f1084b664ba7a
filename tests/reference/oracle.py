"""The paper's equations, one loop at a time: slow, differentiable by autograd alone, to be read beside the paper.

Nothing here knows of the library. A batch is `(N, d, ...)`; a coloring is a function `color(xhat, n)` that takes the
whitened positions of sample n as columns, `(d, L)`, and returns their colored values. For instance cWC in training::

    oracle.normalize(x, oracle.conditional_coloring(y, class_weight, class_bias, weight, bias))
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Coloring = Callable[[Tensor, int], Tensor]


def batch_mean(x: Tensor) -> Tensor:
    """mu_B, `(d,)`: the mean over every sample and location."""
    columns = [_columns(x, n) for n in range(len(x))]
    m = sum(c.shape[1] for c in columns)
    return sum(c.sum(1) for c in columns) / m


def batch_covariance(x: Tensor, groups: int = 1) -> Tensor:
    """The empirical covariance of Eq. 7 within each group of channels, `(g, p, p)`."""
    mean = batch_mean(x)
    m, p = x[:, 0].numel(), x.shape[1] // groups
    covariances = []
    for g in range(groups):
        channels = slice(g * p, (g + 1) * p)
        total = torch.zeros(p, p, dtype=x.dtype)
        for n in range(len(x)):
            for column in _columns(x, n).unbind(1):
                centred = (column - mean)[channels]
                total = total + torch.outer(centred, centred)
        covariances.append(total / (m - 1))
    return torch.stack(covariances)


def shrink(covariance: Tensor, eps: float, retry: float = 0.0) -> Tensor:
    """Eq. 7: (1 - eps) cov + eps I. A retry first moves the covariance towards a multiple of I with the same trace."""
    d = len(covariance)
    identity = torch.eye(d, dtype=covariance.dtype)
    if retry:
        covariance = (1 - retry) * covariance + retry * (covariance.trace() / d) * identity
    return (1 - eps) * covariance + eps * identity


def whitening_matrix(
    covariance: Tensor, whitening: str = "cholesky", eps: float = 1e-3, iterations: int = 5, retry: float = 0.0
) -> Tensor:
    """W with W^T W = Sigma^-1 for one covariance `(d, d)`. Autograd through `zca` wants distinct eigenvalues."""
    if whitening == "none":
        return torch.eye(len(covariance), dtype=covariance.dtype)
    if whitening == "standardize":  # Eq. 1
        return torch.diag((covariance.diagonal() + eps) ** -0.5)
    sigma = shrink(covariance, eps, retry)
    if whitening == "cholesky":  # L L^T = Sigma, W = L^-1
        return torch.linalg.inv(torch.linalg.cholesky(sigma))
    if whitening == "zca":
        values, vectors = torch.linalg.eigh(sigma)
        return vectors @ torch.diag(values**-0.5) @ vectors.T
    if whitening == "newton":  # IterNorm: P_k = (3 P_{k-1} - P_{k-1}^3 Sigma_N) / 2
        trace = sigma.trace()
        power = torch.eye(len(sigma), dtype=sigma.dtype)
        for _ in range(iterations):
            power = (3 * power - power @ power @ power @ (sigma / trace)) / 2
        return power / trace**0.5
    raise ValueError(f"no whitening {whitening!r}")


def batch_whitening(
    x: Tensor,
    whitening: str = "cholesky",
    eps: float = 1e-3,
    groups: int = 1,
    iterations: int = 5,
    retry: float = 0.0,
) -> Tensor:
    """W_B of the whole batch, `(d, d)`, block diagonal over the groups. Standardising takes the biased variance."""
    m = x[:, 0].numel()
    covariances = batch_covariance(x, groups)
    if whitening == "standardize":
        covariances = covariances * ((m - 1) / m)
    return torch.block_diag(*[whitening_matrix(c, whitening, eps, iterations, retry) for c in covariances])


def no_coloring(xhat: Tensor, n: int) -> Tensor:
    """W-only: the whitened positions as they are."""
    return xhat


def coloring(weight: Tensor | None, bias: Tensor | None) -> Coloring:
    """Eq. 2, Gamma xhat + beta; Gamma `(d, d)`, `(d,)` where it is diagonal, None where there is none."""
    return lambda xhat, n: _offset(_times(weight, xhat), bias)


def conditional_coloring(
    y: Tensor,
    class_weight: Tensor | None,
    class_bias: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Coloring:
    """Eq. 5, Gamma_y xhat + beta_y + Gamma xhat + beta; without `weight` the class-agnostic product is left out."""

    def color(xhat: Tensor, n: int) -> Tensor:
        label = int(y[n])
        gamma = None if class_weight is None else class_weight[label]
        specific = _offset(_times(gamma, xhat), None if class_bias is None else class_bias[label])
        shared = torch.zeros_like(xhat) if weight is None else _times(weight, xhat)
        return specific + _offset(shared, bias)

    return color


def soft_assignment(assignment: Tensor, dictionary: Tensor, normalize: bool = False) -> Tensor:
    """Eq. 6, Gamma_y = y^T A D for every class: A `(n, s)`, D `(s, d, d)` -> `(n, d, d)`.

    `normalize` divides the selected row of A by its L2 norm, which the paper does not.
    """
    n, s = assignment.shape
    gammas = []
    for label in range(n):
        one_hot = torch.zeros(n, dtype=assignment.dtype)
        one_hot[label] = 1
        row = one_hot @ assignment
        if normalize:
            row = row / (row * row).sum() ** 0.5
        gammas.append((row @ dictionary.reshape(s, -1)).reshape(dictionary.shape[1:]))
    return torch.stack(gammas)


def normalize(
    x: Tensor,
    color: Coloring = no_coloring,
    whitening: str = "cholesky",
    eps: float = 1e-3,
    groups: int = 1,
    iterations: int = 5,
    retry: float = 0.0,
) -> Tensor:
    """WC or cWC of a batch with its own statistics: Coloring(W_B (x_i - mu_B)), like `x`."""
    if whitening == "none":
        return apply(x, torch.zeros(x.shape[1], dtype=x.dtype), torch.eye(x.shape[1], dtype=x.dtype), color)
    return apply(x, batch_mean(x), batch_whitening(x, whitening, eps, groups, iterations, retry), color)


def apply(x: Tensor, mean: Tensor, whitening: Tensor, color: Coloring = no_coloring) -> Tensor:
    """Coloring(W (x_i - mu)) with given statistics, sample after sample."""
    samples = []
    for n in range(len(x)):
        xhat = whitening @ (_columns(x, n) - mean[:, None])  # Eq. 3
        samples.append(color(xhat, n).reshape(x.shape[1:]))
    return torch.stack(samples)


class RunningAverages:
    """mu_E and Sigma_E: averages of the *unshrunk* statistics, shrunk once when W_E is made of them.

    They start at 0 and I. `momentum=None` is the cumulative average: the t-th batch weighs 1/t.
    """

    def __init__(
        self, channels: int, momentum: float | None = 0.01, groups: int = 1, dtype: torch.dtype = torch.float64
    ) -> None:
        self.mean = torch.zeros(channels, dtype=dtype)
        self.covariance = torch.stack([torch.eye(channels // groups, dtype=dtype)] * groups)
        self.momentum, self.groups, self.batches = momentum, groups, 0

    def update(self, x: Tensor) -> None:
        """Eq. 8 for one training batch: Sigma_E = (1 - lambda) Sigma_E + lambda Sigma_B, and the mean alike."""
        self.batches += 1
        rate = 1 / self.batches if self.momentum is None else self.momentum
        x = x.detach()
        self.mean = (1 - rate) * self.mean + rate * batch_mean(x)
        self.covariance = (1 - rate) * self.covariance + rate * batch_covariance(x, self.groups)

    def normalize(
        self,
        x: Tensor,
        color: Coloring = no_coloring,
        whitening: str = "cholesky",
        eps: float = 1e-3,
        iterations: int = 5,
    ) -> Tensor:
        """The layer at inference: Coloring(W_E (x_i - mu_E))."""
        if whitening == "none":
            return normalize(x, color, "none")
        blocks = [whitening_matrix(c, whitening, eps, iterations) for c in self.covariance]
        return apply(x, self.mean, torch.block_diag(*blocks), color)


def _columns(x: Tensor, n: int) -> Tensor:
    return x[n].reshape(x.shape[1], -1)  # (d, ...) -> (d, L)


def _times(weight: Tensor | None, xhat: Tensor) -> Tensor:
    if weight is None:
        return xhat
    return (torch.diag(weight) if weight.dim() == 1 else weight) @ xhat


def _offset(columns: Tensor, bias: Tensor | None) -> Tensor:
    return columns if bias is None else columns + bias[:, None]
