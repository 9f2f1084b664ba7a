"""Layers made without memory, as large models are: what is loaded or reset afterwards is all there is."""

import copy

import pytest
import torch
from tests.norm.cases import CHANNELS, CLASSES, CONDITIONAL, GROUPED, PATHS, WHITENED_PATHS, make_inputs, make_layer
from torch._subclasses import FakeTensorMode

import wcgan


def trained(name, **options):
    layer = make_layer(name, momentum=0.5, **options)
    for seed in range(2):
        layer(*make_inputs(layer, 5, CHANNELS, 2, 2, seed=seed))
    return layer.eval()


def on_meta(name, dtype=torch.float64):
    options = {"classes": CLASSES} if name in CONDITIONAL else {"groups": 2} if name in GROUPED else {}
    with torch.device("meta"):
        return wcgan.normalization(name, CHANNELS, dtype=dtype, **options)


def assigned(layer, state):
    layer.load_state_dict(state, assign=True)
    return layer.eval()


def assigned_in_evaluation(layer, state):
    layer.eval().load_state_dict(state, assign=True)
    return layer


def emptied_and_loaded(layer, state):
    layer.to_empty(device="cpu").load_state_dict(state)
    return layer.eval()


def emptied_in_evaluation_and_loaded(layer, state):
    layer.eval().to_empty(device="cpu").load_state_dict(state)
    return layer


LOADS = [assigned, assigned_in_evaluation, emptied_and_loaded, emptied_in_evaluation_and_loaded]


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.__name__)
@pytest.mark.parametrize("name", PATHS)
def test_a_state_loaded_into_a_layer_without_memory_evaluates_to_the_same_bits(name, load):
    source = trained(name)
    layer = load(on_meta(name), copy.deepcopy(source.state_dict()))
    inputs = make_inputs(source, 5, CHANNELS, 2, 2, seed=5)
    assert torch.equal(layer(*inputs), source(*inputs))
    assert (layer.num_retried, layer.num_nonfinite) == (0, 0)
    assert not any(tensor.is_meta for tensor in vars(layer).values() if isinstance(tensor, torch.Tensor))


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.__name__)
@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_such_a_layer_trains_on_and_counts(name, load):
    source = trained(name)
    layer = load(on_meta(name), copy.deepcopy(source.state_dict())).train()
    layer.momentum = source.momentum
    inputs = make_inputs(source, 5, CHANNELS, 2, 2, seed=5)
    assert torch.equal(layer(*inputs), source.train()(*inputs))
    torch.testing.assert_close(layer.state_dict(), source.state_dict(), rtol=0, atol=0)
    layer(torch.full_like(inputs[0], torch.nan), *inputs[1:])
    assert (layer.num_retried, layer.num_nonfinite) == (0, 1)


@pytest.mark.parametrize("name", PATHS)
def test_parameters_reset_after_memory_was_given_are_those_of_a_new_layer(name):
    layer = on_meta(name).to_empty(device="cpu")
    layer.reset_parameters()
    fresh = make_layer(name)
    torch.testing.assert_close(dict(layer.named_buffers()), dict(fresh.named_buffers()), rtol=0, atol=0)
    assert (layer.num_retried, layer.num_nonfinite) == (0, 0)
    layer.load_state_dict(fresh.state_dict())
    inputs = make_inputs(fresh, 5, CHANNELS, 2, 2)
    assert torch.equal(layer.eval()(*inputs), fresh.eval()(*inputs))


def test_memory_given_anew_keeps_the_counters():
    layer = make_layer("WC")
    layer(torch.full((5, CHANNELS, 2, 2), torch.nan, dtype=torch.float64))
    layer.to_empty(device="cpu")
    assert (layer.num_retried, layer.num_nonfinite) == (0, 1)


def test_a_layer_without_parameters_and_buffers_trains_where_its_input_is():
    with torch.device("meta"):
        layer = wcgan.normalization("W-only", CHANNELS, track_running_stats=False)
    layer(torch.full((5, CHANNELS, 2, 2), torch.nan))
    assert layer.num_nonfinite == 1


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", PATHS)
def test_a_layer_on_the_cpu_does_not_mind_another_default_device(name, training):
    layer = make_layer(name).train(training)
    x, *labels = make_inputs(layer, 5, CHANNELS, 2, 2)
    with torch.device("meta"):
        layer(x.requires_grad_(), *labels).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("name", ["WC", "BN", "DBN"])
def test_a_layer_moved_away_and_back_by_a_state_is_the_same(name):
    source = trained(name)
    inputs = make_inputs(source, 5, CHANNELS, 2, 2, seed=5)
    expected, state = source(*inputs), copy.deepcopy(source.state_dict())
    source.to("meta").load_state_dict(state, assign=True)
    assert torch.equal(source(*inputs), expected)


@pytest.mark.parametrize("name", PATHS)
def test_fake_tensors_go_through_training_and_evaluation(name):
    with FakeTensorMode():
        layer = make_layer(name)
        inputs = make_inputs(layer, 5, CHANNELS, 2, 2)
        shapes = [layer(*inputs).shape, layer.eval()(*inputs).shape]
    assert shapes == [(5, CHANNELS, 2, 2)] * 2
