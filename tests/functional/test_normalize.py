"""`whiten_color` and `whiten` against the oracle: values, and gradients to the batch, the coloring and the shift."""

import pytest
import torch
from tests.functional.cases import COLORINGS, WHITENINGS, make_batch, make_coloring, oracle_coloring
from tests.reference import oracle

from wcgan.functional import whiten, whiten_color

EXACT = {"rtol": 1e-10, "atol": 1e-10}


def check_against_oracle(x, coloring, **options):
    color, shift, index = coloring
    leaves = [t for t in (x, color, shift) if t is not None]
    for leaf in leaves:
        leaf.requires_grad_()
    z, statistics = whiten_color(x, color, shift, index, **options)
    expected = oracle.normalize(x, oracle_coloring(color, shift, index, len(x)), **options)
    torch.testing.assert_close(z, expected, **EXACT)
    torch.testing.assert_close(statistics.mean, oracle.batch_mean(x), **EXACT)
    torch.testing.assert_close(statistics.covariance, oracle.batch_covariance(x, options.get("groups", 1)), **EXACT)
    assert statistics.retry.tolist() == [0.0] * options.get("groups", 1)
    cotangent = torch.randn(z.shape, generator=torch.Generator().manual_seed(9), dtype=z.dtype)
    gradients = torch.autograd.grad(z, leaves, cotangent)
    for gradient, wanted in zip(gradients, torch.autograd.grad(expected, leaves, cotangent), strict=True):
        torch.testing.assert_close(gradient, wanted, **EXACT)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", COLORINGS)
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_values_and_gradients_equal_the_oracle(whitening, kind, groups):
    x = make_batch(5, 4, 3)
    check_against_oracle(x, make_coloring(kind, 5, 4), whitening=whitening, groups=groups)


@pytest.mark.parametrize(
    "options", [{"whitening": "newton", "iterations": 3, "eps": 0.2, "groups": 2}, {"eps": 0.3}], ids=str
)
def test_options_hold_where_there_are_more_rows_of_matrices_than_positions(options):
    check_against_oracle(make_batch(9, 4), make_coloring("sample full", 9, 4), **options)


@pytest.mark.parametrize("groups", [1, 2])
def test_statistics_have_the_gradients_of_their_formulas(groups):
    x = make_batch(5, 4, 3).requires_grad_()
    wanted = oracle.batch_mean(x), oracle.batch_covariance(x, groups)
    generator = torch.Generator().manual_seed(9)
    cotangents = [torch.randn(values.shape, generator=generator, dtype=x.dtype) for values in wanted]
    found = whiten_color(x, groups=groups)[1][:2]
    gradient, expected = (torch.autograd.grad(values, x, cotangents) for values in (found, wanted))
    torch.testing.assert_close(gradient, expected, **EXACT)


@pytest.mark.parametrize("kind", ["full", "class full", "sample full", "class diagonal"])
@pytest.mark.parametrize("shape", [(9, 4), (5, 4, 3), (5, 4, 3, 2), (5, 4, 3, 2, 2)], ids=str)
def test_every_rank_of_batch_equals_the_oracle(shape, kind):
    check_against_oracle(make_batch(*shape), make_coloring(kind, shape[0], 4))


def layouts():
    x = make_batch(5, 4, 3, 2)
    yield "contiguous", x
    yield "channels last", x.to(memory_format=torch.channels_last)
    yield "every other sample", make_batch(10, 4, 3, 2)[::2]
    yield "a slice of channels", make_batch(5, 8, 3, 2)[:, 2:6]
    yield "every other place", make_batch(5, 4, 6, 2)[:, :, ::2]
    yield "transposed places", make_batch(5, 4, 2, 3).transpose(2, 3)
    yield "samples innermost", make_batch(5, 4, 3, 2).permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2)
    yield "expanded", make_batch(5, 4, 3, 1).expand(5, 4, 3, 2)
    yield "a slice of channels last", make_batch(5, 8, 3, 2).to(memory_format=torch.channels_last)[:, 1:5]
    yield "transposed features", make_batch(4, 4, 1)[..., 0].t()


@pytest.mark.parametrize("kind", ["full", "class full", "class diagonal", "none"])
@pytest.mark.parametrize(("layout", "x"), list(layouts()), ids=[name for name, _ in layouts()])
def test_the_memory_layout_of_the_batch_does_not_change_values_or_gradients(layout, x, kind):
    check_against_oracle(x, make_coloring(kind, len(x), 4), groups=2 if kind == "class diagonal" else 1)


@pytest.mark.parametrize("kind", ["none", "full", "class full"])
def test_a_strided_cotangent_gives_the_gradient_of_a_dense_one(kind):
    x = make_batch(5, 4, 3, 2).requires_grad_()
    z, _ = whiten_color(x, *make_coloring(kind, 5, 4))
    dense = torch.randn(z.shape, dtype=z.dtype, generator=torch.Generator().manual_seed(3))
    (expected,) = torch.autograd.grad(z, x, dense, retain_graph=True)
    (last,) = torch.autograd.grad(z, x, dense.to(memory_format=torch.channels_last), retain_graph=True)
    torch.testing.assert_close(last, expected, **EXACT)
    (ones,) = torch.autograd.grad(z, x, torch.ones_like(z), retain_graph=True)
    (expanded,) = torch.autograd.grad(z, x, torch.ones((), dtype=z.dtype).expand(z.shape))
    torch.testing.assert_close(expanded, ones, **EXACT)


@pytest.mark.parametrize("kind", COLORINGS)
def test_channels_last_in_gives_channels_last_out_and_back(kind):
    x = make_batch(5, 4, 3, 2).to(memory_format=torch.channels_last).requires_grad_()
    z, _ = whiten_color(x, *make_coloring(kind, 5, 4))
    assert z.is_contiguous(memory_format=torch.channels_last)
    assert not z.is_contiguous()
    (gradient,) = torch.autograd.grad(z, x, torch.randn_like(z))
    assert gradient.is_contiguous(memory_format=torch.channels_last)
    assert not gradient.is_contiguous()


@pytest.mark.parametrize("whitening", ["cholesky", "zca"])
@pytest.mark.parametrize("eps", [0.0, 1e-5, 0.3])
def test_the_shrinkage_is_equation_7(whitening, eps):
    check_against_oracle(make_batch(5, 4, 3), make_coloring("full", 5, 4), whitening=whitening, eps=eps)


@pytest.mark.parametrize("iterations", [1, 2, 7])
def test_newton_takes_as_many_steps_as_it_is_told(iterations):
    check_against_oracle(make_batch(5, 4, 3), make_coloring("full", 5, 4), whitening="newton", iterations=iterations)


def test_standardizing_with_a_diagonal_coloring_is_batch_normalisation():
    x = make_batch(5, 4, 3)
    color, shift, _ = make_coloring("diagonal", 5, 4)
    z, _ = whiten_color(x, color, shift, whitening="standardize", eps=1e-3)
    expected = torch.nn.functional.batch_norm(x, None, None, color[0], shift[0], training=True, eps=1e-3)
    torch.testing.assert_close(z, expected, **EXACT)


def test_conditional_coloring_is_the_sum_of_the_class_and_the_shared_coloring():
    x = make_batch(6, 4, 3)
    y = torch.tensor([2, 0, 1, 1, 2, 2])
    class_weight, class_bias, _ = make_coloring("class full", 6, 4)
    weight, bias, _ = make_coloring("full", 6, 4, seed=5)
    z, _ = whiten_color(x, class_weight + weight, class_bias + bias, y)
    expected = oracle.normalize(x, oracle.conditional_coloring(y, class_weight, class_bias, weight[0], bias[0]))
    torch.testing.assert_close(z, expected, **EXACT)


def test_a_class_that_no_sample_has_gets_a_gradient_of_exactly_zero():
    x = make_batch(4, 4, 3)
    color, shift, index = make_coloring("class full", 4, 4)
    color.requires_grad_(), shift.requires_grad_()
    z, _ = whiten_color(x, color, shift, index)
    z.square().sum().backward()
    assert set(index.tolist()) == {0, 2}
    assert color.grad[1].count_nonzero() == 0
    assert shift.grad[1].count_nonzero() == 0
    assert color.grad[0].count_nonzero() == 16
    assert color.grad[2].count_nonzero() == 16


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("whitening", [*WHITENINGS, "none"])
def test_whiten_equals_the_oracle(whitening, groups):
    x = make_batch(5, 4, 3)
    expected = oracle.normalize(x, whitening=whitening, eps=1e-2, groups=groups)
    torch.testing.assert_close(whiten(x, whitening, eps=1e-2, groups=groups), expected, **EXACT)


def test_the_input_is_left_as_it_was():
    x = make_batch(5, 4, 3)
    before = x.clone()
    whiten(x)
    assert torch.equal(x, before)


@pytest.mark.parametrize("whitening", WHITENINGS)
def test_the_batch_need_not_ask_for_a_gradient(whitening):
    x = make_batch(5, 4, 3)
    color, shift, _ = make_coloring("full", 5, 4)
    color.requires_grad_(), shift.requires_grad_()
    z, _ = whiten_color(x, color, shift, whitening=whitening)
    z.square().sum().backward()
    expected = oracle.normalize(x, oracle.coloring(color[0], shift[0]), whitening=whitening)
    wanted = torch.autograd.grad(expected.square().sum(), [color, shift])
    torch.testing.assert_close([color.grad, shift.grad], list(wanted), **EXACT)
