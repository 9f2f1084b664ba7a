"""Layers that whiten in groups on the CPU, run by `test_batch` where Triton interprets their kernels."""

import copy

import pytest
import torch
from tests.kernels.cases import make_batch, split_into_float16
from tests.kernels.interpreted_layer import assert_same_bits, kernels_everywhere  # noqa: F401

import wcgan
from wcgan.functional import _by_kernels
from wcgan.functional._factorisations import RETRY_SHRINKAGE, shrink

layer_kernels = pytest.importorskip("wcgan.kernels.layer", reason="Triton is not installed")

SLOW = pytest.mark.slow
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # products with infinities
CLOSE = {"rtol": 2e-4, "atol": 2e-4}


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def parts_of_float16(monkeypatch):
    split_into_float16(monkeypatch)


def batch(d=6):
    return make_batch((8, d, 9), mean=1.0).unflatten(2, (3, 3))


def train(layer, x, *labels, relu=False):
    """Output, gradients, buffers and counters of a batch in training."""
    given = x.clone().requires_grad_()
    out = layer(given, *labels, relu=relu)
    gradients = torch.autograd.grad(out, [given, *layer.parameters()], out.detach().cos())
    return out, [out.detach(), *gradients, *layer.buffers(), layer.num_retried, layer.num_nonfinite]


def train_both_ways(request, layer, x, *labels, relu=False):
    """What `train` returns by kernels and by plain operators."""
    _, expected = train(copy.deepcopy(layer), x, *labels, relu=relu)
    request.getfixturevalue("kernels_everywhere")
    out, found = train(layer, x, *labels, relu=relu)
    assert out.grad_fn.name() == "_ByKernelsBackward"
    return found, expected


def constant_channel(x, channel):
    x = x.clone()
    x[:, channel] = 0.0
    return x


@pytest.mark.parametrize("channel", [0, pytest.param(3, marks=SLOW), pytest.param(5, marks=SLOW)])
@pytest.mark.parametrize("variant", ["WC", pytest.param("cWC", marks=SLOW)])
def test_only_a_group_that_cannot_be_factorised_is_shrunk_further(variant, channel, request):
    layer = wcgan.normalization(variant, 6, None if variant == "WC" else 3, groups=3, eps=0.0)
    labels = () if variant == "WC" else (torch.arange(8) % 3,)
    found, expected = train_both_ways(request, layer, constant_channel(batch(), channel), *labels)
    assert layer.num_retried == 1
    for value, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=2e-3, atol=2e-3)


def test_the_gradient_of_one_group_that_was_shrunk_further_is_that_of_its_shrinkage():
    d, groups, color, shift = 6, 2, torch.randn(6, 6), torch.randn(6)
    x = constant_channel(batch(d), 4)
    options = (None, None, None, None, 0.0, False, _by_kernels._by_operators)
    out, kept = layer_kernels.forward(x, color, shift, *options, groups=groups)
    mean, covariance, retry = layer_kernels.statistics(kept, d, groups)
    assert retry.tolist() == pytest.approx([0.0, RETRY_SHRINKAGE[1]])
    grad = torch.randn_like(out)
    found = layer_kernels.backward(x, grad, color, shift, None, False, None, kept, 0.0, (True, True), groups)
    leaves = [t.double().requires_grad_() for t in (x, color, shift)]
    rows = leaves[0].movedim(1, -1).reshape(-1, d)
    blocks = torch.stack([part.mT.cov() for part in rows.chunk(groups, 1)])
    torch.testing.assert_close(covariance, blocks.detach().float())
    torch.testing.assert_close(mean, rows.mean(0).detach().float())
    w = torch.block_diag(*torch.linalg.inv(torch.linalg.cholesky(shrink(blocks, 0.0, retry.double()))))
    expected = (rows - rows.mean(0)) @ (leaves[1] @ w).mT + leaves[2]
    expected = expected.view(8, 3, 3, d).movedim(-1, 1)
    gradients = torch.autograd.grad(expected, leaves, grad.double())
    for value, wanted in zip((out, *found[:3]), (expected, *gradients), strict=True):
        assert (value - wanted).norm() <= 1e-3 * wanted.norm()


@pytest.mark.parametrize("value", [torch.nan, pytest.param(torch.inf, marks=SLOW)])
def test_a_batch_that_is_not_finite_in_one_group_is_only_counted(value, request):
    layer = wcgan.WhiteningColoring2d(6, groups=3)
    before, x = copy.deepcopy([*layer.buffers()]), batch()
    x[2, 1, 0, 0] = value
    found, expected = train_both_ways(request, layer, x)
    assert found[0].isnan().all()
    assert found[1].isnan().all()
    assert_same_bits([found[0], *found[4:]], [expected[0], *expected[4:]])
    assert_same_bits([*layer.buffers()], before)
    assert (layer.num_retried, layer.num_nonfinite) == (0, 1)


OPTIONS = {"no running statistics": {"track_running_stats": False}, "average over all batches": {"momentum": None}}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_running_statistics_that_the_kernels_do_not_update(options, request):
    layer = wcgan.WhiteningColoring2d(6, groups=2, **options)
    for value, wanted in zip(*train_both_ways(request, layer, batch()), strict=True):
        torch.testing.assert_close(value, wanted, **CLOSE)


def test_a_label_out_of_range_makes_the_output_nan_and_leaves_the_statistics_alone(kernels_everywhere):  # noqa: F811
    layer, labels = wcgan.ConditionalWhiteningColoring2d(6, 3, groups=2), torch.arange(8) % 3
    before, poison = copy.deepcopy([*layer.buffers()]), torch.tensor(torch.nan)
    out = layer._normalize(batch(), *layer.coloring_slots(labels), poison)
    assert out.isnan().all()
    assert_same_bits([*layer.buffers()], before)
    assert layer.num_nonfinite == 1


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize(("d", "groups"), [(6, 3), (40, 2), (70, 7), pytest.param(99, 3, marks=SLOW), (64, 2)])
def test_products_with_blocks_on_the_diagonal(d, groups, mirrored):
    size, a, b = d // groups, torch.randn(d, d), torch.randn(d, d)
    inside = torch.block_diag(*torch.ones(groups, size, size)).bool()
    right = torch.where(inside, b.tril() + b.tril(-1).mT if mirrored else b, 0)
    b = b if mirrored else right  # what is not in a block is not read
    out, pruned = torch.full((2, d, d), torch.nan)
    s = layer_kernels.Sequence("a", "b", "out", "pruned", "scratch")
    options = {"sizes": (d, d, d), "a_strides": (d, 1), "b_strides": (d, 1), "groups": groups}
    layer_kernels._add_product(s, "a", "b", "out", **options, mirrored=mirrored)
    layer_kernels._add_product(s, "a", "a", "pruned", **options, pruned=True)
    s(-1, a, b, out, pruned, torch.empty(s.sizes["scratch"]))
    torch.testing.assert_close(out, a @ right, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(pruned[inside], (a @ a)[inside], rtol=1e-4, atol=1e-4)
    assert pruned.isnan().any() == (d >= 64), "tiles of the result between blocks are left out"


def test_second_derivatives_are_those_of_plain_operators(request):
    layer, x = wcgan.WhiteningColoring2d(4, groups=2), batch(4).requires_grad_()
    results = []
    for _ in range(2):
        (first,) = torch.autograd.grad(layer(x).sin().sum(), x, create_graph=True)
        results.append(torch.autograd.grad(first.square().sum(), [x, *layer.parameters()]))
        request.getfixturevalue("kernels_everywhere")
    torch.testing.assert_close(*results, **CLOSE)


def test_evaluation_in_groups_takes_the_kernels_with_and_without_gradients(kernels_everywhere):  # noqa: F811
    layer, x = wcgan.WhiteningColoring2d(6, groups=3), batch()
    layer(x)
    layer.eval()
    out = layer(x.clone().requires_grad_())
    assert out.grad_fn.name() == "_ByKernelsBackward"
    with torch.no_grad():
        assert_same_bits([layer(x)], [out])
