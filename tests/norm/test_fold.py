"""Inference copies: constants that give what the layers give in evaluation, and nothing left to factorise."""

import copy

import pytest
import torch
from tests.norm.cases import (
    CHANNELS,
    CLASSES,
    CONDITIONAL,
    VARIANTS,
    assert_unchanged,
    make_batch,
    make_inputs,
    make_labels,
    make_layer,
    snapshot,
)
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import wcgan
from wcgan.norm import FoldedMap
from wcgan.norm._base import WhiteningLayer

ROUNDING = {"rtol": 1e-11, "atol": 1e-11}
FACTORISATIONS = ("cholesky", "eigh", "svd", "solve", "inverse", "linalg")


class Network(nn.Module):
    """A convolution, a normalisation and another convolution."""

    def __init__(self, name, **options):
        super().__init__()
        self.first = nn.Conv2d(3, CHANNELS, 2, dtype=torch.float64)
        self.norm = make_layer(name, **options)
        self.last = nn.Conv2d(CHANNELS, 2, 1, dtype=torch.float64)

    def forward(self, x, *labels):
        return self.last(self.norm(self.first(x), *labels).relu())


def trained_network(name, **options):
    torch.manual_seed(0)
    model = Network(name, momentum=0.5, **options)
    for seed in range(2):
        model(*inputs(name, seed))
    return model


def inputs(name, seed=0, samples=5):
    x = make_batch(samples, 3, 3, 3, seed=seed)
    return (x, make_labels(samples)) if name in CONDITIONAL else (x,)


class Operators(TorchDispatchMode):
    """Names of the operators that ran."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def suspicious(names):
    """Factorisations, and operators of this library, which could hide one; looking at labels is all right."""
    found = [name for name in names if any(word in name for word in FACTORISATIONS) or not name.startswith("aten.")]
    return [name for name in found if name != "wcgan.check_labels.default"]


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", VARIANTS)
def test_a_folded_model_gives_what_the_model_gives_in_evaluation(name, training):
    model = trained_network(name).train(training)
    before, modes = snapshot(model), [module.training for module in model.modules()]
    folded = wcgan.fold(model)
    assert_unchanged(model, before)
    assert [module.training for module in model.modules()] == modes
    assert not any(isinstance(module, WhiteningLayer) for module in folded.modules())
    assert not any(module.training for module in folded.modules())
    torch.testing.assert_close(folded(*inputs(name, 7)), model.eval()(*inputs(name, 7)), **ROUNDING)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_folded_model_factorises_nothing(name):
    folded = wcgan.fold(trained_network(name))
    with Operators() as ran:
        folded(*inputs(name, 7))
    assert len(ran.names) > 2
    assert suspicious(ran.names) == []


def test_the_search_for_factorisations_finds_those_of_the_layer():
    model = trained_network("WC")
    with Operators() as ran:
        model(*inputs("WC"))
        model.eval()(*inputs("WC"))
    assert {"wcgan.whiten_color.default", "wcgan.factorise.default"} <= set(suspicious(ran.names))


def class_weights():
    return torch.rand(5, CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", CONDITIONAL)
def test_weights_of_the_classes_that_sum_to_one_work_after_folding(name):
    model = trained_network(name).eval()
    weights = class_weights()
    weights = weights / weights.sum(1, keepdim=True)
    x = inputs(name)[0]
    torch.testing.assert_close(wcgan.fold(model)(x, weights), model(x, weights), **ROUNDING)


@pytest.mark.parametrize("name", ["cBN", "cWC"])
def test_any_weights_of_the_classes_work_after_folding(name):
    model = trained_network(name).eval()
    x = inputs(name)[0]
    torch.testing.assert_close(wcgan.fold(model)(x, class_weights()), model(x, class_weights()), **ROUNDING)


@pytest.mark.parametrize("name", ["cWC_sa", "cWC_sa-cls-only"])
def test_a_normalized_assignment_is_folded_with_its_normalisation(name):
    model = trained_network(name, normalize_assignment=True, class_bias=name == "cWC_sa").eval()
    torch.testing.assert_close(wcgan.fold(model)(*inputs(name, 7)), model(*inputs(name, 7)), **ROUNDING)


def test_weights_of_the_classes_mix_a_normalized_assignment_as_the_layer_does():
    model = trained_network("cWC_sa-cls-only", normalize_assignment=True).eval()
    x = inputs("cWC_sa-cls-only")[0]
    torch.testing.assert_close(wcgan.fold(model)(x, class_weights()), model(x, class_weights()), **ROUNDING)


@pytest.mark.parametrize("shape", [(6, CHANNELS), (5, CHANNELS, 3)], ids=["features", "sequences"])
@pytest.mark.parametrize("name", ["WC", "DBN", "BN", "cWC", "cBN"])
def test_1d_layers_fold(name, shape):
    layer = make_layer(name, dim=1, momentum=0.5)
    layer(*make_inputs(layer, *shape))
    folded = wcgan.fold(layer)
    assert isinstance(folded, FoldedMap)
    torch.testing.assert_close(
        folded(*make_inputs(layer, *shape, seed=1)), layer.eval()(*make_inputs(layer, *shape, seed=1)), **ROUNDING
    )


def test_a_layer_used_in_two_places_folds_into_one_map():
    layer = wcgan.WhiteningColoring2d(CHANNELS, dtype=torch.float64)
    folded = wcgan.fold(nn.Sequential(layer, nn.ReLU(), layer, nn.Sequential(layer)))
    assert isinstance(folded[0], FoldedMap)
    assert folded[2] is folded[0]
    assert folded[3][0] is folded[0]


def test_a_folded_map_has_no_parameters_and_a_state_that_loads():
    folded = wcgan.fold(trained_network("cWC"))
    assert list(folded.norm.parameters()) == []
    other = wcgan.fold(Network("cWC"))
    other.load_state_dict(folded.state_dict(), strict=True)
    assert torch.equal(other(*inputs("cWC")), folded(*inputs("cWC")))


def test_a_folded_map_says_its_size():
    assert repr(wcgan.fold(wcgan.WhiteningColoring2d(8))) == "FoldedMap(8)"
    assert repr(wcgan.fold(wcgan.normalization("DBN", 8, groups=2))) == "FoldedMap(8, groups=2)"
    assert repr(wcgan.fold(wcgan.ConditionalWhiteningColoring2d(8, 3))) == "FoldedMap(8, classes=3)"


def test_later_training_of_the_model_does_not_reach_the_copy():
    model = trained_network("WC")
    folded = wcgan.fold(model)
    expected = folded(*inputs("WC"))
    model(*inputs("WC", 9))
    with torch.no_grad():
        model.norm.weight.add_(1)
    assert torch.equal(folded(*inputs("WC")), expected)


def test_a_folded_copy_passes_gradients_to_its_input():
    model = trained_network("WC").eval()
    (x,) = inputs("WC")
    x.requires_grad_()
    found, expected = (torch.autograd.grad(m(x).square().sum(), x) for m in (wcgan.fold(model), model))
    torch.testing.assert_close(found, expected, **ROUNDING)


def test_channels_last_stays_channels_last():
    folded = wcgan.fold(wcgan.WhiteningColoring2d(CHANNELS, dtype=torch.float64))
    x = make_batch(5, CHANNELS, 3, 2).to(memory_format=torch.channels_last)
    assert folded(x).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["WC", "cWC", "BN", "cBN"])
def test_a_folded_model_in_float32_is_as_near_as_rounding_allows(name):
    model = trained_network(name).eval()
    folded = wcgan.fold(copy.deepcopy(model).float())
    x, *labels = inputs(name, 7)
    torch.testing.assert_close(folded(x.float(), *labels).double(), model(x, *labels), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("label", [CLASSES, -1])
def test_a_label_out_of_range_is_refused_after_folding(label):
    folded = wcgan.fold(trained_network("cWC"))
    labels = make_labels(5)
    labels[2] = label
    with pytest.raises(ValueError, match=rf"label {label} is out of range.*0 to {CLASSES - 1}"):
        folded(inputs("cWC")[0], labels)


def test_labels_of_another_shape_are_refused_after_folding():
    folded = wcgan.fold(trained_network("cWC"))
    with pytest.raises(ValueError, match=r"\(5,\).*\(4,\)"):
        folded(inputs("cWC")[0], torch.zeros(4, dtype=torch.int64))


def test_a_folded_conditional_layer_asks_for_labels():
    with pytest.raises(TypeError, match="labels"):
        wcgan.fold(make_layer("cWC"))(make_batch(5, CHANNELS, 2, 2))


@pytest.mark.parametrize("shape", [(5, CHANNELS + 1, 2, 2), (CHANNELS,)], ids=str)
def test_another_shape_is_refused_after_folding(shape):
    with pytest.raises(ValueError, match=str(CHANNELS)):
        wcgan.fold(make_layer("WC"))(torch.zeros(shape, dtype=torch.float64))


@pytest.mark.parametrize("name", ["WC", "BN", "cWC"])
def test_a_layer_without_running_statistics_is_refused_by_its_path(name):
    model = nn.Sequential(nn.ReLU(), nn.Sequential(make_layer(name, track_running_stats=False)))
    with pytest.raises(ValueError, match=r"^1\.0 has no running statistics to fold"):
        wcgan.fold(model)


def test_c_only_folds_though_it_has_no_running_statistics():
    assert isinstance(wcgan.fold(make_layer("C-only")), FoldedMap)


# A dictionary that is smaller than the number of classes


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cWC_sa", {}),
        ("cWC_sa", {"groups": 2}),
        ("cWC_sa-cls-only", {}),
        ("cWC_sa-cls-only", {"normalize_assignment": True}),
        ("c-std-C_sa", {}),
    ],
    ids=str,
)
def test_a_dictionary_stays_one(name, options):
    layer = make_layer(name, classes=9, momentum=0.5, **options)
    x, labels = make_inputs(layer, 12, CHANNELS, 3, 2)
    layer(x, labels)
    folded = wcgan.fold(layer.eval())
    assert folded.matrix.shape[0] == 3
    assert "classes=9, dictionary=3" in repr(folded)
    torch.testing.assert_close(folded(x, labels), layer(x, labels), **ROUNDING)
    weights = torch.rand(12, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(folded(x, weights), layer(x, weights), **ROUNDING)
    expected = layer(x, torch.full_like(labels, 7))
    torch.testing.assert_close(wcgan.fold(layer, label=7)(x), expected, **ROUNDING)
