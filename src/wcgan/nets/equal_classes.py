"""A penalty that keeps the classes of a generator equally large."""

from typing import Any

import torch
from torch import Tensor

from wcgan.functional import affine, covariance_to_whitening, moments

_LEAST = 1e-12


def equal_classes(x: Tensor, labels: Tensor, classes: int, weight: float, whitened: bool = False) -> Tensor:
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
    """
    out: Tensor = _EqualClasses.apply(x, labels, classes, weight, whitened)
    return out


class _EqualClasses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, labels: Tensor, classes: int, weight: float, whitened: bool) -> Tensor:
        ctx.save_for_backward(x, labels)
        ctx.classes, ctx.weight, ctx.whitened = classes, weight, whitened
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        x, labels = ctx.saved_tensors
        x = x if x.dtype == torch.float64 else x.float()
        whitening = None
        if ctx.whitened:
            mean, covariance = moments(x)
            whitening = covariance_to_whitening(covariance)
            x = _map(x, whitening, mean)
        else:
            x = x - x.mean((0, 2, 3), keepdim=True)
        size = x.square().mean((1, 2, 3))  # (N,)
        member = (labels.unsqueeze(1) == torch.arange(ctx.classes, device=labels.device)).to(x.dtype)  # (N, n)
        share = member.mean(0)  # of each class in the batch
        of_class = (member.mT @ size / member.sum(0).clamp(min=1)).clamp(min=_LEAST)
        whole = size.mean().clamp(min=_LEAST)
        log = torch.where(share > 0, (of_class / whole).log(), 0.0)
        of_size = 2 / len(x) * (member @ (log / of_class) - (share * log).sum() / whole)
        of_x = of_size.view(-1, 1, 1, 1) * (2 * x / x[0].numel())
        of_x = of_x if whitening is None else _map(of_x, whitening.mT.contiguous())
        of_x = of_x - of_x.mean((0, 2, 3), keepdim=True)
        return gradient + (ctx.weight * of_x).to(gradient.dtype), None, None, None, None


def _map(x: Tensor, matrix: Tensor, mean: Tensor | None = None) -> Tensor:
    """The matrix times the channels, less their mean, at each position."""
    return affine(x, matrix[None, None], x.new_zeros(1, len(matrix)), mean=mean)
