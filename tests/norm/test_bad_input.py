"""Bad input and bad arguments: an error that names the value and what is allowed, and a layer that has not changed."""

import functools

import pytest
import torch
from tests.norm.cases import (
    CHANNELS,
    CONDITIONAL,
    PATHS,
    WHITENED_PATHS,
    assert_unchanged,
    gradients,
    make_batch,
    make_inputs,
    make_labels,
    make_layer,
    snapshot,
)

import wcgan

MODES = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])


def refused(layer, error, *inputs):
    """The message with which the layer refuses the inputs, after a check that nothing of it has changed."""
    before = snapshot(layer)
    with pytest.raises(error) as caught:
        layer(*inputs)
    assert_unchanged(layer, before)
    return str(caught.value)


def with_labels(name, x):
    return (x, make_labels(len(x))) if name in CONDITIONAL else (x,)


# Inputs


def test_labels_for_a_layer_without_classes_are_refused_with_the_layer_that_takes_them():
    for labels in (make_labels(6), [0] * 6):
        message = refused(make_layer("WC"), TypeError, make_batch(6, CHANNELS, 2, 2), labels)
        assert "WhiteningColoring2d takes no labels: use ConditionalWhiteningColoring1d, 2d or 3d" in message


@pytest.mark.parametrize(
    ("dim", "shape", "allowed"),
    [
        (2, (6, CHANNELS), "4D"),
        (2, (6, CHANNELS, 3), "4D"),
        (2, (6, CHANNELS, 3, 2, 2), "4D"),
        (1, (6, CHANNELS, 3, 2), "2D or 3D"),
        (1, (CHANNELS,), ""),
        (2, (), ""),
    ],
    ids=str,
)
def test_another_rank_is_refused_with_the_shape_and_the_ranks_allowed(dim, shape, allowed):
    x = torch.zeros(shape, dtype=torch.float64)
    for name, training in (("WC", True), ("WC", False), ("BN", True), ("C-only", True), ("cWC", True)):
        layer = make_layer(name, dim=dim).train(training)
        message = refused(layer, ValueError, x, *([make_labels(6)] if name == "cWC" else []))
        assert str(shape) in message
        assert allowed in message


@MODES
@pytest.mark.parametrize("name", ["BN", "C-only", "WC", "cWC"])
def test_another_number_of_channels_is_refused_with_both_numbers(name, training):
    layer = make_layer(name).train(training)
    for channels in (1, 8):
        message = refused(layer, ValueError, *with_labels(name, torch.zeros(5, channels, 2, 2, dtype=torch.float64)))
        assert f"expected {CHANNELS} channels, got {channels}" in message


@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_one_position_in_training_is_refused(name):
    layer = make_layer(name)
    message = refused(layer, ValueError, *with_labels(name, make_batch(1, CHANNELS, 1, 1)))
    assert "at least 2 positions" in message
    assert "got 1" in message


@MODES
@pytest.mark.parametrize("name", PATHS)
def test_a_batch_without_positions_is_taken_as_batch_normalisation_takes_it(name, training):
    layer = make_layer(name).train(training)
    before = snapshot(layer)
    for shape in ((0, CHANNELS, 2, 2), (3, CHANNELS, 0, 2), (0, CHANNELS, 0, 0)):
        x, *labels = make_inputs(layer, *shape)
        out = layer(x.requires_grad_(), *labels)
        assert out.shape == shape
        assert all(gradient.count_nonzero() == 0 for gradient in gradients(out, x, *layer.parameters()))
        assert_unchanged(layer, before)
        assert (layer.num_retried, layer.num_nonfinite) == (0, 0)


@pytest.mark.parametrize("name", ["WC", "BN", "cWC"])
def test_one_position_without_running_statistics_is_refused_in_evaluation_too(name):
    layer = make_layer(name, track_running_stats=False).eval()
    assert "got 1" in refused(layer, ValueError, *with_labels(name, make_batch(1, CHANNELS, 1, 1)))


@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_one_position_in_evaluation_is_welcome(name):
    layer = make_layer(name).eval()
    assert layer(*with_labels(name, make_batch(1, CHANNELS, 1, 1))).isfinite().all()


@MODES
@pytest.mark.parametrize("name", ["WC", "BN", "C-only", "cWC"])
def test_input_that_is_not_floating_point_is_refused_with_its_type(name, training):
    layer = make_layer(name).train(training)
    for dtype in (torch.int64, torch.uint8, torch.bool, torch.complex64):
        message = refused(layer, TypeError, *with_labels(name, torch.zeros(5, CHANNELS, 2, 2, dtype=dtype)))
        assert str(dtype) in message
        assert "floating-point" in message


@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_input_that_is_not_a_tensor_is_refused(name):
    x = make_batch(5, CHANNELS, 2, 2).numpy()
    inputs = (x, make_labels(5)) if name == "cWC" else (x,)
    assert "ndarray" in refused(make_layer(name), TypeError, *inputs)


# Arguments


def refused_by_both(channels, **options):
    """The messages with which both kinds of layer refuse their arguments."""
    builds = (wcgan.WhiteningColoring2d, functools.partial(wcgan.ConditionalWhiteningColoring2d, classes=3))
    for build in builds:
        with pytest.raises(ValueError) as error:
            build(channels, **options)
        yield str(error.value)


@pytest.mark.parametrize(
    ("options", "value", "allowed"),
    [
        ({"whitening": "pca"}, "'pca'", ["cholesky", "zca", "newton", "standardize", "none"]),
        ({"coloring": "low-rank"}, "'low-rank'", ["full", "diagonal"]),
        ({"init": "uniform"}, "'uniform'", ["glorot", "orthogonal", "identity"]),
        ({"groups": 3}, "got 3", ["divisor of the 4 channels"]),
        ({"groups": 0}, "got 0", ["positive divisor"]),
        ({"groups": -2}, "got -2", ["positive divisor"]),
        ({"groups": 8}, "got 8", ["divisor of the 4 channels"]),
        ({"groups": 2, "whitening": "standardize"}, "groups=2", ["leave groups at 1"]),
        ({"groups": 2, "whitening": "none"}, "groups=2", ["leave groups at 1"]),
        ({"eps": -1e-3}, "got -0.001", ["[0, 1)"]),
        ({"eps": 1.0}, "got 1.0", ["[0, 1)"]),
        ({"eps": float("nan")}, "got nan", ["[0, 1)"]),
        ({"momentum": -0.1}, "got -0.1", ["[0, 1]", "None"]),
        ({"momentum": 1.5}, "got 1.5", ["[0, 1]", "None"]),
        ({"momentum": float("nan")}, "got nan", ["[0, 1]", "None"]),
        ({"whitening": "newton", "iterations": 0}, "got 0", ["at least 1"]),
    ],
    ids=str,
)
def test_a_bad_argument_is_refused_with_its_value_and_what_is_allowed(options, value, allowed):
    for message in refused_by_both(4, **options):
        assert value in message
        assert all(part in message for part in allowed)


@pytest.mark.parametrize("channels", [0, -4])
def test_fewer_than_one_channel_is_refused(channels):
    assert all(f"at least 1, got {channels}" in message for message in refused_by_both(channels))


def test_an_unknown_shared_coloring_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="'both'; choose one of full, diagonal, none"):
        wcgan.ConditionalWhiteningColoring2d(4, 3, shared="both")


def test_a_conditional_layer_without_class_coloring_is_refused():
    with pytest.raises(ValueError, match="'none'; choose one of full, diagonal"):
        wcgan.ConditionalWhiteningColoring2d(4, 3, coloring="none")


def test_a_bad_argument_by_name_reaches_the_same_check():
    with pytest.raises(ValueError, match="divisor of the 8 channels, got 3"):
        wcgan.normalization("DBN", 8, groups=3)


@pytest.mark.parametrize("name", ["WC", "cWC", "DBN"])  # DBN chooses a number of groups
def test_fewer_than_one_channel_by_name_is_refused(name):
    options = {"classes": 3} if name == "cWC" else {}
    with pytest.raises(ValueError, match="at least 1, got 0"):
        wcgan.normalization(name, 0, **options)


def test_an_argument_that_no_layer_has_is_refused():
    with pytest.raises(TypeError, match="elementwise_affine"):
        wcgan.normalization("WC", 4, elementwise_affine=True)
