"""From one noise to another, and from one class to another."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from tests.web.demo.cases import sampler

from wcgan.runs.sampler import great_circle
from wcgan.web.demo.pictures import BETWEEN, MOST_FRAMES, MOST_PATHS, animation, path_images, path_picture

TWO_Z, TWO_CLASSES, BOTH = BETWEEN


def test_a_great_circle_starts_ends_and_keeps_its_radius():
    start, end = torch.randn(2, 5, 32, dtype=torch.float64)
    end = end * start.norm(dim=1, keepdim=True) / end.norm(dim=1, keepdim=True)
    torch.testing.assert_close(great_circle(start, end, 0.0), start)
    torch.testing.assert_close(great_circle(start, end, 1.0), end)
    for t in (0.2, 0.5, 0.9):
        torch.testing.assert_close(great_circle(start, end, t).norm(dim=1), start.norm(dim=1))


def test_a_great_circle_moves_by_equal_angles():
    start, end = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    angles = [torch.atan2(*great_circle(start, end, k / 4)[0].flip(0)).item() for k in range(5)]
    np.testing.assert_allclose(np.diff(angles), np.pi / 8, rtol=1e-6)


def test_between_a_noise_and_itself_there_is_only_that():
    z = torch.randn(3, 32)
    torch.testing.assert_close(great_circle(z, z, 0.3), z)


@pytest.mark.parametrize(("t", "seed", "label"), [(0.0, 4, 1), (1.0, 5, 3)])
def test_both_ends_are_plain_samples(t, seed, label):
    generator = sampler()
    images = path_images(generator, t, BOTH, (4, 5), (1, 3), 6)
    assert (images.int() - generator.sample(6, label, seed).int()).abs().max() <= 1


def test_the_classes_midway_are_colored_by_the_mean_of_their_matrices():
    generator = sampler("cWC_sa")
    layer = generator.network.blocks[0].norm1
    ends, _, _ = layer.coloring_slots(torch.eye(4)[[1, 3]])
    middle, _, _ = layer.coloring_slots(torch.tensor([[0.0, 0.5, 0.0, 0.5]]))
    torch.testing.assert_close(middle[0], ends.mean(0))
    weights = torch.tensor([[0.0, 0.5, 0.0, 0.5]]).expand(6, -1)
    images = path_images(generator, 0.5, TWO_CLASSES, (4, 5), (1, 3), 6)
    assert torch.equal(images, generator.from_noise(generator.noise(6, 4), weights))


def test_what_is_not_gone_between_stays_at_the_first_end():
    generator = sampler()
    for between, seeds, classes in ((TWO_Z, (4, 4), (1, 3)), (TWO_CLASSES, (4, 5), (1, 1))):
        first, last = (path_images(generator, t, between, seeds, classes, 6) for t in (0.0, 1.0))
        assert (first.int() - last.int()).abs().max() <= 1


def test_a_generator_without_classes_goes_between_noises_alone():
    generator = sampler("WC")
    assert torch.equal(path_images(generator, 1.0, TWO_Z, (4, 5), (None, None), 6), generator.sample(6, seed=5))
    with pytest.raises(ValueError, match="no classes to interpolate between"):
        path_images(generator, 0.5, TWO_CLASSES)


def test_the_animation_goes_there_and_back_and_loses_nothing():
    generator, options = sampler(), (BOTH, (1, 2), (0, 2), 3)
    film = Image.open(io.BytesIO(animation(generator, 4, *options)))
    assert film.format == "WEBP"
    assert film.n_frames == 6
    for number, step in enumerate((0, 1, 2, 3, 2, 1)):
        film.seek(number)
        expected = path_picture(path_images(generator, step / 3, *options))
        shown = [Image.alpha_composite(Image.new("RGBA", film.size, "black"), image) for image in (film, expected)]
        assert np.array_equal(*map(np.asarray, shown))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"position": 1.01}, "the position must be a number from 0 to 1, got 1.01"),
        ({"position": 0.5, "between": "worlds"}, "between takes two noise vectors, two classes, both; got 'worlds'"),
        ({"position": 0.5, "count": MOST_PATHS + 1}, f"count must be a whole number from 1 to {MOST_PATHS}"),
        ({"position": 0.5, "seeds": (0, "x")}, "seed must be a whole number"),
        ({"position": 0.5, "classes": (0, None)}, "choose a class at both ends"),
        ({"position": 0.5, "classes": (0, [1, 2])}, "at most 1 class,"),
        ({"position": 0.5, "truncation": -1}, "truncation must be a number from 0 to 2, got -1"),
    ],
)
def test_what_is_out_of_bounds_is_refused_with_a_sentence(options, said):
    with pytest.raises(ValueError) as refusal:
        path_images(sampler(), **options)
    assert said in str(refusal.value)


@pytest.mark.parametrize("frames", [1, MOST_FRAMES + 1, None, "many"])
def test_frames_have_bounds(frames):
    with pytest.raises(ValueError, match=f"frames must be a whole number from 2 to {MOST_FRAMES}"):
        animation(sampler(), frames)
