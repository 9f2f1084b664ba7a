"""MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100 and STL-10 from their binary files."""

import gzip
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.data.cases import (
    cifar_records,
    cycling_labels,
    idx,
    python2_pickle,
    random_images,
    write_cifar10,
    write_mnist,
    write_stl10,
)

from wcgan.data import load
from wcgan.data.arrays import read_cifar_pickle, read_idx


def assert_holds(dataset, images, labels) -> None:
    assert dataset.images.dtype == torch.uint8
    np.testing.assert_array_equal(dataset.images.numpy(), images)
    np.testing.assert_array_equal(dataset.labels.numpy(), labels)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("compress", [False, True])
def test_idx_files_give_their_pixels_and_labels(tmp_path: Path, name: str, split: str, compress: bool) -> None:
    images, labels = random_images(23, 1, 28), cycling_labels(23, 10)
    write_mnist(tmp_path / name, "train", images[:1], labels[:1], compress)
    write_mnist(tmp_path / name, split, images, labels, compress)
    dataset = load(name, split, tmp_path, verify=False)
    assert_holds(dataset, images, labels)
    assert len(dataset.classes) == 10


def test_the_layout_of_torchvision_is_found(tmp_path: Path) -> None:
    write_mnist(tmp_path / "FashionMNIST/raw", "train", random_images(5, 1, 28), cycling_labels(5, 10), compress=True)
    assert load("fashion-mnist", "train", tmp_path, verify=False).classes[9] == "Ankle boot"


def test_cifar10_batches_are_read_in_order(tmp_path: Path) -> None:
    images, labels = random_images(43, 3, 32), cycling_labels(43, 10)
    write_cifar10(tmp_path, images, labels)
    assert_holds(load("cifar10", "train", tmp_path, verify=False), images, labels)
    test = load("cifar10", "test", tmp_path, verify=False)
    assert_holds(test, images, labels)
    assert test.classes == ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def test_cifar10_pickles_of_python_2_give_what_the_binary_files_give(tmp_path: Path) -> None:
    images, labels = random_images(20, 3, 32), cycling_labels(20, 10)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for i in range(5):
        part = slice(4 * i, 4 * i + 4)
        (folder / f"data_batch_{i + 1}").write_bytes(python2_pickle(images[part], labels[part], "labels"))
    dataset = load("cifar10", "train", tmp_path, verify=False)
    assert_holds(dataset, images, labels)
    write_cifar10(tmp_path / "binary", images, labels)
    assert load("cifar10", "train", tmp_path / "binary", verify=False).fingerprint == dataset.fingerprint


def test_cifar100_gives_fine_labels(tmp_path: Path) -> None:
    images, fine = random_images(120, 3, 32), cycling_labels(120, 100)
    (tmp_path / "cifar-100-binary").mkdir()
    for split in ("train", "test"):
        records = cifar_records(images, fine // 5, fine)
        (tmp_path / f"cifar-100-binary/{split}.bin").write_bytes(records)
    (tmp_path / "cifar-100-python").mkdir()
    for split in ("train", "test"):
        (tmp_path / f"cifar-100-python/{split}").write_bytes(python2_pickle(images, fine, "fine_labels"))
    binary = load("cifar100", "test", tmp_path, verify=False)
    assert_holds(binary, images, fine)
    pickled = load("cifar100", "test", tmp_path / "cifar-100-python", verify=False)
    assert_holds(pickled, images, fine)
    assert (binary.classes[0], binary.classes[99], len(set(binary.classes))) == ("apple", "worm", 100)


def test_stl10_turns_columns_into_rows_and_counts_labels_from_zero(tmp_path: Path) -> None:
    images, labels = random_images(12, 3, 96), cycling_labels(12, 10)
    write_stl10(tmp_path, "train", images, labels)
    assert_holds(load("stl10", "train", tmp_path, resolution=96, verify=False), images, labels)


def test_stl10_unlabeled_comes_at_48_pixels_without_classes(tmp_path: Path) -> None:
    flat = np.full((3, 3, 96, 96), 77, np.uint8)
    write_stl10(tmp_path, "unlabeled", flat, None)
    dataset = load("stl10", "unlabeled", tmp_path, verify=False)
    assert dataset.images.shape == (3, 3, 48, 48)
    assert bool((dataset.images == 77).all())
    assert (dataset.labels, dataset.classes) == (None, ())


def test_python_3_pickles_are_read_too(tmp_path: Path) -> None:
    images = random_images(3, 3, 32)
    content = {b"data": images.reshape(3, 3072), b"labels": [1, 2, 3]}
    for protocol in (2, 3, 4):
        path = tmp_path / f"batch-{protocol}"
        path.write_bytes(pickle.dumps(content, protocol))
        pixels, labels = read_cifar_pickle(path, 10, None)
        np.testing.assert_array_equal(pixels, images)
        assert labels.tolist() == [1, 2, 3]


class Trap:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.target),)


def test_a_pickle_that_would_run_code_is_refused_and_runs_none(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    (tmp_path / "batch").write_bytes(pickle.dumps({"data": Trap(sprung)}))
    with pytest.raises(ValueError, match=r"cannot be unpickled \(it asks for 'posix mkdir'"):
        read_cifar_pickle(tmp_path / "batch", 10, None)
    assert not sprung.exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot be unpickled"),
        (pickle.dumps([1, 2]), "holds a list"),
        (pickle.dumps({"labels": [1]}), "no array of bytes"),
        (pickle.dumps({"data": np.zeros((1, 3072)), "labels": [1]}), "an array of 'f8', where"),
        (pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": ["x"]}), "no list of labels"),
        (pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [10]}), "label 10, where 10 classes"),
        (pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [1, 2]}), "2 labels for 1 images"),
    ],
)
def test_a_pickle_that_is_no_batch_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "batch").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_cifar_pickle(tmp_path / "batch", 10, None)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "begins with 0x0000"),
        (idx(np.zeros(4, np.uint8)), "begins with 0x0801 where such an idx file has 0x0803"),
        (b"\0\0\x0d\x03" + bytes(12), "begins with 0x0d03"),
        (idx(np.zeros((4, 28, 28), np.uint8))[:-1], r"cut short"),
        (idx(np.zeros((4, 28, 28), np.uint8))[:10], r"cut short"),
        (idx(np.zeros((4, 28, 28), np.uint8)) + b"x", r"3153 bytes where its header says \(4, 28, 28\)"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "images").write_bytes(data)
    with pytest.raises(ValueError, match=said):
        read_idx(tmp_path / "images", 3)


def test_a_truncated_gzip_file_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(idx(random_images(4, 1, 28)[:, 0]))
    (tmp_path / "images.gz").write_bytes(whole[:-20])
    with pytest.raises(ValueError, match=r"images\.gz is not a whole gzip file"):
        read_idx(tmp_path / "images.gz", 3)


def test_labels_out_of_range_are_named_with_the_image(tmp_path: Path) -> None:
    labels = cycling_labels(20, 10)
    labels[13] = 200
    write_mnist(tmp_path / "mnist", "train", random_images(20, 1, 28), labels)
    with pytest.raises(ValueError, match=r"image 13 of .*train-labels-idx1-ubyte has label 200"):
        load("mnist", "train", tmp_path, verify=False)


def test_a_label_of_zero_in_stl10_is_out_of_range(tmp_path: Path) -> None:
    write_stl10(tmp_path, "train", random_images(2, 3, 96), np.array([3, -1]))
    with pytest.raises(ValueError, match=r"image 1 of .*train_y\.bin has label -1"):
        load("stl10", "train", tmp_path, verify=False)


def test_labels_must_be_as_many_as_images(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", "train", random_images(20, 1, 28), cycling_labels(19, 10))
    with pytest.raises(ValueError, match="19 labels for 20 images"):
        load("mnist", "train", tmp_path, verify=False)


@pytest.mark.parametrize("cut", [1, 3072, 5 * 3073])
def test_a_cifar_file_cut_anywhere_but_between_records_is_named(tmp_path: Path, cut: int) -> None:
    folder = write_cifar10(tmp_path, random_images(25, 3, 32), cycling_labels(25, 10))
    whole = (folder / "data_batch_2.bin").read_bytes()
    (folder / "data_batch_2.bin").write_bytes(whole[:-cut])
    with pytest.raises(ValueError, match=r"data_batch_2\.bin has \d+ bytes, not whole records of 3073"):
        load("cifar10", "train", tmp_path, verify=False)


def test_a_truncated_stl10_file_is_named(tmp_path: Path) -> None:
    folder = write_stl10(tmp_path, "unlabeled", random_images(2, 3, 96), None)
    (folder / "unlabeled_X.bin").write_bytes((folder / "unlabeled_X.bin").read_bytes()[:-7])
    with pytest.raises(ValueError, match=r"unlabeled_X\.bin has 55289 bytes, not whole images"):
        load("stl10", "unlabeled", tmp_path, verify=False)


def test_a_file_of_the_split_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path, random_images(25, 3, 32), cycling_labels(25, 10))
    (folder / "data_batch_4.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks data_batch_4\.bin or data_batch_4"):
        load("cifar10", "train", tmp_path, verify=False)


def test_a_file_that_is_not_the_official_one_is_refused(tmp_path: Path) -> None:
    write_cifar10(tmp_path, random_images(25, 3, 32), cycling_labels(25, 10))
    with pytest.raises(ValueError, match=r"data_batch_1\.bin is not the official file \(sha256 .* pass verify=False"):
        load("cifar10", "train", tmp_path)


def test_what_was_loaded_unverified_is_still_refused_when_verified(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", "train", random_images(5, 1, 28), cycling_labels(5, 10))
    load("mnist", "train", tmp_path, verify=False)
    with pytest.raises(ValueError, match="is not the official file"):
        load("mnist", "train", tmp_path)


def test_files_without_a_checksum_are_counted(tmp_path: Path) -> None:
    fine = cycling_labels(100, 100)
    (tmp_path / "train.bin").write_bytes(cifar_records(random_images(100, 3, 32), fine, fine))
    with pytest.raises(ValueError, match="has 100 images where the official set has 50,000"):
        load("cifar100", "train", tmp_path)


def test_classes_of_unequal_size_are_not_the_official_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from wcgan.data import dataset

    small = replace(dataset.SOURCES["cifar100"], counts={"train": 101})
    monkeypatch.setattr(dataset, "SOURCES", {"cifar100": small})
    fine = cycling_labels(101, 100)
    (tmp_path / "train.bin").write_bytes(cifar_records(random_images(101, 3, 32), fine, fine))
    with pytest.raises(ValueError, match="from 1 to 2 images per class"):
        load("cifar100", "train", tmp_path)
