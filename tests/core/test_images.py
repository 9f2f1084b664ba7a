"""Pixels on their way in and out: dequantisation and its inverse, grids, files."""

import numpy as np
import pytest
import torch
from PIL import Image
from tests.train.cases import tiny_batches, tiny_config

from wcgan.core.images import grid, to_uint8, write_images, write_png
from wcgan.data import Dataset


def every_value():
    """Sixteen images in which each of the 256 values occurs four times."""
    images = torch.arange(1024).remainder(256).to(torch.uint8).view(16, 1, 8, 8)
    return Dataset(images, None, (), "values", "train", "values")


def read(path):
    with Image.open(path) as image:
        return np.asarray(image)


@pytest.mark.parametrize("step", range(5))
def test_rounding_down_undoes_dequantisation(step):
    data = every_value()
    batches = tiny_batches(tiny_config("WC", "plain", batch=16), data)
    images = batches.draw(step).real[0]
    assert torch.equal(to_uint8(images), data.images[batches._order.indices(step, 16)])


def test_dequantised_images_fill_the_range_of_the_generator():
    images = tiny_batches(tiny_config("WC", "plain", batch=16), every_value()).draw(0).real
    assert images.dtype == torch.float32
    assert images.min() >= -1
    assert images.max() <= 1
    assert images.min() < -1 + 1 / 128
    assert images.max() > 1 - 1 / 128


def test_dequantisation_noise_is_uniform_over_a_value():
    data = Dataset(torch.full((100, 1, 8, 8), 40, dtype=torch.uint8), None, (), "grey", "train", "grey")
    images = tiny_batches(tiny_config("WC", "plain", batch=100), data).draw(0).real
    noise = (images + 1) * 128 - 40
    assert noise.min() >= 0
    assert noise.max() < 1
    assert abs(noise.mean() - 1 / 2) < 0.02  # five standard deviations
    assert abs(noise.var() - 1 / 12) < 0.005


def test_each_update_and_iteration_has_noise_of_its_own():
    data = Dataset(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), None, (), "black", "train", "black")
    batches = tiny_batches(tiny_config("WC", "plain", critic_steps=2), data)
    real = torch.cat([batches.draw(0).real, batches.draw(1).real])
    assert len({images.numpy().tobytes() for images in real}) == 4


def test_the_ends_of_the_range_are_the_ends_of_uint8():
    assert to_uint8(torch.tensor([-1.0, -0.9999, 0.0, 0.9999, 1.0])).tolist() == [0, 0, 128, 255, 255]


def test_a_grid_is_filled_row_by_row_on_white():
    images = torch.arange(3).view(3, 1, 1, 1).expand(3, 1, 2, 2).to(torch.uint8)
    picture = grid(images, columns=2, border=1)
    w = 255
    expected = [
        [w, w, w, w, w, w, w],
        [w, 0, 0, w, 1, 1, w],
        [w, 0, 0, w, 1, 1, w],
        [w, w, w, w, w, w, w],
        [w, 2, 2, w, w, w, w],
        [w, 2, 2, w, w, w, w],
        [w, w, w, w, w, w, w],
    ]
    assert picture[0].tolist() == expected


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_holds_the_pixels_written(channels, tmp_path):
    picture = torch.randint(0, 256, (channels, 3, 5), dtype=torch.uint8)
    write_png(picture, tmp_path / "deep" / "picture.png")
    array = np.atleast_3d(read(tmp_path / "deep" / "picture.png"))
    assert np.array_equal(array, picture.permute(1, 2, 0).numpy())


def test_a_picture_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    write_png(torch.zeros(1, 2, 2, dtype=torch.uint8), tmp_path / "p.png")
    monkeypatch.setattr("PIL.ImageFile._encode_tile", lambda *_: 1 / 0)  # once the file has its header
    with pytest.raises(ZeroDivisionError):
        write_png(torch.ones(1, 2, 2, dtype=torch.uint8), tmp_path / "p.png")
    assert read(tmp_path / "p.png").max() == 0


def test_scaling_repeats_pixels(tmp_path):
    write_png(torch.tensor([[[0, 255]]], dtype=torch.uint8), tmp_path / "p.png", scale=2)
    assert read(tmp_path / "p.png").tolist() == [[0, 0, 255, 255]] * 2


def test_images_go_into_a_folder_one_by_one(tmp_path):
    images = torch.randint(0, 256, (3, 1, 4, 4), dtype=torch.uint8)
    write_images(images, tmp_path / "out")
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == ["000000.png", "000001.png", "000002.png"]
    assert all(np.array_equal(read(f), i[0].numpy()) for f, i in zip(files, images, strict=True))


def test_images_go_into_one_png_as_a_grid(tmp_path):
    write_images(torch.zeros(9, 1, 4, 4, dtype=torch.uint8), tmp_path / "out.PNG")
    assert read(tmp_path / "out.PNG").shape == (3 * 6 + 2, 3 * 6 + 2)


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists already: name another folder"):
        write_images(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["kept.txt"]


@pytest.mark.parametrize("name", ["drawn", "v1.5", "run.kept"])
def test_a_folder_may_have_a_version_in_its_name_and_any_name_if_it_is_there(tmp_path, name):
    (tmp_path / "run.kept").mkdir()
    write_images(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), tmp_path / name)
    assert len(list((tmp_path / name).iterdir())) == 2


@pytest.mark.parametrize("name", ["c.txt", "c.jpg", "c.PDF"])
def test_a_name_of_a_file_that_is_no_png_is_refused_and_makes_no_folder(tmp_path, name):
    with pytest.raises(ValueError, match=rf"{name} is neither a \.png file, for a grid, nor a folder"):
        write_images(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
