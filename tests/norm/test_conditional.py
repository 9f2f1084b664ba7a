"""The class-conditional layers: how a label, or weights of the classes, picks the coloring."""

import math

import pytest
import torch
from tests.norm.cases import (
    CHANNELS,
    CLASSES,
    CONDITIONAL,
    EXACT,
    gradients,
    make_batch,
    make_inputs,
    make_labels,
    make_layer,
    oracle_averages,
    oracle_coloring,
    oracle_options,
    oracle_train,
    randomize,
)

import wcgan

SOFT = [name for name in CONDITIONAL if wcgan.VARIANTS[name].soft]


def check_against_oracle(layer, x, labels):
    leaves = [x.requires_grad_(), *layer.parameters()]
    leaves += [labels.requires_grad_()] if labels.is_floating_point() else []
    averages = oracle_averages(layer)
    averages.update(x)
    out, expected = layer.train()(x, labels), oracle_train(layer, x, labels)
    torch.testing.assert_close(out, expected, **EXACT)
    torch.testing.assert_close(gradients(out, *leaves), gradients(expected, *leaves), **EXACT)
    out = layer.eval()(x, labels)
    expected = averages.normalize(x, oracle_coloring(layer, labels), **oracle_options(layer))
    torch.testing.assert_close(out, expected, **EXACT)
    torch.testing.assert_close(gradients(out, *leaves), gradients(expected, *leaves), **EXACT)


@pytest.mark.parametrize("classes", [1, 5, 11], ids=["one class", "as many as samples", "more than samples"])
@pytest.mark.parametrize("name", CONDITIONAL)
def test_any_number_of_classes_equals_the_oracle(name, classes):
    layer = make_layer(name, classes=classes)
    check_against_oracle(layer, make_batch(5, CHANNELS, 2, 2), make_labels(5, classes))


@pytest.mark.parametrize("classes", [CLASSES, 11], ids=["fewer than samples", "more than samples"])
@pytest.mark.parametrize("name", SOFT)
def test_normalized_assignment_equals_the_oracle(name, classes):
    layer = make_layer(name, classes=classes, normalize_assignment=True)
    check_against_oracle(layer, make_batch(5, CHANNELS, 2, 2), make_labels(5, classes))


@pytest.mark.parametrize(
    ("name", "normalize"), [*((name, False) for name in CONDITIONAL), *((name, True) for name in SOFT)]
)
def test_weights_of_the_classes_equal_the_oracle_and_have_gradients(name, normalize):
    layer = make_layer(name, normalize_assignment=normalize)
    weights = torch.rand(5, CLASSES, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    check_against_oracle(layer, make_batch(5, CHANNELS, 2, 2), weights)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", CONDITIONAL)
def test_one_hot_weights_are_labels(name, training):
    layer = make_layer(name).train(training)
    x, labels = make_inputs(layer, 5, CHANNELS, 2, 2)
    one_hot = torch.nn.functional.one_hot(labels, CLASSES).double()
    torch.testing.assert_close(layer(x, one_hot), layer(x, labels), **EXACT)


@pytest.mark.parametrize("shared", ["full", "diagonal", "none"])
@pytest.mark.parametrize("coloring", ["full", "diagonal"])
@pytest.mark.parametrize("whitening", ["cholesky", "zca", "newton", "standardize", "none"])
def test_every_whitening_goes_with_every_pair_of_colorings(whitening, coloring, shared):
    layer = wcgan.ConditionalWhiteningColoring2d(
        CHANNELS, CLASSES, whitening=whitening, coloring=coloring, shared=shared, dtype=torch.float64
    )
    randomize(layer)
    check_against_oracle(layer, make_batch(5, CHANNELS, 2, 2), make_labels(5))


@pytest.mark.parametrize(("classes", "slots"), [(CLASSES, CLASSES), (5, 5), (11, 5)])
@pytest.mark.parametrize("name", CONDITIONAL)
def test_there_are_no_more_coloring_matrices_than_classes_or_samples(name, classes, slots):
    layer = make_layer(name, classes=classes)
    weight, shift, _ = layer.coloring_slots(make_labels(5, classes))
    assert (len(weight), len(shift)) == (slots, slots)


@pytest.mark.parametrize("name", CONDITIONAL)
def test_a_class_without_samples_gets_no_gradient(name):
    layer = make_layer(name)
    labels = torch.tensor([0, 2, 2, 0, 0])
    layer(make_batch(5, CHANNELS, 2, 2), labels).square().sum().backward()
    table = layer.class_weight if layer.dictionary is None else layer.assignment
    for gradient in (table.grad, layer.class_bias.grad):
        assert gradient[1].count_nonzero() == 0
        assert gradient[0].count_nonzero() == gradient[0].numel()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16])
def test_labels_may_be_of_any_integer_type(dtype):
    layer = make_layer("cWC")
    x, labels = make_inputs(layer, 5, CHANNELS, 2, 2)
    assert torch.equal(layer(x, labels.to(dtype)), layer(x, labels))


def test_samples_of_all_classes_are_whitened_together():
    layer = wcgan.ConditionalWhiteningColoring2d(CHANNELS, CLASSES, init="identity", dtype=torch.float64)
    x, labels = make_inputs(layer, 5, CHANNELS, 2, 2)
    torch.testing.assert_close(layer(x, labels), wcgan.functional.whiten(x), **EXACT)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("name", CONDITIONAL)
def test_identity_init_is_whitening_alone(name, normalized):
    options = {"init": "identity", "normalize_assignment": normalized, "dtype": torch.float64}
    layer = wcgan.normalization(name, CHANNELS, classes=CLASSES, **options)
    x, labels = make_inputs(layer, 5, CHANNELS, 2, 2)
    expected = wcgan.functional.whiten(x, layer.whitening, layer.eps)
    torch.testing.assert_close(layer(x, labels), expected, **EXACT)


@pytest.mark.parametrize("name", CONDITIONAL)
def test_glorot_init_draws_class_matrices_of_standard_deviation_one_over_root_n_d(name):
    torch.manual_seed(0)
    layer = wcgan.normalization(name, 64, classes=16)
    bank = layer.class_weight if layer.dictionary is None else layer.dictionary
    if layer.coloring == "diagonal":
        assert torch.equal(bank, torch.ones_like(bank))
    else:
        std = 1 / math.sqrt(len(bank) * 64)
        assert bank.std().item() == pytest.approx(std, rel=0.02)
        assert bank.mean().abs().item() < 0.02 * std
    assert layer.class_bias.count_nonzero() == 0
    if layer.assignment is not None:  # glorot: variance 2 / (n + s)
        assert layer.assignment.std().item() == pytest.approx(math.sqrt(2 / (16 + 4)), rel=0.25)


def test_a_diagonal_coloring_has_a_vector_a_class():
    layer = wcgan.normalization("cWC-diag", CHANNELS, classes=CLASSES)
    assert layer.class_weight.shape == (CLASSES, CHANNELS)
    assert layer.weight.shape == (CHANNELS, CHANNELS)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", CONDITIONAL)
def test_without_a_class_bias_a_layer_is_one_whose_class_bias_is_zero(name, training):
    layer, other = make_layer(name, class_bias=False).train(training), make_layer(name).train(training)
    assert layer.class_bias is None
    assert "class_bias" not in layer.state_dict()
    assert "class_bias=False" in repr(layer)
    with torch.no_grad():
        for parameter, value in other.named_parameters():
            value.copy_(layer.get_parameter(parameter)) if parameter != "class_bias" else value.zero_()
    x, labels = make_inputs(layer, 6, 4, 3, 3)
    weights = torch.rand(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for chosen in (labels, weights):
        assert torch.equal(layer(x, chosen), other(x, chosen))


def test_without_a_shared_coloring_there_is_no_shared_parameter():
    layer = wcgan.normalization("cWC-cls-only", CHANNELS, classes=CLASSES)
    assert layer.weight is None
    assert layer.bias is None
    assert set(layer.state_dict()) == {
        *("class_weight", "class_bias"),
        *("running_mean", "running_covariance", "num_batches_tracked"),
    }


@pytest.mark.parametrize(
    ("dictionary", "message"),
    [(0, "got 0"), (-2, "got -2"), (2.5, "got 2.5"), ("many", "got 'many'")],
)
def test_a_dictionary_of_no_size_is_refused(dictionary, message):
    with pytest.raises(ValueError, match=f"positive number of filters, 'auto' or None, {message}"):
        wcgan.ConditionalWhiteningColoring2d(4, 3, dictionary=dictionary)


def test_a_dictionary_beside_diagonal_matrices_is_refused():
    with pytest.raises(ValueError, match="cannot be used with coloring='diagonal'"):
        wcgan.ConditionalWhiteningColoring2d(4, 3, dictionary=2, coloring="diagonal")


@pytest.mark.parametrize("classes", [0, -1])
def test_fewer_than_one_class_is_refused(classes):
    with pytest.raises(ValueError, match=f"classes must be at least 1, got {classes}"):
        wcgan.ConditionalWhiteningColoring2d(4, classes)
