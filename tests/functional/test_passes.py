"""The walk over a batch in blocks: where the blocks are cut changes nothing."""

import math

import pytest
import torch
from tests.functional.cases import COLORINGS, make_batch, make_coloring

from wcgan.functional import _operators, _passes, moments, whiten_color

SHAPES = [(37, 4), (7, 4, 11), (5, 4, 6, 5)]


def set_block(monkeypatch, elements):
    monkeypatch.setattr(_passes, "BLOCK_ELEMENTS", dict.fromkeys(_passes.BLOCK_ELEMENTS, elements))


def values_and_gradients(x, coloring, groups):
    color, shift, index = coloring
    leaves = [t.detach().requires_grad_() for t in (x, color, shift) if t is not None]
    x, *parameters = leaves
    color = parameters.pop(0) if color is not None else None
    shift = parameters.pop(0) if shift is not None else None
    z, statistics = whiten_color(x, color, shift, index, groups=groups)
    cotangent = torch.sin(torch.arange(z.numel(), dtype=z.dtype)).reshape(z.shape)
    gradients = torch.autograd.grad(z, leaves, cotangent, create_graph=True)
    second = torch.autograd.grad(gradients[0].square().sum(), leaves, materialize_grads=True)
    return [z, *statistics, *gradients, *second]


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("elements", [16, 100, *(pytest.param(size, marks=pytest.mark.slow) for size in (1, 64))])
@pytest.mark.parametrize("kind", COLORINGS)
def test_the_size_of_a_block_changes_neither_values_nor_derivatives(monkeypatch, kind, elements, last):
    x = make_batch(5, 4, 6, 5)
    if last:
        x = x.to(memory_format=torch.channels_last)
    coloring = make_coloring(kind, 5, 4)
    expected = values_and_gradients(x, coloring, groups=2)
    set_block(monkeypatch, elements)
    for value, wanted in zip(values_and_gradients(x, coloring, groups=2), expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["full", "class full", "class diagonal"])
def test_batches_of_every_rank_may_be_cut(monkeypatch, kind, shape):
    x, coloring = make_batch(*shape), make_coloring(kind, shape[0], 4)
    expected = values_and_gradients(x, coloring, groups=1)
    set_block(monkeypatch, 24)
    for value, wanted in zip(values_and_gradients(x, coloring, groups=1), expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-10, atol=1e-10)


def test_tiny_blocks_really_cut_the_batch(monkeypatch):
    x = make_batch(5, 4, 6, 5)
    positions = _passes.as_positions(x)
    assert len(list(_passes._blocks(positions, 1))) == 1
    set_block(monkeypatch, 16)
    assert len(list(_passes._blocks(positions, 1))) > 5


@pytest.mark.parametrize("per_block", [2, 16, 256])
def test_a_large_mean_costs_merged_blocks_no_more_than_the_rounding_of_their_means(monkeypatch, per_block):
    set_block(monkeypatch, 4 * per_block)
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(8, 4, 256, generator=generator, dtype=torch.float64) + 1e4).float()
    positions = x.double().transpose(0, 1).flatten(1)
    _, covariance = moments(x)
    u = torch.finfo(torch.float32).eps / 2
    slip = 4 * u * 1e4  # of the difference of two means
    # With a spread of 1, means of blocks differ by 1 / sqrt(per_block): the slip enters by that, and squared.
    bound = 2 * math.sqrt(positions.shape[1]) * u + 2 * slip / math.sqrt(per_block) + slip**2
    assert (covariance - positions.cov()).abs().max() <= bound


# What the GPU kernels can read, without a GPU


@pytest.mark.parametrize(
    ("shape", "order", "readable"),
    [
        ((2**22, 64, 16), (0, 1, 2), True),
        ((2**22, 64, 16), (0, 2, 1), True),
        ((2**22, 64, 16), (2, 0, 1), False),  # positions are 2^28 elements apart
        ((2**26, 64), (1, 0), False),  # and so are channels
        ((1, 64, 2**9, 2**9, 2**8), (0, 1, 2, 3, 4), False),  # a sample of 2^32 elements
        ((2**30, 4), (0, 1), False),  # too many positions
    ],
)
def test_kernels_get_no_batch_with_offsets_beyond_32_bits(shape, order, readable):
    stored = torch.empty([shape[axis] for axis in order], device="meta")
    x = stored.permute(*(order.index(axis) for axis in range(len(order))))
    assert x.shape == shape
    assert _operators._is_view(x) == readable


def test_kernels_get_no_batch_that_is_still_to_be_negated():
    x = torch.complex(torch.randn(4, 3), torch.randn(4, 3)).conj().imag
    assert x.is_neg()
    assert not _operators._is_view(x)
    assert _operators._is_view(x.resolve_neg())
