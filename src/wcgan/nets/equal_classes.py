"""A penalty that keeps the classes of a generator equally large."""

from typing import Any

import torch
from torch import Tensor

from wcgan.functional import affine, covariance_to_whitening, moments
from wcgan.functional._primitives import reduce_moments, reduce_sums

_LEAST = 1e-12


def equal_classes(
    x: Tensor, labels: Tensor, classes: int, weight: float, whitened: bool = False, process_group: str = ""
) -> Tensor:
    """x, unchanged; in the backward pass, the gradient of a penalty on classes of unequal size is added to its own.

    The penalty is :math:`\\sum_y \\frac{n_y}{N} \\log^2 (E_y / E)`, where :math:`E_y` is the mean square of the
    :math:`n_y` samples of class y around the mean of the batch, and :math:`E` that of all N. It pulls classes that are
    larger than the mean down and smaller ones up, and does not depend on the size of all.

    A single direction in which all classes are equally large can outweigh the others, and hide that classes differ in
    those. With `whitened`, the mean squares are those of :math:`W (x - \\mu)`, where all directions count the same; the
    whitening matrix of the batch is treated as a constant.

    Args:
        x: activations `(N, d, H, W)`.
        labels: the class of each sample `(N,)`.
        classes: how many there are; some may have no sample.
        weight: factor of the penalty.
        whitened: whether classes are compared after whitening.
        process_group: name of the process group whose ranks have the batch together; empty for this process alone.
            Gradients are then meant to be averaged over the ranks.
    """
    out: Tensor = _EqualClasses.apply(x, labels, classes, weight, whitened, process_group)
    return out


class _EqualClasses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, labels: Tensor, classes: int, weight: float, whitened: bool, process_group: str
    ) -> Tensor:
        ctx.save_for_backward(x, labels)
        ctx.classes, ctx.weight, ctx.whitened, ctx.process_group = classes, weight, whitened, process_group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        x, labels = ctx.saved_tensors
        x = x if x.dtype == torch.float64 else x.float()
        mean, whitening = _moments(x, ctx.whitened, ctx.process_group)
        x = x - mean.view(-1, 1, 1) if whitening is None else _map(x, whitening, mean)
        member = (labels.unsqueeze(1) == torch.arange(ctx.classes, device=labels.device)).to(x.dtype)  # (N, n)
        sums = (x.new_ones(()), member.sum(0), member.mT @ x.square().mean((1, 2, 3)), member.mT @ x.mean((2, 3)))
        ranks, counts, sizes, means = reduce_sums(ctx.process_group, *sums) if ctx.process_group else sums
        total = counts.sum()
        share = counts / total  # of each class in the batch
        of_class = (sizes / counts.clamp(min=1)).clamp(min=_LEAST)
        whole = (sizes.sum() / total).clamp(min=_LEAST)
        log = torch.where(share > 0, (of_class / whole).log(), 0.0)
        of_size = 2 / total * (log / of_class - (share * log).sum() / whole)  # (n,), of the size of each sample
        of_size = of_size * (2 * ctx.weight * ranks / x[0].numel())
        # The mean moves with x: its part of the gradient is the mean of the rest.
        of_x = (member @ of_size).view(-1, 1, 1, 1) * x - (of_size @ means / total).view(-1, 1, 1)
        of_x = of_x if whitening is None else _map(of_x, whitening.mT.contiguous())
        return gradient + of_x.to(gradient.dtype), None, None, None, None, None


def _moments(x: Tensor, whitened: bool, process_group: str) -> tuple[Tensor, Tensor | None]:
    """The mean over all ranks, and the whitening matrix if there is to be one."""
    count = x.new_full((), x.numel() // x.shape[1])
    if not whitened:
        mean = x.mean((0, 2, 3))
        if process_group:
            count, mean = reduce_sums(process_group, count, count * mean)
            mean = mean / count
        return mean, None
    mean, covariance = moments(x)
    if process_group:
        count, mean, scatter = reduce_moments(count, mean, (covariance * (count - 1)).unsqueeze(0), process_group)
        covariance = scatter[0] / (count - 1)
    return mean, covariance_to_whitening(covariance)


def _map(x: Tensor, matrix: Tensor, mean: Tensor | None = None) -> Tensor:
    """The matrix times the channels, less their mean, at each position."""
    return affine(x, matrix[None, None], x.new_zeros(1, len(matrix)), mean=mean)
