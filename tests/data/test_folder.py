"""Any folder of images."""

import logging
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.cases import random_images, save, smooth

from wcgan.data import glance, load, splits
from wcgan.data.folder import list_classes

LOSSLESS = [".png", ".bmp", ".webp", ".PNG"]


def save_lossless(path: Path, pixels: np.ndarray) -> Path:
    return save(path, pixels, **({"lossless": True, "exact": True} if path.suffix == ".webp" else {}))


def test_sub_folders_are_classes_in_the_order_of_their_names(tmp_path: Path) -> None:
    images = random_images(6, 3, 10)
    for i, name in enumerate(["dog", "cat", "ape"] * 2):
        save(tmp_path / name / f"{i}.png", images[i])
    dataset = load(tmp_path)
    assert dataset.classes == ("ape", "cat", "dog")
    assert dataset.labels.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_array_equal(dataset.images.numpy(), images[[2, 5, 1, 4, 0, 3]])
    assert (dataset.name, dataset.split, len(dataset)) == (tmp_path.name, "train", 6)


def test_sub_folders_named_by_numbers_are_in_the_order_of_the_numbers(tmp_path: Path) -> None:
    for number in range(12):
        save(tmp_path / str(number) / "a.png", random_images(1, 3, 4, number)[0])
    assert load(tmp_path).classes == tuple(map(str, range(12)))


def test_images_without_sub_folders_have_no_labels(tmp_path: Path) -> None:
    images = random_images(4, 3, 6)
    for i, extension in enumerate(LOSSLESS):
        save_lossless(tmp_path / f"{i}{extension}", images[i])
    dataset = load(tmp_path)
    assert (dataset.labels, dataset.classes) == (None, ())
    np.testing.assert_array_equal(dataset.images.numpy(), images)


def test_jpeg_and_gif_are_read(tmp_path: Path) -> None:
    pixels = smooth(0, 40, 40)
    for name in ("a.jpg", "b.jpeg", "c.JPEG"):
        save(tmp_path / name, pixels, quality=95)
    save(tmp_path / "d.gif", np.full((3, 40, 40), 90, np.uint8))
    dataset = load(tmp_path)
    assert dataset.images.shape == (4, 3, 40, 40)
    assert float((dataset.images[0].float().numpy() - pixels).__abs__().mean()) < 2
    assert dataset.images[3].float().mean() == pytest.approx(90, abs=1)


def test_images_at_any_depth_belong_to_the_class_at_the_top(tmp_path: Path) -> None:
    save(tmp_path / "a/x/y/1.png", random_images(1, 3, 4)[0])
    save(tmp_path / "a/2.png", random_images(1, 3, 4)[0])
    save(tmp_path / "b/z/3.png", random_images(1, 3, 4)[0])
    assert load(tmp_path).labels.tolist() == [0, 0, 1]


def test_hidden_files_and_files_of_other_kinds_are_passed_over(tmp_path: Path) -> None:
    save(tmp_path / "a/1.png", random_images(1, 3, 4)[0])
    for name in ("a/.hidden.png", "a/notes.txt", "a/.DS_Store", ".git/x.png", "__MACOSX/a/1.png", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(b"x")
    dataset = load(tmp_path)
    assert (len(dataset), dataset.classes, dataset.skipped) == (1, ("a",), ())


def test_a_link_back_to_its_own_folder_is_followed_once(tmp_path: Path) -> None:
    save(tmp_path / "a/1.png", random_images(1, 3, 4)[0])
    (tmp_path / "a/again").symlink_to(tmp_path / "a")
    assert len(load(tmp_path)) == 1


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["a", "B", "10", "9", "ä", "x y"]), st.integers(1, 4), min_size=1),
    st.integers(0, 10**6),
)
def test_every_image_is_listed_once_under_its_class(
    tmp_path_factory: pytest.TempPathFactory, counts: dict[str, int], seed: int
) -> None:
    root, rng = tmp_path_factory.mktemp("listed"), np.random.default_rng(seed)
    for name, count in counts.items():
        for i in range(count):
            file = root / name / ("deep" if rng.random() < 0.5 else "") / f"{i}{rng.choice(LOSSLESS)}"
            file.parent.mkdir(exist_ok=True, parents=True)
            file.touch()
    files, labels, classes = list_classes(root)
    assert labels is not None
    assert sorted(files) == sorted(str(f.relative_to(root)) for f in root.rglob("*.*"))
    assert [classes[label] for label in labels] == [Path(file).parts[0] for file in files]
    assert np.bincount(labels).tolist() == [counts[name] for name in classes]


def test_images_of_several_sizes_need_a_resolution(tmp_path: Path) -> None:
    save(tmp_path / "a.png", smooth(0, 20, 30))
    save(tmp_path / "b.png", smooth(1, 20, 20))
    with pytest.raises(ValueError, match=r"several sizes, 30x20 \(a\.png\) and 20x20 \(b\.png\); give a resolution"):
        load(tmp_path)
    assert load(tmp_path, resolution=16).images.shape == (2, 3, 16, 16)


def test_images_of_one_size_keep_it_even_if_not_square(tmp_path: Path) -> None:
    save(tmp_path / "a.png", smooth(0, 20, 30))
    assert load(tmp_path).images.shape == (1, 3, 20, 30)


def test_a_folder_of_grey_images_has_one_channel(tmp_path: Path) -> None:
    grey = random_images(2, 1, 8)
    for i in range(2):
        save(tmp_path / f"{i}.png", grey[i])
    np.testing.assert_array_equal(load(tmp_path).images.numpy(), grey)
    np.testing.assert_array_equal(load(tmp_path, channels=3).images.numpy(), grey.repeat(3, 1))


def test_one_colour_image_among_grey_ones_gives_three_channels(tmp_path: Path) -> None:
    save(tmp_path / "0.png", random_images(1, 1, 8)[0])
    save(tmp_path / "1.png", random_images(1, 3, 8)[0])
    assert load(tmp_path).images.shape == (2, 3, 8, 8)


def break_three(folder: Path) -> None:
    for name in "abcdef":
        save(folder / f"{name}/0.png", random_images(1, 3, 8, ord(name))[0])
    (folder / "b/0.png").write_bytes(b"not an image")
    (folder / "d/0.png").write_bytes((folder / "d/0.png").read_bytes()[:60])
    (folder / "f/0.png").write_bytes(b"")


def test_broken_images_are_skipped_named_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    break_three(tmp_path)
    with caplog.at_level(logging.WARNING):
        dataset = load(tmp_path)
    assert dataset.skipped == ("b/0.png", "d/0.png", "f/0.png")
    assert dataset.labels.tolist() == [0, 2, 4]
    assert [int(image.sum()) for image in dataset.images] == [int(random_images(1, 3, 8, ord(n)).sum()) for n in "ace"]
    assert "3 images of" in caplog.text
    assert "b/0.png, d/0.png, f/0.png; none is left of class b, d, f" in caplog.text


def test_broken_images_are_named_again_when_the_pack_is_reused(tmp_path: Path) -> None:
    break_three(tmp_path)
    assert load(tmp_path).skipped == load(tmp_path).skipped == ("b/0.png", "d/0.png", "f/0.png")


@pytest.mark.parametrize("packed", [False, True])
def test_a_broken_image_is_fatal_when_strict(tmp_path: Path, packed: bool) -> None:
    break_three(tmp_path)
    if packed:
        load(tmp_path)
    with pytest.raises(ValueError, match=r"b/0\.png.* mend or remove"):
        load(tmp_path, strict=True)


def test_a_folder_in_which_no_image_can_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    for resolution in (None, 8):
        with pytest.raises(ValueError, match=r"no image in .* can be read, of 1; the first is a\.png"):
            load(tmp_path, resolution=resolution, channels=3)


def test_bad_folders_are_one_sentence_each(tmp_path: Path) -> None:
    empty, mixed, hollow = tmp_path / "empty", tmp_path / "mixed", tmp_path / "hollow"
    empty.mkdir()
    save(mixed / "a/1.png", smooth(0, 4, 4))
    save(mixed / "2.png", smooth(0, 4, 4))
    save(hollow / "a/1.png", smooth(0, 4, 4))
    (hollow / "b").mkdir()
    with pytest.raises(ValueError, match=r"empty holds no images; it needs files that end in \.png"):
        load(empty)
    with pytest.raises(ValueError, match=r"mixed holds both images \(2\.png\) and sub-folders \(a\)"):
        load(mixed)
    with pytest.raises(ValueError, match=r"b holds no images; each sub-folder is a class"):
        load(hollow)
    with pytest.raises(FileNotFoundError, match="is neither a folder nor a dataset; the datasets are digits, mnist"):
        load(tmp_path / "absent")


@pytest.mark.parametrize("second", ["test", "val"])
def test_a_folder_with_train_and_test_has_two_splits(tmp_path: Path, second: str) -> None:
    save(tmp_path / "train/a/1.png", smooth(0, 4, 4))
    save(tmp_path / f"{second}/a/1.png", smooth(1, 4, 4))
    assert splits(tmp_path) == ("train", "test")
    assert load(tmp_path, "test").classes == ("a",)
    assert load(tmp_path).fingerprint != load(tmp_path, "test").fingerprint


@pytest.mark.parametrize("other", ["bus/1.png", "bus/deep/1.png"])
def test_a_class_called_train_is_not_taken_for_all_images(tmp_path: Path, other: str) -> None:
    save(tmp_path / "train/1.png", smooth(0, 4, 4))
    save(tmp_path / other, smooth(1, 4, 4))
    with pytest.raises(ValueError, match=r"has images in train and in bus: if train is a class"):
        load(tmp_path)
    with pytest.raises(ValueError, match="has images in train and in bus"):
        glance(tmp_path)


def test_what_is_no_class_may_be_beside_a_training_split(tmp_path: Path) -> None:
    save(tmp_path / "train/1.png", smooth(0, 4, 4))
    (tmp_path / "annotations").mkdir()
    for name in ("annotations/1.json", "licence.txt", ".hidden.png"):
        (tmp_path / name).write_text("-")
    for name in (".cache/1.png", "__MACOSX/1.png", "preview.png"):
        save(tmp_path / name, smooth(1, 4, 4))
    assert len(load(tmp_path)) == 1


def test_a_folder_that_cannot_be_listed_may_be_beside_a_training_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "train/1.png", smooth(0, 4, 4))
    (tmp_path / "lost+found").mkdir()
    walk = os.walk

    def refuse(top: Path, onerror: Any, **options: Any) -> Any:
        if top.name == "lost+found":
            onerror(PermissionError(13, "Permission denied", str(top)))
        return walk(top, onerror=onerror, **options)

    monkeypatch.setattr(os, "walk", refuse)
    assert len(load(tmp_path)) == 1
    save(tmp_path / "zebra/1.png", smooth(1, 4, 4))
    with pytest.raises(ValueError, match="in train and in zebra"):
        load(tmp_path)


def test_a_folder_without_splits_is_the_training_set(tmp_path: Path) -> None:
    save(tmp_path / "a/1.png", smooth(0, 4, 4))
    assert splits(tmp_path) == ("train",)
    with pytest.raises(FileNotFoundError, match="has no split 'test', only train; for both"):
        load(tmp_path, "test")


def test_a_folder_called_like_a_dataset_is_written_with_a_slash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "mnist/a/1.png", smooth(0, 4, 4))
    monkeypatch.chdir(tmp_path)
    assert load("./mnist").classes == ("a",)
    with pytest.raises(FileNotFoundError, match=re.escape("mnist is not in")):
        load("mnist")
