"""Every named architecture against the paper's three tables, transcribed here a second time."""

import copy
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.nets.cases import count
from torch import nn

from wcgan.nets import build_discriminator, build_generator
from wcgan.nets.blocks import DownBlock, UpBlock
from wcgan.norm._base import WhiteningLayer
from wcgan.paper.printed import ARCHITECTURES

CRITIC = "R_128^D-R_128^D-R_128^S-R_128^S-G-D_1"
WIDE_CRITIC = "R_256^D-R_256^D-R_256^S-R_256^S-G-D_1"
DCGAN_CRITIC = "C_64^S-C_128^D-C_128^S-C_256^D-C_256^S-C_512^D-C_512^S-F-D_1"
NARROW = "D_2048-P_4-R_128^U-R_128^U-R_128^U-C_3^S"

# Method and dataset -> generator, discriminator, as the paper prints them.
TABLES = {
    "cifar10/WC GP + ResNet": (NARROW, CRITIC),
    "cifar10/WC SN + DCGAN": ("D_8192-P_4-C_512^U-C_256^U-C_128^U-C_3^S", DCGAN_CRITIC),
    "cifar10/WC SN + ResNet": ("D_4096-P_4-R_256^U-R_256^U-R_256^U-C_3^S", CRITIC),
    "stl10/WC SN + DCGAN": ("D_18432-P_6-C_512^U-C_256^U-C_128^U-C_3^S", DCGAN_CRITIC),
    "stl10/WC SN + ResNet": ("D_9216-P_6-R_256^U-R_256^U-R_256^U-C_3^S", CRITIC),
    "cifar10/cWC GP + ACGAN": (NARROW, CRITIC),
    "cifar100/cWC GP + ACGAN": (NARROW, CRITIC),
    "cifar10/cWC SN + Proj. Discr.": (NARROW, WIDE_CRITIC),
    "cifar100/cWC SN + Proj. Discr.": (NARROW, WIDE_CRITIC),
    "tiny-imagenet/cWC SN + Proj. Discr.": (
        "D_2048-P_4-R_128^U-R_128^U-R_128^U-R_128^U-C_3^S",
        "R_64^D-R_128^D-R_256^D-R_512^S-R_1024^S-G-D_1",
    ),
    "imagenet/cWC_sa SN + Proj. Discr.": (
        "D_2048-P_4-R_128^U-R_128^U-R_64^U-R_32^U-C_3^S",
        "R_64^D-R_128^D-R_256^D-R_512^D-R_1024^D-R_1024^S-G-D_1",
    ),
    "mnist/WC": ("D_12544-P_7-R_256^U-R_256^U-C_3^S", CRITIC),
    "fashion-mnist/WC": ("D_12544-P_7-R_256^U-R_256^U-C_3^S", CRITIC),
    "mnist/cWC": ("D_6272-P_7-R_128^U-R_128^U-C_3^S", CRITIC),
    "fashion-mnist/cWC": ("D_6272-P_7-R_128^U-R_128^U-C_3^S", CRITIC),
}
CLASSES = {"cifar10": 10, "cifar100": 100, "tiny-imagenet": 200, "imagenet": 1000, "mnist": 10, "fashion-mnist": 10}
SIDES = {"stl10": 48, "tiny-imagenet": 64, "imagenet": 128, "mnist": 28, "fashion-mnist": 28}
NOISE = 128


def expected(name):
    """The table's strings, with what the images themselves correct: MNIST's one channel, ImageNet's 128 pixels."""
    generator, discriminator = TABLES[name]
    if "mnist" in name:
        generator = generator.replace("C_3^S", "C_1^S")
    if name.startswith("imagenet"):
        generator = generator.replace("P_4-", "P_4-R_128^U-")
    return generator, discriminator


def dataset(name):
    return name.split("/")[0]


def method(name):
    return name.split("/")[1]


def head(name):
    if "ACGAN" in name:
        return "acgan"
    return "projection" if method(name).startswith("cWC") else "plain"


def tokens(sequence):
    """ "R_128^U" -> ("R", 128, "U"); "G" -> ("G", None, None)."""
    parts = [re.fullmatch(r"([A-Z])(?:_(\d+))?(?:\^([A-Z]))?", token).groups() for token in sequence.split("-")]
    return [(letter, int(size) if size else None, change) for letter, size, change in parts]


@pytest.fixture(scope="module")
def networks():
    """Name -> the two networks, full size and without memory.

    Spectral normalisation is left out: it has no parameters, and takes long to set up there.
    """

    def build(name):
        generator, discriminator = ARCHITECTURES[name]
        if name not in built:
            with torch.device("meta"):
                plain = replace(discriminator, spectral_norm=False)
                built[name] = build_generator(generator), build_discriminator(plain)
        return built[name]

    built = {}
    return build


class Unchanged(nn.Module):
    """In place of a normalisation, which changes no shape."""

    def forward(self, x, labels=None, relu=False):
        return x


def describe_stages(modules, run):
    """Each module of a forward pass in the paper's notation, by the shapes that go in and come out."""

    def describe(module, inputs, output):
        letter = "R" if isinstance(module, UpBlock | DownBlock) else "C"
        change = {2.0: "U", 1.0: "S", 0.5: "D"}[output.shape[-1] / inputs[0].shape[-1]]
        seen.append(f"{letter}_{output.shape[1]}^{change}")

    seen = []
    hooks = [module.register_forward_hook(describe) for module in modules]
    run()
    for hook in hooks:
        hook.remove()
    return seen


def describe_generator(network):
    network, config = copy.deepcopy(network), network.config
    for block in (network, *network.blocks):
        for name, child in block.named_children():
            if isinstance(child, WhiteningLayer):
                setattr(block, name, Unchanged())
    labels = (torch.zeros(2, dtype=torch.int64, device="meta"),) if config.conditional else ()
    noise = torch.empty(2, config.noise, device="meta")
    stages = describe_stages([*network.blocks, network.conv], lambda: network(noise, *labels))
    return "-".join([f"D_{network.dense.out_features}", f"P_{config.base}", *stages])


def describe_discriminator(network):
    config = network.config
    images = torch.empty(2, config.channels, config.resolution, config.resolution, device="meta")
    stages = describe_stages(network.blocks, lambda: network.features(images))
    maps = network.blocks(images).shape[1:]
    pooling = {maps[0]: "G", maps.numel(): "F"}[network.features(images).shape[1]]
    return "-".join([*stages, pooling, f"D_{network.head.dense.out_features}"])


@pytest.mark.parametrize("name", TABLES)
def test_the_layers_of_the_generator_are_those_of_the_table(networks, name):
    assert describe_generator(networks(name)[0]) == expected(name)[0]


@pytest.mark.parametrize("name", TABLES)
def test_the_layers_of_the_discriminator_are_those_of_the_table(networks, name):
    assert describe_discriminator(networks(name)[1]) == expected(name)[1]


def parameters_of_norm(variant, d, classes):
    shared = d * d + d
    if variant == "WC":
        return shared
    if variant == "cWC":
        return shared + classes * (d * d + d)
    assert variant == "cWC_sa"
    filters = math.ceil(math.sqrt(classes))
    return shared + filters * d * d + classes * filters + classes * d


def parameters_of_convolution(inputs, outputs, kernel):
    return kernel**2 * inputs * outputs + outputs


def parameters_of_generator(name):
    variant, classes = method(name).split()[0], CLASSES.get(dataset(name))
    (_, dense, _), (_, side, _), *stages, (_, channels, _) = tokens(expected(name)[0])
    total, width = (NOISE + 1) * dense, dense // side**2
    for letter, d, _ in stages:
        total += parameters_of_norm(variant, width, classes)
        if letter == "R":
            total += parameters_of_convolution(width, d, 3) + parameters_of_norm(variant, d, classes)
            total += parameters_of_convolution(d, d, 3) + parameters_of_convolution(width, d, 1)
        else:
            total += parameters_of_convolution(width, d, 4)
        width = d
    return total + parameters_of_norm("WC", width, None) + parameters_of_convolution(width, channels, 3)


def parameters_of_discriminator(name):
    width, side, total = 1 if "mnist" in name else 3, SIDES.get(dataset(name), 32), 0
    *stages, (pooling, _, _), (_, scores, _) = tokens(expected(name)[1])
    for number, (letter, d, change) in enumerate(stages):
        if letter == "R":
            total += parameters_of_convolution(width, d, 3) + parameters_of_convolution(d, d, 3)
            if number == 0 or change == "D" or width != d:
                total += parameters_of_convolution(width, d, 1)
        else:
            total += parameters_of_convolution(width, d, 4 if change == "D" else 3)
        width, side = d, side // 2 if change == "D" else side
    features = width if pooling == "G" else width * side**2
    classes = CLASSES.get(dataset(name))
    heads = {"plain": 0, "projection": features * (classes or 0), "acgan": (features + 1) * (classes or 0)}
    return total + (features + 1) * scores + heads[head(name)]


@pytest.mark.parametrize("name", TABLES)
def test_the_generator_has_as_many_parameters_as_its_row_of_the_table(networks, name):
    assert count(networks(name)[0]) == parameters_of_generator(name)


@pytest.mark.parametrize("name", TABLES)
def test_the_discriminator_has_as_many_parameters_as_its_row_of_the_table(networks, name):
    assert count(networks(name)[1]) == parameters_of_discriminator(name)


def test_there_is_one_entry_for_each_row_and_dataset():
    assert list(ARCHITECTURES) == list(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_a_row_names_its_normalisation_and_its_head(name):
    generator, discriminator = ARCHITECTURES[name]
    assert generator.normalization == method(name).split()[0]
    assert generator.final_normalization == "WC"
    assert discriminator.head == head(name)
    assert discriminator.spectral_norm == ("GP" not in name)


@pytest.mark.parametrize("name", TABLES)
def test_the_two_networks_of_a_row_agree_on_the_images(name):
    generator, discriminator = ARCHITECTURES[name]
    side = SIDES.get(dataset(name), 32)
    assert (generator.resolution, discriminator.resolution) == (side, side)
    assert generator.channels == discriminator.channels == (1 if "mnist" in name else 3)
    assert generator.classes == discriminator.classes == (CLASSES[dataset(name)] if "cWC" in name else None)


def test_the_imagenet_discriminator_has_39_million_parameters(networks):
    assert round(count(networks("imagenet/cWC_sa SN + Proj. Discr.")[1]) / 1e6) == 39


def test_the_imagenet_generator_has_6_million_parameters_beside_its_class_shifts(networks):
    generator = networks("imagenet/cWC_sa SN + Proj. Discr.")[0]
    shifts = sum(p.numel() for name, p in generator.named_parameters() if name.endswith("class_bias"))
    assert round((count(generator) - shifts) / 1e6) == 6


@pytest.mark.parametrize("name", TABLES)
def test_the_documentation_gives_the_parameter_counts(networks, name):
    page = Path(__file__).parents[2] / "docs" / "networks.md"
    generator, discriminator = (f"{count(network):,}" for network in networks(name))
    assert f"| `{name}` | {generator} | {discriminator} |" in page.read_text()
