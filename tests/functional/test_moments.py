"""`moments`: mean and covariance against the oracle, exact in hard cases, and its errors."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.functional.cases import make_batch
from tests.reference import oracle

from wcgan.functional import moments, whiten

EXACT = {"rtol": 1e-12, "atol": 1e-12}


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("shape", [(9, 4), (5, 4, 3), (5, 4, 3, 2)], ids=str)
def test_moments_equal_the_oracle(shape, groups):
    x = make_batch(*shape)
    mean, covariance = moments(x, groups)
    torch.testing.assert_close(mean, oracle.batch_mean(x), **EXACT)
    expected = oracle.batch_covariance(x, groups)
    torch.testing.assert_close(covariance, expected if groups > 1 else expected[0], **EXACT)


def test_gradients_equal_the_oracle():
    x = make_batch(5, 4, 3).requires_grad_()
    mean, covariance = moments(x)
    expected = (oracle.batch_mean(x), oracle.batch_covariance(x)[0])
    cotangents = [torch.randn_like(mean), torch.randn_like(covariance)]  # not symmetric
    (gradient,) = torch.autograd.grad([mean, covariance], x, cotangents)
    (wanted,) = torch.autograd.grad(expected, x, cotangents)
    torch.testing.assert_close(gradient, wanted, **EXACT)


def test_the_covariance_is_symmetric_to_the_last_bit_and_its_diagonal_not_negative():
    _, covariance = moments(make_batch(33, 7, 5, dtype=torch.float32))
    assert torch.equal(covariance, covariance.T)
    assert (covariance.diagonal() >= 0).all()


@pytest.mark.parametrize("layout", ["contiguous", "channels last"])
@pytest.mark.parametrize("ratio", [0.0, 1.0, 1e2, 1e4])
def test_a_mean_far_larger_than_the_spread_costs_no_digits_in_float32(ratio, layout):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(16, 6, 20, 20, generator=generator, dtype=torch.float64)
    x = (noise + ratio * torch.linspace(0.2, 1, 6, dtype=torch.float64).view(6, 1, 1)).float()
    if layout == "channels last":
        x = x.to(memory_format=torch.channels_last)
    mean, covariance = moments(x)
    positions = x.double().transpose(0, 1).flatten(1)
    u = torch.finfo(torch.float32).eps / 2
    rounding = 2 * math.sqrt(positions.shape[1]) * u  # of a sum of m products in float32, whichever its order
    size = 1 + positions.mean(1).abs().max()
    assert (mean - positions.mean(1)).abs().max() <= 4 * u * size
    # A mean off by that much adds its square; a formula that subtracts squares would be off by u |mean|^2.
    assert (covariance - positions.cov()).abs().max() <= rounding + (4 * u * size) ** 2


@settings(max_examples=40, deadline=None)
@given(
    samples=st.integers(2, 40),
    d=st.integers(1, 9),
    places=st.integers(1, 30),
    exponent=st.floats(-6, 6),
    seed=st.integers(0, 2**16),
)
def test_float32_covariance_is_that_of_two_passes_in_float64(samples, d, places, exponent, seed):
    x = (make_batch(samples, d, places, seed=seed) * 10**exponent).float()
    positions = x.double().transpose(0, 1).flatten(1)
    mean, covariance = moments(x)
    u = torch.finfo(torch.float32).eps / 2
    spread = positions.var(1).sqrt()
    size = positions.abs().amax(1)
    rounding = (2 * math.sqrt(samples * places) + 8) * u
    assert ((mean - positions.mean(1)).abs() <= rounding * size).all()
    bound = rounding * torch.outer(spread, spread) + rounding**2 * torch.outer(size, size)
    assert ((covariance - positions.cov().reshape(d, d)).abs() <= bound).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_statistics_are_float32_or_better(dtype):
    mean, covariance = moments(make_batch(5, 4, 3, dtype=dtype))
    expected = torch.promote_types(dtype, torch.float32)
    assert (mean.dtype, covariance.dtype) == (expected, expected)


@pytest.mark.parametrize("function", [moments, whiten])
@pytest.mark.parametrize("shape", [(5,), (), (1, 4), (0, 4), (1, 4, 1), (3, 4, 0), (3, 0)], ids=str)
def test_a_batch_without_channels_or_two_positions_is_refused_with_its_shape(function, shape):
    with pytest.raises(ValueError, match=re.escape(str(shape))):
        function(torch.zeros(shape))


@pytest.mark.parametrize("function", [moments, whiten])
@pytest.mark.parametrize("groups", [3, 0, -1, 8])
def test_groups_that_do_not_divide_the_channels_are_refused_with_both_numbers(function, groups):
    with pytest.raises(ValueError, match="groups") as error:
        function(torch.randn(5, 4), groups=groups)
    assert all(number in str(error.value) for number in (str(groups), "4")), str(error.value)


@pytest.mark.parametrize("function", [moments, whiten])
@pytest.mark.parametrize(
    ("x", "word"),
    [
        (torch.ones(5, 4, dtype=torch.long), "int64"),
        ([[1.0], [2.0]], "list"),
        (torch.ones(5, 4, dtype=torch.cfloat), "complex64"),
    ],
    ids=["integers", "a list", "complex"],
)
def test_a_batch_that_is_not_a_floating_point_tensor_is_refused_with_its_type(function, x, word):
    with pytest.raises(TypeError) as error:
        function(x)
    assert word in str(error.value), str(error.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"whitening": "pca"}, ["pca", "cholesky", "zca", "newton", "standardize", "none"]),
        ({"eps": -1e-3}, ["eps", "-0.001"]),
        ({"eps": 1.5}, ["eps", "1.5"]),
        ({"whitening": "newton", "iterations": 0}, ["iterations", "0"]),
    ],
    ids=str,
)
def test_whiten_names_a_bad_argument_and_what_is_allowed(arguments, words):
    with pytest.raises(ValueError, match=words[0]) as error:
        whiten(torch.randn(5, 4), **arguments)
    assert all(word in str(error.value) for word in words), str(error.value)
