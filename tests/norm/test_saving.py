"""Saving, loading and copying a layer."""

import copy
import io
import pickle

import pytest
import torch
from tests.norm.cases import CHANNELS, PATHS, make_batch, make_inputs, make_layer
from torch import nn

import wcgan


def trained_layer(name):
    layer = make_layer(name, momentum=0.5)
    for seed in range(2):
        layer(*make_inputs(layer, 5, CHANNELS, 2, 2, seed=seed))
    return layer


def saved_and_loaded(state):
    """Through a file, without running code from it."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def in_training(layer):
    return layer.train()


def in_evaluation(layer):
    return layer.eval()


def used_in_evaluation(layer):
    layer.eval()(*make_inputs(layer, 5, CHANNELS, 2, 2, seed=4))
    return layer


@pytest.mark.parametrize("target", [in_training, in_evaluation, used_in_evaluation], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", PATHS)
def test_a_state_loaded_into_a_fresh_layer_evaluates_to_the_same_bits(name, target):
    layer = trained_layer(name)
    fresh = target(make_layer(name))
    fresh.load_state_dict(saved_and_loaded(layer.state_dict()), strict=True)
    inputs = make_inputs(layer, 5, CHANNELS, 2, 2, seed=5)
    assert torch.equal(fresh.eval()(*inputs), layer.eval()(*inputs))


@pytest.mark.parametrize("name", PATHS)
def test_training_goes_on_from_a_loaded_state_as_if_never_stopped(name):
    layer = trained_layer(name)
    fresh = make_layer(name, momentum=0.5)
    fresh.load_state_dict(layer.state_dict())
    inputs = make_inputs(layer, 5, CHANNELS, 2, 2, seed=5)
    assert torch.equal(fresh(*inputs), layer(*inputs))
    torch.testing.assert_close(fresh.state_dict(), layer.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("name", PATHS)
def test_a_copy_evaluates_alike_and_is_independent(name, copier):
    layer = trained_layer(name).eval()
    inputs = make_inputs(layer, 5, CHANNELS, 2, 2, seed=5)
    expected = layer(*inputs)
    twin = copier(layer)
    assert torch.equal(twin(*inputs), expected)
    assert repr(twin) == repr(layer)
    twin.train()(*make_inputs(layer, 5, CHANNELS, 2, 2, seed=6))
    for parameter in twin.parameters():
        parameter.data.add_(1)
    assert torch.equal(layer(*inputs), expected)
    if layer.whitening != "none":  # and the copy looks at its own statistics, not at the original's
        twin.load_state_dict({**twin.state_dict(), **dict(layer.named_parameters())})
        assert not torch.allclose(twin.eval()(*inputs), expected)


def test_a_whole_module_survives_a_file():
    model = nn.Sequential(nn.Conv2d(3, CHANNELS, 1), wcgan.WhiteningColoring2d(CHANNELS)).eval()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    x = torch.randn(2, 3, 4, 4)
    assert torch.equal(torch.load(file, weights_only=False)(x), model(x))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("WC", {"weight", "bias", "running_mean", "running_covariance", "num_batches_tracked"}),
        ("BN", {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}),
        ("W-only", {"running_mean", "running_covariance", "num_batches_tracked"}),
        ("C-only", {"weight", "bias"}),
        (
            "cWC_sa",
            {
                *("weight", "bias", "class_bias", "dictionary", "assignment"),
                *("running_mean", "running_covariance", "num_batches_tracked"),
            },
        ),
    ],
)
def test_the_state_holds_parameters_and_statistics_and_nothing_derived(name, keys):
    assert set(make_layer(name).state_dict()) == keys


def test_a_state_with_a_key_missing_is_refused_when_strict():
    layer = make_layer("WC")
    state = layer.state_dict()
    del state["running_covariance"]
    with pytest.raises(RuntimeError, match="running_covariance"):
        layer.load_state_dict(state)


@pytest.mark.parametrize("source", ["BN", "DBN"])
def test_the_state_of_another_kind_of_layer_is_refused(source):
    with pytest.raises(RuntimeError, match="running_"):
        make_layer("WC").load_state_dict(make_layer(source).state_dict())


def test_a_layer_moves_between_types_with_its_statistics():
    layer = trained_layer("WC").eval()
    x = make_batch(5, CHANNELS, 2, 2)
    expected = layer(x)
    narrow = copy.deepcopy(layer).float()
    assert narrow.running_covariance.dtype == torch.float32
    assert narrow.num_batches_tracked.dtype == torch.int64
    torch.testing.assert_close(narrow(x.float()).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["WC", "cWC", "cWC_sa", "BN"])
def test_functional_call_with_other_parameters_leaves_the_layer_alone(name):
    layer = make_layer(name).eval()
    inputs = make_inputs(layer, 5, CHANNELS, 2, 2)
    expected = layer(*inputs)
    zeros = {key: torch.zeros_like(parameter) for key, parameter in layer.named_parameters()}
    assert torch.func.functional_call(layer, zeros, inputs).count_nonzero() == 0
    assert torch.equal(layer(*inputs), expected)
