"""Batches that leave a covariance singular: outputs and gradients stay finite."""

import itertools

import pytest
import torch
from tests.functional.cases import WHITENINGS, make_batch, make_coloring
from tests.reference import oracle

from wcgan.functional import whiten_color

EXACT = {"rtol": 1e-10, "atol": 1e-10}


def degenerate_batches():
    constant = make_batch(6, 4, 5)
    constant[:, 1] = 3.0
    yield "a constant channel", constant
    every = torch.full((6, 4, 5), 2.0, dtype=torch.float64)
    yield "every channel constant", every
    duplicated = make_batch(6, 4, 5)
    duplicated[:, 3] = duplicated[:, 0]
    yield "a duplicated channel", duplicated
    yield "fewer positions than channels", make_batch(3, 8)
    yield "two positions", make_batch(2, 6)
    yield "one image", make_batch(1, 4, 3, 3)
    yield "one channel", make_batch(6, 1, 5)
    yield "one channel, two positions", make_batch(2, 1)
    yield "zeros", torch.zeros(6, 4, 5, dtype=torch.float64)


BATCHES = dict(degenerate_batches())


def output_and_gradients(x, kind, **options):
    color, shift, index = make_coloring(kind, len(x), x.shape[1], dtype=x.dtype)
    x = x.clone().requires_grad_()
    color = color.requires_grad_()
    z, statistics = whiten_color(x, color, shift, index, **options)
    cotangent = torch.sin(torch.arange(z.numel(), dtype=z.dtype)).reshape(z.shape)
    first = torch.autograd.grad(z, [x, color], cotangent, create_graph=True)
    second = torch.autograd.grad(sum(g.sum() for g in first), [x, color], materialize_grads=True)
    return z, statistics, first, second


@pytest.mark.parametrize("whitening", WHITENINGS)
@pytest.mark.parametrize("name", BATCHES)
def test_output_and_both_derivatives_are_finite(name, whitening):
    for dtype, kind in itertools.product((torch.float32, torch.float64), ("full", "class full")):
        z, _, first, second = output_and_gradients(BATCHES[name].to(dtype), kind, whitening=whitening)
        assert all(tensor.isfinite().all() for tensor in (z, *first, *second)), (dtype, kind)


@pytest.mark.parametrize("name", BATCHES)
def test_shrinkage_alone_carries_a_singular_batch_and_equals_the_oracle(name):
    x = BATCHES[name]
    z, statistics, _, _ = output_and_gradients(x, "full")
    color, shift, _ = make_coloring("full", len(x), x.shape[1])
    assert statistics.retry.tolist() == [0.0]
    torch.testing.assert_close(z, oracle.normalize(x, oracle.coloring(color[0], shift[0])), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_huge_singular_batch_in_float32_is_retried_and_stays_finite(groups):
    x = make_batch(3, 16, dtype=torch.float32) * 1e6  # rank 2 beside an eps of 1e-3: lost in rounding
    z, statistics, first, second = output_and_gradients(x, "full", groups=groups)
    assert statistics.retry.shape == (groups,)
    assert (statistics.retry > 0).all()
    assert z.isfinite().all()
    assert all(g.isfinite().all() for g in first)
    assert all(g.isfinite().all() for g in second)


def test_the_statistics_of_a_retried_batch_are_those_of_the_data():
    x = make_batch(3, 16, dtype=torch.float32) * 1e6
    _, statistics = whiten_color(x)
    assert statistics.retry.item() > 0
    torch.testing.assert_close(statistics.covariance, oracle.batch_covariance(x.double()).float(), rtol=1e-5, atol=0)


def singular_with_a_healthy_group() -> torch.Tensor:
    x = make_batch(6, 4, 5)
    x[:, 1] = 3.0
    return x


def test_only_the_group_that_failed_is_retried():
    _, statistics = whiten_color(singular_with_a_healthy_group(), eps=0.0, groups=2)
    assert statistics.retry[0] > 0
    assert statistics.retry[1] == 0


def test_standardising_without_eps_counts_a_channel_that_never_varies_as_retried():
    options = {"whitening": "standardize", "eps": 0.0}
    assert whiten_color(singular_with_a_healthy_group(), **options)[1].retry.tolist() == [1.0]
    assert whiten_color(make_batch(6, 4, 5), **options)[1].retry.tolist() == [0.0]


def test_gradients_of_a_retried_batch_are_finite_differences_of_the_retried_map():
    x = singular_with_a_healthy_group().requires_grad_()
    z, statistics = whiten_color(x, eps=0.0)
    retry = statistics.retry.item()
    assert retry in (1e-4, 1e-2, 1.0)
    torch.testing.assert_close(z, oracle.normalize(x, eps=0.0, retry=retry), **EXACT)
    cotangent = torch.randn(z.shape, dtype=z.dtype, generator=torch.Generator().manual_seed(5))
    (gradient,) = torch.autograd.grad(z, x, cotangent)
    step = 1e-6
    for seed in range(6):
        direction = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(seed))
        ahead, behind = (oracle.normalize(x.detach() + s * direction, eps=0.0, retry=retry) for s in (step, -step))
        slope = ((ahead - behind) / (2 * step) * cotangent).sum()
        torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_a_batch_that_is_not_finite_gives_nan_and_no_exception(whitening, value):
    x = make_batch(6, 4, 5)
    x[0, 0, 0] = value
    z, statistics = whiten_color(x, whitening=whitening, groups=4 if whitening == "standardize" else 1)
    assert z[:, 0].isnan().all()
    assert not statistics.retry.any()  # no shrinkage helps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_zca_of_a_white_batch_has_finite_derivatives(dtype):
    corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=dtype)] * 3)  # covariance 8/7 I to the last bit
    z, statistics, first, second = output_and_gradients(corners, "full", whitening="zca")
    assert torch.equal(statistics.covariance[0], torch.eye(3, dtype=dtype) * statistics.covariance[0, 0, 0])
    assert all(t.isfinite().all() for t in (z, *first, *second))
