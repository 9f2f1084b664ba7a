"""Tiny ImageNet and ImageNet from their official folders."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.cases import save, smooth, write_imagenet, write_tiny_imagenet

from wcgan.data import load

WORDS = {"n01440764": "tench, Tinca tinca", "n02012849": "crane", "n03126707": "crane"}


def close_to(pixels: torch.Tensor, expected: np.ndarray) -> bool:
    """Within what JPEG at high quality does to a smooth image."""
    return float((pixels.float() - torch.tensor(expected.astype(np.float32))).abs().mean()) < 2


def test_tiny_imagenet_trains_on_folders_in_the_order_of_wnids(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    dataset = load("tiny-imagenet", "train", tmp_path, verify=False)
    assert dataset.images.shape == (6, 3, 64, 64)
    assert dataset.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert dataset.classes == ("Egyptian cat", "goldfish")
    assert close_to(dataset.images[4], smooth(11, 64, 64))


def test_tiny_imagenet_tests_on_its_validation_images_and_annotations(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    dataset = load("tiny-imagenet", "test", tmp_path, verify=False)
    assert dataset.labels.tolist() == [0, 1, 0, 1]
    assert close_to(dataset.images[3], smooth(53, 64, 64))
    assert dataset.classes == ("Egyptian cat", "goldfish")


def test_the_unlabeled_images_of_tiny_imagenet_are_its_test_set(tmp_path: Path) -> None:
    folder = write_tiny_imagenet(tmp_path)
    dataset = load("tiny-imagenet", "unlabeled", tmp_path, verify=False)
    assert (len(dataset), dataset.labels, dataset.classes) == (5, None, ())
    assert close_to(dataset.images[3], smooth(73, 64, 64))
    with pytest.raises(ValueError, match="has 5 images of 2 classes where the official set has 10,000 of 200"):
        load("tiny-imagenet", "unlabeled", tmp_path)
    shutil.rmtree(folder / "test")
    with pytest.raises(FileNotFoundError, match="lacks the folder test/images; unpack the dataset again"):
        load("tiny-imagenet", "unlabeled", tmp_path, verify=False)


def test_tiny_imagenet_with_images_missing_is_not_the_official_set(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    with pytest.raises(ValueError, match=r"has 6 images of 2 classes where the official set has 100,000 of 200"):
        load("tiny-imagenet", "train", tmp_path)


def test_a_class_that_wnids_does_not_list_is_named(tmp_path: Path) -> None:
    folder = write_tiny_imagenet(tmp_path)
    with (folder / "val/val_annotations.txt").open("a") as file:
        file.write("val_0.JPEG\tn09999999\t0\t0\t1\t1\n")
    with pytest.raises(ValueError, match="has class n09999999"):
        load("tiny-imagenet", "test", tmp_path, verify=False)


def test_an_annotation_without_a_class_is_named(tmp_path: Path) -> None:
    folder = write_tiny_imagenet(tmp_path)
    (folder / "val/val_annotations.txt").write_text("val_0.JPEG\n")
    with pytest.raises(ValueError, match=r"val_annotations\.txt has a line 'val_0\.JPEG' without a class"):
        load("tiny-imagenet", "test", tmp_path, verify=False)


def test_changed_annotations_are_not_served_from_an_old_pack(tmp_path: Path) -> None:
    folder = write_tiny_imagenet(tmp_path)
    load("tiny-imagenet", "test", tmp_path, verify=False)
    annotations = folder / "val/val_annotations.txt"
    annotations.write_text(annotations.read_text().replace("n02124075", "n01443537"))
    assert load("tiny-imagenet", "test", tmp_path, verify=False).labels.tolist() == [1, 1, 1, 1]


def test_imagenet_is_cropped_to_the_centre_and_resized_to_128(tmp_path: Path) -> None:
    folder = write_imagenet(tmp_path)
    striped = np.zeros((3, 150, 300), np.uint8)
    striped[:, :, :75] = striped[:, :, 225:] = 255  # outside the central square
    save(folder / "train/n01440764/n01440764_9.JPEG", striped, quality=95)
    dataset = load("imagenet", "train", tmp_path, verify=False)
    assert dataset.images.shape == (7, 3, 128, 128)
    assert dataset.labels.tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert dataset.images[2, :, :, 8:-8].max() == 0


def test_imagenet_classes_are_identifiers_where_nothing_names_them(tmp_path: Path) -> None:
    write_imagenet(tmp_path)
    assert load("imagenet", "train", tmp_path, verify=False).classes == tuple(WORDS)


def test_two_classes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    write_imagenet(tmp_path)
    (tmp_path / "LOC_synset_mapping.txt").write_text("".join(f"{wnid} {words}\n" for wnid, words in WORDS.items()))
    classes = load("imagenet", "train", tmp_path, verify=False).classes
    assert classes == ("tench", "crane (n02012849)", "crane (n03126707)")


def test_imagenet_validation_in_a_folder_per_class(tmp_path: Path) -> None:
    folder = write_imagenet(tmp_path)
    for i, wnid in enumerate(["n03126707", "n01440764"]):
        save(folder / f"val/{wnid}/ILSVRC2012_val_{i:08}.JPEG", smooth(80 + i, 140, 140))
    dataset = load("imagenet", "test", tmp_path, verify=False)
    assert dataset.labels.tolist() == [0, 2]
    assert dataset.classes == tuple(WORDS)


@pytest.fixture
def flat_validation(tmp_path: Path) -> Path:
    folder = write_imagenet(tmp_path)
    for i in range(3):
        save(folder / f"val/ILSVRC2012_val_{i + 1:08}.JPEG", smooth(80 + i, 140, 140))
    return tmp_path


def test_imagenet_validation_side_by_side_takes_its_classes_from_the_devkit(flat_validation: Path) -> None:
    from scipy import io

    devkit = flat_validation / "ILSVRC2012_devkit_t12/data"
    devkit.mkdir(parents=True)
    kind = [("ILSVRC2012_ID", object), ("WNID", object), ("words", object)]
    synsets = np.array([(i + 1, wnid, words) for i, (wnid, words) in enumerate(WORDS.items())], kind)
    io.savemat(devkit / "meta.mat", {"synsets": synsets.reshape(-1, 1)})
    (devkit / "ILSVRC2012_validation_ground_truth.txt").write_text("3\n1\n2\n")
    dataset = load("imagenet", "test", flat_validation, verify=False)
    assert dataset.labels.tolist() == [2, 0, 1]
    assert dataset.classes[0] == "tench"


def test_imagenet_validation_side_by_side_takes_its_classes_from_the_solution_table(flat_validation: Path) -> None:
    rows = [f"ILSVRC2012_val_{i + 1:08},{wnid} 1 2 3 4" for i, wnid in enumerate(reversed(WORDS))]
    text = "\n".join(["ImageId,PredictionString", *reversed(rows)]) + "\n"
    (flat_validation / "LOC_val_solution.csv").write_text(text)
    assert load("imagenet", "test", flat_validation, verify=False).labels.tolist() == [2, 1, 0]


def test_imagenet_validation_of_unknown_classes_says_what_to_bring(flat_validation: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"unpack ILSVRC2012_devkit_t12\.tar\.gz beside it"):
        load("imagenet", "test", flat_validation, verify=False)


def test_imagenet_without_validation_images_says_so(tmp_path: Path) -> None:
    write_imagenet(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"unpack ILSVRC2012_img_val\.tar"):
        load("imagenet", "test", tmp_path, verify=False)


def test_the_cmyk_and_png_files_among_imagenets_jpegs_are_read(tmp_path: Path) -> None:
    folder = write_imagenet(tmp_path)
    photo = Image.fromarray(smooth(1, 150, 200).transpose(1, 2, 0))
    photo.convert("CMYK").save(folder / "train/n01440764/n01440764_0.JPEG", "JPEG", quality=95)
    photo.save(folder / "train/n01440764/n01440764_1.JPEG", "PNG")
    dataset = load("imagenet", "train", tmp_path, verify=False)
    assert dataset.skipped == ()
    assert float((dataset.images[0].float() - dataset.images[1].float()).abs().mean()) < 2
