"""The factorisation in blocks on the CPU, run by `test_batch` where Triton interprets its kernels.

Blocks are factorised by a library, which reports as the kernel of `wcgan.kernels.cholesky` does.
"""

import pytest
import torch
from tests.kernels.cases import in_layout, make_batch, split_into_float16
from tests.kernels.interpreted_layer import EPS, oracle

from wcgan.functional._factorisations import FACTORISATIONS, RETRY_SHRINKAGE, shrink

blocks = pytest.importorskip("wcgan.kernels.blocks", reason="Triton is not installed")
from wcgan.kernels import Sequence, layer  # noqa: E402

SLOW = pytest.mark.slow
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # products with infinities
EPS32 = torch.finfo(torch.float32).eps


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


class Library:
    """A kernel for blocks. Counts the launches that did something."""

    def __init__(self):
        self.launches, self.worked = 0, 0

    def for_blocks(self, size, matrices):
        def kernel(block, inverse, report, wanted):
            self.launches += 1
            if wanted is not None and wanted.item() == 0:
                return
            self.worked += 1
            matrix = block[: matrices * size**2].view(matrices, size, size)
            torch.testing.assert_close(matrix, matrix.mT, rtol=0, atol=0, equal_nan=True)
            # As the kernel: NaN, and no retry, of a block that no attempt can factorise.
            found = FACTORISATIONS["cholesky"].factorise(matrix, 0.0, 0)
            inverse[: matrices * size**2].view(matrices, size, size).copy_(found.matrix)
            report.copy_(found.retry)

        kernel.direct_for = lambda tensors: None
        return kernel


def factorise(covariance, eps=0.0):
    """W, the retry, and the library that was used, from memory that nobody has cleared."""
    d, library = covariance.shape[-1], Library()
    s = Sequence("covariance", "w", "retry", "scratch")
    blocks.add_factorisation(s, d, eps, RETRY_SHRINKAGE, library.for_blocks)
    w, retry = torch.full((d, d), torch.nan), torch.full((1,), torch.nan)
    scratch = torch.full((s.sizes["scratch"],), torch.nan)
    s(-1, covariance, w.view(-1), retry, scratch)
    return w, retry.item(), library


def covariance_with(values):
    """A symmetric matrix with these eigenvalues."""
    rotation, _ = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.float64))
    matrix = (rotation * values.double()) @ rotation.mT
    return ((matrix + matrix.mT) / 2).float()


def expected_from(covariance, eps, retry):
    sigma = shrink(covariance.double().unsqueeze(0), eps, torch.tensor([retry], dtype=torch.float64))[0]
    return torch.linalg.inv(torch.linalg.cholesky(sigma)), sigma


def assert_whitens(w, covariance, eps, retry, condition):
    expected, sigma = expected_from(covariance, eps, retry)
    assert torch.equal(w, w.tril())
    # Blocks are inverted in float32: off by its precision times the root of the condition number.
    allowed = 4 * EPS32 * condition**0.5
    residual = w.double() @ sigma @ w.double().mT - torch.eye(len(w), dtype=torch.float64)
    assert residual.abs().max() <= allowed
    assert (w - expected).norm() <= allowed * expected.norm()


WIDTHS = {520: 2, 600: 2, 1024: 2, 1030: 3, 2048: 4}


@pytest.mark.parametrize(("d", "number"), WIDTHS.items())
def test_blocks_are_few_and_fit_the_kernel_and_whole_tiles(d, number):
    sizes = blocks.block_sizes(d)
    assert (len(sizes), sum(sizes)) == (number, d)
    assert all(size <= blocks.BLOCK for size in sizes)
    assert all(size % blocks.TILE == 0 for size in sizes[:-1])


@pytest.mark.parametrize(
    ("d", "condition"),
    [(600, 1e4), *(pytest.param(*case, marks=SLOW) for case in ((600, 10.0), (1024, 10.0), (1024, 1e4), (1100, 1e4)))],
)
def test_blocks_give_the_inverse_of_the_cholesky_factor(d, condition):
    covariance = covariance_with(torch.logspace(0, -1, d, base=condition))
    w, retry, library = factorise(covariance, eps=1e-5)
    assert retry == 0
    assert library.worked * 2 == library.launches == 2 * len(blocks.block_sizes(d))
    assert_whitens(w, covariance, 1e-5, retry, condition)


@pytest.fixture
def small_blocks(monkeypatch):
    """Four blocks of at most 32 rows: the launches of 2,048 channels, in a hundredth of the time."""
    monkeypatch.setattr(blocks, "TILE", 32)
    monkeypatch.setattr(blocks, "BLOCK", 32)


@pytest.mark.parametrize("d", [100, 128])
def test_many_blocks_give_the_inverse_of_the_cholesky_factor(d, small_blocks):
    covariance = covariance_with(torch.logspace(0, -2, d))
    w, retry, _ = factorise(covariance, eps=1e-3)
    assert retry == 0
    assert_whitens(w, covariance, 1e-3, retry, 100.0)


def test_the_symmetric_part_is_factorised(small_blocks):
    covariance = covariance_with(torch.logspace(0, -2, 100))
    noise = 1e-3 * torch.randn(100, 100)
    assert_whitens(factorise(covariance + noise - noise.mT)[0], covariance, 0.0, 0.0, 400.0)


@pytest.mark.parametrize("level", [pytest.param(1, marks=SLOW), 2, pytest.param(3, marks=SLOW)])
def test_a_matrix_that_is_indefinite_is_shrunk_by_the_first_level_that_is_enough(level, small_blocks):
    values = torch.ones(100)
    values[0] = (None, -2e-5, -2e-3, -0.5)[level]
    covariance = covariance_with(values)
    w, retry, library = factorise(covariance)
    plain = FACTORISATIONS["cholesky"].factorise(covariance.unsqueeze(0), 0.0, 0)
    assert retry == pytest.approx(RETRY_SHRINKAGE[level])
    assert retry == plain.retry.item()
    assert library.worked == library.launches
    assert_whitens(w, covariance, 0.0, retry, 2e4)


@pytest.mark.parametrize("channel", [pytest.param(0, marks=SLOW), pytest.param(50, marks=SLOW), 99])
def test_a_channel_without_variance_in_any_block_is_retried(channel, small_blocks):
    covariance = covariance_with(torch.logspace(0, -1, 100))
    covariance[channel] = covariance[:, channel] = 0
    w, retry, _ = factorise(covariance)
    assert retry == pytest.approx(RETRY_SHRINKAGE[1])
    assert_whitens(w, covariance, 0.0, retry, 1e4)


def test_a_matrix_of_zeros_is_shrunk_towards_the_identity(small_blocks):
    w, retry, _ = factorise(torch.zeros(100, 100))
    assert retry == pytest.approx(RETRY_SHRINKAGE[1])
    torch.testing.assert_close(w, 100 * torch.eye(100))


def test_a_matrix_of_rank_one_is_whitened_at_some_level(small_blocks):
    direction = torch.randn(100, 1)
    w, retry, _ = factorise(direction @ direction.mT)
    assert retry > 0
    assert w.isfinite().all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, pytest.param(-torch.inf, marks=SLOW)])
@pytest.mark.parametrize("place", [(0, 0), (99, 0), (99, 99), pytest.param((50, 40), marks=SLOW)])
def test_a_matrix_that_is_not_finite_becomes_nan_and_is_not_called_retried(place, value, small_blocks):
    covariance = covariance_with(torch.logspace(0, -1, 100))
    covariance[place] = covariance[place[::-1]] = value
    w, retry, _ = factorise(covariance, eps=1e-3)
    assert w.isnan().all()
    assert retry == 0


def test_a_matrix_that_is_indefinite_in_one_block_and_not_finite_in_another_becomes_nan(small_blocks):
    covariance = covariance_with(torch.logspace(0, -1, 100))
    covariance[0, 0], covariance[99, 99] = -1.0, torch.nan
    w, retry, _ = factorise(covariance, eps=1e-3)
    assert w.isnan().all()
    assert retry == 0


# A layer with blocks, whose other products go by wider tiles


@pytest.mark.parametrize("flat", [False, True], ids=["first attempt", "retried"])
@pytest.mark.parametrize("columns", [64, pytest.param(128, marks=SLOW)])
def test_a_wide_layer_and_its_gradients(columns, flat, small_blocks, monkeypatch):
    split_into_float16(monkeypatch)
    monkeypatch.setattr(layer, "product_tile", lambda rows, _: (columns, 2048) if rows > 16 else (32, 256))
    for function in (layer._forward, layer._backward):
        monkeypatch.setattr(layer, function.__name__, function.__wrapped__)  # remembers nothing
    n, d = 8, 70
    x = in_layout(make_batch((n, d, 25), mean=1.0), "channels last").unflatten(2, (5, 5))
    color, shift, library = torch.randn(d, d), torch.randn(d), Library()
    eps = 0.0 if flat else EPS
    if flat:
        x[:, 3] = 0.0

    def factorise(s, d, device, eps, groups):
        blocks.add_factorisation(s, d, eps, RETRY_SHRINKAGE, library.for_blocks)

    out, kept = layer.forward(x, color, shift, None, None, None, None, eps, False, factorise)
    grad = torch.randn_like(out)
    found = layer.backward(x, grad, color, shift, None, False, None, kept, eps, (True, True))
    assert layer.statistics(kept, d)[2].item() == pytest.approx(RETRY_SHRINKAGE[1] if flat else 0.0)
    assert library.worked * (1 if flat else 2) == library.launches
    leaves = [t.double().requires_grad_() for t in (x, color, shift)]
    expected = (shrunk_oracle if flat else oracle)(*leaves, None, None)
    gradients = torch.autograd.grad(expected, leaves, grad.double())
    pairs = zip(("output", "x", "color", "shift"), (out, *found[:3]), (expected, *gradients), strict=True)
    for name, value, wanted in pairs:
        error = (value.double() - wanted).norm() / wanted.norm()
        assert error <= 2e-5 * (50 if flat else 1), f"{name}: off by {error:.2g}"


def shrunk_oracle(x, color, shift, *_):
    """The layer in float64 with the first level of shrinkage."""
    rows = x.movedim(1, -1).reshape(-1, x.shape[1])
    level = torch.tensor([RETRY_SHRINKAGE[1]], dtype=torch.float64)
    w = torch.linalg.inv(torch.linalg.cholesky(shrink(rows.mT.cov().unsqueeze(0), 0.0, level)[0]))
    places = (rows - rows.mean(0)) @ (color @ w).mT + shift
    return places.view(x.shape[0], *x.shape[2:], -1).movedim(-1, 1)
