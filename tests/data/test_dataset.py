"""Names, the digits, what is there and what is not."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.data.cases import cycling_labels, random_images, write_mnist, write_tiny_imagenet

import wcgan.data
from wcgan.data import describe, load, names, splits
from wcgan.data.sources import SOURCES, data_folder


def test_the_names_are_those_of_the_documentation() -> None:
    assert names() == (
        *("digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "stl10", "tiny-imagenet", "imagenet"),
    )
    page = (Path(__file__).parents[2] / "docs/data.md").read_text()
    assert [name for name in names() if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", [name for name, source in SOURCES.items() if source.classes])
def test_classes_are_as_many_as_they_are_said_to_be(name: str) -> None:
    assert len(set(SOURCES[name].classes)) == SOURCES[name].class_count


def test_digits_are_there_without_files() -> None:
    train, test = load("digits"), load("digits", "test")
    assert train.images.shape == (1438, 1, 16, 16)
    assert test.images.shape == (359, 1, 16, 16)
    assert train.images.dtype == torch.uint8
    assert (int(train.images.min()), int(train.images.max())) == (0, 255)
    assert train.classes == tuple("0123456789")
    assert repr(test) == "Dataset('digits', 'test', images=(359, 1, 16, 16), classes=10)"


def test_digits_are_split_into_all_of_them_four_fifths_of_each_class_for_training() -> None:
    from sklearn.datasets import load_digits

    published = load_digits()
    train, test = (load("digits", split, resolution=8) for split in ("train", "test"))
    both = np.concatenate([train.images, test.images]).reshape(-1, 64)
    all_of_them = np.rint(published.data * (255 / 16)).astype(np.uint8)
    np.testing.assert_array_equal(both[np.lexsort(both.T)], all_of_them[np.lexsort(all_of_them.T)])
    in_class = np.bincount(published.target)
    assert np.abs(train.labels.bincount().numpy() - 0.8 * in_class).max() < 1


def test_digits_are_enlarged_smoothly() -> None:
    small, large = load("digits", resolution=8).images.float(), load("digits", resolution=32).images.float()
    averaged = torch.nn.functional.avg_pool2d(large, 4)
    assert float((averaged - small).abs().mean()) < 12
    blocky = small.repeat_interleave(4, 2).repeat_interleave(4, 3)
    steps = [float(images.diff(dim=3).abs().amax(3).mean()) for images in (large, blocky)]
    assert steps[0] < 0.5 * steps[1]


def test_digits_are_the_same_every_time() -> None:
    assert load("digits").fingerprint == load("digits").fingerprint
    assert len({load("digits", split, resolution=r).fingerprint for split in ("train", "test") for r in (8, 16)}) == 4


def test_digits_in_colour_have_three_equal_channels() -> None:
    grey, colour = load("digits").images, load("digits", channels=3).images
    assert torch.equal(colour, grey.expand(-1, 3, -1, -1))


@pytest.mark.parametrize("resolution", [0, -4, 16.0, "16"])
def test_a_resolution_that_is_no_size_is_refused(resolution: object) -> None:
    with pytest.raises(ValueError, match="resolution must be a whole number from 1 to 4096, got"):
        load("digits", resolution=resolution)


def test_channels_other_than_grey_and_colour_are_refused() -> None:
    with pytest.raises(ValueError, match=r"channels must be 1 \(grey\) or 3 \(colour\), got 4"):
        load("digits", channels=4)


def test_a_split_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="stl10 has no split 'val'; choose one of train, test, unlabeled"):
        load("stl10", "val")
    assert splits("stl10") == ("train", "test", "unlabeled")


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "digits"])
def test_a_missing_dataset_says_where_it_was_looked_for_and_how_to_get_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        load(name, folder=tmp_path)
    said = str(caught.value)
    assert said.startswith(f"{name} is not in {tmp_path} (looked for {SOURCES[name].folders[0]}")
    assert ("register at" if name == "imagenet" else f"wcgan datasets --download {name} --folder {tmp_path}") in said
    assert "\n" not in said


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(FileNotFoundError, match="cifar11 is neither a folder nor a dataset; the datasets are digits, "):
        load("cifar11")


def test_the_data_folder_is_the_argument_else_the_environment_else_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data_folder() == Path.home() / ".cache/wcgan/data"
    monkeypatch.setenv("WCGAN_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    assert data_folder(tmp_path / "x") == tmp_path / "x"
    write_mnist(tmp_path / "mnist", "train", random_images(3, 1, 28), cycling_labels(3, 10))
    assert len(load("mnist", verify=False)) == 3


def test_a_dataset_may_lie_in_the_named_folder_itself(tmp_path: Path) -> None:
    write_mnist(tmp_path, "train", random_images(3, 1, 28), cycling_labels(3, 10))
    assert len(load("mnist", folder=tmp_path, verify=False)) == 3


def test_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", "train", random_images(3, 1, 28), cycling_labels(3, 10), compress=True)
    write_tiny_imagenet(tmp_path)
    listed = describe(tmp_path)
    assert [status.name for status in listed] == list(names())
    assert [status.name for status in listed if status.present] == ["digits", "mnist", "tiny-imagenet"]
    mnist = listed[1]
    assert mnist.what == "60,000 train + 10,000 test images, 28x28x1, 10 classes"
    assert mnist.folder == tmp_path / "mnist"
    assert all(status.how_to_get for status in listed)


def test_a_folder_train_does_not_pass_for_cifar100(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    assert [status.name for status in describe(tmp_path) if status.present] == ["digits"]


@pytest.mark.parametrize("missing", ["numpy", "PIL"])
def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == missing else find(name, *rest))
    with pytest.raises(
        ImportError, match=r"^wcgan\.data needs NumPy, Pillow and PyYAML: pip install 'wcgan\[train\]'$"
    ):
        importlib.reload(wcgan.data)


def test_digits_without_scikit_learn_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"^the digits come with scikit-learn: pip install 'wcgan\[train\]'$"):
        load("digits")
