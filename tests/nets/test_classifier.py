"""Classifiers: He et al.'s networks, with a normalisation by name where it is asked for."""

import copy
import math
import re

import pytest
import torch
from tests.nets.cases import count, make_images, randomize
from torch import nn
from torch.nn import functional as F  # noqa: N812

import wcgan
from wcgan.core.config import config_from_dict
from wcgan.nets import ClassifierConfig, build_classifier
from wcgan.nets.classifier import subsample_and_widen
from wcgan.norm import WhiteningLayer
from wcgan.norm.fold import FoldedMap

UNCONDITIONAL = ("BN", "W-only", "WC-diag", "C-only", "std-C", "WzcaC", "WC", "DBN", "IterNorm")
PUBLISHED = {20: 0.27, 32: 0.46, 44: 0.66, 56: 0.85, 110: 1.7}  # He et al., table 6: depth -> millions of parameters
SAMPLES = 5

# field, what is wrong with it, other fields, what must be said of it
BAD = [
    ("depth", 33, {}, "6n + 2 with n at least 1, such as 20, 32"),
    ("depth", 2, {}, "6n + 2 with n at least 1"),
    ("depth", 6 * 10**9 + 2, {}, "6n + 2 with n at least 1, such as 20, 32, 44, 56 or 110, and at most 1202"),
    ("depth", 32.0, {}, "6n + 2 with n at least 1"),
    ("width", 0, {}, "a positive integer"),
    ("channels", 0, {}, "a positive integer"),
    ("classes", None, {}, "a positive integer"),
    ("normalization", "cWC", {}, "one of BN, W-only, WC-diag, C-only, std-C, WzcaC, WC, DBN, IterNorm"),
    ("normalization", "LN", {}, "one of BN, W-only"),
    ("where", "last", {}, "one of first, all"),
    ("options", None, {}, "a mapping"),
    ("options", {"epsilon": 1}, {}, "a mapping with keys among eps, momentum"),
    ("options", {"dictionary": 4}, {}, "a mapping with keys among eps, momentum"),
    ("options", {"eps": 2}, {}, "right for WC of width 16: eps"),
    (
        "options",
        {"groups": 3},
        {"width": 6, "where": "all", "normalization": "BN"},
        "right for BN of width 6: groups=3",
    ),
]


def make_classifier(normalization="WC", seed=0, **fields):
    """One block a stage, unless said otherwise."""
    torch.manual_seed(seed)
    return build_classifier(ClassifierConfig(normalization=normalization, **{"depth": 8, "width": 4, **fields}))


def layers_of(classifier):
    return {name: module for name, module in classifier.named_modules() if isinstance(module, WhiteningLayer)}


def kind_of(layer_or_variant):
    return layer_or_variant.whitening, layer_or_variant.coloring


def settings_of(layer):
    return layer.eps, layer.momentum


class PlainResNet(nn.Module):
    """The same network in PyTorch's own layers: convolutions and normalisations in order, one list each."""

    def __init__(self, blocks, width):
        super().__init__()
        widths = [3, width] + [width * 2**stage for stage in range(3) for _ in range(2 * blocks)]
        self.strides = [1] + [2 if widths[k] < widths[k + 1] else 1 for k in range(1, len(widths) - 1)]
        self.convs = nn.ModuleList(
            nn.Conv2d(widths[k], widths[k + 1], 3, stride, 1, bias=False) for k, stride in enumerate(self.strides)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for channels in widths[1:])
        self.fc = nn.Linear(4 * width, 10)

    def forward(self, x):
        x = F.relu(self.norms[0](self.convs[0](x)))
        for k in range(1, len(self.convs), 2):
            h = F.relu(self.norms[k](self.convs[k](x)))
            h = self.norms[k + 1](self.convs[k + 1](h))
            if self.strides[k] == 2:
                x = F.max_pool2d(x, 1, stride=2)
                x = F.pad(x, (0, 0, 0, 0, 0, h.shape[1] - x.shape[1]))
            x = F.relu(h + x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def plain_pairs(classifier, plain):
    """The parts of both networks that hold the same weights, in order."""
    convs = [module for module in classifier.modules() if isinstance(module, nn.Conv2d)]
    norms = list(layers_of(classifier).values())
    yield from zip([*convs, *norms, classifier.dense], [*plain.convs, *plain.norms, plain.fc], strict=True)


def plain_copy(classifier):
    plain = PlainResNet(classifier.config.blocks, classifier.config.width).to(classifier.dense.weight.dtype)
    for ours, theirs in plain_pairs(classifier, plain):
        theirs.load_state_dict(ours.state_dict())
    return plain


def test_a_classifier_has_at_most_two_billion_weights():
    with pytest.raises(ValueError, match=r"widths is \(65536, .*for a network of at most 2e\+09 weights"):
        ClassifierConfig(width=65536)


@pytest.mark.parametrize("depth", PUBLISHED)
def test_the_number_of_parameters_is_the_published_one(depth):
    n, w = (depth - 2) // 6, 16
    first = 9 * 3 * w
    same = 9 * w * w * (2 * n + 4 * (2 * n - 1) + 16 * (2 * n - 1))
    wider = 9 * (w * 2 * w + 2 * w * 4 * w)
    norms = 2 * (w + 2 * n * (w + 2 * w + 4 * w))
    dense = 4 * w * 10 + 10
    with torch.device("meta"):
        found = count(make_classifier("BN", depth=depth, width=w))
    assert found == first + same + wider + norms + dense
    assert round(found / 1e6, 1 if depth == 110 else 2) == PUBLISHED[depth]


@pytest.mark.parametrize("where", ["first", "all"])
@pytest.mark.parametrize("side", [8, 15])
def test_with_batch_normalisation_it_is_the_network_of_plain_layers(where, side):
    classifier = make_classifier("BN", depth=14, where=where).double()
    randomize(classifier)
    plain = plain_copy(classifier)
    images = make_images(SAMPLES, side=side, dtype=torch.float64)
    weights = torch.linspace(-1, 1, SAMPLES * 10, dtype=torch.float64).view(SAMPLES, 10)
    for train in (True, False):
        classifier.train(train).zero_grad()
        plain.train(train).zero_grad()
        logits, expected = classifier(images), plain(images)
        torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
        (logits * weights).sum().backward()
        (expected * weights).sum().backward()
        for ours, theirs in plain_pairs(classifier, plain):
            for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-8, atol=1e-8)
    for ours, theirs in plain_pairs(classifier, plain):
        torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()), rtol=1e-10, atol=1e-10)


def test_a_shortcut_takes_every_second_position_and_adds_channels_of_zeros():
    x = torch.arange(1.0, 19.0).view(1, 2, 3, 3)
    expected = torch.zeros(1, 4, 2, 2)
    expected[0, 0] = torch.tensor([[1.0, 3.0], [7.0, 9.0]])
    expected[0, 1] = torch.tensor([[10.0, 12.0], [16.0, 18.0]])
    assert torch.equal(subsample_and_widen(x, 2, 2), expected)


@pytest.mark.parametrize("where", ["first", "all"])
@pytest.mark.parametrize("name", UNCONDITIONAL)
def test_the_named_normalisation_stands_where_it_is_asked_for(name, where):
    layers = layers_of(make_classifier(name, where=where, depth=14))
    assert next(iter(layers)) == "norm"
    assert len(layers) == 13
    elsewhere = wcgan.VARIANTS["BN" if where == "first" else name]
    expected = {**dict.fromkeys(layers, kind_of(elsewhere)), "norm": kind_of(wcgan.VARIANTS[name])}
    assert {key: kind_of(layer) for key, layer in layers.items()} == expected


def test_every_unconditional_normalisation_is_tried():
    assert {name for name, variant in wcgan.VARIANTS.items() if not variant.conditional} == set(UNCONDITIONAL)


def test_the_groups_are_those_of_the_variants():
    layers = layers_of(make_classifier("DBN", where="all", width=16))
    assert [layer.groups for layer in layers.values()] == [1, 1, 1, 2, 2, 4, 4]


@pytest.mark.parametrize("where", ["first", "all"])
def test_options_reach_the_named_layers_and_no_other(where):
    layers = layers_of(make_classifier("WC", where=where, options={"eps": 0.1, "momentum": 0.5}))
    assert settings_of(layers.pop("norm")) == (0.1, 0.5)
    assert {settings_of(layer) for layer in layers.values()} == {(1e-5, 0.1) if where == "first" else (0.1, 0.5)}


def test_batch_normalisation_has_the_settings_of_pytorch_unless_options_say_otherwise():
    plain = nn.BatchNorm2d(4)
    layers = layers_of(make_classifier("BN", options={"momentum": 0.2}))
    assert settings_of(layers.pop("norm")) == (plain.eps, 0.2)
    assert {settings_of(layer) for layer in layers.values()} == {(plain.eps, plain.momentum)}
    assert {settings_of(layer) for layer in layers_of(make_classifier("BN")).values()} == {(plain.eps, plain.momentum)}


@pytest.mark.parametrize("name", ["C-only", "std-C", "WzcaC", "WC"])
def test_a_full_coloring_starts_as_the_identity_unless_options_say_otherwise(name):
    layers = layers_of(make_classifier(name, where="all"))
    assert all(torch.equal(layer.weight, torch.eye(layer.num_features)) for layer in layers.values())
    assert not torch.equal(make_classifier(name, options={"init": "glorot"}).norm.weight, torch.eye(4))


def test_convolutions_start_normal_with_variance_two_over_fan_out():
    for module in make_classifier(width=16).modules():
        if isinstance(module, nn.Conv2d):
            weight = module.weight.detach().double()
            n, variance = weight.numel(), 2 / (9 * module.out_channels)
            assert weight.mean().abs() < 5 * math.sqrt(variance / n)
            assert (weight.var() / variance - 1).abs() < 5 * math.sqrt(2 / n)
            assert module.bias is None


@pytest.mark.parametrize("where", ["first", "all"])
@pytest.mark.parametrize("name", UNCONDITIONAL)
def test_a_step_of_training_moves_every_parameter_with_finite_gradients(name, where):
    classifier = make_classifier(name, where=where)
    optimiser = torch.optim.SGD(classifier.parameters(), lr=0.1)
    before = {key: parameter.detach().clone() for key, parameter in classifier.named_parameters()}
    F.cross_entropy(classifier(make_images()), torch.arange(SAMPLES)).backward()
    gradients = {key: parameter.grad for key, parameter in classifier.named_parameters()}
    assert [key for key, gradient in gradients.items() if gradient is None or not gradient.isfinite().all()] == []
    optimiser.step()
    assert [key for key, parameter in classifier.named_parameters() if torch.equal(before[key], parameter)] == []


@pytest.mark.parametrize("shape", [(2, 1, 8, 9), (1, 3, 11, 33), (3, 2, 40, 8)])
def test_images_of_any_size_give_logits_for_each_class(shape):
    classifier = make_classifier(channels=shape[1], classes=7)
    assert classifier(torch.randn(shape)).shape == (shape[0], 7)


@pytest.mark.parametrize("shape", [(2, 1, 16, 16), (3, 16, 16), (2, 3, 7, 16), (2, 3, 16, 7), (2, 3, 16, 16, 1)])
def test_images_of_another_shape_are_an_error_that_names_both(shape):
    said = re.escape(f"images must be (N, 3, H, W) with H and W at least 8, got shape {shape}")
    with pytest.raises(ValueError, match=said):
        make_classifier()(torch.zeros(shape))


@pytest.mark.parametrize(("field", "value", "others", "allowed"), BAD)
def test_a_bad_config_names_field_value_and_what_is_allowed(field, value, others, allowed):
    said = re.escape(f"ClassifierConfig.{field} is {value!r}; it must be {allowed}")
    with pytest.raises(ValueError, match=said):
        ClassifierConfig(**{field: value, **others})


def test_a_config_is_read_from_plain_values_and_each_is_checked():
    values = {"depth": 20, "normalization": "DBN", "where": "all", "options": {"momentum": 0.1}}
    assert config_from_dict(values, ClassifierConfig) == ClassifierConfig(**values)
    with pytest.raises(ValueError, match="where must be one of first, all, got 'last'"):
        config_from_dict({"where": "last"}, ClassifierConfig)


def test_a_config_is_hashable_and_does_not_see_later_changes_of_its_options():
    options = {"momentum": 0.1}
    config = ClassifierConfig(options=options)
    options["momentum"] = 0.2
    assert config.options == {"momentum": 0.1}
    assert hash(config) == hash(ClassifierConfig(options={"momentum": 0.1}))


@pytest.mark.parametrize("name", UNCONDITIONAL)
def test_a_folded_classifier_gives_the_same_logits(name):
    classifier = make_classifier(name, where="all")
    classifier(make_images())
    folded = wcgan.fold(classifier)
    assert [key for key, module in folded.named_modules() if isinstance(module, FoldedMap)] == []
    logits = classifier.eval()(make_images())
    torch.testing.assert_close(folded(make_images()), logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["BN", "WC", "DBN"])
def test_a_state_dict_carries_the_whole_classifier(name):
    trained, fresh = make_classifier(name), make_classifier(name, seed=1)
    trained(make_images())  # moves the running statistics
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(fresh.eval()(make_images()), trained.eval()(make_images()))


@pytest.mark.parametrize("name", ["BN", "WC"])
def test_a_channels_last_classifier_gives_the_same_logits(name):
    classifier = make_classifier(name).double()
    other = copy.deepcopy(classifier).to(memory_format=torch.channels_last)
    images = make_images(dtype=torch.float64)
    torch.testing.assert_close(other(images), classifier(images), rtol=1e-10, atol=1e-10)
    assert other.blocks(other.norm(other.conv(images))).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["BN", "WC"])
def test_under_autocast_convolutions_are_in_half_precision_and_logits_are_not(name):
    classifier = make_classifier(name, where="all")
    with torch.autocast("cpu", torch.bfloat16):
        maps = classifier.blocks(classifier.norm(classifier.conv(make_images())))
        logits = classifier(make_images())
    assert (maps.dtype, logits.dtype) == (torch.bfloat16, torch.float32)
    logits.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in classifier.parameters())


@pytest.mark.slow
def test_a_compiled_classifier_trains_as_one_graph():
    eager = make_classifier().double()
    other = copy.deepcopy(eager)
    images = make_images(side=8, dtype=torch.float64)
    torch._dynamo.reset()
    logits, expected = torch.compile(other, backend="aot_eager", fullgraph=True)(images), eager(images)
    torch._dynamo.reset()
    torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)
    logits.square().sum().backward()
    expected.square().sum().backward()
    for first, second in zip(eager.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(second.grad, first.grad, rtol=1e-8, atol=1e-8)
    for first, second in zip(eager.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(second, first, rtol=1e-10, atol=1e-10)
