"""Which images a classifier learns from and which it is tested with."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from tests.train.classifier_cases import tiny_config, tiny_splits

from wcgan.runs.config import ClassifyTrainConfig, DataConfig
from wcgan.train.start_classifier import fit_classifier, load_splits


def write_images(folder, counts, side=8):
    random = np.random.default_rng(0)
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = random.integers(0, 256, (side, side, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number:03d}.png")
    return str(folder)


def config_for(name):
    return replace(tiny_config(), data=DataConfig(name=name))


def test_a_published_test_split_is_taken():
    training, test = load_splits(config_for("digits"))
    assert (len(training), training.split, len(test), test.split) == (1438, "train", 359, "test")


def test_of_a_folder_without_a_test_split_every_tenth_image_is_kept_out(tmp_path):
    training, test = load_splits(config_for(write_images(tmp_path / "pictures", {"a": 15, "b": 16})))
    assert (len(training), len(test)) == (28, 3)
    assert (training.split, test.split) == ("train, nine of ten", "train, every tenth")
    learnt = {image.numpy().tobytes() for image in training.images}
    assert not learnt & {image.numpy().tobytes() for image in test.images}
    assert test.labels.tolist() == [0, 1, 1]


def test_a_folder_with_both_splits_keeps_them(tmp_path):
    write_images(tmp_path / "pictures" / "train", {"a": 4, "b": 4})
    write_images(tmp_path / "pictures" / "test", {"a": 2, "b": 3})
    training, test = load_splits(config_for(str(tmp_path / "pictures")))
    assert (len(training), len(test)) == (8, 5)


def test_splits_with_other_classes_are_refused(tmp_path):
    write_images(tmp_path / "pictures" / "train", {"a": 4, "b": 4})
    write_images(tmp_path / "pictures" / "test", {"a": 2, "c": 3})
    with pytest.raises(ValueError, match="has other classes in its test split than in its training split"):
        load_splits(config_for(str(tmp_path / "pictures")))


def test_too_few_images_to_keep_some_out_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has 19 images and no test split, for which every tenth is kept out: 20 are"):
        load_splits(config_for(write_images(tmp_path / "pictures", {"a": 10, "b": 9})))


def test_the_network_takes_channels_and_classes_from_the_data():
    training, _ = tiny_splits()
    wide = replace(training, images=training.images.expand(-1, 3, -1, -1), classes=tuple("abcd"))
    network = fit_classifier(tiny_config(), wide).classifier
    assert (network.channels, network.classes) == (3, 4)


@pytest.mark.parametrize("classes", [(), ("a",)])
def test_images_without_classes_are_refused(classes):
    training, _ = tiny_splits()
    labels = torch.zeros(30, dtype=torch.int64) if classes else None
    with pytest.raises(ValueError, match=r"a classifier needs several classes; tiny has (none|1): give each class"):
        fit_classifier(tiny_config(), replace(training, labels=labels, classes=classes))


def test_images_that_are_too_small_are_refused():
    training, _ = tiny_splits()
    with pytest.raises(ValueError, match=r"^the images of tiny are 7x8; a classifier needs 8 pixels each way"):
        fit_classifier(tiny_config(), replace(training, images=training.images[:, :, 1:]))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"drops": (5, 5)}, r"train.drops must be iterations in order, at least 1, got \[5, 5\]"),
        ({"drops": (9, 5)}, r"train.drops must be iterations in order, at least 1, got \[9, 5\]"),
        ({"drops": (0,)}, r"train.drops must be iterations in order, at least 1, got \[0\]"),
        (
            {"iterations": 1000},
            r"train.drops=\[32000, 48000\] go beyond train.iterations=1000: set both, such as "
            r'--set train.iterations=1000 --set "train.drops=\[500,750\]"',
        ),
        ({"crop": -1}, "train.crop must be at least 0, got -1"),
        ({"momentum": 1.0}, r"train.momentum must be in \[0, 1\), got 1.0"),
        ({"weight_decay": -0.1}, "train.weight_decay must be at least 0, got -0.1"),
        ({"iterations": 0}, "train.iterations must be at least 1, got 0"),
        ({"batch": 1}, "train.batch must be at least 2, got 1"),
    ],
)
def test_settings_out_of_range_are_named(settings, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        ClassifyTrainConfig(**settings)
