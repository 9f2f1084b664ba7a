"""`covariance_to_whitening` against the oracle and finite differences, and where a covariance is hard or wrong."""

import math
import re

import pytest
import torch
from tests.functional.cases import WHITENINGS, make_batch
from tests.reference import oracle
from torch.autograd import gradcheck, gradgradcheck

from wcgan.functional import covariance_to_whitening
from wcgan.functional.whitening import factorise

EXACT = {"rtol": 1e-10, "atol": 1e-10}
KINDS = (*WHITENINGS, "none")


def make_covariance(*batch: int, d: int = 4) -> torch.Tensor:
    matrices = [oracle.batch_covariance(make_batch(9, d, seed=s))[0] for s in range(math.prod(batch))]
    return torch.stack(matrices).reshape(*batch, d, d)


def symmetric(matrix: torch.Tensor) -> torch.Tensor:
    return (matrix + matrix.mT) / 2


@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.3])
@pytest.mark.parametrize("whitening", KINDS)
def test_the_matrix_and_its_gradient_equal_the_oracle(whitening, eps):
    covariance = make_covariance().requires_grad_()
    matrix = covariance_to_whitening(covariance, whitening, eps)
    expected = oracle.whitening_matrix(symmetric(covariance), whitening, eps)
    torch.testing.assert_close(matrix, expected, **EXACT)
    if whitening != "none":
        cotangent = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        (gradient,) = torch.autograd.grad(matrix, covariance, cotangent)
        (wanted,) = torch.autograd.grad(expected, covariance, cotangent)
        torch.testing.assert_close(gradient, wanted, **EXACT)


@pytest.mark.parametrize("whitening", ["cholesky", "zca"])
def test_the_matrix_whitens_the_shrunk_covariance(whitening):
    covariance = make_covariance()
    w = covariance_to_whitening(covariance, whitening, eps=1e-2)
    torch.testing.assert_close(w @ oracle.shrink(covariance, 1e-2) @ w.T, torch.eye(4, dtype=torch.float64), **EXACT)


def test_cholesky_gives_a_lower_triangle_and_zca_a_symmetric_matrix():
    covariance = make_covariance()
    w = covariance_to_whitening(covariance, "cholesky")
    assert torch.equal(w, w.tril())
    assert (w.diagonal() > 0).all()
    w = covariance_to_whitening(covariance, "zca")
    torch.testing.assert_close(w, w.T, **EXACT)


def test_newton_approaches_zca_as_steps_grow():
    covariance = make_covariance()
    w = covariance_to_whitening(covariance, "newton", iterations=40)
    torch.testing.assert_close(w, covariance_to_whitening(covariance, "zca"), **EXACT)


@pytest.mark.parametrize("whitening", KINDS)
def test_a_stack_of_covariances_is_whitened_one_by_one(whitening):
    covariance = make_covariance(2, 3)
    matrices = covariance_to_whitening(covariance, whitening)
    assert matrices.shape == (2, 3, 4, 4)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(matrices[i, j], oracle.whitening_matrix(covariance[i, j], whitening), **EXACT)


@pytest.mark.parametrize("whitening", WHITENINGS)
def test_only_the_symmetric_part_is_used(whitening):
    covariance = make_covariance()
    skew = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    w = covariance_to_whitening(covariance + (skew - skew.T), whitening)
    torch.testing.assert_close(w, covariance_to_whitening(covariance, whitening), **EXACT)


@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_first_and_second_derivatives_are_those_of_finite_differences(whitening, batch):
    covariance = make_covariance(*batch, d=3).requires_grad_()
    assert gradcheck(lambda c: covariance_to_whitening(c, whitening), [covariance])
    assert gradgradcheck(lambda c: covariance_to_whitening(c, whitening), [covariance])


def test_zca_has_both_derivatives_where_all_eigenvalues_coincide():
    covariance = torch.eye(3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda c: covariance_to_whitening(c, "zca"), [covariance])
    assert gradgradcheck(lambda c: covariance_to_whitening(c, "zca"), [covariance])


def test_zca_has_both_derivatives_where_two_eigenvalues_coincide():
    basis, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(7)))
    covariance = (basis @ torch.diag(torch.tensor([2.0, 2.0, 5.0], dtype=torch.float64)) @ basis.T).requires_grad_()
    assert gradcheck(lambda c: covariance_to_whitening(c, "zca"), [covariance])
    assert gradgradcheck(lambda c: covariance_to_whitening(c, "zca"), [covariance])


def spectrum_to_covariance(*values: float) -> torch.Tensor:
    d = len(values)
    basis, _ = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64, generator=torch.Generator().manual_seed(7)))
    return basis @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ basis.T


def gradient(covariance: torch.Tensor, whitening: str) -> torch.Tensor:
    """Of the matrix in a fixed direction, for the covariance's type."""
    leaf = covariance.detach().requires_grad_()
    cotangent = torch.randn(leaf.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (found,) = torch.autograd.grad(covariance_to_whitening(leaf, whitening), leaf, cotangent.to(leaf.dtype))
    return found


def error_in_float32(covariance: torch.Tensor, whitening: str) -> float:
    expected = gradient(covariance, "zca")
    return float((gradient(covariance.float(), whitening) - expected).norm() / expected.norm())


@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.3])
def test_the_gradient_through_the_decomposition_is_that_of_finite_differences_where_eigenvalues_are_apart(eps):
    covariance = torch.stack([spectrum_to_covariance(1, 2, 5), spectrum_to_covariance(0.1, 3, 4)]).requires_grad_()
    assert gradcheck(lambda c: covariance_to_whitening(c, "zca-decomposition", eps), [covariance])
    assert gradgradcheck(lambda c: covariance_to_whitening(c, "zca-decomposition", eps), [covariance])


def test_both_gradients_of_zca_agree_where_eigenvalues_are_apart():
    covariance = spectrum_to_covariance(0.5, 1, 2, 5)
    assert torch.equal(
        covariance_to_whitening(covariance, "zca-decomposition"), covariance_to_whitening(covariance, "zca")
    )
    torch.testing.assert_close(gradient(covariance, "zca-decomposition"), gradient(covariance, "zca"), **EXACT)


@pytest.mark.parametrize("name", ["zca", "zca-decomposition"])
def test_both_derivatives_of_a_retried_zca_are_those_of_the_larger_shrinkage(name):
    covariance = spectrum_to_covariance(0, 1, 2, 5).requires_grad_()
    w = factorise(covariance[None], name, 0.0, 5)
    retry = w.retry.item()
    assert retry > 0

    def with_derivatives(matrix):
        (first,) = torch.autograd.grad(matrix.sin().sum(), covariance, create_graph=True)
        (second,) = torch.autograd.grad(first[0].sum() + first[1, 2], covariance)
        return [matrix, symmetric(first), symmetric(second)]

    expected = with_derivatives(oracle.whitening_matrix(covariance, "zca", 0.0, retry=retry))
    for ours, theirs in zip(with_derivatives(w.matrix[0]), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-7 * float(theirs.detach().abs().max()))


@pytest.mark.parametrize(("share", "retried"), [(0.5, True), (2.0, False)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_zca_takes_an_eigenvalue_for_0_where_a_matrix_of_its_size_rounds_it_away(dtype, share, retried):
    variances = torch.ones(8, dtype=dtype)
    variances[3] = share * len(variances) * torch.finfo(dtype).eps
    assert bool(factorise(torch.diag(variances)[None], "zca", 0.0, 5).retry > 0) is retried


def test_only_the_gradient_through_the_decomposition_loses_its_digits_where_two_eigenvalues_are_close():
    errors = {
        gap: [error_in_float32(spectrum_to_covariance(1, 1 + gap, 4, 7), name) for name in ("zca", "zca-decomposition")]
        for gap in (1.0, 1e-3, 1e-5)
    }
    assert max(ours for ours, _ in errors.values()) < 5e-6
    assert errors[1.0][1] < 5e-6
    assert errors[1e-3][1] > 10 * errors[1.0][1]
    assert errors[1e-5][1] > 10 * errors[1e-3][1]


def test_only_the_gradient_through_the_decomposition_is_not_a_number_where_two_eigenvalues_are_equal():
    covariance = torch.diag(torch.tensor([2.0, 2.0, 5.0]))
    assert gradient(covariance, "zca").isfinite().all()
    assert not gradient(covariance, "zca-decomposition").isfinite().all()


def rank_deficient() -> torch.Tensor:
    """One channel never varies: with eps = 0 no Cholesky factor exists, to the last bit."""
    covariance = make_covariance()
    covariance[2] = covariance[:, 2] = 0
    return covariance


def test_a_retried_matrix_and_its_derivatives_are_those_of_the_larger_shrinkage():
    covariance = rank_deficient().requires_grad_()
    w = covariance_to_whitening(covariance, "cholesky", eps=0.0)
    torch.testing.assert_close(w, oracle.whitening_matrix(covariance, eps=0.0, retry=1e-4), **EXACT)
    cotangent = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (gradient,) = torch.autograd.grad(w, covariance, cotangent)
    step = 1e-7  # of the retried map itself: a step in the covariance could end the retry
    for i in range(4):
        for j in range(i + 1):
            direction = torch.zeros(4, 4, dtype=torch.float64)
            direction[i, j] = direction[j, i] = 1
            ahead, behind = (
                oracle.whitening_matrix(covariance.detach() + s * direction, eps=0.0, retry=1e-4) for s in (step, -step)
            )
            slope = ((ahead - behind) / (2 * step) * cotangent).sum()
            torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-6, atol=1e-6)


def test_only_the_member_of_a_stack_that_failed_is_retried():
    good = make_covariance()
    stack = torch.stack([good, rank_deficient()])
    w = covariance_to_whitening(stack, "cholesky", eps=0.0)
    torch.testing.assert_close(w[0], oracle.whitening_matrix(good, eps=0.0), **EXACT)
    torch.testing.assert_close(w[1], oracle.whitening_matrix(stack[1], eps=0.0, retry=1e-4), **EXACT)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_a_covariance_that_is_not_finite_gives_nan_and_spares_its_neighbours(whitening, value):
    stack = make_covariance(2)
    expected = covariance_to_whitening(stack[1], whitening)
    stack[0, 1, 1] = value
    w = covariance_to_whitening(stack, whitening)
    assert w[0].isnan().any()
    torch.testing.assert_close(w[1], expected, **EXACT)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("whitening", ["cholesky", "zca", "newton"])
def test_one_bad_entry_makes_the_whole_matrix_nan(whitening, value):
    covariance = make_covariance()
    covariance[1, 1] = value
    assert covariance_to_whitening(covariance, whitening).isnan().all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"whitening": "pca"}, ["pca", "cholesky", "zca", "newton", "standardize"]),
        ({"eps": -0.1}, ["eps", "-0.1"]),
        ({"eps": 1.0}, ["eps", "1.0"]),
        ({"eps": float("nan")}, ["eps", "nan"]),
        ({"whitening": "newton", "iterations": 0}, ["iterations", "0"]),
        ({"whitening": "newton", "iterations": -3}, ["iterations", "-3"]),
    ],
    ids=str,
)
def test_a_bad_argument_is_named_with_what_is_allowed(arguments, words):
    with pytest.raises(ValueError, match=words[0]) as error:
        covariance_to_whitening(torch.eye(2), **arguments)
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3), ()], ids=str)
def test_a_covariance_that_is_not_square_is_refused_with_its_shape(shape):
    with pytest.raises(ValueError, match=re.escape(str(shape))):
        covariance_to_whitening(torch.ones(shape))


@pytest.mark.parametrize("covariance", [torch.eye(2, dtype=torch.long), [[1.0]]], ids=["integers", "a list"])
def test_a_covariance_that_is_not_floating_point_is_refused(covariance):
    with pytest.raises(TypeError):
        covariance_to_whitening(covariance)


def test_a_single_infinite_variance_becomes_nan_and_counts_as_no_retry():
    w = factorise(torch.full((1, 1, 1), torch.inf, dtype=torch.float64), "cholesky", 1e-3, 5)
    assert w.matrix.isnan().all()
    assert w.retry.item() == 0
