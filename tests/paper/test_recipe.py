"""The recipe's presets: networks for every resolution, and a twin with batch norm."""

from dataclasses import replace

import pytest
import torch
from tests.nets.cases import count

from wcgan.nets import build_discriminator, build_generator
from wcgan.paper.presets import preset
from wcgan.paper.recipe import best_folder

TWINS = {
    "cifar10/best": ("cifar10/best cBN", "cWC", "cBN"),
    "cifar10/best unconditional": ("cifar10/best unconditional BN", "WC", "BN"),
    "folder/best": ("folder/best BN", "cWC", "cBN"),
}
# Side -> widths of the generator's blocks, of the discriminator's, and how many of these halve the side.
NETWORKS = {
    32: ((256, 256, 256), (256, 256, 256, 256), 2),
    64: ((256, 256, 256, 128), (128, 256, 256, 256, 256), 3),
    128: ((256, 256, 256, 128, 64), (64, 128, 256, 256, 256, 256), 4),
}


@pytest.mark.parametrize("name", TWINS)
def test_the_twin_with_batch_norm_differs_in_nothing_else(name):
    twin, ours, theirs = TWINS[name]
    config, other = preset(name), preset(twin)
    assert (config.generator.normalization, other.generator.normalization) == (ours, theirs)
    assert replace(other, generator=replace(other.generator, normalization=ours), preset=name) == config


@pytest.mark.parametrize("side", [32, pytest.param(64, marks=pytest.mark.slow), 128])
def test_networks_are_as_wide_and_deep_as_the_resolution_asks_for(side):
    config = best_folder(side)
    widths, critic_widths, downsample = NETWORKS[side]
    assert config.generator.widths == widths
    assert (config.discriminator.widths, config.discriminator.downsample) == (critic_widths, downsample)
    assert config.generator.resolution == config.discriminator.resolution == side
    with torch.device("meta"):
        networks = build_generator(config.generator), build_discriminator(config.discriminator)
    assert all(1e6 < count(network) < 2e7 for network in networks)


@pytest.mark.parametrize(
    ("classes", "normalization"), [(None, "WC"), (1, "WC"), (2, "cWC"), (30, "cWC"), (31, "cWC_sa")]
)
def test_the_number_of_classes_chooses_the_coloring(classes, normalization):
    config = best_folder(64, classes)
    assert config.generator.normalization == normalization
    assert config.discriminator.head == ("plain" if normalization == "WC" else "projection")
