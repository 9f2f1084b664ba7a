"""A penalty that keeps the classes of a generator equally large."""

from typing import Any

import torch
from torch import Tensor

_LEAST = 1e-12


def equal_classes(x: Tensor, labels: Tensor, classes: int, weight: float) -> Tensor:
    """x, unchanged; in the backward pass, the gradient of a penalty on classes of unequal size is added to its own.

    The penalty is :math:`\\sum_y \\frac{n_y}{N} \\log^2 (E_y / E)`, where :math:`E_y` is the mean square of the
    :math:`n_y` samples of class y around the mean of the batch, and :math:`E` that of all N. It pulls classes that are
    larger than the mean down and smaller ones up, and does not depend on the size of all.

    Args:
        x: activations `(N, d, H, W)`.
        labels: the class of each sample `(N,)`.
        classes: how many there are; some may have no sample.
        weight: factor of the penalty.
    """
    out: Tensor = _EqualClasses.apply(x, labels, classes, weight)
    return out


class _EqualClasses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, labels: Tensor, classes: int, weight: float) -> Tensor:
        ctx.save_for_backward(x, labels)
        ctx.classes, ctx.weight = classes, weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        x, labels = ctx.saved_tensors
        x = x if x.dtype == torch.float64 else x.float()
        x = x - x.mean((0, 2, 3), keepdim=True)
        size = x.square().mean((1, 2, 3))  # (N,)
        member = (labels.unsqueeze(1) == torch.arange(ctx.classes, device=labels.device)).to(x.dtype)  # (N, n)
        share = member.mean(0)  # of each class in the batch
        of_class = (member.mT @ size / member.sum(0).clamp(min=1)).clamp(min=_LEAST)
        whole = size.mean().clamp(min=_LEAST)
        log = torch.where(share > 0, (of_class / whole).log(), 0.0)
        of_size = 2 / len(x) * (member @ (log / of_class) - (share * log).sum() / whole)
        of_x = of_size.view(-1, 1, 1, 1) * (2 * x / x[0].numel())
        of_x = of_x - of_x.mean((0, 2, 3), keepdim=True)
        return gradient + (ctx.weight * of_x).to(gradient.dtype), None, None, None
