"""The losses of a GAN: adversarial ones by name, and what may be added to them."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

from wcgan.core.processes import ALONE, Rank
from wcgan.train.custom import AdversarialLoss


def in_full_precision(scores: Tensor) -> Tensor:
    """Scores in the precision of a loss: float32, or wider if they are."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def hinge_discriminator(real: Tensor, fake: Tensor) -> Tensor:
    return relu(1 - real).mean() + relu(1 + fake).mean()


def wasserstein_discriminator(real: Tensor, fake: Tensor) -> Tensor:
    return fake.mean() - real.mean()


def generator_loss(fake: Tensor) -> Tensor:
    """The generator's loss, the same for hinge and Wasserstein."""
    return -fake.mean()


LOSSES = {
    "hinge": AdversarialLoss(hinge_discriminator, generator_loss),
    "wasserstein": AdversarialLoss(wasserstein_discriminator, generator_loss),
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


class LeCam(nn.Module):
    """Holds a discriminator's scores near what they were: a squared distance to moving averages of them.

    It counts only where a score of a real image is above the average of the generated ones, or one of a generated image
    below that of the real ones.

    Reference:
        Tseng, Jiang, Liu, Yang and Yang, "Regularizing generative adversarial networks under limited data", CVPR 2021.
    """

    DECAY = 0.99  # of the averages, in an update of the discriminator
    real: Tensor
    generated: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("real", torch.zeros(()))
        self.register_buffer("generated", torch.zeros(()))

    def forward(self, real: Tensor, generated: Tensor, rank: Rank = ALONE) -> Tensor:
        """Scores of real and generated images -> the regularisation; moves the averages first."""
        with torch.no_grad():
            for average, scores in ((self.real, real), (self.generated, generated)):
                average.lerp_(rank.mean(scores.mean()).to(average.dtype), 1 - self.DECAY)
        return relu(real - self.generated).square().mean() + relu(self.real - generated).square().mean()


def class_loss(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """ACGAN's cross-entropy."""
    return cross_entropy(in_full_precision(logits), labels, label_smoothing=smoothing)
