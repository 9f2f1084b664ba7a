"""The generator's conditioning: exact singular values for every variant, and figures that JSON can hold."""

import json
import math
from statistics import median

import pytest
import torch
from tests.nets.cases import KINDS, VARIANTS, labels_for, make_generator, make_noise, randomize
from torch import nn

from wcgan.core.device import random_generator
from wcgan.evaluate.conditioning import (
    NOISES,
    RESOLUTION,
    extremes_to_condition_number,
    function_to_jacobian,
    generator_to_extremes,
    jacobian_to_extremes,
    measure_conditioning,
)
from wcgan.nets import Generator


@torch.no_grad()
def trained(normalization, kind="resnet", dtype=torch.float64):
    """A generator whose running statistics are those of some batches, in training mode."""
    generator = make_generator(normalization, kind=kind).to(dtype)
    randomize(generator)
    generator.conv.weight.mul_(0.05)  # keeps tanh from its ends
    for _ in range(3):
        noise = make_noise(32, dtype=dtype)
        generator(noise, *labels_for(generator, 32))
    return generator


@torch.no_grad()
def differences(generator, z, label, step=1e-6):
    """The Jacobian `(m, n)` at one z by central differences."""
    columns = []
    for direction in torch.eye(len(z), dtype=z.dtype):
        ahead, behind = (generator((z + sign * step * direction).unsqueeze(0), *label) for sign in (1, -1))
        columns.append((ahead - behind).flatten() / (2 * step))
    return torch.stack(columns, 1)


QUICK = ("BN", "WC", "cBN", "cWC", "cWC_sa")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "normalization", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]
)
def test_singular_values_are_those_of_finite_differences(normalization, kind):
    generator = trained(normalization, kind)
    z, labels = make_noise(3, dtype=torch.float64), labels_for(generator, 3)
    found = generator_to_extremes(generator, z, *(labels or (None,)))
    generator.eval()
    for i, (largest, smallest) in enumerate(found):
        jacobian = differences(generator, z[i], tuple(label[i : i + 1] for label in labels))
        eigenvalues = torch.linalg.eigvalsh(jacobian.mT @ jacobian)  # of M_z, as Odena et al. define it
        assert largest**2 == pytest.approx(eigenvalues[-1].item(), rel=1e-6)
        assert smallest**2 == pytest.approx(eigenvalues[0].item(), rel=1e-5)
        condition = extremes_to_condition_number(largest, smallest)
        assert condition == pytest.approx((eigenvalues[-1] / eigenvalues[0]).item(), rel=1e-5)


class Linear(Generator):
    """A generator that multiplies by a matrix."""

    def __init__(self, matrix):
        nn.Module.__init__(self)
        self.config = make_generator("WC", noise=matrix.shape[1]).config
        self.matrix = nn.Parameter(matrix)

    def forward(self, z, labels=None):
        return z @ self.matrix.mT


def with_singular_values(values, rows):
    """A matrix `(rows, n)` of these n singular values."""
    torch.manual_seed(0)
    n = len(values)
    left, right = (torch.linalg.qr(torch.randn(size, n, dtype=torch.float64))[0] for size in (rows, n))
    return (left * torch.tensor(values, dtype=torch.float64)) @ right.mT


def test_a_linear_generator_has_the_singular_values_of_its_matrix():
    found = measure_conditioning(Linear(with_singular_values([8.0, 3.0, 2.0], 12).float()), seed=0)
    assert found["singular/largest"] == pytest.approx(8, rel=1e-6)
    assert found["singular/smallest"] == pytest.approx(2, rel=1e-6)
    assert found["condition/median"] == pytest.approx(16, rel=1e-5)
    assert found["condition/log10_mean"] == pytest.approx(math.log10(16), rel=1e-6)
    assert found["condition/log10_std"] == pytest.approx(0, abs=1e-6)
    assert (found["noises"], found["rank_deficient"]) == (NOISES, 0)


def test_a_condition_number_far_above_the_rounding_of_float32_is_seen():
    found = measure_conditioning(Linear(with_singular_values([1.0, 0.1, 1e-5], 12).float()), seed=0)
    assert found["condition/median"] == pytest.approx(1e10, rel=0.1)
    assert found["rank_deficient"] == 0


def test_singular_values_of_float32_are_computed_in_float64():
    matrix = with_singular_values([1.0, 0.1, 1e-5], 12).float()
    assert jacobian_to_extremes(matrix) == jacobian_to_extremes(matrix.double())


@pytest.mark.parametrize("values", [[4.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
def test_a_jacobian_that_lacks_rank_is_counted_and_its_condition_number_finite(values):
    found = measure_conditioning(Linear(with_singular_values(values, 12).float()), seed=0)
    assert found["rank_deficient"] == NOISES
    assert found["condition/median"] == (1 / RESOLUTION) ** 2
    assert found["condition/log10_mean"] == pytest.approx(12)
    json.dumps(found, allow_nan=False)


def test_a_ratio_whose_square_no_float_can_hold_stands_at_the_bound_too():
    assert extremes_to_condition_number(1.0, 1e-200) == (1 / RESOLUTION) ** 2


def test_rounding_does_not_hide_a_lack_of_rank():
    generator = trained("WC", dtype=torch.float32)
    direction = nn.functional.normalize(torch.randn(6, dtype=torch.float64), dim=0)
    with torch.no_grad():
        weight = generator.dense.weight.double()
        generator.dense.weight.copy_(weight - torch.outer(weight @ direction, direction))
    assert measure_conditioning(generator, seed=0)["rank_deficient"] == NOISES


def test_fewer_pixels_than_dimensions_of_noise_are_a_lack_of_rank():
    assert jacobian_to_extremes(torch.tensor([[3.0, 4.0]])) == (5.0, 0.0)


def test_a_generator_that_is_not_finite_has_no_figures():
    generator = make_generator("WC")
    with torch.no_grad():
        generator.conv.bias.fill_(math.nan)
    found = measure_conditioning(generator, seed=0)
    assert {name: value for name, value in found.items() if value is not None} == {"noises": 0, "rank_deficient": 0}
    json.dumps(found, allow_nan=False)


def test_figures_are_over_the_z_of_the_seed_and_classes_in_turn():
    generator = trained("cWC", dtype=torch.float32)
    z = torch.randn(NOISES, 6, generator=random_generator(5, "conditioning", 0))
    found = generator_to_extremes(generator, z, torch.arange(NOISES) % 3)
    conditions = torch.tensor([extremes_to_condition_number(*extremes) for extremes in found]).double()
    figures = measure_conditioning(generator, seed=5)
    assert figures["condition/median"] == pytest.approx(median(conditions.tolist()))
    assert figures["condition/log10_mean"] == pytest.approx(conditions.log10().mean().item())
    assert figures["condition/log10_std"] == pytest.approx(conditions.log10().std(correction=0).item())
    assert figures == measure_conditioning(generator, seed=5)
    assert figures != measure_conditioning(generator, seed=6)


def test_samples_do_not_touch_each_other():
    generator = trained("WC")
    z = make_noise(4, dtype=torch.float64)
    alone = [generator_to_extremes(generator, row, None)[0] for row in z.split(1)]
    assert generator_to_extremes(generator, z, None) == alone


@pytest.mark.parametrize("normalization", ["BN", "WC", "cWC"])
def test_the_memory_format_changes_no_more_than_rounding(normalization):
    generator = trained(normalization, dtype=torch.float32)
    plain = measure_conditioning(generator, seed=0)
    assert measure_conditioning(generator.to(memory_format=torch.channels_last), seed=0) == pytest.approx(
        plain, rel=1e-4
    )


def test_autocast_changes_no_figure():
    generator = trained("cWC", dtype=torch.float32)
    expected = measure_conditioning(generator, seed=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert measure_conditioning(generator, seed=0) == expected


@pytest.mark.parametrize("training", [True, False])
def test_a_generator_is_left_as_it_was(training):
    generator = trained("cWC", dtype=torch.float32).train(training)
    before = {name: value.clone() for name, value in generator.state_dict().items()}
    measure_conditioning(generator, seed=0)
    assert all(module.training == training for module in generator.modules())
    assert all(torch.equal(value, before[name]) for name, value in generator.state_dict().items())
    assert all(parameter.grad is None for parameter in generator.parameters())


def test_the_jacobian_has_a_column_for_each_dimension_whatever_the_outputs_shape():
    z = torch.randn(70, dtype=torch.float64)  # more than are computed at once
    jacobian = function_to_jacobian(lambda z: torch.stack([z**2, torch.sin(z)]), z)
    assert torch.equal(jacobian, torch.cat([torch.diag(2 * z), torch.diag(torch.cos(z))]))
