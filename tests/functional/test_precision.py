"""Half precision and autocast: statistics stay in float32, and only the result is rounded."""

import pytest
import torch
from tests.functional.cases import COLORINGS, WHITENINGS, make_batch, make_coloring

from wcgan.functional import affine, moments, whiten, whiten_color

HALVES = [torch.bfloat16, torch.float16]


def make_leaves(kind):
    color, shift, index = make_coloring(kind, 8, 4, dtype=torch.float32)
    x = make_batch(8, 4, 6, dtype=torch.float32).requires_grad_()
    return x, *(t if t is None else t.requires_grad_() for t in (color, shift)), index


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", COLORINGS)
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_half_precision_output_is_the_float32_output_rounded(whitening, kind, dtype):
    x = make_batch(8, 4, 6, dtype=dtype)
    coloring = make_coloring(kind, 8, 4, dtype=torch.float32)
    z, statistics = whiten_color(x, *coloring, whitening=whitening)
    expected, exact = whiten_color(x.float(), *coloring, whitening=whitening)
    assert z.dtype == dtype
    assert statistics.covariance.dtype == torch.float32
    torch.testing.assert_close(statistics.covariance, exact.covariance, rtol=1e-6, atol=1e-6)
    u = torch.finfo(dtype).eps / 2
    # one rounding to half, beside that of float32 itself
    assert ((z.float() - expected).abs() <= u * expected.abs() + 1e-5).all()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", ["none", "full", "class full", "class diagonal"])
def test_half_precision_gradients_are_those_of_float32_rounded(kind, dtype):
    x = make_batch(8, 4, 6, dtype=dtype)
    color, shift, index = make_coloring(kind, 8, 4, dtype=torch.float32)

    def gradients(x):
        x = x.detach().requires_grad_()
        matrix = None if color is None else color.detach().requires_grad_()
        z, _ = whiten_color(x, matrix, shift, index)
        cotangent = torch.sin(torch.arange(z.numel(), dtype=torch.float32)).reshape(z.shape).to(dtype).to(z.dtype)
        return torch.autograd.grad(z, [x] if matrix is None else [x, matrix], cotangent)

    for gradient, wanted in zip(gradients(x), gradients(x.float()), strict=True):
        u = torch.finfo(gradient.dtype).eps / 2
        assert ((gradient.float() - wanted).abs() <= u * wanted.abs() + 1e-5 * wanted.abs().max()).all()


def test_the_gradient_has_the_dtype_of_its_input():
    for dtype in HALVES:
        x = make_batch(8, 4, 6, dtype=dtype).requires_grad_()
        color = make_coloring("full", 8, 4, dtype=torch.float32)[0].requires_grad_()
        z, _ = whiten_color(x, color)
        z.sum().backward()
        assert (x.grad.dtype, color.grad.dtype) == (dtype, torch.float32)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_large_half_precision_values_do_not_overflow_the_statistics(dtype):
    x = (make_batch(8, 4, 6) * 1e3).to(dtype)  # squares beyond float16's largest number
    assert whiten(x).isfinite().all()
    assert moments(x)[1].isfinite().all()


@pytest.mark.parametrize("kind", COLORINGS)
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_a_forward_pass_under_autocast_changes_neither_output_nor_gradients(whitening, kind):
    x, color, shift, index = make_leaves(kind)
    leaves = [t for t in (x, color, shift) if t is not None]
    expected, _ = whiten_color(x, color, shift, index, whitening=whitening)
    with torch.autocast("cpu", torch.bfloat16):
        z, statistics = whiten_color(x, color, shift, index, whitening=whitening)
    assert z.dtype == statistics.covariance.dtype == torch.float32
    assert torch.equal(z, expected)
    cotangent = torch.sin(torch.arange(z.numel(), dtype=z.dtype)).reshape(z.shape)
    for gradient, wanted in zip(
        torch.autograd.grad(z, leaves, cotangent), torch.autograd.grad(expected, leaves, cotangent), strict=True
    ):
        assert torch.equal(gradient, wanted)


@pytest.mark.parametrize("kind", COLORINGS)
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_a_backward_pass_under_autocast_changes_no_gradient(whitening, kind):
    x, color, shift, index = make_leaves(kind)
    leaves = [t for t in (x, color, shift) if t is not None]
    z, _ = whiten_color(x, color, shift, index, whitening=whitening)
    cotangent = torch.sin(torch.arange(z.numel(), dtype=z.dtype)).reshape(z.shape)
    expected = torch.autograd.grad(z, leaves, cotangent, retain_graph=True)
    with torch.autocast("cpu", torch.bfloat16):
        gradients = torch.autograd.grad(z, leaves, cotangent)
    assert all(torch.equal(g, e) for g, e in zip(gradients, expected, strict=True))


def test_a_gradient_taken_under_autocast_can_be_differentiated_as_in_float32():
    x, color, shift, index = make_leaves("full")

    def first_gradient():
        z, _ = whiten_color(x, color, shift, index)
        # not the sum of squares: whitening makes that all but constant, and its gradient all cancellation
        return torch.autograd.grad(z.pow(4).sum(), x, create_graph=True)[0]

    expected = first_gradient()
    with torch.autocast("cpu", torch.bfloat16):
        gradient = first_gradient()
    assert torch.equal(gradient, expected)
    second, wanted = (torch.autograd.grad(g.square().sum(), color)[0] for g in (gradient, expected))
    assert torch.equal(second, wanted)


def test_autocast_changes_neither_moments_nor_their_gradient():
    x = make_batch(8, 4, 6, dtype=torch.float32).requires_grad_()

    def statistics_and_gradient():
        mean, covariance = moments(x)
        return mean, covariance, *torch.autograd.grad(covariance.square().sum() + mean.sum(), x)

    expected = statistics_and_gradient()
    with torch.autocast("cpu", torch.bfloat16):
        values = statistics_and_gradient()
    assert all(torch.equal(v, e) for v, e in zip(values, expected, strict=True))


def test_autocast_does_not_change_an_affine_map():
    x = make_batch(8, 4, 6, dtype=torch.float32)
    matrix, offset = torch.randn(1, 1, 4, 4), torch.randn(1, 4)
    expected = affine(x, matrix, offset)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(affine(x, matrix, offset), expected)
