"""`relu=True` is the layer with a rectifier behind it: values, gradients, second gradients, statistics."""

import copy

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.functional import relu

import wcgan

NAMES = ("WC", "W-only", "C-only", "BN", "std-C", "cWC", "cBN", "cWC_sa")


def layer_and_inputs(name, dtype=torch.float64):
    torch.manual_seed(0)
    classes = 3 if wcgan.VARIANTS[name].conditional else None
    layer = wcgan.normalization(name, 4, classes=classes).to(dtype)
    x = torch.randn(6, 4, 3, 3, dtype=dtype, requires_grad=True)
    return layer, x, () if classes is None else (torch.arange(6) % 3,)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_layer_and_then_a_rectifier(name, training):
    layer, x, labels = layer_and_inputs(name)
    layer(x.detach(), *labels)  # statistics that are not those of the start
    layer.train(training)
    other = copy.deepcopy(layer)
    out, expected = layer(x, *labels, relu=True), relu(other(x, *labels))
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    assert (out == 0).any()
    assert (out > 0).any()
    weights = torch.randn_like(out)
    parameters = [p for p in layer.parameters() if p.requires_grad]
    gradients = torch.autograd.grad((out * weights).sum(), [x, *parameters])
    references = torch.autograd.grad((expected * weights).sum(), [x, *other.parameters()])
    torch.testing.assert_close(gradients, references, rtol=1e-9, atol=1e-10)
    for mine, theirs in zip(layer.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_it_is_differentiable_twice(name):
    layer, x, labels = layer_and_inputs(name)
    x = x.detach()[:4, :, :2, :1].clone().requires_grad_()
    labels = tuple(y[:4] for y in labels)

    def function(x):
        return layer(x, *labels, relu=True)

    assert gradcheck(function, x)
    assert gradgradcheck(function, x)


@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_a_folded_layer_rectifies_too(name):
    layer, x, labels = layer_and_inputs(name)
    layer(x.detach(), *labels)
    layer.eval()
    folded = wcgan.fold(layer)
    torch.testing.assert_close(folded(x, *labels, relu=True), layer(x, *labels, relu=True))


def test_a_nan_stays():
    layer, x, _ = layer_and_inputs("WC")
    broken = x.detach().clone()
    broken[0, 0, 0, 0] = torch.nan
    assert layer(broken, relu=True).isnan().any()
