"""The fused factorisation on a GPU against the library's, on fresh random covariances."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.kernels.cases import make_batch

from wcgan.functional import _by_kernels, plain_passes
from wcgan.functional._factorisations import RETRY_SHRINKAGE, Whitening, shrink
from wcgan.functional._operators import cholesky_for
from wcgan.functional.whitening import factorise
from wcgan.kernels import Sequence, cholesky

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("fused"),
]

DEVICE = "cuda"
ROUNDINGS = 16 * 2**-23  # those of float32 that W S W^T - I shows whatever the size


@pytest.fixture
def fused():
    """Skips where the fused factorisation does not run."""
    if cholesky_for(torch.eye(4, device=DEVICE).unsqueeze(0), RETRY_SHRINKAGE) is None:
        pytest.skip("the fused factorisation needs a GPU with thread block clusters")


def covariance_of(rows_per_channel, d, condition, groups=1):
    """Covariances `(groups, d, d)` of fresh batches, in float32."""
    x = [make_batch((rows_per_channel * d + 2, d, 1), condition=condition, device=DEVICE) for _ in range(groups)]
    return torch.stack([each[:, :, 0].double().mT.cov().view(d, d) for each in x]).float()


def factorise_both(covariance, eps):
    """The fused factorisation and the library's."""
    assert cholesky_for(covariance, RETRY_SHRINKAGE) is not None
    with plain_passes():
        plain = factorise(covariance, "cholesky", eps, 5)
    return factorise(covariance, "cholesky", eps, 5), plain


def residual(covariance, w, eps):
    """`||W S W^T - I|| / sqrt(d)` of each matrix, S shrunk as W says."""
    sigma = shrink(covariance.double(), eps, w.retry.double())
    identity = torch.eye(covariance.shape[-1], device=DEVICE, dtype=torch.float64)
    return (w.matrix.double() @ sigma @ w.matrix.double().mT - identity).norm(dim=(1, 2)) / identity.norm()


def assert_as_good(covariance, w, plain, eps):
    """Lower triangular, of the same retries, and a residual like that of the library's in float32.

    Or like that of eight roundings of the matrix, in the direction of its smallest eigenvalue: tensor cores cut sums
    off, whose errors do not cancel as the library's do there. A backward stable factorisation is allowed d of them.
    """
    assert torch.equal(w.matrix, w.matrix.tril())
    assert torch.equal(w.retry, plain.retry)
    found, reference = residual(covariance, w, eps), residual(covariance, plain, eps)
    eigenvalues = torch.linalg.eigvalsh(shrink(covariance.double(), eps, w.retry.double()))
    roundings = 8 * 2**-24 * eigenvalues[:, -1] / eigenvalues[:, 0] / covariance.shape[-1] ** 0.5
    allowed = torch.maximum(4 * reference + ROUNDINGS, roundings)
    assert (found <= allowed).all(), f"{found.tolist()}, allowed {allowed.tolist()}, the library's {reference.tolist()}"


@pytest.mark.parametrize("groups", [1, 5, 16])
@pytest.mark.parametrize("d", [1, 3, 32, 33, 64, 100, 128, 256, 300, 512])
def test_factorisation_whitens(d, groups):
    covariance = covariance_of(4, d, condition=10.0, groups=groups)
    w, plain = factorise_both(covariance, 1e-3)
    assert_as_good(covariance, w, plain, 1e-3)
    assert residual(covariance, w, 1e-3).max() <= ROUNDINGS


@pytest.mark.parametrize("d", [3, 64, 128, 300, 512])
def test_factorisation_of_ill_conditioned_matrices_is_as_good_as_the_library(d):
    covariance = covariance_of(4, d, condition=1e5, groups=2)
    assert_as_good(covariance, *factorise_both(covariance, 0.0), 0.0)


@pytest.mark.parametrize("d", [3, 33, 128, 512])
def test_indefinite_matrices_are_retried_as_by_the_library(d):
    rotation, _ = torch.linalg.qr(torch.randn(4, d, d, device=DEVICE))
    values = torch.ones(4, d, device=DEVICE)
    values[:, 0] = torch.tensor([0.5, -2e-5, -2e-3, -0.5], device=DEVICE)  # each needs the next level
    covariance = rotation @ torch.diag_embed(values) @ rotation.mT
    covariance = (covariance + covariance.mT) / 2
    w, plain = factorise_both(covariance, 0.0)
    assert torch.equal(w.retry.cpu(), torch.tensor(RETRY_SHRINKAGE))
    assert_as_good(covariance, w, plain, 0.0)


@pytest.mark.parametrize("d", [3, 64, 512])
def test_a_channel_without_variance_is_retried_as_by_the_library(d):
    covariance = covariance_of(4, d, condition=10.0)
    covariance[:, d // 2] = covariance[:, :, d // 2] = 0
    w, plain = factorise_both(covariance, 0.0)
    assert w.retry.item() == pytest.approx(RETRY_SHRINKAGE[1])
    assert_as_good(covariance, w, plain, 0.0)


@pytest.mark.parametrize("d", [1, 33, 512])
def test_a_matrix_of_zeros_is_retried_as_by_the_library(d):
    covariance = torch.zeros(2, d, d, device=DEVICE)
    w, plain = factorise_both(covariance, 0.0)
    assert torch.equal(w.retry, plain.retry)
    assert w.retry[0].item() == pytest.approx(RETRY_SHRINKAGE[1])
    torch.testing.assert_close(w.matrix, plain.matrix)


@pytest.mark.parametrize("d", [3, 64, 512])
def test_matrices_of_rank_one_are_whitened_at_some_level(d):
    direction = torch.randn(3, d, 1, device=DEVICE)
    covariance = direction @ direction.mT
    w, _ = factorise_both(covariance, 0.0)  # a pivot within rounding of 0: whether it fails is chance
    assert w.matrix.isfinite().all()
    retried = w.retry > 0
    # Errors of 2^-23 trace / d in each entry, against eigenvalues of retry trace / d.
    allowed = 16 * 2**-23 * d**0.5 / w.retry
    assert (residual(covariance, w, 0.0) <= allowed)[retried].all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("d", [1, 33, 128, 512])
def test_a_matrix_that_is_not_finite_becomes_nan_and_its_neighbours_do_not(d, value):
    covariance = covariance_of(4, d, condition=10.0, groups=3)
    covariance[1, d - 1, 0] = covariance[1, 0, d - 1] = value
    w = factorise(covariance, "cholesky", 1e-3, 5)
    assert w.matrix[1].isnan().all()
    assert w.retry[1] == 0
    good = covariance[::2].contiguous()
    assert torch.equal(w.matrix[::2], factorise(good, "cholesky", 1e-3, 5).matrix)


@pytest.mark.parametrize("condition", [1e4, 1e6])
@pytest.mark.parametrize("d", [64, 256])
def test_products_in_tf32_are_no_part_of_the_factorisation(d, condition):
    """PyTorch's setting is for its own products: W is as exact as without it, and nothing is retried."""
    covariance = covariance_of(8, d, condition)
    w, plain = factorise_both(covariance, 1e-6)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        allowed = factorise(covariance, "cholesky", 1e-6, 5)
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(allowed.matrix, w.matrix)
    assert not allowed.retry.any()
    assert_as_good(covariance, allowed, plain, 1e-6)


# Larger than the kernel: in blocks


def factorise_large(covariance, eps):
    """In blocks, and by the library."""
    assert covariance.shape[-1] > cholesky.LARGEST
    with plain_passes():
        plain = factorise(covariance, "cholesky", eps, 5)
    return factorise(covariance, "cholesky", eps, 5), plain


@pytest.mark.parametrize("condition", [10.0, 1e4])
@pytest.mark.parametrize(("d", "groups"), [(520, 2), (1024, 1), (2048, 1)])
def test_large_matrices_are_as_good_as_the_library_and_follow_no_setting(d, groups, condition):
    covariance = covariance_of(2, d, condition, groups)
    w, plain = factorise_large(covariance, 1e-3)
    assert_as_good(covariance, w, plain, 1e-3)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        allowed = factorise(covariance, "cholesky", 1e-3, 5)
    finally:
        torch.set_float32_matmul_precision(before)
    assert_as_good(covariance, allowed, plain, 1e-3)


def test_large_matrices_are_retried_as_by_the_library():
    d = 700
    rotation, _ = torch.linalg.qr(torch.randn(4, d, d, device=DEVICE))
    values = torch.ones(4, d, device=DEVICE)
    values[:, 0] = torch.tensor([0.5, -2e-5, -2e-3, -0.5], device=DEVICE)
    covariance = rotation @ torch.diag_embed(values) @ rotation.mT
    w, plain = factorise_large((covariance + covariance.mT) / 2, 0.0)
    assert torch.equal(w.retry.cpu(), torch.tensor(RETRY_SHRINKAGE))
    assert_as_good((covariance + covariance.mT) / 2, w, plain, 0.0)


def test_a_large_matrix_that_is_not_finite_becomes_nan_and_its_neighbours_do_not():
    covariance = covariance_of(2, 600, 10.0, groups=3)
    covariance[1, 599, 0] = covariance[1, 0, 599] = torch.inf
    w = factorise(covariance, "cholesky", 1e-3, 5)
    assert w.matrix[1].isnan().all()
    assert w.matrix[::2].isfinite().all()
    assert not w.retry.any()


# Larger than the kernel: in blocks, as part of a layer's pass


def factorise_in_sequence(covariance, eps):
    """One covariance by the kernels of a sequence, launched by Triton and then directly."""
    d, device = covariance.shape[-1], covariance.get_device()
    s = Sequence("covariance", "w", "retry", "scratch")
    _by_kernels._in_blocks(s, d, device, eps, 1)
    results = []
    for _ in range(2):
        matrix, retry = torch.full_like(covariance, torch.nan), torch.full((1,), torch.nan, device=DEVICE)
        scratch = torch.full((s.sizes["scratch"],), torch.nan, device=DEVICE)  # no kernel may count on zeros
        s(device, covariance.contiguous(), matrix, retry, scratch)
        results.append(Whitening(matrix, retry, retry, retry))
    first, second = results
    torch.testing.assert_close(second.matrix, first.matrix, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(second.retry, first.retry)
    return second


def factorise_plainly(covariance, eps):
    with plain_passes():
        return factorise(covariance, "cholesky", eps, 5)


@pytest.mark.parametrize("condition", [10.0, 1e4])
@pytest.mark.parametrize("d", [520, 600, 1024, 1100, 2048])
def test_blocks_of_a_sequence_are_as_good_as_the_library(d, condition):
    covariance = covariance_of(2, d, condition)
    w = factorise_in_sequence(covariance, 1e-3)
    assert_as_good(covariance, w, factorise_plainly(covariance, 1e-3), 1e-3)
    assert condition > 10 or residual(covariance, w, 1e-3).max() <= ROUNDINGS


@pytest.mark.parametrize(("d", "value", "level"), [(700, -2e-5, 1), (700, -2e-3, 2), (700, -0.5, 3), (2048, -2e-5, 1)])
def test_blocks_of_a_sequence_are_retried_as_by_the_library(d, value, level):
    rotation, _ = torch.linalg.qr(torch.randn(1, d, d, device=DEVICE))
    values = torch.ones(1, d, device=DEVICE)
    values[0, 0] = value
    covariance = rotation @ torch.diag_embed(values) @ rotation.mT
    covariance = (covariance + covariance.mT) / 2
    w = factorise_in_sequence(covariance, 0.0)
    assert w.retry.item() == pytest.approx(RETRY_SHRINKAGE[level])
    assert_as_good(covariance, w, factorise_plainly(covariance, 0.0), 0.0)


@pytest.mark.parametrize("place", [(0, 0), (599, 0), (599, 599)])
def test_blocks_of_a_sequence_that_are_not_finite_become_nan(place):
    covariance = covariance_of(2, 600, 10.0)
    covariance[0][place] = covariance[0][place[::-1]] = torch.inf
    w = factorise_in_sequence(covariance, 1e-3)
    assert w.matrix.isnan().all()
    assert w.retry.item() == 0


@pytest.mark.parametrize("matrices", [1, 5])
def test_a_thousand_factorisations_beside_other_work_have_the_same_bits(matrices):
    """The blocks of a cluster wait for each other: with others on their multiprocessors, they arrive at other times."""
    covariance = covariance_of(4, 256, 100.0, matrices)
    first = factorise(covariance, "cholesky", 1e-3, 5).matrix
    different = torch.zeros((), dtype=torch.int64, device=DEVICE)
    load, beside = torch.randn(4096, 4096, device=DEVICE, dtype=torch.bfloat16), torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    for turn in range(1000):
        if turn % 10 == 0:
            with torch.cuda.stream(beside):
                load @ load
        different += (factorise(covariance, "cholesky", 1e-3, 5).matrix != first).any()
    torch.cuda.synchronize()
    assert different == 0


def test_a_thread_that_has_not_used_the_gpu_factorises_too():
    covariance = covariance_of(4, 64, 10.0)
    expected = factorise(covariance, "cholesky", 1e-3, 5).matrix
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(factorise, covariance, "cholesky", 1e-3, 5).result().matrix
    assert torch.equal(found, expected)
