"""Names of arguments and of layers as people know them from PyTorch: affine, num_classes, 3d, choices as types."""

import typing

import pytest
import torch
from tests.norm.cases import CHANNELS, EXACT, PATHS, gradients, make_inputs, make_layer
from torch import nn

import wcgan
from wcgan.functional._factorisations import FACTORISATIONS
from wcgan.norm import sub_batches, use_batch_statistics
from wcgan.norm.unconditional import COLORINGS, INITS

UNCONDITIONAL_LAYERS = (wcgan.WhiteningColoring1d, wcgan.WhiteningColoring2d, wcgan.WhiteningColoring3d)
CONDITIONAL_LAYERS = (
    wcgan.ConditionalWhiteningColoring1d,
    wcgan.ConditionalWhiteningColoring2d,
    wcgan.ConditionalWhiteningColoring3d,
)


def test_without_affine_there_is_no_coloring():
    layer = wcgan.WhiteningColoring2d(4, affine=False)
    assert (layer.coloring, layer.affine, list(layer.parameters())) == ("none", False, [])
    assert wcgan.WhiteningColoring2d(4).affine


@pytest.mark.parametrize("kind", CONDITIONAL_LAYERS)
def test_the_number_of_classes_has_two_names(kind):
    assert repr(kind(num_features=4, num_classes=3)) == repr(kind(4, 3)) == repr(kind(4, classes=3, num_classes=3))
    assert kind(4, 3).num_classes == 3


@pytest.mark.parametrize(("arguments", "message"), [
    ({"classes": 3, "num_classes": 4}, "classes=3 and num_classes=4 are the same argument"),
    ({}, "give the number of classes with classes= or num_classes="),
])  # fmt: skip
def test_numbers_of_classes_that_differ_or_are_missing_are_refused(arguments, message):
    with pytest.raises(TypeError, match=message):
        wcgan.ConditionalWhiteningColoring2d(4, **arguments)


def test_a_layer_by_name_takes_both_names():
    layer = wcgan.normalization("cWC", num_features=4, num_classes=3)
    assert repr(layer) == repr(wcgan.normalization("cWC", 4, 3))
    with pytest.raises(TypeError, match="give the number of channels with channels= or num_features="):
        wcgan.normalization("WC")


def test_a_layer_by_name_refuses_what_is_no_name_and_no_number_of_channels():
    with pytest.raises(ValueError, match=r"^unknown normalization \['WC'\]; choose one of BN, W-only"):
        wcgan.normalization(["WC"], 4)
    with pytest.raises(TypeError, match=r"^channels must be a whole number, got '4'$"):
        wcgan.normalization("WC", "4")


@pytest.mark.parametrize(
    ("given", "shown"),
    [("WC", "str"), (nn.BatchNorm2d, "the class BatchNorm2d"), (None, "NoneType"), ([nn.BatchNorm2d(3)], "list")],
    ids=["text", "class", "none", "list"],
)
@pytest.mark.parametrize(
    "call",
    [
        wcgan.convert_batchnorm,
        wcgan.fold,
        wcgan.freeze_statistics,
        lambda given: wcgan.update_statistics([], given),
        use_batch_statistics,
        lambda given: sub_batches(given, 2).__enter__(),
    ],
    ids=["convert_batchnorm", "fold", "freeze_statistics", "update_statistics", "use_batch_statistics", "sub_batches"],
)
def test_what_is_not_a_module_is_refused_with_what_was_given(call, given, shown):
    with pytest.raises(TypeError, match=f"^(model|module) must be a torch.nn.Module, got {shown}$"):
        call(given)


@pytest.mark.parametrize("kind", [*UNCONDITIONAL_LAYERS, *CONDITIONAL_LAYERS])
def test_the_types_of_choices_list_exactly_what_is_accepted(kind):
    hints = typing.get_type_hints(kind.__init__, vars(torch) | {"dist": torch.distributed})
    assert set(typing.get_args(hints["whitening"])) == set(FACTORISATIONS)
    assert typing.get_args(hints["init"]) == INITS
    shared = "shared" if kind in CONDITIONAL_LAYERS else "coloring"
    assert typing.get_args(hints[shared]) == COLORINGS
    if kind in CONDITIONAL_LAYERS:
        assert typing.get_args(hints["coloring"]) == ("full", "diagonal")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"num_features": 8.0}, "num_features must be a whole number, got 8.0"),
        ({"num_features": "8"}, "num_features must be a whole number, got '8'"),
        ({"momentum": "0.1"}, "momentum must be a number, got '0.1'"),
        ({"eps": None}, "eps must be a number, got None"),
        ({"groups": 2.0}, "groups must be a whole number, got 2.0"),
        ({"classes": 3.0}, "classes must be a whole number, got 3.0"),
    ],
)
def test_a_number_of_another_type_is_named(arguments, sentence):
    kind = wcgan.ConditionalWhiteningColoring2d if "classes" in arguments else wcgan.WhiteningColoring2d
    with pytest.raises(TypeError, match=f"^{sentence}$"):
        kind(**{"num_features": 8, **arguments})


# Volumes


@pytest.mark.parametrize("name", PATHS)
def test_volumes_are_normalised_as_feature_maps_of_the_same_positions(name):
    volumes, maps = make_layer(name, dim=3, momentum=0.5), make_layer(name, momentum=0.5)
    x, *labels = make_inputs(maps, 5, CHANNELS, 6, 2)
    flat, deep = x.clone().requires_grad_(), x.unflatten(2, (3, 2)).clone().requires_grad_()
    expected, found = maps(flat, *labels), volumes(deep, *labels)
    torch.testing.assert_close(found.flatten(2, 3), expected, **EXACT)
    (flat_gradient,) = gradients(expected, flat)
    (deep_gradient,) = torch.autograd.grad(found.flatten(2, 3), deep, _cotangent(expected))
    torch.testing.assert_close(deep_gradient.flatten(2, 3), flat_gradient, **EXACT)
    torch.testing.assert_close(volumes.eval()(deep, *labels).flatten(2, 3), maps.eval()(flat, *labels), **EXACT)


def _cotangent(like):
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_the_memory_format_of_volumes_is_kept(name, training):
    layer = make_layer(name, dim=3).train(training)
    x, *labels = make_inputs(layer, 5, CHANNELS, 3, 2, 2)
    last = x.to(memory_format=torch.channels_last_3d)
    out = layer(last, *labels)
    assert out.is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize("kind", [wcgan.WhiteningColoring3d, nn.BatchNorm3d])
def test_volumes_of_another_rank_are_refused(kind):
    with pytest.raises(ValueError, match="5D input"):
        kind(4)(torch.randn(2, 4, 3, 3))


@pytest.mark.parametrize("conv", [nn.Conv3d, nn.ConvTranspose3d])
def test_a_layer_after_a_convolution_of_volumes_is_folded_into_it(conv):
    torch.manual_seed(0)
    model = nn.Sequential(conv(3, CHANNELS, 2), nn.AvgPool3d(2), make_layer("WC", dim=3, momentum=0.5)).double()
    x = torch.randn(4, 3, 5, 5, 5, dtype=torch.float64)
    model(x)
    folded = wcgan.fold(model)
    assert folded[2].into == ("0",)
    torch.testing.assert_close(folded(x), model.eval()(x), **EXACT)
