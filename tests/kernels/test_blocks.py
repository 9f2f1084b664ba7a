"""Factorisation of matrices that are larger than the kernel, in blocks: the algebra, with a library's blocks."""

import pytest
import torch

from wcgan.functional._factorisations import RETRY_SHRINKAGE
from wcgan.kernels import cholesky

LARGEST = 64


@pytest.fixture(autouse=True)
def blocks_by_the_library(monkeypatch):
    """Blocks of 64, factorised as the kernel does: a retry is reported, and what is not finite becomes NaN."""

    def factorise(covariance, eps, levels):
        assert (eps, levels) == (0.0, RETRY_SHRINKAGE)
        assert covariance.shape[-1] <= LARGEST
        lower, failed = torch.linalg.cholesky_ex((covariance + covariance.mT) / 2)
        whitening = torch.linalg.inv(torch.where(failed.view(-1, 1, 1) != 0, torch.eye(lower.shape[-1]), lower))
        return whitening, torch.where(failed != 0, levels[1], 0.0)

    monkeypatch.setattr(cholesky, "BLOCK", LARGEST)
    monkeypatch.setattr(cholesky, "factorise", factorise)


def make_matrices(count, p, condition=100.0):
    rotation, _ = torch.linalg.qr(torch.randn(count, p, p, dtype=torch.float64))
    values = torch.logspace(0, torch.tensor(condition).log10(), p, dtype=torch.float64)
    return ((rotation * values) @ rotation.mT).float()


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("p", [64, 65, 100, 128, 300])
def test_blocks_give_the_inverse_of_the_cholesky_factor(p, tf32, monkeypatch):
    monkeypatch.setattr(cholesky, "tf32_allowed", lambda: tf32)
    matrix = make_matrices(3, p)
    whitening, good = cholesky.factorise_in_blocks(matrix, RETRY_SHRINKAGE)
    expected = torch.linalg.inv(torch.linalg.cholesky(matrix.double()))
    assert good.all()
    assert torch.equal(whitening, whitening.tril())
    assert (whitening - expected).norm() <= 1e-4 * expected.norm()
    residual = whitening.double() @ matrix.double() @ whitening.double().mT - torch.eye(p)
    assert residual.abs().max() <= 3e-5


def test_only_the_matrix_that_cannot_be_factorised_is_said_to_fail():
    matrix = make_matrices(4, 200)
    eye = torch.eye(200)
    matrix[1] -= 2 * eye  # fails in its first block, or a later one
    matrix[2] = torch.where(torch.arange(200) < 199, eye, -eye)  # in its last
    whitening, good = cholesky.factorise_in_blocks(matrix, RETRY_SHRINKAGE)
    assert good.tolist() == [True, False, False, True]
    assert whitening[[0, 3]].isfinite().all()


def test_products_of_split_factors_are_as_exact_as_float32_where_factors_are_rounded():
    """As a GPU computes them that rounds both factors to eleven bits, the rest included."""
    a, b = torch.randn(2, 40, 70), torch.randn(2, 70, 30)
    parts = [cholesky._split(x) for x in (a, b)]
    for (leading, rest), whole in zip(parts, (a, b), strict=True):
        assert torch.equal(leading + rest, whole)
        assert not (leading.view(torch.int32) & 0x1FFF).any()
        assert (rest.abs() <= 2**-10 * whole.abs()).all()
    (a_leading, a_rest), (b_leading, b_rest) = ((x, cholesky._split(rest)[0]) for x, rest in parts)
    found = (
        torch.cat((a_leading, a_leading, a_rest), -1).double() @ torch.cat((b_leading, b_rest, b_leading), -2).double()
    )
    exact = a.double() @ b.double()
    assert ((found - exact).abs() <= 2**-19 * (a.double().abs() @ b.double().abs())).all()
    rounded = a_leading.double() @ b_leading.double()
    assert ((rounded - exact).abs() > 2**-13 * (a.double().abs() @ b.double().abs())).any()
