"""The unconditional layers: their coloring at the start, their shapes, and their equality with batch normalisation."""

import math
from functools import partial

import pytest
import torch
from tests.norm.cases import CHANNELS, EXACT, UNCONDITIONAL, gradients, make_batch, randomize
from torch import nn

import wcgan

# Coloring


@pytest.mark.parametrize("name", UNCONDITIONAL)
def test_identity_init_is_whitening_alone(name):
    layer = wcgan.normalization(name, CHANNELS, init="identity", dtype=torch.float64)
    x = make_batch(5, CHANNELS, 2, 2)
    torch.testing.assert_close(layer(x), wcgan.functional.whiten(x, layer.whitening, layer.eps), **EXACT)


def test_orthogonal_init_draws_an_orthogonal_matrix():
    plain, conditional = wcgan.WhiteningColoring2d, partial(wcgan.ConditionalWhiteningColoring2d, classes=3)
    for build in (plain, conditional):
        gamma = build(6, init="orthogonal").weight
        torch.testing.assert_close(gamma @ gamma.T, torch.eye(6), rtol=0, atol=1e-5)


def test_glorot_init_draws_a_uniform_matrix_of_variance_one_over_d():
    torch.manual_seed(0)
    weight = wcgan.WhiteningColoring2d(128).weight
    assert weight.std().item() == pytest.approx(1 / math.sqrt(128), rel=0.02)
    assert weight.abs().max().item() <= math.sqrt(3 / 128)


def test_a_diagonal_coloring_starts_at_one_and_the_shift_at_zero():
    layer = wcgan.WhiteningColoring2d(CHANNELS, coloring="diagonal")
    assert layer.weight.tolist() == [1.0] * CHANNELS
    assert layer.bias.tolist() == [0.0] * CHANNELS


def test_without_coloring_there_are_no_parameters():
    layer = wcgan.normalization("W-only", CHANNELS)
    assert list(layer.parameters()) == []


def test_reset_parameters_returns_to_the_start():
    layer = wcgan.WhiteningColoring2d(CHANNELS, init="identity")
    fresh = layer.state_dict(keep_vars=False)
    fresh = {name: tensor.clone() for name, tensor in fresh.items()}
    randomize(layer)
    layer(make_batch(5, CHANNELS, 2, 2, dtype=torch.float32))
    layer.reset_parameters()
    torch.testing.assert_close(layer.state_dict(), fresh, rtol=0, atol=0)


@pytest.mark.parametrize("name", UNCONDITIONAL)
def test_evaluation_right_after_construction_is_the_identity_up_to_coloring(name):
    layer = wcgan.normalization(name, CHANNELS, init="identity", dtype=torch.float64).eval()
    x = make_batch(5, CHANNELS, 2, 2)
    if layer.whitening == "standardize":
        x_hat = x / math.sqrt(1 + layer.eps)
    elif layer.whitening == "newton":  # its iteration has not quite converged on I / d
        x_hat = x * wcgan.functional.covariance_to_whitening(torch.eye(CHANNELS).double(), "newton")[0, 0]
    else:
        x_hat = x
    torch.testing.assert_close(layer(x), x_hat, **EXACT)


def test_nothing_to_whiten_and_nothing_to_color_is_refused():
    with pytest.raises(ValueError, match="would do nothing"):
        wcgan.WhiteningColoring2d(4, whitening="none", coloring="none")


# Equality with nn.BatchNorm


def pair_with_batchnorm(momentum=0.1, track_running_stats=True):
    options = {"eps": 1e-3, "momentum": momentum, "track_running_stats": track_running_stats, "dtype": torch.float64}
    theirs, ours = nn.BatchNorm2d(CHANNELS, **options), wcgan.normalization("BN", CHANNELS, **options)
    randomize(theirs)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return ours, theirs


@pytest.mark.parametrize("momentum", [0.1, 0.0, 1.0, None])
def test_bn_equals_batchnorm2d_in_training_and_evaluation(momentum):
    ours, theirs = pair_with_batchnorm(momentum)
    for seed, samples in enumerate((5, 3, 6)):
        x = make_batch(samples, CHANNELS, 3, 2, seed=seed).requires_grad_()
        outputs = ours(x), theirs(x)
        torch.testing.assert_close(*outputs, **EXACT)
        left, right = (
            gradients(out, x, *layer.parameters()) for out, layer in zip(outputs, (ours, theirs), strict=True)
        )
        torch.testing.assert_close(left, right, **EXACT)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), **EXACT)
    x = make_batch(4, CHANNELS, 3, 2, seed=8)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), **EXACT)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_bn_equals_batchnorm2d_without_running_statistics(training):
    ours, theirs = (layer.train(training) for layer in pair_with_batchnorm(track_running_stats=False))
    x = make_batch(5, CHANNELS, 3, 2)
    torch.testing.assert_close(ours(x), theirs(x), **EXACT)


@pytest.mark.parametrize("shape", [(5, CHANNELS), (5, CHANNELS, 3)], ids=["features", "sequences"])
def test_bn_equals_batchnorm1d(shape):
    theirs = nn.BatchNorm1d(CHANNELS, eps=1e-3, momentum=0.1, dtype=torch.float64)
    ours = wcgan.normalization("BN", CHANNELS, dim=1, momentum=0.1, dtype=torch.float64)
    x = make_batch(*shape)
    torch.testing.assert_close(ours(x), theirs(x), **EXACT)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), **EXACT)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), **EXACT)


def test_the_state_of_batchnorm2d_is_the_state_of_bn():
    theirs, ours = nn.BatchNorm2d(CHANNELS), wcgan.normalization("BN", CHANNELS)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict(), strict=True)


def test_the_arguments_of_batchnorm2d_are_taken_in_its_order():
    layer = wcgan.WhiteningColoring2d(CHANNELS, 1e-5, 0.2)
    assert (layer.num_features, layer.eps, layer.momentum) == (CHANNELS, 1e-5, 0.2)


# What it says of itself


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (
            wcgan.WhiteningColoring2d(8),
            "WhiteningColoring2d(8, eps=0.001, momentum=0.01, whitening='cholesky', coloring='full')",
        ),
        (
            wcgan.normalization("DBN", 8, groups=2),
            "WhiteningColoring2d(8, eps=0.001, momentum=0.01, whitening='zca', groups=2, coloring='diagonal')",
        ),
        (
            wcgan.ConditionalWhiteningColoring1d(8, 9, dictionary="auto", momentum=None),
            "ConditionalWhiteningColoring1d(8, eps=0.001, momentum=None, whitening='cholesky', classes=9, "
            "coloring='full', shared='full', dictionary=3)",
        ),
    ],
    ids=["WC", "DBN", "cWC_sa"],
)
def test_the_repr_names_what_the_layer_is_made_of(layer, text):
    assert repr(layer) == text


@pytest.mark.parametrize(
    "layer",
    [
        wcgan.WhiteningColoring2d(8, 1e-2, None, coloring="none", groups=4, track_running_stats=False, sync=True),
        wcgan.WhiteningColoring1d(8, whitening="newton", iterations=3),
        wcgan.ConditionalWhiteningColoring2d(8, 3, coloring="diagonal", shared="none"),
        wcgan.ConditionalWhiteningColoring2d(8, 3, dictionary=2, normalize_assignment=True),
    ],
    ids=["groups and sync", "newton", "diagonal", "normalized assignment"],
)
def test_the_repr_builds_a_layer_that_computes_the_same(layer):
    again = eval(repr(layer), vars(wcgan))
    randomize(layer), randomize(again)
    inputs = (torch.randn(6, 8) if "1d" in repr(layer) else torch.randn(6, 8, 2, 2),)
    inputs += (torch.arange(6) % 3,) if hasattr(layer, "classes") else ()
    assert torch.equal(layer(*inputs), again(*inputs))
    assert torch.equal(layer.eval()(*inputs), again.eval()(*inputs))
    assert repr(again) == repr(layer)
