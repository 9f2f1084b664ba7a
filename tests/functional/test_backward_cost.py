"""What the backward pass keeps and runs: the input and small matrices; products, and no factorisation."""

import re

import pytest
import torch
from tests.functional.cases import COLORINGS, WHITENINGS, make_batch, make_coloring
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile

from wcgan.functional import whiten_color

FACTORISATION = re.compile(r"aten::_?(linalg_(?!vector_norm)|cholesky|triangular|lu_|svd|qr|geqrf|inverse|symeig)")


def make_leaves(kind):
    x = make_batch(8, 4, 8, 8, dtype=torch.float32).requires_grad_()
    color, shift, index = make_coloring(kind, 8, 4, dtype=torch.float32)
    return x, *(t if t is None else t.requires_grad_() for t in (color, shift)), index


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("kind", COLORINGS)
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_backward_keeps_the_input_and_otherwise_only_small_tensors(whitening, kind, last):
    x, color, shift, index = make_leaves(kind)
    if last:
        x = x.detach().to(memory_format=torch.channels_last).requires_grad_()
    kept = []
    with saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        whiten_color(x, color, shift, index, whitening=whitening)
    inputs = [t for t in kept if t.data_ptr() == x.data_ptr()]
    others = [t for t in kept if t.data_ptr() != x.data_ptr()]
    slots = 1 if color is None else len(color)
    assert len(inputs) == 1
    assert max(t.untyped_storage().nbytes() for t in others) <= 4 * slots * 4 * 4
    assert sum(t.numel() for t in others) < x.numel()


def names_of_operators(function):
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        function()
    return {event.key for event in profiled.key_averages()}


@pytest.mark.parametrize("kind", ["none", "full", "class full"])
@pytest.mark.parametrize("whitening", [*WHITENINGS, "zca-decomposition"])
def test_backward_runs_no_factorisation(whitening, kind):
    x, color, shift, index = make_leaves(kind)
    z, _ = whiten_color(x, color, shift, index, whitening=whitening)
    cotangent = torch.randn_like(z)
    names = names_of_operators(lambda: torch.autograd.backward(z, cotangent))
    assert any("mm" in name for name in names)  # the profiler sees inside the operators
    assert not [name for name in names if FACTORISATION.match(name)]


@pytest.mark.parametrize(("whitening", "name"), [("cholesky", "cholesky"), ("zca", "eigh")])
def test_forward_runs_the_factorisation_that_backward_spares(whitening, name):
    x = make_batch(8, 4, 8, 8, dtype=torch.float32)
    names = names_of_operators(lambda: whiten_color(x, whitening=whitening))
    assert [n for n in names if FACTORISATION.match(n) and name in n]
