"""Evaluation in eager code: with the state as it is at each call, and the same bits with and without gradients."""

import copy

import pytest
import torch
from tests.norm.cases import CHANNELS, EXACT, make_inputs, make_layer
from torch import nn
from torch.nn.utils import parametrize

NAMES = ("BN", "W-only", "WC", "cBN", "cWC")
WITHOUT_GRADIENTS = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


def trained(name, dtype=torch.float64):
    """A layer in evaluation mode after one batch, and its inputs."""
    layer = make_layer(name, momentum=0.5, dtype=dtype)
    inputs = make_inputs(layer, 6, CHANNELS, 3, 2, seed=3, dtype=dtype)
    layer(*inputs)
    return layer.eval(), inputs


def second(layer):
    return layer.running_var if layer.whitening == "standardize" else layer.running_covariance


@pytest.mark.parametrize("context", WITHOUT_GRADIENTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", NAMES)
def test_the_result_has_the_same_bits_with_and_without_gradients(name, layout, dtype, context):
    layer, (x, *labels) = trained(name, torch.float64 if dtype == torch.float64 else torch.float32)
    x = x.to(dtype).contiguous(memory_format=layout)
    with_gradients = layer(x.clone().requires_grad_(), *labels)
    with WITHOUT_GRADIENTS[context]():
        out = layer(x, *labels)
    assert torch.equal(out, with_gradients)
    assert (out.dtype, out.stride()) == (x.dtype, x.stride())


def weights_through_data(layer):
    for parameter in layer.parameters():
        parameter.data.mul_(2)


def weights_in_other_memory(layer):
    for parameter in layer.parameters():
        parameter.data = 2 * parameter.data


def transposed_weights(layer):
    """Matrices stay where they are in memory; vectors and tables are reversed."""
    for parameter in layer.parameters():
        square = parameter.dim() > 1 and parameter.shape[-1] == parameter.shape[-2]
        parameter.data = parameter.data.mT if square else parameter.data.flip(0)


def mean_through_data(layer):
    layer.running_mean.data.add_(3)


def mean_in_other_memory(layer):
    layer.running_mean = layer.running_mean + 3


def variances_in_other_memory(layer):
    second(layer).data = 4 * second(layer).data


def another_state(layer):
    layer.load_state_dict({key: 3 * value for key, value in layer.state_dict().items()})


def another_state_assigned(layer):
    layer.load_state_dict({key: 3 * value for key, value in layer.state_dict().items()}, assign=True)


def a_batch_in_training(layer):
    layer.train()(*(t * 4 if t.is_floating_point() else t for t in make_inputs(layer, 6, CHANNELS, 3, 2, seed=8)))
    layer.eval()


CHANGES = (
    weights_through_data,
    weights_in_other_memory,
    transposed_weights,
    mean_through_data,
    mean_in_other_memory,
    variances_in_other_memory,
    another_state,
    another_state_assigned,
    a_batch_in_training,
)


@pytest.mark.parametrize("context", WITHOUT_GRADIENTS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_evaluation_follows_a_change_of_the_state(name, change, context):
    layer, inputs = trained(name)
    with WITHOUT_GRADIENTS[context]():
        before = layer(*inputs)
    change(layer)
    fresh = make_layer(name)
    fresh.load_state_dict(layer.state_dict())
    fresh.eval()
    with WITHOUT_GRADIENTS[context]():
        after = layer(*inputs)
        torch.testing.assert_close(after, fresh(*inputs), **EXACT)
        torch.testing.assert_close(copy.deepcopy(layer)(*inputs), after, **EXACT)
    if name != "W-only" or "weights" not in change.__name__:
        assert not torch.allclose(after, before)


class Doubled(nn.Module):
    def forward(self, tensor):
        return 2 * tensor


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        *(("BN", tensor) for tensor in ("running_mean", "running_var", "weight")),
        *(("WC", tensor) for tensor in ("running_mean", "running_covariance", "weight")),
        *(("cBN", tensor) for tensor in ("running_mean", "running_var", "class_weight")),
    ],
)
def test_a_parametrization_in_place_of_a_tensor_is_used(name, tensor):
    layer, inputs = trained(name)
    expected = copy.deepcopy(layer)
    with torch.no_grad():
        getattr(expected, tensor).mul_(2)
    parametrize.register_parametrization(layer, tensor, Doubled())
    with torch.no_grad():
        torch.testing.assert_close(layer(*inputs), expected(*inputs), **EXACT)


@pytest.mark.parametrize("name", ["BN", "cBN", "WC"])
def test_statistics_that_were_handed_over_have_a_gradient(name):
    layer, inputs = trained(name)
    key = "running_var" if layer.whitening == "standardize" else "running_covariance"

    def call(mean, variances):
        return torch.func.functional_call(layer, {"running_mean": mean, key: variances}, inputs)

    given = tuple(t.clone().requires_grad_() for t in (layer.running_mean, second(layer)))
    assert torch.autograd.gradcheck(call, given)


@pytest.mark.parametrize("name", ["WC", "cBN", "cWC"])
def test_autocast_changes_nothing(name):
    layer, inputs = trained(name, torch.float32)
    expected = layer(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(*inputs), expected)
