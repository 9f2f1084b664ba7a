"""Losses against their formulas, worked by hand, and against finite differences."""

import math

import pytest
import torch
from torch import nn

from wcgan.nets import DiscriminatorConfig, build_discriminator
from wcgan.nets.gan import Scores
from wcgan.train.losses import LOSSES, LeCam, class_loss, generator_loss, gradient_penalty, in_full_precision

REAL = torch.tensor([2.0, 0.5, -1.0])
FAKE = torch.tensor([-3.0, 0.0, 1.0])


def test_hinge_is_the_mean_of_what_each_side_lacks_to_its_margin():
    # real: (0 + 0.5 + 2) / 3, generated: (0 + 1 + 2) / 3
    assert LOSSES["hinge"].discriminator(REAL, FAKE).item() == pytest.approx(2.5 / 3 + 3 / 3)


def test_hinge_leaves_scores_beyond_the_margin_alone():
    real, fake = REAL.clone().requires_grad_(), FAKE.clone().requires_grad_()
    LOSSES["hinge"].discriminator(real, fake).backward()
    assert torch.allclose(real.grad, torch.tensor([0.0, -1 / 3, -1 / 3]))
    assert torch.allclose(fake.grad, torch.tensor([0.0, 1 / 3, 1 / 3]))


def test_wasserstein_is_the_difference_of_the_means():
    assert LOSSES["wasserstein"].discriminator(REAL, FAKE).item() == pytest.approx(-2 / 3 - 0.5)


def test_lecam_counts_scores_on_the_far_side_of_the_others_average():
    lecam = LeCam()
    lecam.DECAY = 1.0  # fixed averages
    lecam.real.fill_(0.5)
    lecam.generated.fill_(-0.5)
    # real above -0.5: 2.5, 1 and none; generated below 0.5: 3.5, 0.5 and none
    assert lecam(REAL, FAKE).item() == pytest.approx((2.5**2 + 1) / 3 + (3.5**2 + 0.5**2) / 3)


def test_the_averages_of_lecam_move_by_a_hundredth_and_pass_no_gradient():
    lecam, real, fake = LeCam(), REAL.clone().requires_grad_(), FAKE.clone().requires_grad_()
    lecam(real, fake).backward()
    assert (lecam.real.item(), lecam.generated.item()) == (pytest.approx(0.005), pytest.approx(-2 / 300))
    assert torch.allclose(real.grad, 2 / 3 * (REAL + 2 / 300).clamp(min=0))
    assert torch.allclose(fake.grad, -2 / 3 * (0.005 - FAKE).clamp(min=0))


def test_the_generator_raises_the_mean_score():
    assert generator_loss(torch.tensor([1.0, 4.0])).item() == -2.5


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_compile_to_the_same_values_and_gradients(loss):
    for part, scores in zip(LOSSES[loss], ((REAL, FAKE), (FAKE,)), strict=True):
        results = []
        for function in (part, torch.compile(part, backend="aot_eager", fullgraph=True)):
            leaves = [values.clone().requires_grad_() for values in scores]
            value = function(*leaves)
            results.append([value, *torch.autograd.grad(value, leaves)])
        torch.testing.assert_close(*results)


def test_class_loss_is_the_mean_negative_log_probability():
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0]])  # probabilities (1/2, 1/2) and (3/4, 1/4)
    expected = -(math.log(1 / 2) + math.log(1 / 4)) / 2
    assert class_loss(logits, torch.tensor([0, 1])).item() == pytest.approx(expected)


PRECISIONS = {torch.bfloat16: torch.float32, torch.float32: torch.float32, torch.float64: torch.float64}


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_class_loss_of_half_precision_is_taken_in_full_and_of_double_in_double(dtype):
    assert class_loss(torch.tensor([[0.0, 0.0]], dtype=dtype), torch.tensor([0])).dtype == PRECISIONS[dtype]
    assert in_full_precision(REAL.to(dtype)).dtype == PRECISIONS[dtype]


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_the_averages_of_lecam_stay_in_float32_whatever_the_scores_are_in(dtype):
    lecam = LeCam()
    lecam(REAL.to(dtype), FAKE.to(dtype))
    assert lecam.real.dtype == lecam.generated.dtype == torch.float32
    assert lecam.real.item() == pytest.approx(0.005, rel=1e-6)


def test_smoothed_labels_give_the_other_classes_their_share():
    logits, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0])
    targets = 0.9 * torch.eye(4)[labels] + 0.1 / 4
    expected = -(targets * logits.log_softmax(1)).sum(1).mean()
    assert class_loss(logits, labels, smoothing=0.1).item() == pytest.approx(expected.item(), rel=1e-6)


class Linear(nn.Module):
    """Score = slope . image: its gradient is the slope, wherever it is taken."""

    def __init__(self, slope):
        super().__init__()
        self.slope = nn.Parameter(slope)
        self.seen = []

    def forward(self, images, labels=None):
        self.seen.append((images.detach(), labels))
        return Scores((images * self.slope).sum((1, 2, 3)), None)


@pytest.mark.parametrize(("norm", "expected"), [(1.0, 0.0), (3.0, 4.0), (0.5, 0.25)])
def test_the_penalty_of_a_linear_critic_is_known_and_two_sided(norm, expected):
    slope = torch.randn(1, 2, 2, generator=torch.Generator().manual_seed(0))
    critic = Linear(slope * norm / slope.norm())
    real, fake = torch.randn(5, 1, 2, 2), torch.randn(5, 1, 2, 2)
    assert gradient_penalty(critic, real, fake, None, torch.rand(5)).item() == pytest.approx(expected, abs=1e-6)


def test_the_penalty_looks_at_each_point_between_its_two_images():
    critic = Linear(torch.ones(1, 2, 2))
    real, fake = torch.full((3, 1, 2, 2), 4.0), torch.zeros(3, 1, 2, 2)
    labels = torch.tensor([2, 0, 1])
    gradient_penalty(critic, real, fake, labels, torch.tensor([0.0, 0.25, 1.0]))
    (points, seen) = critic.seen[0]
    assert points[:, 0, 0, 0].tolist() == [0.0, 1.0, 4.0]
    assert seen is labels


def test_the_penalty_of_a_critic_without_slope_has_finite_gradients():
    critic = Linear(torch.zeros(1, 2, 2))
    penalty = gradient_penalty(critic, torch.randn(2, 1, 2, 2), torch.randn(2, 1, 2, 2), None, torch.rand(2))
    (slope,) = torch.autograd.grad(penalty, critic.parameters())
    assert penalty.item() == pytest.approx(1.0, abs=1e-5)
    assert slope.isfinite().all()


@pytest.fixture
def critic():
    torch.manual_seed(0)
    return build_discriminator(
        DiscriminatorConfig(widths=(3, 3), downsample=1, spectral_norm=False, channels=1, resolution=4)
    ).double()


@pytest.fixture
def points():
    generator = torch.Generator().manual_seed(1)
    real, fake = (torch.randn(3, 1, 4, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    return real, fake, torch.rand(3, generator=generator, dtype=torch.float64)


def test_the_penalty_is_that_of_finite_differences_in_the_image(critic, points):
    real, fake, between = points
    middle = between.view(-1, 1, 1, 1) * real + (1 - between.view(-1, 1, 1, 1)) * fake
    step, slopes = 1e-6, []
    with torch.no_grad():
        for pixel in torch.eye(16, dtype=torch.float64).view(16, 1, 4, 4):
            ahead, behind = (critic(middle + sign * step * pixel).realness for sign in (1, -1))
            slopes.append((ahead - behind) / (2 * step))
    norms = torch.stack(slopes, 1).norm(dim=1)
    expected = (norms - 1).square().mean().item()
    assert gradient_penalty(critic, real, fake, None, between).item() == pytest.approx(expected, rel=1e-6)


def test_the_penaltys_gradient_is_that_of_finite_differences_in_a_weight(critic, points):
    weight = critic.head.dense.weight
    (slope,) = torch.autograd.grad(gradient_penalty(critic, *points[:2], None, points[2]), [weight])
    step, penalties = 1e-6, []
    for sign in (1, -1):
        with torch.no_grad():
            weight[0, 1] += sign * step
        penalties.append(gradient_penalty(critic, *points[:2], None, points[2]).item())
        with torch.no_grad():
            weight[0, 1] -= sign * step
    expected = (penalties[0] - penalties[1]) / (2 * step)
    assert abs(expected) > 1e-3
    assert slope[0, 1].item() == pytest.approx(expected, rel=1e-5)
