"""The games: what the discriminator minimises, and what the generator minimises."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu


def hinge_discriminator(real: Tensor, fake: Tensor) -> Tensor:
    return relu(1 - real).mean() + relu(1 + fake).mean()


def wasserstein_discriminator(real: Tensor, fake: Tensor) -> Tensor:
    return fake.mean() - real.mean()


def generator_loss(fake: Tensor) -> Tensor:
    """The same in both games."""
    return -fake.mean()


DISCRIMINATOR_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "hinge": hinge_discriminator,
    "wasserstein": wasserstein_discriminator,
}


def gradient_penalty(
    discriminator: nn.Module, real: Tensor, fake: Tensor, labels: Tensor | None, between: Tensor
) -> Tensor:
    """Two-sided: mean of (|grad D| - 1)^2 at points between real and generated images; `between` is (N,) in [0, 1]."""
    weight = between.view(-1, 1, 1, 1)
    points = (weight * real + (1 - weight) * fake).requires_grad_()
    scores = discriminator(points, labels).realness
    (gradient,) = torch.autograd.grad(scores.sum(), points, create_graph=True)
    norm = (gradient.flatten(1).square().sum(1) + 1e-12).sqrt()  # the root has no slope at 0
    return (norm - 1).square().mean()


def class_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """ACGAN's cross-entropy."""
    return cross_entropy(logits.float(), labels)
