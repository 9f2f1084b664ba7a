"""Factorisation of matrices that are larger than the kernel, in blocks: the algebra, with a library's blocks.

`interpreted_blocks` tests the kernels that do the same for a layer; here only their launches are counted.
"""

import pytest
import torch

from wcgan.functional._factorisations import RETRY_SHRINKAGE
from wcgan.kernels import cholesky

LARGEST, CONDITION = 64, 100.0


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


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


def make_matrices(count, p, condition=CONDITION):
    rotation, _ = torch.linalg.qr(torch.randn(count, p, p, dtype=torch.float64))
    values = torch.logspace(0, torch.tensor(condition).log10(), p, dtype=torch.float64)
    return (rotation * values) @ rotation.mT


@pytest.mark.parametrize("p", [64, 65, 100, 128, 300])
def test_blocks_give_the_inverse_of_the_cholesky_factor(p):
    matrix = make_matrices(3, p)
    whitening, good = cholesky.factorise_in_blocks(matrix, RETRY_SHRINKAGE)
    expected = torch.linalg.inv(torch.linalg.cholesky(matrix))
    assert good.all()
    assert torch.equal(whitening, whitening.tril())
    assert (whitening - expected).norm() <= 2e-6 * expected.norm()  # blocks are factorised in float32
    residual = whitening @ matrix @ whitening.mT - torch.eye(p)
    # An inverse in float32 is off by its precision times the condition number of the factor, the root of that of A.
    assert residual.abs().max() <= 4 * torch.finfo(torch.float32).eps * CONDITION**0.5


def test_only_the_matrix_that_cannot_be_factorised_is_said_to_fail():
    matrix = make_matrices(4, 200)
    eye = torch.eye(200, dtype=torch.float64)
    matrix[1] -= 2 * eye  # fails in its first block, or a later one
    matrix[2] = torch.where(torch.arange(200) < 199, eye, -eye)  # in its last
    whitening, good = cholesky.factorise_in_blocks(matrix, RETRY_SHRINKAGE)
    assert good.tolist() == [True, False, False, True]
    assert whitening[[0, 3]].isfinite().all()


# A layer's launches


class Nothing:
    """A kernel for blocks that does nothing."""

    def __init__(self, *_):
        pass

    def __call__(self, *tensors):
        pass


@pytest.mark.parametrize(("d", "forward", "backward"), [(1024, 19, 9), (2048, 31, 9)])
def test_a_wide_layer_has_few_launches(d, forward, backward):
    """In eager training the host's calls take longer than such a layer's kernels."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from wcgan.kernels import blocks, layer

    def factorise(s, d, device, eps, groups):
        blocks.add_factorisation(s, d, eps, RETRY_SHRINKAGE, Nothing)

    x = torch.empty(64, d, 7, 7, dtype=torch.bfloat16, device="meta").to(memory_format=torch.channels_last)
    options = (1e-3, False, 132, "half", factorise, (True, 0.1), True)
    given = (1, False, False, False, False)
    there = layer._forward.__wrapped__(x.shape, x.stride(), x.stride(), x.dtype, 0, *given, *options)
    strides = (x.stride(),) * 3
    back = layer._backward.__wrapped__(x.shape, *strides, x.dtype, 1, *[False] * 3, 1e-3, 132, "half", True, True)
    assert len(there._steps) <= forward
    assert len(back._steps) <= backward
    assert there.sizes["scratch"] * 4 <= 80 * d**2, "room for three more attempts is the largest part of it"
