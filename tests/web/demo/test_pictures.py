"""Pictures of the playground: what they show, and what is refused."""

import io
import math
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from tests.web.demo.cases import sampler, write_run

from wcgan.core.images import with_names
from wcgan.runs.grids import write_grid
from wcgan.runs.sampler import load_generator
from wcgan.web.demo.pictures import (
    MOST_IMAGES,
    MOST_SEED,
    WAYS,
    comparison,
    fixed_z_picture,
    images_to_picture,
    images_to_zip,
    sample_images,
    weights_to_label,
)

MIXED = WAYS[1]


def same(first, second):
    return np.array_equal(np.asarray(first), np.asarray(second))


def test_classes_take_turns_as_in_the_command():
    generator = sampler()
    images = sample_images(generator, [2, 1], count=6, seed=5, truncation=0.5)
    assert torch.equal(images, generator.sample(6, [2, 1], 5, 0.5))


def test_without_classes_named_all_take_turns():
    generator = sampler()
    assert torch.equal(sample_images(generator, [], count=8), generator.sample(8))
    assert torch.equal(sample_images(sampler("WC"), [], MIXED, count=8), sampler("WC").sample(8))


def test_a_mix_of_one_class_is_that_class():
    generator = sampler()
    mixed, plain = (sample_images(generator, [3], way, count=5) for way in (MIXED, WAYS[0]))
    assert (mixed.int() - plain.int()).abs().max() <= 1  # a sum over classes rounds otherwise than a look-up


def test_a_mix_weighs_the_classes():
    generator = sampler()
    images = sample_images(generator, [3, 1], MIXED, "3, 1", count=5, seed=2)
    labels = torch.tensor([[0.0, 0.25, 0.0, 0.75]]).expand(5, -1)
    assert torch.equal(images, generator.from_noise(generator.noise(5, 2), labels))
    assert weights_to_label(generator, [0, 2]).tolist() == [[0.5, 0.0, 0.5, 0.0]]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"count": 0}, f"count must be a whole number from 1 to {MOST_IMAGES}, got 0"),
        ({"count": MOST_IMAGES + 1}, f"got {MOST_IMAGES + 1}"),
        ({"count": 2.5}, "count must be a whole number"),
        ({"count": None}, "got None"),
        ({"count": True}, "got True"),
        ({"count": 10**400}, "got 1000"),
        ({"count": "9" * 1000}, "99..."),
        ({"seed": -1}, f"seed must be a whole number from 0 to {MOST_SEED}, got -1"),
        ({"seed": math.inf}, "got inf"),
        ({"truncation": math.nan}, "truncation must be a number from 0 to 2, got nan"),
        ({"truncation": 2.1}, "got 2.1"),
        ({"classes": [4]}, "a class must be a whole number from 0 to 3, got 4"),
        ({"classes": "cow"}, "there is no class 'cow'; this generator has ant, bee, cat, dog"),
        ({"way": "fight"}, "take turns or are mixed, got 'fight'"),
        ({"classes": [0, 1], "way": MIXED, "weights": "1"}, "one weight of 0 or more for each of the 2 classes"),
        ({"classes": [0, 1], "way": MIXED, "weights": "1 -1"}, "got '1 -1'"),
        ({"classes": [0, 1], "way": MIXED, "weights": "0 0"}, "not all 0"),
        ({"classes": [0, 1], "way": MIXED, "weights": "1 nan"}, "got '1 nan'"),
        ({"classes": [0, 1], "way": MIXED, "weights": "1e308 1e308"}, "got '1e308 1e308'"),
        ({"classes": [0, 1], "way": MIXED, "weights": "much"}, "weights are numbers such as 3, 1; got 'much'"),
    ],
)
def test_what_is_out_of_bounds_is_refused_with_a_sentence(request_, said):
    with pytest.raises(ValueError) as refusal:
        sample_images(sampler(), **request_)
    assert said in str(refusal.value)
    assert len(str(refusal.value)) < 200


def test_classes_of_a_generator_without_are_refused():
    with pytest.raises(ValueError, match=r"this generator \(WC\) has no classes"):
        sample_images(sampler("WC"), [1])


def test_the_archive_holds_every_image_as_it_is():
    images = sample_images(sampler(), count=3)
    with zipfile.ZipFile(io.BytesIO(images_to_zip(images))) as archive:
        assert archive.namelist() == ["000000.png", "000001.png", "000002.png"]
        for name, image in zip(archive.namelist(), images, strict=True):
            assert same(Image.open(archive.open(name)), image.permute(1, 2, 0))


def test_gaps_between_images_are_transparent_and_the_images_are_not():
    opacity = np.asarray(images_to_picture(torch.full((3, 1, 8, 8), 255, dtype=torch.uint8), 2))[..., 3]
    cells = opacity.reshape(opacity.shape[0] // 40, 40, opacity.shape[1] // 40, 40)[:, 0, :, 0]  # 40 times as large
    assert cells.shape == (22, 22)
    expected = np.zeros((22, 22))
    for row, column in ((2, 2), (2, 12), (12, 2)):
        expected[row : row + 8, column : column + 8] = 255
    assert np.array_equal(cells, expected)


def test_a_class_may_be_named():
    assert same(sample_images(sampler(), ["dog", "ant"], count=4), sample_images(sampler(), [3, 0], count=4))


def test_fixed_z_is_the_grid_of_the_command_with_names_beside_it(tmp_path):
    run = write_run(tmp_path / "run")
    picture = fixed_z_picture(load_generator(run, device="cpu"), [2, 0], seed=3)
    grid = Image.open(write_grid(run, "fixed-z", tmp_path / "grid.png", [2, 0], seed=3, device="cpu"))
    grid = grid.convert("RGB").resize((n := picture.height * grid.width // grid.height, picture.height), 0)
    assert n < picture.width
    assert same(picture.crop((picture.width - n, 0, *picture.size)).convert("RGB"), grid)
    assert np.asarray(picture.crop((0, 0, picture.width - n, picture.height)))[..., 3].max() == 255  # names


@pytest.mark.parametrize(
    ("generator", "classes", "said"), [("WC", [], "no classes for the rows"), ("cWC", [0, 9], "got 9")]
)
def test_fixed_z_refuses_what_it_cannot_show(generator, classes, said):
    with pytest.raises(ValueError, match=said):
        fixed_z_picture(sampler(generator), classes)


def test_fixed_z_has_a_bound_on_its_rows():
    with pytest.raises(ValueError, match="at most 20 classes, not 21"):
        fixed_z_picture(sampler(classes=30), list(range(21)))


def test_runs_are_compared_from_the_same_noise_and_class():
    runs = {"a": sampler(), "b": sampler(), "c": sampler("WC")}
    found = comparison(runs, ["a", "b", "c"], [1], 4, 9, 0.7)
    assert list(found) == ["a", "b", "c"]
    assert same(found["a"][0], found["b"][0])
    assert same(found["a"][0], images_to_picture(runs["a"].sample(4, 1, 9, 0.7)))
    assert same(found["c"][0], images_to_picture(runs["c"].sample(4, None, 9, 0.7)))
    assert found["a"][1] == "a: cWC, iteration 7"
    assert found["c"][1] == "c: WC, iteration 7, no classes"


@pytest.mark.parametrize("names", [["a"], [], None, "ab", ["a", "x"], ["a", ["b"]]])
def test_a_comparison_of_fewer_than_two_or_unknown_runs_is_refused(names):
    with pytest.raises(ValueError, match="choose two or more of these runs: a, b"):
        comparison({"a": sampler(), "b": sampler()}, names)


def test_noise_of_different_lengths_cannot_be_shared():
    with pytest.raises(ValueError, match="different lengths: a 32, b 16"):
        comparison({"a": sampler(), "b": sampler(noise=16)}, ["a", "b"])


# Drawing


def test_names_stand_beside_a_picture_that_stays_as_it_is():
    picture = Image.new("RGBA", (40, 40), (9, 9, 9, 255))
    named = with_names(picture, ["first", "second"], ["1", "2"])
    assert same(named.crop((named.width - 40, named.height - 40, *named.size)), picture)
    upper, lower = (np.asarray(named)[-40 + row : -20 + row or None, :-40] for row in (0, 20))
    for part in (upper, lower):  # bright letters on grey, and nothing around it
        assert {(0, 0, 0, 0), (87, 96, 106, 255)} <= set(map(tuple, part.reshape(-1, 4).tolist()))
        assert part[..., 0].max() > 200


def test_names_are_drawn_in_letters_that_the_font_has():
    picture = Image.new("RGB", (64, 64))
    for name, drawn in (("Ünïcødé 猫", "Unic?de ?"), ("e\u0301te\u0301", "ete"), ("cat", "cat")):
        assert with_names(picture, [name], [name]).tobytes() == with_names(picture, [drawn], [drawn]).tobytes()
