"""`affine`: one known map per sample, against a loop over the samples."""

import pytest
import torch
from tests.functional.cases import make_batch
from torch.autograd import gradcheck

from wcgan.functional import affine

EXACT = {"rtol": 1e-12, "atol": 1e-12}


def one_by_one(x, matrix, offset, index=None, mean=None):
    slots = range(len(x)) if index is None and len(matrix) > 1 else [0] * len(x) if index is None else index.tolist()
    mean = torch.zeros(x.shape[1], dtype=x.dtype) if mean is None else mean
    columns = [
        torch.block_diag(*matrix[k]) @ (sample.flatten(1) - mean[:, None]) + offset[k][:, None]
        for k, sample in zip(slots, x.flatten(2) if x.dim() > 2 else x[..., None], strict=True)
    ]
    return torch.stack(columns).reshape(x.shape)


@pytest.mark.parametrize("mean", [None, torch.arange(4.0, dtype=torch.float64)], ids=["no mean", "mean"])
@pytest.mark.parametrize("blocks", [(1, 4), (2, 2), (4, 1)], ids=str)
@pytest.mark.parametrize("slots", ["shared", "per class", "per sample"])
@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3), (5, 4, 3, 2)], ids=str)
def test_each_sample_takes_its_own_map(shape, slots, blocks, mean):
    x = make_batch(*shape)
    count = {"shared": 1, "per class": 3, "per sample": 5}[slots]
    index = torch.tensor([2, 0, 0, 2, 1]) if slots == "per class" else None
    generator = torch.Generator().manual_seed(3)
    groups, p = blocks
    matrix = torch.randn(count, groups, p, p, generator=generator, dtype=torch.float64)
    offset = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    expected = one_by_one(x, matrix, offset, index, mean)
    torch.testing.assert_close(affine(x, matrix, offset, index, mean), expected, **EXACT)


@pytest.mark.parametrize("blocks", [(1, 4), (2, 2), (4, 1)], ids=str)
@pytest.mark.parametrize("slots", [1, 3])
def test_channels_last_in_gives_channels_last_out(slots, blocks):
    x = make_batch(3, 4, 3, 2).to(memory_format=torch.channels_last)
    groups, p = blocks
    z = affine(x, torch.randn(slots, groups, p, p, dtype=x.dtype), torch.randn(slots, 4, dtype=x.dtype))
    assert z.is_contiguous(memory_format=torch.channels_last)


def test_places_may_be_transposed_in_memory():
    x = make_batch(5, 4, 2, 3).transpose(2, 3)
    matrix, offset = torch.randn(1, 1, 4, 4, dtype=x.dtype), torch.randn(1, 4, dtype=x.dtype)
    torch.testing.assert_close(affine(x, matrix, offset), one_by_one(x, matrix, offset), **EXACT)


@pytest.mark.parametrize("slots", [1, 3])
def test_derivatives_are_those_of_finite_differences(slots):
    x = make_batch(3, 4, 2).requires_grad_()
    matrix = torch.randn(slots, 2, 2, 2, dtype=x.dtype, requires_grad=True)
    offset = torch.randn(slots, 4, dtype=x.dtype, requires_grad=True)
    assert gradcheck(affine, [x, matrix, offset])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_half_precision_batch_keeps_its_dtype(dtype):
    x = make_batch(5, 4, 3, dtype=dtype)
    assert affine(x, torch.randn(1, 1, 4, 4), torch.randn(1, 4)).dtype == dtype


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_large_mean_costs_a_half_precision_batch_no_digits(dtype, slots):
    mean = torch.tensor([1000.0, -2000.0, 500.0, 1500.0])
    x = (make_batch(5, 4, 3, dtype=torch.float32) * 20 + mean[:, None]).to(dtype)
    matrix, offset = torch.randn(slots, 1, 4, 4), torch.randn(slots, 4)
    index = torch.tensor([2, 0, 0, 2, 1]) if slots > 1 else None
    found = affine(x, matrix, offset, index, mean)
    wide = (t.double() for t in (x, matrix, offset))
    expected = one_by_one(*wide, index, mean.double())
    sizes = one_by_one(*((t.double().abs()) for t in (x - mean[:, None], matrix, offset)), index)
    # Matrix, centred batch, offset, result, and three sums in between are rounded once each.
    assert ((found.double() - expected).abs() <= 7 * torch.finfo(dtype).eps / 2 * sizes).all()


@pytest.mark.parametrize(
    ("matrix", "offset", "index"),
    [
        ((1, 1, 3, 3), (1, 3), None),
        ((1, 2, 4, 4), (1, 4), None),
        ((2, 1, 4, 4), (2, 4), None),
        ((3, 1, 4, 4), (2, 4), (5,)),
        ((3, 1, 4, 4), (3, 4), (4,)),
        ((1, 4, 4), (1, 4), None),
    ],
    ids=str,
)
def test_a_map_that_does_not_fit_the_batch_is_refused(matrix, offset, index):
    index = None if index is None else torch.zeros(index, dtype=torch.long)
    with pytest.raises(ValueError, match=r"\d"):  # the shape at fault
        affine(torch.randn(5, 4), torch.randn(matrix), torch.randn(offset), index)
