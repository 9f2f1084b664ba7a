"""The registered operators keep PyTorch's rules: schema, fake tensors, autograd, `torch.compile`'s tracing."""

import pytest
import torch
from tests.functional.cases import WHITENINGS, make_batch, make_coloring
from torch.library import opcheck

import wcgan.functional  # noqa: F401  registers the operators
from wcgan.functional import _operators

ops = torch.ops.wcgan


def leaf(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("groups", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_moments(groups):
    opcheck(ops.moments.default, (make_batch(4, 4, 3).requires_grad_(), groups))


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
def test_map(last):
    x = make_batch(4, 4, 3, 2)
    x = (x.to(memory_format=torch.channels_last) if last else x).requires_grad_()
    opcheck(ops.map.default, (x, leaf(1, 2, 2, 2), leaf(4), leaf(1, 4), None))
    opcheck(ops.map.default, (x, leaf(3, 1, 4, 4), None, leaf(3, 4), torch.tensor([0, 2, 2, 1])))


def test_cross():
    z, x = leaf(4, 4, 3), make_batch(4, 4, 3).requires_grad_()
    opcheck(ops.cross.default, (z, x, leaf(4), None, 1, 2, 2))
    opcheck(ops.cross.default, (z, x, None, torch.tensor([0, 2, 2, 1]), 3, 1, 4))


@pytest.mark.parametrize("whitening", [*WHITENINGS, "zca-decomposition", "none"])
def test_factorise(whitening):
    covariance = torch.stack([torch.cov(make_batch(9, 3, seed=s).T) for s in range(2)]).requires_grad_()
    opcheck(ops.factorise.default, (covariance, whitening, 1e-3, 3))


# Every whitening is an operator of its own in `test_factorise`; those that stand for others are slow here.
@pytest.mark.parametrize(
    ("whitening", "relu"),
    [
        *(pytest.param(kind, False, marks=pytest.mark.slow) for kind in WHITENINGS if kind != "zca"),
        *(pytest.param("zca-decomposition", False, marks=pytest.mark.slow), ("zca", False), ("cholesky", True)),
    ],
)
def test_whiten_color_of_every_whitening(whitening, relu):
    color, shift, index = make_coloring("class full", 4, 4)
    x, color, shift = (t.requires_grad_() for t in (make_batch(4, 4, 3), color, shift))
    opcheck(ops.whiten_color.default, (x, color, shift, index, whitening, 1, 1e-3, 3, "", relu))


@pytest.mark.parametrize(
    "kind",
    [
        *("none", "class diagonal"),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("diagonal", "full", "sample full")),
    ],
)
def test_whiten_color_of_every_coloring(kind):
    color, shift, index = make_coloring(kind, 4, 4)
    x, color, shift = (t if t is None else t.requires_grad_() for t in (make_batch(4, 4, 3), color, shift))
    opcheck(ops.whiten_color.default, (x, color, shift, index, "cholesky", 2, 1e-3, 3, "", False))


@pytest.mark.parametrize("kind", ["none", "full", "class full", "sample full"])
def test_whiten_color_of_parts(kind):
    color, shift, index = make_coloring(kind, 4, 4)
    x = make_batch(4, 4, 3)
    opcheck(ops.whiten_color_parts.default, (x, color, shift, index, 2, "cholesky", 2, 1e-3, 3, "", True))


def test_two_maps():
    z, x = leaf(4, 4, 3).detach(), make_batch(4, 4, 3)
    arguments = (leaf(3, 2, 2, 2), torch.tensor([0, 2, 2, 1]), x, leaf(1, 2, 2, 2), leaf(4), leaf(1, 4))
    opcheck(ops.two_maps.default, (z, *[a.detach() for a in arguments]))


def test_solve_lyapunov():
    roots, vectors = torch.linalg.eigh(torch.stack([torch.cov(make_batch(9, 3, seed=s).T) for s in range(2)]))
    root = (vectors * roots[:, None]) @ vectors.mT
    right = leaf(2, 3, 3)
    opcheck(ops.solve_lyapunov.default, (root.requires_grad_(), right, roots, vectors))
    solution = ops.solve_lyapunov(root, right, roots, vectors)
    torch.testing.assert_close(root @ solution + solution @ root, right, rtol=1e-10, atol=1e-10)


def test_gpus_of_amd_get_no_kernels(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert _operators._import_kernels.__wrapped__() is None
