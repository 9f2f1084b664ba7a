"""What a classifier is given: the order of the data, windows, mirror images, and pixels around their mean."""

import pytest
import torch
from tests.train.classifier_cases import CPU, tiny_config, tiny_splits
from torch.nn.functional import pad

from wcgan.core.processes import Rank
from wcgan.nets.classifier import Pixels
from wcgan.train.classifier import ClassifierBatches


def draw(iteration=0, rank=None, **train):
    training, _ = tiny_splits()
    return ClassifierBatches(training, tiny_config(**train).train, CPU, rank or Rank()).draw(iteration)


def fixed_pixels(channels=2):
    pixels = Pixels(channels)
    pixels.mean.copy_(torch.tensor([100.0, 30.0][:channels]))
    pixels.std.copy_(torch.tensor([50.0, 4.0][:channels]))
    return pixels


def by_hand(image, moved, mirrored, reach, mean, std):
    """One image `(C, H, W)`: centred, padded with zeros, cut and mirrored, as the protocol says it."""
    centred = (image.double() - mean[:, None, None]) / std[:, None, None]
    padded = pad(centred, (reach,) * 4)
    height, width = image.shape[1:]
    top, left = (int(offset) + reach for offset in moved)
    window = padded[:, top : top + height, left : left + width]
    return window.flip(2) if mirrored else window


def test_each_image_comes_with_its_own_label_once_an_epoch():
    training, _ = tiny_splits()
    seen = [draw(iteration, batch=10) for iteration in range(3)]
    images, labels = torch.cat([b.images for b in seen]), torch.cat([b.labels for b in seen])
    order = [next(i for i, x in enumerate(training.images) if torch.equal(x, image)) for image in images]
    assert sorted(order) == list(range(30))
    assert order != list(range(30))
    assert torch.equal(labels, training.labels[order])


def test_seed_and_iteration_decide_everything():
    first, again, later, other = draw(3), draw(3), draw(4), draw(3, seed=1)
    for name in first._fields:
        assert torch.equal(getattr(first, name), getattr(again, name))
        assert not torch.equal(getattr(first, name), getattr(later, name))
        assert not torch.equal(getattr(first, name), getattr(other, name))


def test_windows_reach_as_far_as_they_may_and_half_of_the_images_are_mirrored():
    drawn = draw(batch=4000, crop=2)
    assert drawn.moved.unique().tolist() == [-2, -1, 0, 1, 2]
    shares = (drawn.moved + 2).flatten().bincount() / drawn.moved.numel()
    assert shares.tolist() == pytest.approx([0.2] * 5, abs=0.02)
    assert drawn.mirrored.float().mean().item() == pytest.approx(0.5, abs=0.03)


def test_no_windows_and_no_mirror_images_are_none():
    drawn = draw(crop=0, flip=False)
    assert drawn.moved is None
    assert drawn.mirrored is None


def test_processes_share_one_batch():
    whole, parts = draw(2), [draw(2, Rank(index, 2)) for index in range(2)]
    for name in whole._fields:
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))


def test_pixels_are_cut_and_mirrored_as_by_hand():
    random, reach = torch.Generator().manual_seed(0), 3
    images = torch.randint(0, 256, (64, 2, 6, 5), dtype=torch.uint8, generator=random)
    moved = torch.randint(-reach, reach + 1, (64, 2), generator=random)
    mirrored = torch.rand(64, generator=random) < 0.5
    pixels = fixed_pixels()
    expected = torch.stack(
        [
            by_hand(*case, reach, pixels.mean.double(), pixels.std.double())
            for case in zip(images, moved, mirrored, strict=True)
        ]
    )
    torch.testing.assert_close(pixels(images, moved, mirrored).double(), expected, rtol=1e-5, atol=1e-5)
    still = torch.zeros_like(moved)
    torch.testing.assert_close(pixels(images, None, mirrored), pixels(images, still, mirrored))
    torch.testing.assert_close(pixels(images, still, None), pixels(images))


def test_the_measured_pixels_have_mean_0_and_variance_1():
    random = torch.Generator().manual_seed(0)
    images = torch.stack(
        [torch.randint(0, top, (5000, 4, 4), dtype=torch.uint8, generator=random) for top in (256, 3)], 1
    )
    pixels = Pixels(2)
    pixels.measure(images)
    seen = pixels(images).double()
    assert seen.mean((0, 2, 3)).tolist() == pytest.approx([0, 0], abs=1e-5)
    assert pixels.mean.tolist() == pytest.approx(images.double().mean((0, 2, 3)).tolist())
    deviations = images.double().std((0, 2, 3), correction=0)
    assert pixels.std[0].item() == pytest.approx(deviations[0].item())
    assert pixels.std[1].item() == 1  # values of nearly one grey are not blown up


def test_images_of_one_grey_stay_finite():
    pixels = Pixels(1)
    pixels.measure(torch.full((3, 1, 2, 2), 7, dtype=torch.uint8))
    assert torch.equal(pixels(torch.full((1, 1, 2, 2), 9, dtype=torch.uint8)), torch.full((1, 1, 2, 2), 2.0))
