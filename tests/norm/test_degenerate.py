"""Batches that whitening could stumble over: outputs and gradients stay finite, in training and in evaluation."""

import pytest
import torch
from tests.norm.cases import PATHS, WHITENED_PATHS, gradients, make_batch, make_inputs, make_layer


def constant_channel():
    x = make_batch(6, 4, 2, 2)
    x[:, 1] = 3.0
    return x


def dead_batch():
    return torch.zeros(6, 4, 2, 2, dtype=torch.float64)


def duplicated_channel():
    x = make_batch(6, 4, 2, 2)
    x[:, 3] = x[:, 0]
    return x


def fewer_positions_than_channels():
    return make_batch(3, 8, 1, 1)


def two_positions():
    return make_batch(2, 4, 1, 1)


def one_image():
    return make_batch(1, 4, 3, 3)


def one_channel():
    return make_batch(6, 1, 2, 2)


def tiny_scale():
    return make_batch(6, 4, 2, 2) * 1e-6


def huge_scale():
    return make_batch(6, 4, 2, 2) * 1e6


def large_mean():
    return make_batch(6, 4, 2, 2) + 1e4


BATCHES = [
    constant_channel,
    dead_batch,
    duplicated_channel,
    fewer_positions_than_channels,
    two_positions,
    one_image,
    one_channel,
    tiny_scale,
    huge_scale,
    large_mean,
]


def constant_batch():
    return torch.full((6, 4, 2, 2), 10 / 3, dtype=torch.float64)


def assert_stays_finite(name, batch, **options):
    """Output and gradients, in training and in evaluation with the statistics of this very batch."""
    x = batch().float().requires_grad_()
    layer = make_layer(name, channels=x.shape[1], dtype=torch.float32, momentum=1.0, **options)
    labels = make_inputs(layer, *x.shape)[1:]
    for training in (True, False):
        out = layer.train(training)(x, *labels)
        assert out.isfinite().all(), (batch.__name__, options)
        finite = [gradient.isfinite().all() for gradient in gradients(out, x, *layer.parameters())]
        assert all(finite), (batch.__name__, options)
    assert layer.num_nonfinite == 0


@pytest.mark.parametrize("name", PATHS)
def test_outputs_and_gradients_are_finite(name):
    for batch in BATCHES:
        assert_stays_finite(name, batch)


@pytest.mark.parametrize("name", PATHS)
def test_a_batch_without_variance_comes_out_finite_without_any_shrinkage(name):
    for batch in (constant_channel, constant_batch, dead_batch):
        for eps in (0.0, 1e-45):
            assert_stays_finite(name, batch, eps=eps)


@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_a_batch_of_zeros_that_could_not_be_whitened_is_counted(name):
    layer = make_layer(name, eps=0.0)
    x, *labels = make_inputs(layer, 6, 4, 2, 2)
    shift = layer(torch.zeros_like(x), *labels)
    assert layer.num_retried == 1
    assert torch.equal(shift, shift[..., :1, :1].expand_as(shift))  # the coloring's offset alone
