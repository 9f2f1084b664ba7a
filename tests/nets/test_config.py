"""Configs: what is refused, by which words, and what is filled in."""

import dataclasses
import re

import pytest
import torch
from tests.nets.cases import CONDITIONAL, VARIANTS

import wcgan.nets
from wcgan.nets import DiscriminatorConfig, GeneratorConfig
from wcgan.paper.printed import ARCHITECTURES

# field, what is wrong with it, other fields, what must be said of it
BAD_GENERATORS = [
    ("kind", "vgg", {}, "one of resnet, dcgan"),
    ("base", 0, {}, "a positive integer"),
    ("base", 4.0, {}, "a positive integer"),
    ("widths", (), {}, "a sequence of at least one positive integer"),
    ("widths", (8, 0), {}, "a sequence of at least one positive integer"),
    ("widths", 8, {}, "a sequence of at least one positive integer"),
    ("noise", -1, {}, "a positive integer"),
    ("normalization", "LN", {}, "one of BN, W-only"),
    ("last_normalization", "LN", {}, "one of BN, W-only"),
    ("channels", True, {}, "a positive integer"),
    ("classes", 0, {}, "a positive integer of at most 65536, or None"),
    (
        "classes",
        None,
        {"normalization": "cWC"},
        "the number of classes, since normalization is 'cWC'; images have classes if each",
    ),
    ("classes", None, {"last_normalization": "cBN"}, "the number of classes, since last_normalization is 'cBN'"),
    ("options", None, {}, "a mapping"),
    ("options", {"epsilon": 1}, {}, "a mapping with keys among eps, momentum"),
    ("widths", (10**18,), {}, "for a network of at most 2e+09 weights"),
    ("widths", (1,), {"base": 65536}, "for a network of at most 2e+09 weights"),
    ("widths", (1024,), {"normalization": "cWC", "classes": 4096}, "for a network of at most 2e+09 weights"),
    (
        "widths",
        (1024,),
        {"normalization": "cWC_sa", "classes": 9, "options": {"dictionary": 10**18}},
        "for a network of at most 2e+09 weights",
    ),
    ("widths", (1,) * 13, {}, "a sequence of at most 12"),
    ("noise", 10**400, {}, "a positive integer of at most 65536"),
    ("options", {"whitening": "zca"}, {}, "a mapping with keys among eps, momentum"),
    ("options", {"whitening": "cholesky"}, {"normalization": "WzcaC"}, "a mapping whose whitening is one of zca, zca-"),
    ("options", {"whitening": None}, {"normalization": "DBN"}, "a mapping whose whitening is one of zca, zca-"),
    ("options", {"dictionary": 4}, {"normalization": "cWC", "classes": 3}, "a mapping with keys among eps, momentum"),
    ("options", {"eps": 2}, {}, "right for WC of width 256: eps"),
    ("options", {"groups": 3}, {"widths": (6, 8)}, "right for WC of width 8: groups"),
    ("depth", 0, {}, "from 1 to 12"),
    ("depth", 10**6, {}, "from 1 to 12"),
    ("depth", 2, {"kind": "dcgan"}, "1 for DCGAN"),
    ("attention", 12, {}, "0, or a side of its maps: [8, 16, 32]"),
    ("options", {"groups": 2}, {"normalization": "BN"}, "right for BN of width 256: groups=2 has no meaning"),
]
BAD_DISCRIMINATORS = [
    ("kind", "vgg", {}, "one of resnet, dcgan"),
    ("widths", [], {}, "a sequence of at least one positive integer"),
    ("widths", (60_000, 60_000), {}, "for a network of at most 2e+09 weights"),
    ("widths", (1,), {"kind": "dcgan", "resolution": 65536}, "for a network of at most 2e+09 weights"),
    ("classes", 10**9, {}, "a positive integer of at most 65536, or None"),
    ("downsample", 5, {}, "an integer from 0 to 4, the number of widths"),
    ("downsample", -1, {}, "an integer from 0 to 4, the number of widths"),
    ("head", "none", {}, "one of plain, projection, acgan"),
    ("spectral_norm", 1, {}, "True or False"),
    ("channels", 0, {}, "a positive integer"),
    ("classes", None, {"head": "projection"}, "the number of classes, since head is 'projection'"),
    ("classes", None, {"head": "acgan"}, "the number of classes, since head is 'acgan'"),
    ("slope", 1.5, {}, "a number in [0, 1)"),
    ("slope", "0.1", {}, "a number in [0, 1)"),
    ("resolution", 30, {}, "a multiple of 4"),
    ("attention", 32, {}, "0, or a side of its maps: [8, 16]"),
    ("attention", 16, {"kind": "dcgan"}, "0, or a side of its maps: []"),
    ("resolution", 36, {"kind": "dcgan"}, "a multiple of 8"),
]
PARTNERS = {
    "cBN": "BN",
    "c-std-C": "std-C",
    "c-std-C_sa": "std-C",
    "cWC-cls-only": "WC",
    "cWC_sa-cls-only": "WC",
    "cWC-diag": "WC",
    "cWC": "WC",
    "cWC_sa": "WC",
}


@pytest.mark.parametrize(("field", "value", "others", "allowed"), BAD_GENERATORS)
def test_a_bad_generator_config_names_field_value_and_what_is_allowed(field, value, others, allowed):
    said = re.escape(f"GeneratorConfig.{field} is {value!r}; it must be {allowed}")
    with pytest.raises(ValueError, match=said):
        GeneratorConfig(**{field: value, **others})


@pytest.mark.parametrize(("field", "value", "others", "allowed"), BAD_DISCRIMINATORS)
def test_a_bad_discriminator_config_names_field_value_and_what_is_allowed(field, value, others, allowed):
    said = re.escape(f"DiscriminatorConfig.{field} is {value!r}; it must be {allowed}")
    with pytest.raises(ValueError, match=said):
        DiscriminatorConfig(**{field: value, **others})


def test_every_conditional_normalisation_has_its_partner_at_the_end():
    assert set(PARTNERS) == set(CONDITIONAL)
    for name, partner in PARTNERS.items():
        assert GeneratorConfig(normalization=name, classes=3).final_normalization == partner


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in CONDITIONAL])
def test_an_unconditional_normalisation_stands_at_the_end_too(name):
    assert GeneratorConfig(normalization=name).final_normalization == name


@pytest.mark.parametrize("name", VARIANTS)
def test_a_generator_is_conditional_if_its_normalisation_is(name):
    assert GeneratorConfig(normalization=name, classes=3).conditional == (name in CONDITIONAL)


def test_a_list_of_widths_becomes_a_tuple():
    assert GeneratorConfig(widths=[8, 4]) == GeneratorConfig(widths=(8, 4))
    assert DiscriminatorConfig(widths=[8, 4]).widths == (8, 4)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_config_survives_the_way_to_a_dictionary_and_back(name):
    for config in ARCHITECTURES[name]:
        assert type(config)(**dataclasses.asdict(config)) == config


def test_configs_are_frozen_and_hashable():
    for config in ARCHITECTURES["cifar10/cWC SN + Proj. Discr."]:
        assert hash(config) == hash(dataclasses.replace(config))
        with pytest.raises(dataclasses.FrozenInstanceError):
            config.kind = "dcgan"


def test_a_config_does_not_see_later_changes_of_the_options_it_was_given():
    options = {"momentum": 0.1}
    config = GeneratorConfig(options=options)
    options["momentum"] = 0.2
    assert config.options == {"momentum": 0.1}


def test_the_gradient_of_zca_is_an_option_of_its_layers_alone():
    config = GeneratorConfig(
        normalization="WzcaC", last_normalization="BN", widths=(8,), options={"whitening": "zca-decomposition"}
    )
    layers = [m for m in wcgan.nets.build_generator(config).modules() if isinstance(m, wcgan.WhiteningColoring2d)]
    assert [layer.whitening for layer in layers] == ["zca-decomposition", "zca-decomposition", "standardize"]


def test_checking_a_config_draws_no_random_numbers():
    before = torch.random.get_rng_state()
    GeneratorConfig(normalization="cWC_sa", classes=3)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_dcgan_ignores_downsample():
    assert DiscriminatorConfig(kind="dcgan", widths=(8, 8), downsample=5).halvings == 1


def test_the_public_list_is_this():
    assert wcgan.nets.__all__ == [
        "ClassifierConfig",
        "Discriminator",
        "DiscriminatorConfig",
        "Generator",
        "GeneratorConfig",
        "ResidualClassifier",
        "Scores",
        "build_classifier",
        "build_discriminator",
        "build_generator",
    ]
