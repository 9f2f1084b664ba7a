"""First and second derivatives of `whiten_color` against finite differences, for every whitening and coloring."""

import itertools

import pytest
import torch
from tests.functional.cases import COLORINGS, WHITENINGS, differentiable, make_batch, make_coloring
from torch.autograd import gradcheck, gradgradcheck

from wcgan.functional import moments, whiten_color


def as_function(kind, **options):
    """`whiten_color` as a function of its differentiable inputs alone, and those inputs."""
    x = make_batch(4, 4, 2)
    color, shift, index = make_coloring(kind, 4, 4)

    def function(x, *parameters):
        parameters = list(parameters)
        matrix = None if color is None else parameters.pop(0)
        offset = None if shift is None else parameters.pop(0)
        return whiten_color(x, matrix, offset, index, **options)[0]

    return function, differentiable(x, color, shift)


# Every coloring, and with groups one of each shape that a coloring can give the map.
COLORINGS_AND_GROUPS = [*((kind, 1) for kind in COLORINGS), ("none", 2), ("diagonal", 2), ("class full", 2)]


def cases():
    """Every coloring with each whitening; quick are all by Cholesky, and three colorings by the others."""
    for whitening, (kind, groups) in itertools.product(WHITENINGS, COLORINGS_AND_GROUPS):
        quick = whitening == "cholesky" or (kind, groups) in (("none", 2), ("class full", 1), ("sample full", 1))
        yield pytest.param(whitening, kind, groups, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("whitening", "kind", "groups"), [*cases()])
def test_first_derivatives_are_those_of_finite_differences(whitening, kind, groups):
    assert gradcheck(*as_function(kind, whitening=whitening, groups=groups))


@pytest.mark.parametrize(("whitening", "kind", "groups"), [*cases()])
def test_second_derivatives_are_those_of_finite_differences(whitening, kind, groups):
    assert gradgradcheck(*as_function(kind, whitening=whitening, groups=groups), fast_mode=True)


@pytest.mark.parametrize(
    "whitening", [w if w in ("cholesky", "newton") else pytest.param(w, marks=pytest.mark.slow) for w in WHITENINGS]
)
def test_every_entry_of_the_second_derivative_is_that_of_finite_differences(whitening):
    assert gradgradcheck(*as_function("class full", whitening=whitening, groups=1))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_derivatives_of_the_returned_statistics_are_those_of_finite_differences(whitening, groups):
    x = make_batch(4, 4, 2).requires_grad_()
    assert gradcheck(lambda x: whiten_color(x, whitening=whitening, groups=groups)[1][:2], [x])


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 2), (2, 4, 2, 2)], ids=str)
def test_derivatives_of_moments_are_those_of_finite_differences(shape, groups):
    x = make_batch(*shape).requires_grad_()
    assert gradcheck(lambda x: moments(x, groups), [x])
    assert gradgradcheck(lambda x: moments(x, groups), [x], fast_mode=True)


def test_third_derivatives_of_moments_exist():
    x = make_batch(3, 2, 2).requires_grad_()
    gradient = x
    for _ in range(3):
        (gradient,) = torch.autograd.grad(moments(gradient)[1].square().sum(), x, create_graph=True)
    assert gradient.isfinite().all()
    assert gradient.count_nonzero() > 0
