"""A batch taken as equal parts: each is whitened as if it were alone, with or without gradients."""

import pytest
import torch
from tests.functional.cases import COLORINGS, WHITENINGS, differentiable, make_batch, make_coloring

from wcgan.functional import whiten_color, whiten_color_parts

EXACT = {"rtol": 1e-12, "atol": 1e-12}
SAMPLES, CHANNELS, PARTS = 12, 4, 3


def part_of(values, part, parts=PARTS):
    return values.chunk(parts)[part]


def one_by_one(x, color, shift, index, parts=PARTS, **options):
    """A call for each part: outputs joined, and the statistics of each."""
    own = index is None and color is not None and len(color) == len(x)
    calls = []
    for part in range(parts):
        tables = [t if t is None or not own else part_of(t, part, parts) for t in (color, shift)]
        labels = None if index is None else part_of(index, part, parts)
        calls.append(whiten_color(part_of(x, part, parts), *tables, labels, **options))
    return torch.cat([z for z, _ in calls]), [statistics for _, statistics in calls]


def options_for(whitening):
    return {"whitening": whitening, "groups": CHANNELS if whitening == "standardize" else 1}


@pytest.mark.parametrize("grad", [False, True], ids=["without gradients", "with gradients"])
@pytest.mark.parametrize("kind", [*COLORINGS, "sample diagonal"])
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_parts_equal_a_call_for_each(whitening, kind, grad):
    x = make_batch(SAMPLES, CHANNELS, 3, 2)
    if kind == "sample diagonal":
        color, shift, index = make_batch(SAMPLES, CHANNELS, seed=3), make_batch(SAMPLES, CHANNELS, seed=4), None
    else:
        color, shift, index = make_coloring(kind, SAMPLES, CHANNELS)
    options = options_for(whitening)
    with torch.set_grad_enabled(grad):
        z, statistics = whiten_color_parts(x, color, shift, index, parts=PARTS, **options)
        wanted, wanted_statistics = one_by_one(x, color, shift, index, **options)
    torch.testing.assert_close(z, wanted, **EXACT)
    assert len(statistics) == PARTS
    for each, wanted_each in zip(statistics, wanted_statistics, strict=True):
        torch.testing.assert_close(tuple(each), tuple(wanted_each), **EXACT)


@pytest.mark.parametrize("grad", [False, True], ids=["without gradients", "with gradients"])
def test_groups_are_kept_within_parts(grad):
    x = make_batch(SAMPLES, CHANNELS, 3, 2)
    with torch.set_grad_enabled(grad):
        z, statistics = whiten_color_parts(x, parts=2, groups=2)
    wanted, _ = one_by_one(x, None, None, None, parts=2, groups=2)
    torch.testing.assert_close(z, wanted, **EXACT)
    assert [s.covariance.shape for s in statistics] == [(2, 2, 2)] * 2


def test_one_part_is_the_whole_batch():
    x = make_batch(SAMPLES, CHANNELS, 3, 2)
    with torch.no_grad():
        z, (statistics,) = whiten_color_parts(x, parts=1)
        wanted, wanted_statistics = whiten_color(x)
    assert torch.equal(z, wanted)
    assert all(torch.equal(a, b) for a, b in zip(statistics, wanted_statistics, strict=True))


def test_a_part_that_is_not_finite_leaves_the_others_as_they_are():
    x = make_batch(SAMPLES, CHANNELS, 3, 2)
    broken = x.clone()
    broken[SAMPLES // PARTS, 1, 0, 0] = torch.nan  # of the second part
    with torch.no_grad():
        wanted, _ = whiten_color_parts(x, parts=PARTS)
        z, statistics = whiten_color_parts(broken, parts=PARTS)
    assert part_of(z, 1).isnan().all()
    for part in (0, 2):
        assert torch.equal(part_of(z, part), part_of(wanted, part))
    assert [bool(s.covariance.isfinite().all()) for s in statistics] == [True, False, True]


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
def test_the_output_keeps_the_memory_format(last):
    x = make_batch(SAMPLES, CHANNELS, 3, 2)
    if last:
        x = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        z, _ = whiten_color_parts(x, parts=PARTS)
    assert z.stride() == x.stride()


@pytest.mark.parametrize("kind", ["none", "full", "class full", "sample full", "class diagonal"])
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_derivatives_are_those_of_the_calls_one_by_one(whitening, kind):
    x, (color, shift, index) = make_batch(6, CHANNELS, 3), make_coloring(kind, 6, CHANNELS)
    cotangent = torch.sin(torch.arange(x.numel(), dtype=x.dtype)).view_as(x)
    gradients = []
    for function in (whiten_color_parts, one_by_one):
        leaves = differentiable(x, color, shift)
        tables = [*leaves[1:], None, None][:2]
        z, _ = function(leaves[0], *tables, index, parts=2, **options_for(whitening))
        gradients.append(torch.autograd.grad(z, leaves, cotangent))
    torch.testing.assert_close(*gradients, **EXACT)


def test_the_gradient_check_passes():
    x, (color, shift, index) = make_batch(6, 3, 2), make_coloring("class full", 6, 3)

    def joined(*leaves):
        z, statistics = whiten_color_parts(*leaves, index, parts=2)
        return z, *(s.covariance for s in statistics)

    assert torch.autograd.gradcheck(joined, differentiable(x, color, shift))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_half_precision_batch_keeps_float32_statistics(dtype):
    x = make_batch(SAMPLES, CHANNELS, 3, 2).to(dtype)
    with torch.no_grad():
        z, statistics = whiten_color_parts(x, parts=PARTS)
    assert z.dtype == dtype
    assert {s.covariance.dtype for s in statistics} == {torch.float32}
