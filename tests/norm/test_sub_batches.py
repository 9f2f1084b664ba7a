"""Layers that take a batch as sub-batches: the same as a call for each."""

import copy

import pytest
import torch
from tests.norm.cases import (
    CHANNELS,
    CONDITIONAL,
    EXACT,
    PATHS,
    WHITENED_PATHS,
    gradients,
    make_inputs,
    make_layer,
    randomize,
    snapshot,
)
from torch import nn

import wcgan
from wcgan.norm import sub_batches

SAMPLES, PARTS = 12, 3


def one_by_one(layer, *inputs, parts=PARTS):
    return torch.cat([layer(*chunks) for chunks in zip(*(t.chunk(parts) for t in inputs), strict=True)])


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("name", PATHS)
def test_output_and_running_statistics_are_those_of_sequential_calls(name, momentum):
    layer = make_layer(name, momentum=momentum)
    sequential = copy.deepcopy(layer)
    inputs = make_inputs(layer, SAMPLES, CHANNELS, 3, 2)
    with torch.no_grad():
        wanted = one_by_one(sequential, *inputs)
        with sub_batches(layer, PARTS):
            z = layer(*inputs)
    torch.testing.assert_close(z, wanted, **EXACT)
    torch.testing.assert_close(snapshot(layer), snapshot(sequential), **EXACT)


@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_every_sub_batch_is_counted(name):
    layer = make_layer(name)
    with torch.no_grad(), sub_batches(layer, PARTS):
        layer(*make_inputs(layer, SAMPLES, CHANNELS, 3, 2))
    assert layer.num_batches_tracked == PARTS


@pytest.mark.parametrize("name", CONDITIONAL)
def test_one_row_of_weights_a_sample_is_cut_with_the_samples(name):
    layer = make_layer(name)
    sequential = copy.deepcopy(layer)
    x, *labels = make_inputs(layer, SAMPLES, CHANNELS, 3, 2)
    weights = [torch.nn.functional.one_hot(y, layer.classes).double().mul(0.7) + 0.1 for y in labels]
    with torch.no_grad():
        wanted = one_by_one(sequential, x, *weights)
        with sub_batches(layer, PARTS):
            torch.testing.assert_close(layer(x, *weights), wanted, **EXACT)


@pytest.mark.parametrize("name", PATHS)
def test_gradients_are_those_of_sequential_calls(name):
    layer = make_layer(name)
    x, *labels = make_inputs(layer, SAMPLES, CHANNELS, 3, 2)
    leaf = x.clone().requires_grad_()
    parameters = [p for p in layer.parameters() if p.requires_grad]
    wanted = gradients(one_by_one(layer, leaf, *labels), leaf, *parameters)
    with sub_batches(layer, PARTS):
        torch.testing.assert_close(gradients(layer(leaf, *labels), leaf, *parameters), wanted, **EXACT)


@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_a_sub_batch_that_is_not_finite_is_the_only_one_left_out(name):
    layer = make_layer(name)
    sequential = copy.deepcopy(layer)
    x, *labels = make_inputs(layer, SAMPLES, CHANNELS, 3, 2)
    x[SAMPLES // PARTS + 1, 2, 0, 0] = torch.nan
    with torch.no_grad():
        wanted = one_by_one(sequential, x, *labels)
        with sub_batches(layer, PARTS):
            z = layer(x, *labels)
    torch.testing.assert_close(z, wanted, equal_nan=True, **EXACT)
    torch.testing.assert_close(snapshot(layer), snapshot(sequential), **EXACT)
    assert (layer.num_nonfinite, layer.num_batches_tracked) == (1, PARTS - 1)
    assert z.chunk(PARTS)[0].isfinite().all()
    assert z.chunk(PARTS)[2].isfinite().all()


@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_a_batch_that_cannot_be_cut_is_refused_and_nothing_changes(name):
    layer = make_layer(name)
    inputs = make_inputs(layer, 10, CHANNELS, 3, 2)
    before = snapshot(layer)
    with sub_batches(layer, PARTS), pytest.raises(ValueError, match="a batch of 10 cannot be divided into 3 equal"):
        layer(*inputs)
    torch.testing.assert_close(snapshot(layer), before, rtol=0, atol=0)


@pytest.mark.parametrize("name", PATHS)
def test_evaluation_is_not_affected(name):
    layer = make_layer(name)
    inputs = make_inputs(layer, 10, CHANNELS, 3, 2)  # no multiple of the parts
    layer(*inputs)
    layer.eval()
    wanted = layer(*inputs)
    with sub_batches(layer, PARTS):
        assert torch.equal(layer(*inputs), wanted)


@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_evaluation_with_batch_statistics_takes_the_batch_as_a_whole(name):
    layer = make_layer(name, track_running_stats=False).eval()
    inputs = make_inputs(layer, SAMPLES, CHANNELS, 3, 2)
    wanted = layer(*inputs)
    with sub_batches(layer, PARTS):
        assert torch.equal(layer(*inputs), wanted)


def test_every_whitening_layer_of_a_network_takes_part():
    network = nn.Sequential(
        wcgan.WhiteningColoring2d(CHANNELS), nn.Conv2d(CHANNELS, 6, 1), nn.ReLU(), wcgan.WhiteningColoring2d(6)
    ).double()
    randomize(network)
    sequential = copy.deepcopy(network)
    (x,) = make_inputs(network, SAMPLES, CHANNELS, 5, 5)
    with torch.no_grad():
        wanted = one_by_one(sequential, x)
        with sub_batches(network, PARTS):
            torch.testing.assert_close(network(x), wanted, **EXACT)
    torch.testing.assert_close(snapshot(network), snapshot(sequential), **EXACT)


def test_nested_contexts_give_back_what_they_found():
    layer = make_layer("WC")
    with sub_batches(layer, 2):
        with sub_batches(layer, PARTS):
            assert layer.parts == PARTS
        assert layer.parts == 2
    assert layer.parts == 1


def test_an_exception_gives_back_whole_batches():
    layer = make_layer("WC")
    (x,) = make_inputs(layer, 10, CHANNELS)
    with pytest.raises(RuntimeError, match="stop"), sub_batches(layer, PARTS):
        raise RuntimeError("stop")
    assert layer(x.view(10, CHANNELS, 1, 1)).shape == (10, CHANNELS, 1, 1)


QUICK = (("cWC_sa", True), ("WC", False), ("BN", True))
COMPILED = [(name, grad) for name in ("WC", "cWC", "cWC_sa", "BN", "WzcaC") for grad in (False, True)]


@pytest.mark.parametrize(
    ("name", "grad"), [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in COMPILED]
)
def test_compiled_without_graph_breaks_it_equals_eager(name, grad):
    torch._dynamo.reset()
    layer = make_layer(name)
    compiled_layer = copy.deepcopy(layer)
    inputs = make_inputs(layer, SAMPLES, CHANNELS, 3, 2)
    compiled = torch.compile(compiled_layer, fullgraph=True, backend="aot_eager")
    with torch.set_grad_enabled(grad):
        with sub_batches(layer, PARTS):
            wanted = layer(*inputs)
        with sub_batches(compiled_layer, PARTS):
            z = compiled(*inputs)
    torch.testing.assert_close(z, wanted, **EXACT)
    torch.testing.assert_close(snapshot(compiled_layer), snapshot(layer), **EXACT)
    torch._dynamo.reset()


@pytest.mark.parametrize("parts", [0, -1])
def test_less_than_one_sub_batch_is_refused(parts):
    layer = wcgan.WhiteningColoring1d(3)
    with pytest.raises(ValueError, match=f"at least 1, got {parts}"), wcgan.norm.sub_batches(layer, parts):
        pass
    assert layer.parts == 1


def test_a_sub_batch_of_one_position_is_refused_as_a_batch_of_one_is():
    layer = wcgan.WhiteningColoring1d(3)
    with pytest.raises(ValueError, match="at least 8 positions"), wcgan.norm.sub_batches(layer, 4):
        layer(torch.randn(4, 3))
