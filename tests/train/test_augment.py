"""Augmentation: the published transformations, their gradients, and who sees augmented images."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.train.cases import SIDE, iterate, tiny_batches, tiny_config, tiny_players

from wcgan.train.batches import Augmentation, augment, augmented_share, draw_augmentation

ALL = ("color", "translation", "mirror", "cutout")
NONE = Augmentation(None, None, None, None)


def plain_color(image, brightness, saturation, contrast):
    """DiffAugment's three, on an image (C, H, W), one pixel at a time."""
    image = image + (brightness - 0.5)
    channels, height, width = image.shape
    for i in range(height):
        for j in range(width):
            grey = sum(image[:, i, j]) / channels
            image[:, i, j] = (image[:, i, j] - grey) * (2 * saturation) + grey
    mean = image.sum() / image.size
    return (image - mean) * (contrast + 0.5) + mean


def plain_translation(image, down, across):
    """Rolls into a frame of zeros that is wide enough, and cuts the image's place out of it."""
    wide = np.pad(image, ((0, 0), (8, 8), (8, 8)))
    rolled = np.roll(wide, (-down, -across), (1, 2))
    return rolled[:, 8:-8, 8:-8]


def plain_cutout(image, row, column):
    """Zeroes every pixel of a square around a centre that is in the image."""
    image, side = image.copy(), image.shape[1]
    size = int(side * 0.5 + 0.5)
    for i in range(size):
        for j in range(size):
            r, c = min(max(row + i - size // 2, 0), side - 1), min(max(column + j - size // 2, 0), side - 1)
            image[:, r, c] = 0
    return image


def images_and_draws(names, side=7, count=32):
    random = torch.Generator().manual_seed(0)
    images = 2 * torch.rand(count, 3, side, side, generator=random, dtype=torch.float64) - 1
    how = draw_augmentation(names, (count,), side, random)
    return images, how._replace(color=None if how.color is None else how.color.double())


@pytest.mark.parametrize("names", [*((name,) for name in ALL), ALL], ids=lambda names: "+".join(names))
@pytest.mark.parametrize("side", [7, 8])
def test_augmentation_is_the_published_one(names, side):
    images, how = images_and_draws(names, side)
    for number, image in enumerate(images.numpy()):
        expected = image.copy()
        if "color" in names:
            expected = plain_color(expected, *how.color[number].tolist())
        if "translation" in names:
            expected = plain_translation(expected, *how.moved[number].tolist())
        if "mirror" in names and how.mirrored[number]:
            expected = expected[:, :, ::-1]
        if "cutout" in names:
            expected = plain_cutout(expected, *how.hole[number].tolist())
        found = augment(images, how)[number].numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_draws_cover_the_published_ranges():
    how = draw_augmentation(ALL, (40, 50), 32, torch.Generator().manual_seed(0))
    assert how.moved.unique().tolist() == list(range(-4, 5))  # an eighth of the side
    assert how.hole.unique().tolist() == list(range(33))  # of an even hole, one place more than pixels
    assert draw_augmentation(ALL, (2000,), 30, torch.Generator().manual_seed(0)).hole.max() == 29  # of an odd one
    rounded = draw_augmentation(ALL, (2000,), 12, torch.Generator().manual_seed(0))
    assert rounded.moved.unique().tolist() == list(range(-2, 3))  # an eighth is 1.5
    assert 0 <= how.color.min() < 0.01
    assert 0.99 < how.color.max() < 1
    assert how.mirrored.float().mean().item() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("name", ALL)
def test_each_augmentation_changes_its_share_of_the_images(name):
    random = torch.Generator().manual_seed(0)
    images = 2 * torch.rand(2000, 3, 8, 8, generator=random, dtype=torch.float64) - 1
    how = draw_augmentation((name,), (2000,), 8, random, share=0.3)
    how = how._replace(color=None if how.color is None else how.color.double())
    changed = ((augment(images, how) - images).abs().amax((1, 2, 3)) > 1e-12).double().mean().item()
    # A window of no shift (one of nine) and a mirror that is not used (one of two) change nothing either.
    expected = 0.3 * {"translation": 8 / 9, "mirror": 1 / 2}.get(name, 1.0)
    assert changed == pytest.approx(expected, abs=0.04)


def test_augmentations_choose_their_images_independently():
    how = draw_augmentation(("translation", "cutout"), (4000,), 32, torch.Generator().manual_seed(0), share=0.5)
    moved, cut = (how.moved != 0).any(1), how.hole[:, 0] >= 0
    assert (moved & cut).double().mean().item() == pytest.approx(moved.double().mean().item() / 2, abs=0.03)


def test_a_share_of_one_draws_what_was_drawn_without_it():
    plain, whole = (
        draw_augmentation(ALL, (20,), 8, torch.Generator().manual_seed(0), *share) for share in ((), (1.0,))
    )
    assert all(torch.equal(a, b) for a, b in zip(plain, whole, strict=True))


def test_the_share_grows_over_the_ramp():
    train = tiny_config(augment=("cutout",), augment_ramp=400, critic_steps=5, batch=8).train
    assert [augmented_share(train, iteration) for iteration in (0, 1, 5, 10, 99)] == [0, 0.1, 0.5, 1, 1]
    assert augmented_share(tiny_config(augment=("cutout",)).train, 0) == 1


def test_a_ramp_begins_with_images_as_they_are():
    config = tiny_config(augment=("color", "translation", "cutout"), augment_ramp=4)  # an iteration
    inputs = tiny_batches(config).draw(0)
    for images, view in ((inputs.real, inputs.real_view), (inputs.real[0], inputs.view)):
        assert torch.allclose(augment(images, view), images, rtol=0, atol=1e-6)
    late = tiny_batches(config).draw(1)
    assert not torch.allclose(augment(late.real, late.real_view), late.real, atol=0.1)


def test_consistency_shifts_images_from_the_start():
    config = tiny_config(augment=("color",), augment_ramp=1000, consistency=1.0, batch=64)
    shift = tiny_batches(config).draw(0).shift
    assert shift.moved.any()
    assert shift.mirrored.any()


def test_a_ramp_needs_augmentations():
    with pytest.raises(ValueError, match=r"train.augment_ramp=5 needs train.augment, which names no augmentation"):
        tiny_config(augment_ramp=5)


def test_gradients_are_those_of_finite_differences():
    images, how = images_and_draws(ALL, side=4, count=3)
    assert torch.autograd.gradcheck(lambda x: augment(x, how), images.requires_grad_())
    assert torch.autograd.gradgradcheck(lambda x: augment(x, how), images)


def test_without_augmentation_images_are_the_same_object():
    images = torch.rand(2, 3, 4, 4)
    assert augment(images, None) is images
    assert augment(images, NONE) is images


def test_the_discriminator_sees_augmented_images_only():
    config = tiny_config("WC", "plain", critic_steps=2, consistency=1.0, augment=("cutout",))
    players, seen = tiny_players(config), []
    players.discriminator.register_forward_pre_hook(lambda network, inputs: seen.append(inputs[0].detach()))
    iterate(players, config)
    inputs = tiny_batches(config).draw(0)
    real = augment(inputs.real, inputs.real_view)
    shifted = augment(real, inputs.shift)
    assert [len(images) for images in seen] == [12, 12, 4]
    for step, images in enumerate(seen[:2]):
        assert torch.equal(images[:4], real[step])
        assert torch.equal(images[8:], shifted[step])
    for generated, hole in ((seen[0][4:8], inputs.critic_view.hole[0]), (seen[2], inputs.view.hole)):
        white = torch.ones(4, 1, SIDE, SIDE)
        assert torch.equal(generated == 0, augment(white, NONE._replace(hole=hole)) == 0)


@pytest.mark.parametrize(("name", "head"), [("WC", "plain"), ("cWC", "projection")])
def test_consistency_is_the_squared_difference_of_scores_and_trains_both(name, head):
    config = tiny_config(name, head, consistency=10.0)
    config = replace(config, discriminator=replace(config.discriminator, spectral_norm=False))
    players, inputs = tiny_players(config), tiny_batches(config).draw(0)
    without = copy.deepcopy(players)
    real, labels = inputs.real[0], None if inputs.real_labels is None else inputs.real_labels[0]
    images = real, augment(inputs.real, inputs.shift)[0]
    scores, shifted = (players.discriminator(each, labels).realness for each in images)
    expected = (scores - shifted).square().mean()
    slopes = torch.autograd.grad(10 * expected, list(players.discriminator.parameters()), materialize_grads=True)
    losses = iterate(players, config)
    assert losses["loss/consistency"].item() == pytest.approx(expected.item(), rel=1e-5)
    iterate(without, replace(config, train=replace(config.train, consistency=0.0)))
    found, plain = ([p.grad for p in each.discriminator.parameters()] for each in (players, without))
    for slope, one, other in zip(slopes, found, plain, strict=True):
        torch.testing.assert_close(one - other, slope, rtol=1e-4, atol=1e-4)
    assert max(slope.abs().max() for slope in slopes) > 0.1


def test_lecam_is_a_loss_of_the_discriminator_with_averages_of_its_own():
    config = tiny_config("WC", "plain", lecam=0.3)
    players, plain = tiny_players(config), tiny_players(replace(config, train=replace(config.train, lecam=0.0)))
    assert set(players.networks) - set(plain.networks) == {"lecam"}
    losses, without = iterate(players, config), iterate(plain, replace(config, train=replace(config.train, lecam=0.0)))
    assert losses["loss/lecam"] > 0
    assert "loss/lecam" not in without
    assert players.lecam.real != 0
    weights = [list(each.discriminator.parameters()) for each in (players, plain)]
    assert any(not torch.equal(one, other) for one, other in zip(*weights, strict=True))


def test_flips_mirror_about_half_of_the_real_images_and_nothing_else():
    config = tiny_config(batch=256)
    plain = tiny_batches(config).draw(0)
    flipped = tiny_batches(replace(config, data=replace(config.data, flip=True))).draw(0)
    pixels, others = (((inputs.real[0] + 1) * 128).floor() for inputs in (plain, flipped))
    same = (others == pixels).flatten(1).all(1)
    mirrored = (others == pixels.flip(-1)).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert same.float().mean().item() == pytest.approx(0.5, abs=0.1)
    assert torch.equal(plain.real_labels, flipped.real_labels)
    assert torch.equal(plain.noise, flipped.noise)
