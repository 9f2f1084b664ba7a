"""Networks take size, channels and classes from the data, and say what they cannot take."""

from dataclasses import replace

import pytest
import torch
from tests.train.cases import tiny_config, tiny_data

from wcgan.data import Dataset
from wcgan.nets import build_discriminator, build_generator
from wcgan.paper.presets import preset
from wcgan.train.start import blocks_for, fit_config


def images_of(height, width=None, channels=3, classes=4):
    images = torch.zeros(8, channels, height, width or height, dtype=torch.uint8)
    names = tuple(f"class {i}" for i in range(classes))
    return Dataset(images, torch.arange(8) % classes if classes else None, names, "images", "train", "images")


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        *[(8, (4, 1)), (16, (4, 2)), (28, (7, 2)), (32, (4, 3)), (48, (6, 3)), (64, (4, 4)), (96, (6, 4))],
        *[
            (128, (4, 5)),
            (896, (7, 7)),
            (1024, (4, 8)),
            (1280, (5, 8)),
            (2048, (4, 9)),
            (3584, (7, 9)),
            (4096, (4, 10)),
        ],
    ],
)
def test_a_side_is_a_grid_of_4_to_7_doubled(side, expected):
    assert blocks_for(side) == expected


@pytest.mark.parametrize(
    ("side", "nearest"),
    [
        *[(1, "8 and 10"), (15, "14 and 16"), (30, "28 and 32"), (100, "96 and 112"), (1000, "896 and 1024")],
        *[(1500, "1280 and 1536"), (4000, "3584 and 4096"), (5120, "3584 and 4096"), (8192, "3584 and 4096")],
    ],
)
def test_a_side_that_no_grid_doubles_to_is_refused_with_the_nearest_that_fit(side, nearest):
    with pytest.raises(ValueError, match=rf"{side}x{side} do not fit .*the nearest sizes are {nearest}; --resolution"):
        blocks_for(side)


@pytest.mark.parametrize("name", ["folder", "folder/best"])
def test_networks_for_large_images_double_their_grid_to_that_size(name):
    fitted = fit_config(preset(name), images_of(1024))
    with torch.device("meta"):
        generator = build_generator(fitted.generator).eval()
        images = generator(torch.zeros(1, fitted.generator.noise), torch.zeros(1, dtype=torch.int64))
    assert images.shape == (1, 3, 1024, 1024)
    assert fitted.discriminator.resolution == 1024


@pytest.mark.parametrize(
    ("name", "side"),
    [
        *((name, side) for name in ("digits/cWC", "cifar10/WC SN + ResNet") for side in (8, 16, 28, 32, 48, 64)),
        *(("cifar10/WC SN + DCGAN", side) for side in (8, 16, 32, 48, 64)),
    ],
)
def test_networks_of_a_preset_fit_images_of_other_sizes(name, side):
    config = preset(name)
    config = replace(config, generator=replace(config.generator, widths=(4,) * len(config.generator.widths)))
    fitted = fit_config(config, images_of(side))
    assert fitted.generator.resolution == fitted.discriminator.resolution == side
    assert fitted.generator.channels == fitted.discriminator.channels == 3
    classes = 4 if config.conditional else None
    assert fitted.generator.classes == fitted.discriminator.classes == classes
    generator, discriminator = build_generator(fitted.generator), build_discriminator(fitted.discriminator)
    labels = torch.tensor([0, 3]) if classes else None
    images = generator(torch.randn(2, fitted.generator.noise), labels)
    assert discriminator(images, labels).realness.shape == (2,)


def test_a_discriminator_that_cannot_halve_the_side_as_often_as_it_must_says_so():
    with pytest.raises(ValueError, match=r"resolution is 28; it must be a multiple of 8, so that it can be halved"):
        fit_config(preset("cifar10/WC SN + DCGAN"), images_of(28))


def test_a_preset_on_its_own_data_stays_as_it_is():
    from wcgan.data import load

    config = preset("digits/cWC")
    assert fit_config(config, load("digits")) == config


def test_what_is_fitted_fits_again():
    fitted = fit_config(preset("digits/cWC"), images_of(48))
    assert fit_config(fitted, images_of(48)) == fitted


def test_images_that_are_not_square_are_said():
    with pytest.raises(ValueError, match=r"the images are 16x32; square ones are needed: --resolution SIZE"):
        fit_config(tiny_config(), images_of(16, 32))


@pytest.mark.parametrize(("classes", "found"), [(0, "none"), (1, "1")])
@pytest.mark.parametrize(("normalization", "head"), [("cWC", "plain"), ("WC", "acgan"), ("cBN", "projection")])
def test_a_model_with_classes_says_that_it_needs_several(normalization, head, classes, found):
    message = rf"{normalization} with a {head} head needs several classes; images has {found}: give each class"
    with pytest.raises(ValueError, match=message):
        fit_config(tiny_config(normalization, head), images_of(8, classes=classes))


def test_a_model_without_classes_takes_images_with_or_without():
    for data in (tiny_data(), tiny_data(labels=False)):
        assert fit_config(tiny_config("WC", "plain"), data).classes is None
