"""The plain path of `torch.func` and forward mode beside the operators: the same results."""

import pytest
import torch
from tests.functional.cases import COLORINGS, WHITENINGS, make_batch, make_coloring
from torch.func import jvp, vmap

from wcgan import functional

EXACT = {"rtol": 1e-10, "atol": 1e-10}


def plainly(function, x):
    """The function's value by plain operations: as a forward derivative asks for them."""
    return jvp(function, (x,), (torch.zeros_like(x),))[0]


@pytest.mark.parametrize("kind", COLORINGS)
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_both_paths_whiten_and_color_alike(whitening, kind):
    x = make_batch(5, 4, 3, 2)
    groups = 4 if whitening == "standardize" else 2
    coloring = make_coloring(kind, 5, 4)

    def function(x):
        out, statistics = functional.whiten_color(x, *coloring, whitening=whitening, groups=groups)
        return out, *statistics

    torch.testing.assert_close(plainly(function, x), function(x), **EXACT)


@pytest.mark.parametrize("whitening", [*WHITENINGS, "none"])
def test_both_paths_factorise_alike(whitening):
    covariance = functional.moments(make_batch(9, 4))[1].expand(3, 4, 4).clone()
    covariance[1] = 0  # nothing to whiten by, with
    for eps in (1e-3, 0.0):  # and without a shrinkage that makes up for it

        def function(c, eps=eps):
            return functional.covariance_to_whitening(c, whitening, eps)

        torch.testing.assert_close(plainly(function, covariance), function(covariance), **EXACT)
        torch.testing.assert_close(vmap(function)(covariance), function(covariance), **EXACT)


@pytest.mark.parametrize("whitening", WHITENINGS)
def test_a_covariance_that_is_not_finite_is_nan_on_both_paths(whitening):
    covariance = torch.eye(4, dtype=torch.float64)
    covariance[1, 1] = torch.nan
    assert plainly(lambda c: functional.covariance_to_whitening(c, whitening), covariance)[1, 1].isnan()


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_both_paths_take_the_same_moments(groups):
    x = make_batch(5, 4, 3, 2)
    torch.testing.assert_close(
        plainly(lambda x: functional.moments(x, groups), x), functional.moments(x, groups), **EXACT
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_out_as_it_went_in(dtype):
    x = make_batch(5, 4, 3, 2).to(dtype)
    out = plainly(functional.whiten, x)
    assert out.dtype == dtype
    torch.testing.assert_close(out, functional.whiten(x), rtol=2e-2, atol=2e-2)


def test_sub_batches_have_a_forward_derivative():
    x, tangent = make_batch(6, 4), make_batch(6, 4, seed=1)
    with torch.no_grad():
        out, derivative = jvp(lambda x: functional.whiten_color_parts(x, parts=2)[0], (x,), (tangent,))
    halves = [jvp(functional.whiten, (x[i : i + 3],), (tangent[i : i + 3],)) for i in (0, 3)]
    torch.testing.assert_close(out, torch.cat([half[0] for half in halves]), **EXACT)
    torch.testing.assert_close(derivative, torch.cat([half[1] for half in halves]), **EXACT)
