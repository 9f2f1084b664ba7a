"""Presets: the digits, and every row of the paper with its protocol."""

from dataclasses import replace

import pytest

from wcgan.experiments import DEFAULT, PRESETS, configure, preset
from wcgan.nets import ARCHITECTURES, build_discriminator, build_generator
from wcgan.train import Config, override
from wcgan.train.iteration import learning_rate

HINGE, WGAN = ("hinge", 0.0), ("wasserstein", 10.0)
RESNET, DCGAN = (5, 64, 128), (1, 64, 64)
LINEAR, CONSTANT = (2e-4, "linear"), (2e-4, "constant")
# From the paper's appendix on implementation details, row by row:
# iterations, (discriminator updates, their batch, the generator's batch), (learning rate, schedule), (loss, penalty).
PROTOCOLS = {
    "cifar10/WC GP + ResNet": (100_000, RESNET, LINEAR, WGAN),
    "cifar10/WC SN + DCGAN": (100_000, DCGAN, LINEAR, HINGE),
    "cifar10/WC SN + ResNet": (50_000, RESNET, LINEAR, HINGE),
    "stl10/WC SN + DCGAN": (200_000, DCGAN, LINEAR, HINGE),
    "stl10/WC SN + ResNet": (100_000, RESNET, LINEAR, HINGE),
    "cifar10/cWC GP + ACGAN": (100_000, RESNET, LINEAR, WGAN),
    "cifar100/cWC GP + ACGAN": (100_000, RESNET, LINEAR, WGAN),
    "cifar10/cWC SN + Proj. Discr.": (50_000, RESNET, LINEAR, HINGE),
    "cifar100/cWC SN + Proj. Discr.": (50_000, RESNET, LINEAR, HINGE),
    "tiny-imagenet/cWC SN + Proj. Discr.": (100_000, RESNET, LINEAR, HINGE),
    "imagenet/cWC_sa SN + Proj. Discr.": (450_000, RESNET, (5e-4, "linear"), HINGE),
    "mnist/WC": (5_000, RESNET, CONSTANT, HINGE),
    "mnist/cWC": (5_000, RESNET, CONSTANT, HINGE),
    "fashion-mnist/WC": (20_000, RESNET, LINEAR, HINGE),
    "fashion-mnist/cWC": (20_000, RESNET, LINEAR, HINGE),
}
DIGITS = ("digits/cWC", "digits/cWC_sa", "digits/cBN")


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_config_with_its_name(name):
    config = preset(name)
    assert isinstance(config, Config)
    assert config.preset == name
    assert config.data.name == name.partition("/")[0]


def test_there_is_a_protocol_for_every_architecture():
    assert set(PROTOCOLS) == set(ARCHITECTURES)
    assert set(PRESETS) == set(PROTOCOLS) | set(DIGITS)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_row_is_trained_as_the_paper_says(name):
    train = preset(name).train
    iterations, updates, rate, loss = PROTOCOLS[name]
    assert train.iterations == iterations
    assert (train.critic_steps, train.batch, train.generator_batch) == updates
    assert (train.learning_rate, train.schedule) == rate
    assert (train.loss, train.gradient_penalty) == loss


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_row_has_the_papers_adam_class_weights_and_no_average(name):
    train = preset(name).train
    assert (train.beta1, train.beta2) == (0.0, 0.9)
    assert (train.class_weight_discriminator, train.class_weight_generator) == (1.0, 0.1)
    assert train.ema == 0


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_row_has_the_networks_of_its_table(name):
    config = preset(name)
    assert (config.generator, config.discriminator) == ARCHITECTURES[name]


@pytest.mark.parametrize("name", PRESETS)
def test_spectral_norm_goes_with_hinge_and_a_penalty_with_wasserstein(name):
    config = preset(name)
    assert config.discriminator.spectral_norm == (config.train.loss == "hinge")
    assert (config.train.gradient_penalty > 0) == (config.train.loss == "wasserstein")


def test_the_schedule_of_the_state_of_the_art_row_can_be_set():
    settings = ["train.schedule=drop", "train.drop_at=30000", "train.iterations=31000"]
    train = override(preset("cifar10/cWC SN + Proj. Discr."), settings).train
    assert [learning_rate(train, i) for i in (0, 29_999, 30_000, 30_999)] == pytest.approx([2e-4, 2e-4, 2e-5, 2e-5])


@pytest.mark.parametrize("name", DIGITS)
def test_presets_of_the_digits_differ_in_nothing_but_the_normalisation(name):
    config, other = preset(name), preset("digits/cWC")
    assert config.generator.normalization == name.partition("/")[2]
    same = replace(config.generator, normalization="cWC")
    assert replace(config, generator=same, preset=other.preset) == other


@pytest.mark.parametrize("name", DIGITS)
def test_networks_of_the_digits_are_small_enough_for_a_laptop(name):
    config = preset(name)
    networks = build_generator(config.generator), build_discriminator(config.discriminator)
    assert sum(p.numel() for network in networks for p in network.parameters()) < 300_000
    assert config.generator.resolution == 16


def test_the_default_is_a_preset():
    assert DEFAULT == "digits/cWC"
    assert DEFAULT in PRESETS


def test_an_unknown_preset_is_said_with_those_there_are():
    with pytest.raises(
        ValueError, match=r"unknown preset 'digits/WC'; `wcgan presets` lists them: digits/cWC, .*mnist"
    ):
        preset("digits/WC")


def test_configuring_sets_data_strictness_and_fields():
    config = configure("digits/cBN", "photos", strict=True, settings=["train.seed=4"])
    assert (config.data.name, config.data.strict, config.train.seed) == ("photos", True, 4)
    assert configure("digits/cBN") == preset("digits/cBN")


def test_a_setting_of_the_data_is_kept_where_no_option_is_given():
    assert configure("digits/cBN", settings=["data.strict=true", "data.name=photos"]).data.name == "photos"
