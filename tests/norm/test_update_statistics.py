"""Running statistics measured anew: as PyTorch's `update_bn` does for batch normalisation."""

import copy

import pytest
import torch
from tests.norm.cases import (
    CHANNELS,
    EXACT,
    WHITENED,
    assert_unchanged,
    make_batch,
    make_inputs,
    make_layer,
    snapshot,
)
from torch import nn
from torch.optim.swa_utils import update_bn

import wcgan


def batches(count=4):
    return [make_batch(5, CHANNELS, 2, 2, seed=seed) for seed in range(count)]


@pytest.mark.parametrize("name", WHITENED)
def test_statistics_are_the_plain_average_over_the_batches(name):
    layer = make_layer(name, momentum=0.3)
    layer(*make_inputs(layer, 5, CHANNELS, 2, 2, seed=9))
    expected = make_layer(name, momentum=None)
    data = [make_inputs(layer, 5, CHANNELS, 2, 2, seed=seed) for seed in range(4)]
    for inputs in data:
        expected(*inputs)
    wcgan.update_statistics(data, layer.eval(), forward=lambda layer, inputs: layer(*inputs))
    torch.testing.assert_close(dict(layer.named_buffers()), dict(expected.named_buffers()), **EXACT)
    assert (layer.momentum, layer.training) == (0.3, False)
    assert torch.equal(layer(*data[0]), expected.eval()(*data[0]))


def test_batch_normalisation_is_updated_as_by_pytorch():
    model = nn.Sequential(nn.BatchNorm2d(CHANNELS), make_layer("WC"), nn.BatchNorm2d(CHANNELS)).double()
    other = copy.deepcopy(model)
    wcgan.update_statistics(batches(), model)
    other[1].momentum, other[1].training = None, True
    update_bn(batches(), other)
    torch.testing.assert_close(snapshot(model), snapshot(other), **EXACT)


def test_a_compiled_layer_evaluates_with_the_new_statistics():
    torch._dynamo.reset()
    layer, x = make_layer("WC").eval(), make_batch(5, CHANNELS, 2, 2, seed=9)
    compiled = torch.compile(layer, backend="eager")
    before = compiled(x)
    wcgan.update_statistics(batches(), layer)
    after = compiled(x)
    assert not torch.allclose(after, before, atol=0.1)
    torch.testing.assert_close(after, layer(x), **EXACT)
    torch._dynamo.reset()


def test_the_first_entry_of_a_batch_is_the_input():
    layer, other = make_layer("WC"), make_layer("WC")
    wcgan.update_statistics([(x, "label") for x in batches()], layer, device="cpu")
    wcgan.update_statistics(batches(), other)
    torch.testing.assert_close(snapshot(layer), snapshot(other), rtol=0, atol=0)


def test_modes_and_frozen_statistics_are_left_alone():
    model = nn.Sequential(make_layer("WC"), nn.Dropout(), make_layer("BN")).train()
    model(batches()[0])
    wcgan.freeze_statistics(model[0])
    model[1].eval()
    kept = snapshot(model[0])
    wcgan.update_statistics(batches(), model)
    assert [module.training for module in model] == [False, False, True]
    torch.testing.assert_close(snapshot(model[0]), kept, rtol=0, atol=0)
    assert model[2].num_batches_tracked == 4


@pytest.mark.parametrize("name", ["WC", "WC-diag", "std-C", "BN"])
def test_a_failing_batch_leaves_statistics_momenta_and_modes_as_they_were(name):
    layer = make_layer(name, momentum=0.3)
    layer(make_batch(5, CHANNELS, 2, 2, seed=9))
    layer(torch.full((5, CHANNELS, 2, 2), torch.nan))
    layer.eval()
    kept, expected = snapshot(layer), layer(batches()[0])
    with pytest.raises(ValueError, match="channels"):
        wcgan.update_statistics([*batches(), make_batch(5, 3, 2, 2)], layer)
    assert (layer.momentum, layer.training, layer.num_nonfinite.item()) == (0.3, False, 1)
    assert_unchanged(layer, kept)
    assert torch.equal(layer(batches()[0]), expected)


def test_an_interrupt_leaves_statistics_as_they_were():
    layer = make_layer("WC")
    layer(make_batch(5, CHANNELS, 2, 2))
    kept = snapshot(layer)

    def interrupted(network, x):
        network(x)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        wcgan.update_statistics(batches(), layer, forward=interrupted)
    assert_unchanged(layer, kept)


def test_an_empty_loader_is_an_error_and_changes_nothing():
    layer = make_layer("WC")
    layer(make_batch(5, CHANNELS, 2, 2))
    kept = snapshot(layer)
    with pytest.raises(ValueError, match="the loader has no batches: the statistics stay as they were"):
        wcgan.update_statistics([], layer)
    assert_unchanged(layer, kept)


def test_a_model_without_such_layers_is_warned_about():
    with pytest.warns(UserWarning, match="found no layer with running statistics"):
        wcgan.update_statistics(batches(), nn.Identity())
