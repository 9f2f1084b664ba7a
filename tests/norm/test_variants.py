"""Each of the seventeen rows of the table against the oracle, and the function that builds them by name."""

import pytest
import torch
from tests.norm.cases import (
    CHANNELS,
    CONDITIONAL,
    EXACT,
    UNCONDITIONAL,
    VARIANTS,
    WHITENED,
    gradients,
    make_inputs,
    make_layer,
    oracle_averages,
    oracle_coloring,
    oracle_options,
    oracle_train,
    running_covariance,
)

import wcgan

# whitening, coloring, shared coloring, soft assignment: the design's table, row by row.
TABLE = {
    "BN": ("standardize", "diagonal", None, False),
    "W-only": ("cholesky", "none", None, False),
    "WC-diag": ("cholesky", "diagonal", None, False),
    "C-only": ("none", "full", None, False),
    "std-C": ("standardize", "full", None, False),
    "WzcaC": ("zca", "full", None, False),
    "WC": ("cholesky", "full", None, False),
    "DBN": ("zca", "diagonal", None, False),
    "IterNorm": ("newton", "diagonal", None, False),
    "cBN": ("standardize", "diagonal", "none", False),
    "c-std-C": ("standardize", "full", "full", False),
    "c-std-C_sa": ("standardize", "full", "full", True),
    "cWC-cls-only": ("cholesky", "full", "none", False),
    "cWC_sa-cls-only": ("cholesky", "full", "none", True),
    "cWC-diag": ("cholesky", "diagonal", "full", False),
    "cWC": ("cholesky", "full", "full", False),
    "cWC_sa": ("cholesky", "full", "full", True),
}
SIZES = (5, 3, 7)  # samples of successive training batches


def test_the_table_has_the_seventeen_rows_in_order():
    assert list(wcgan.VARIANTS) == list(TABLE)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_row_of_the_table_says_what_its_layer_is_made_of(name):
    variant = wcgan.VARIANTS[name]
    assert (variant.whitening, variant.coloring, variant.shared, variant.soft) == TABLE[name]
    layer = make_layer(name)
    assert (layer.whitening, layer.coloring) == TABLE[name][:2]
    if name in CONDITIONAL:
        assert (layer.shared, layer.dictionary is not None) == TABLE[name][2:]


@pytest.mark.parametrize("name", VARIANTS)
def test_training_output_and_gradients_equal_the_oracle(name):
    layer = make_layer(name)
    x, *labels = make_inputs(layer, 5, CHANNELS, 3, 2)
    leaves = [x.requires_grad_(), *layer.parameters()]
    out, expected = layer(x, *labels), oracle_train(layer, x, *labels)
    torch.testing.assert_close(out, expected, **EXACT)
    torch.testing.assert_close(gradients(out, *leaves), gradients(expected, *leaves), **EXACT)


@pytest.mark.parametrize(
    ("name", "momentum"), [*((name, 0.3) for name in WHITENED), *((name, None) for name in ("BN", "WC", "DBN", "cWC"))]
)
def test_running_statistics_of_unequal_batches_equal_the_oracle(name, momentum):
    layer = make_layer(name, momentum=momentum)
    averages = oracle_averages(layer)
    for seed, samples in enumerate(SIZES):
        inputs = make_inputs(layer, samples, CHANNELS, 2, 2, seed=seed)
        layer(*inputs)
        averages.update(inputs[0])
    torch.testing.assert_close(layer.running_mean, averages.mean, **EXACT)
    torch.testing.assert_close(running_covariance(layer), averages.covariance, **EXACT)
    assert layer.num_batches_tracked == len(SIZES)


@pytest.mark.parametrize("name", VARIANTS)
def test_evaluation_output_and_gradients_equal_the_oracle(name):
    layer = make_layer(name, momentum=0.3)
    averages = oracle_averages(layer)
    for seed, samples in enumerate(SIZES):
        inputs = make_inputs(layer, samples, CHANNELS, 2, 2, seed=seed)
        layer(*inputs)
        averages.update(inputs[0])
    layer.eval()
    x, *labels = make_inputs(layer, 5, CHANNELS, 3, 2, seed=7)
    leaves = [x.requires_grad_(), *layer.parameters()]
    out = layer(x, *labels)
    expected = averages.normalize(x, oracle_coloring(layer, *labels), **oracle_options(layer))
    torch.testing.assert_close(out, expected, **EXACT)
    torch.testing.assert_close(gradients(out, *leaves), gradients(expected, *leaves), **EXACT)


@pytest.mark.parametrize("name", WHITENED)
def test_without_running_statistics_evaluation_takes_the_batch_s_own(name):
    layer = make_layer(name, track_running_stats=False)
    x, *labels = make_inputs(layer, 5, CHANNELS, 3, 2)
    torch.testing.assert_close(layer.eval()(x, *labels), oracle_train(layer, x, *labels), **EXACT)
    assert layer.running_mean is None
    assert layer.num_batches_tracked is None


@pytest.mark.parametrize("shape", [(6, CHANNELS), (5, CHANNELS, 3)], ids=["features", "sequences"])
@pytest.mark.parametrize("name", VARIANTS)
def test_the_1d_layer_takes_features_and_sequences(name, shape):
    layer = make_layer(name, dim=1, momentum=0.5)
    x, *labels = make_inputs(layer, *shape)
    torch.testing.assert_close(layer(x, *labels), oracle_train(layer, x, *labels), **EXACT)
    averages = oracle_averages(layer)
    averages.update(x)
    expected = averages.normalize(x, oracle_coloring(layer, *labels), **oracle_options(layer))
    torch.testing.assert_close(layer.eval()(x, *labels), expected, **EXACT)


@pytest.mark.parametrize("name", ["WC-diag", "WzcaC", "WC", "cWC", "cWC-diag", "cWC_sa"])
def test_any_variant_that_whitens_can_be_grouped(name):
    layer = make_layer(name, groups=2)
    x, *labels = make_inputs(layer, 5, CHANNELS, 3, 2)
    leaves = [x.requires_grad_(), *layer.parameters()]
    out, expected = layer(x, *labels), oracle_train(layer, x, *labels)
    torch.testing.assert_close(out, expected, **EXACT)
    torch.testing.assert_close(gradients(out, *leaves), gradients(expected, *leaves), **EXACT)
    assert layer.running_covariance.shape == (2, CHANNELS // 2, CHANNELS // 2)


@pytest.mark.parametrize(
    ("name", "channels", "groups"),
    [("DBN", 48, 3), ("DBN", 16, 1), ("DBN", 34, 17), ("DBN", 17, 17), ("IterNorm", 64, 1), ("IterNorm", 128, 2)],
)
def test_the_peers_group_into_the_fewest_equal_groups_of_their_usual_size(name, channels, groups):
    assert wcgan.normalization(name, channels).groups == groups


@pytest.mark.parametrize(("classes", "size"), [(1, 1), (3, 2), (4, 2), (10, 4), (100, 10), (200, 15)])
def test_the_dictionary_has_the_square_root_of_the_classes_rounded_up(classes, size):
    layer = wcgan.normalization("cWC_sa", 3, classes=classes)
    assert layer.dictionary.shape == (size, 3, 3)
    assert layer.assignment.shape == (classes, size)
    assert layer.class_weight is None


def test_options_take_the_place_of_the_variant_s_own():
    layer = wcgan.normalization("DBN", 8, groups=4, eps=0.1, momentum=None)
    assert (layer.groups, layer.eps, layer.momentum) == (4, 0.1, None)
    assert wcgan.normalization("cWC_sa", 8, classes=9, dictionary=5).dictionary.shape == (5, 8, 8)


@pytest.mark.parametrize(("dim", "kind"), [(1, "1d"), (2, "2d")])
def test_dim_chooses_the_class(dim, kind):
    assert type(wcgan.normalization("WC", 4, dim=dim)) is getattr(wcgan, f"WhiteningColoring{kind}")
    conditional = wcgan.normalization("cWC", 4, classes=2, dim=dim)
    assert type(conditional) is getattr(wcgan, f"ConditionalWhiteningColoring{kind}")


def test_an_unknown_name_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match="'WCC'") as error:
        wcgan.normalization("WCC", 4)
    assert all(name in str(error.value) for name in VARIANTS)


@pytest.mark.parametrize("dim", [0, 4])
def test_another_dim_is_refused(dim):
    with pytest.raises(ValueError, match=f"1, 2 or 3, got {dim}"):
        wcgan.normalization("WC", 4, dim=dim)


@pytest.mark.parametrize("name", CONDITIONAL)
def test_a_conditional_variant_asks_for_classes(name):
    with pytest.raises(ValueError, match=f"{name} depends on the class.*classes="):
        wcgan.normalization(name, 4)


@pytest.mark.parametrize("name", UNCONDITIONAL)
def test_an_unconditional_variant_refuses_classes(name):
    with pytest.raises(ValueError, match=f"{name} does not depend on a class.*classes=3"):
        wcgan.normalization(name, 4, classes=3)
