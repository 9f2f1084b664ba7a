"""Eigenvalues on a GPU against the library's, and whitening by them as part of a CUDA graph."""

import pytest
import torch
from tests.kernels.cases import check_eigen, make_symmetric

from wcgan.functional import covariance_to_whitening, plain_passes
from wcgan.functional._operators import jacobi_for

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
jacobi = pytest.importorskip("wcgan.kernels.jacobi", reason="Triton is not installed")
DEVICE = "cuda"


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("groups", [1, 5, 64])
@pytest.mark.parametrize("p", [1, 2, 3, 8, 16, 17, 31, 32])
def test_eigenvalues_and_vectors(p, groups, condition):
    check_eigen(jacobi, make_symmetric(groups, p, condition, DEVICE))


@pytest.mark.parametrize("p", [3, 16, 32])
def test_whitening_and_its_gradient_are_those_of_the_library(p):
    covariance = make_symmetric(4, p, 100.0, DEVICE).requires_grad_()
    cotangent = torch.randn(4, p, p, device=DEVICE)
    assert jacobi_for(covariance.detach()) is jacobi
    found = covariance_to_whitening(covariance, "zca")
    (gradient,) = torch.autograd.grad(found, covariance, cotangent)
    with plain_passes():
        assert jacobi_for(covariance.detach()) is None
        expected = covariance_to_whitening(covariance.double(), "zca")
        (wanted,) = torch.autograd.grad(expected, covariance, cotangent.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(gradient, wanted, rtol=1e-3, atol=1e-3 * wanted.abs().max().item())


def test_a_covariance_that_is_not_finite_gives_nan_and_no_endless_loop():
    covariance = make_symmetric(3, 16, 10.0, DEVICE)
    covariance[1, 2, 3] = torch.nan
    found = covariance_to_whitening(covariance, "zca")
    assert found.isfinite().flatten(1).all(1).tolist() == [True, False, True]


def test_whitening_is_recorded_and_replayed():
    covariance = make_symmetric(2, 16, 10.0, DEVICE)
    covariance_to_whitening(covariance, "zca")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = covariance_to_whitening(covariance, "zca")
    covariance.copy_(make_symmetric(2, 16, 50.0, DEVICE))
    graph.replay()
    torch.testing.assert_close(out, covariance_to_whitening(covariance, "zca"))


def test_the_kernel_is_trusted_where_float32_products_may_be_rounded(monkeypatch):
    monkeypatch.setattr("torch.backends.cuda.matmul.allow_tf32", True)
    assert jacobi.works.__wrapped__(torch.device(DEVICE, 0))
