"""One image file -> pixels, whatever its mode, and resizing."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from tests.data.cases import random_images, save, smooth

from wcgan.data.decode import decode, fit, in_parallel, read_shape


def test_transparency_is_laid_on_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (2, 1))
    image.putpixel((0, 0), (10, 20, 30, 0))
    image.putpixel((1, 0), (10, 20, 30, 255))
    image.save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png", None, 3)[:, 0].T.tolist() == [[255, 255, 255], [10, 20, 30]]


def test_half_transparency_is_half_white(tmp_path: Path) -> None:
    Image.new("LA", (1, 1), (100, 51)).save(tmp_path / "a.png")  # alpha 51/255 = 0.2
    assert decode(tmp_path / "a.png", None, 1).tolist() == [[[round(0.2 * 100 + 0.8 * 255)]]]


def test_a_palette_with_a_transparent_colour_is_laid_on_white(tmp_path: Path) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([9, 8, 7, 50, 60, 70])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "a.png", transparency=0)
    assert decode(tmp_path / "a.png", None, 3)[:, 0].T.tolist() == [[255, 255, 255], [50, 60, 70]]


def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path: Path) -> None:
    values = np.array([[0, 257, 32896, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png", None, 1).tolist() == [[[0, 1, 128, 255]]]
    assert read_shape(tmp_path / "a.png") == (1, 4, True)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "YCbCr", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_gives_bytes_of_the_asked_channels(tmp_path: Path, mode: str, channels: int) -> None:
    path = tmp_path / ("a.jpg" if mode in ("CMYK", "YCbCr") else "a.png")
    Image.new(mode, (5, 4)).save(path)
    pixels = decode(path, None, channels)
    assert (pixels.shape, pixels.dtype) == ((channels, 4, 5), np.uint8)


def test_cmyk_is_converted_to_its_colours(tmp_path: Path) -> None:
    pixels = smooth(0, 32, 32)
    Image.fromarray(pixels.transpose(1, 2, 0)).convert("CMYK").save(tmp_path / "a.jpg", quality=98)
    assert np.abs(decode(tmp_path / "a.jpg", None, 3).astype(int) - pixels).mean() < 2


def test_of_an_animation_the_first_frame_is_taken(tmp_path: Path) -> None:
    frames = [Image.new("L", (6, 6), level) for level in (40, 200)]
    for name in ("a.gif", "a.webp"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], lossless=True)
        assert np.abs(decode(tmp_path / name, None, 1).astype(int) - 40).max() <= 1


def test_a_photograph_is_turned_as_its_camera_was_held(tmp_path: Path) -> None:
    pixels = smooth(0, 32, 64)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees, clockwise
    save(tmp_path / "a.jpg", pixels, exif=exif, quality=95)
    turned = decode(tmp_path / "a.jpg", None, 3)
    assert np.abs(turned.astype(int) - np.rot90(pixels, -1, (1, 2))).mean() < 2
    assert read_shape(tmp_path / "a.jpg")[:2] == (64, 32)
    assert decode(tmp_path / "a.jpg", None, 3, upright=False).shape == (3, 32, 64)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3]), st.sampled_from([1, 3]))
def test_files_and_arrays_are_cropped_resized_and_coloured_alike(
    tmp_path_factory: pytest.TempPathFactory, height: int, width: int, resolution: int, given: int, channels: int
) -> None:
    pixels = np.random.default_rng(height + 41 * width).integers(0, 256, (given, height, width), np.uint8)
    path = save(tmp_path_factory.mktemp("fit") / "a.png", pixels)
    fitted = fit(pixels[None], resolution, channels)[0]
    assert fitted.shape == (channels, resolution, resolution)
    np.testing.assert_array_equal(decode(path, resolution, channels), fitted)


@pytest.mark.parametrize(("height", "width"), [(10, 30), (30, 10), (11, 30), (30, 11)])
def test_the_square_is_taken_from_the_middle(tmp_path: Path, height: int, width: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, height, width), np.uint8)
    side = min(height, width)
    path = save(tmp_path / "a.png", pixels)
    middle = pixels[:, (height - side) // 2 :, (width - side) // 2 :][:, :side, :side]
    np.testing.assert_array_equal(decode(path, side, 3), middle)
    np.testing.assert_array_equal(fit(pixels[None], side, 3)[0], middle)


def test_grey_from_colour_is_its_luma() -> None:
    images = random_images(4, 3, 8)
    luma = np.einsum("nchw,c->nhw", images, [0.299, 0.587, 0.114])
    assert np.abs(fit(images, 8, 1)[:, 0] - luma).max() < 0.51


def test_shrinking_averages_fine_stripes_away() -> None:
    stripes = np.zeros((1, 1, 64, 64), np.uint8)
    stripes[..., ::2] = 255
    assert np.abs(fit(stripes, 16, 1).astype(int)[..., 2:-2] - 128).max() <= 2


def test_a_large_jpeg_shrunk_while_decoding_is_what_it_would_be_without(tmp_path: Path) -> None:
    pixels = smooth(3, 600, 800)
    save(tmp_path / "a.jpg", pixels, quality=95)
    save(tmp_path / "a.png", pixels)
    difference = decode(tmp_path / "a.jpg", 64, 3).astype(int) - decode(tmp_path / "a.png", 64, 3)
    assert np.abs(difference).mean() < 1


def test_results_come_in_order_and_only_a_few_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wcgan.data.decode.workers", lambda: 2)
    started: list[str] = []

    def note(items: list[str]) -> list[str]:
        started.extend(items)
        return items

    results = in_parallel(note, [str(i) for i in range(100)], 3)
    assert next(results) == ["0", "1", "2"]
    assert len(started) <= 3 * 5
    assert [item for chunk in results for item in chunk] == [str(i) for i in range(3, 100)]
