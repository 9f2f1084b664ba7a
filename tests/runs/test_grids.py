"""The paper's pictures: which noise and which class stand where, in files that say so."""

import numpy as np
import pytest
import torch
from PIL import Image
from tests.train.cases import tiny_config, tiny_data, tiny_run

from wcgan.nets import GeneratorConfig, build_generator
from wcgan.runs.grids import classes_to_show, draw_grid, write_grid, write_grids
from wcgan.runs.sampler import Sampler, load_generator
from wcgan.train.gan import train

SHOWN = [(2, "c"), (0, "a")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A conditional run and one without classes."""
    folder = tmp_path_factory.mktemp("runs")
    for name, head in (("cWC", "projection"), ("WC", "plain")):
        config = tiny_config(name, head, iterations=2, checkpoint_every=1)
        train(config, tiny_data(), tiny_run(folder / name, config))
    return folder


def sampler(classes, names=()):
    torch.manual_seed(0)
    config = GeneratorConfig(widths=(4,), noise=6, channels=1, normalization="cWC", classes=classes)
    return Sampler(build_generator(config), names)


def pixels(path, image=8, border=2, scale=8):
    """The images of a grid `(rows, columns, 8, 8)`."""
    with Image.open(path) as picture:
        array = np.asarray(picture)[::scale, ::scale]
    step = image + border
    rows, columns = (side // step for side in array.shape)
    assert array.shape == (rows * step + border, columns * step + border)
    blocks = array[border:, border:].reshape(rows, step, columns, step)
    return torch.from_numpy(blocks[:, :image, :, :image].transpose(0, 2, 1, 3).copy())


def test_with_a_fixed_z_a_column_is_one_noise_and_a_row_one_class(runs):
    drawn = load_generator(runs / "cWC")
    images = draw_grid(drawn, "fixed-z", SHOWN, seed=4)
    z = drawn.noise(10, 4)
    assert torch.equal(images[:10], drawn.from_noise(z, torch.full((10,), 2)))
    assert torch.equal(images[10:], drawn.from_noise(z, torch.full((10,), 0)))


def test_in_class_rows_every_noise_is_different(runs):
    drawn = load_generator(runs / "cWC")
    images = draw_grid(drawn, "class-rows", SHOWN, seed=4)
    z = drawn.noise(20, 4)
    assert len(z.unique(dim=0)) == 20
    assert torch.equal(images, drawn.from_noise(z, torch.tensor([2] * 10 + [0] * 10)))


def test_truncation_scales_the_noise(runs):
    drawn = load_generator(runs / "cWC")
    images = draw_grid(drawn, "class-rows", SHOWN, seed=4, truncation=0.0)
    assert all(torch.equal(image, images[0]) for image in images[:10])


def test_a_conditional_run_has_both_pictures_and_texts_that_name_the_rows(runs, tmp_path):
    files = write_grids(runs / "cWC", tmp_path / "new", seed=3)
    assert [file.name for file in files] == ["fixed-z.png", "class-rows.png"]
    drawn = load_generator(runs / "cWC")
    rows = [(0, "a"), (1, "b"), (2, "c")]
    for file in files:
        assert torch.equal(pixels(file).flatten(0, 1), draw_grid(drawn, file.stem, rows, seed=3)[:, 0])
    assert files[0].with_name("fixed-z.png.txt").read_text().splitlines() == [
        "cWC at iteration 2, seed 3, truncation 1",
        "one noise per column, one class per row",
        "row 1: class 0 a",
        "row 2: class 1 b",
        "row 3: class 2 c",
    ]


def test_an_unconditional_run_has_one_plain_grid(runs, tmp_path):
    (file,) = write_grids(runs / "WC", tmp_path)
    assert file.name == "samples.png"
    assert torch.equal(pixels(file).flatten(0, 1), load_generator(runs / "WC").sample(100)[:, 0])
    text = (tmp_path / "samples.png.txt").read_text()
    assert text == "WC at iteration 2, seed 0, truncation 1\nevery noise different\n"


def test_classes_and_a_checkpoint_can_be_chosen(runs, tmp_path):
    file = write_grid(runs / "cWC", "fixed-z", tmp_path / "two.PNG", [2, 0], checkpoint="1", seed=4, truncation=0.5)
    images = draw_grid(load_generator(runs / "cWC", "1"), "fixed-z", SHOWN, seed=4, truncation=0.5)
    assert torch.equal(pixels(file).flatten(0, 1), images[:, 0])
    assert (tmp_path / "two.PNG.txt").read_text().splitlines() == [
        "cWC at iteration 1, seed 4, truncation 0.5",
        "one noise per column, one class per row",
        "row 1: class 2 c",
        "row 2: class 0 a",
    ]


def test_of_up_to_a_hundred_classes_the_first_ten_are_shown():
    names = [f"name {label}" for label in range(100)]
    assert classes_to_show(sampler(100, names), None, 0) == [(label, f"name {label}") for label in range(10)]


def test_of_more_ten_are_drawn_by_the_seed():
    many = sampler(101)
    first, second = ([label for label, _ in classes_to_show(many, None, seed)] for seed in (0, 1))
    assert first != second
    for labels in (first, second):
        assert len(set(labels)) == 10
        assert labels == sorted(labels)
        assert set(labels) <= set(range(101))
    assert first == [label for label, _ in classes_to_show(many, None, 0)]


@pytest.mark.parametrize(
    ("run", "kind", "file", "classes", "message"),
    [
        ("cWC", "columns", "a.png", None, "--grid takes fixed-z or class-rows, got 'columns'"),
        ("cWC", "samples", "a.png", None, "--grid takes fixed-z or class-rows, got 'samples'"),
        ("cWC", "fixed-z", "folder", None, "name a .png file, not "),
        ("WC", "fixed-z", "a.png", None, r"has no classes \(its generator has WC\): leave out --grid"),
        ("cWC", "fixed-z", "a.png", [3], "class 3 is out of range: this generator has classes 0 to 2"),
        ("cWC", "fixed-z", "a.png", [], "name at least one class"),
        ("none", "fixed-z", "a.png", None, "is not there; name the folder of a run"),
    ],
)
def test_what_cannot_be_drawn_is_said_and_nothing_written(run, kind, file, classes, message, runs, tmp_path):
    with pytest.raises(ValueError, match=message):
        write_grid(runs / run, kind, tmp_path / file, classes)
    assert list(tmp_path.iterdir()) == []
