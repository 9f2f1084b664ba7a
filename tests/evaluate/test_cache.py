"""Classifiers in the cache: trained once, never half written, never unpickled."""

import json
import pickle
from dataclasses import replace

import pytest
import torch
from tests.evaluate.cases import stripes

from wcgan.evaluate.train_small_classifier import load_small_classifier


class Epochs:
    """Counts the epochs of training that really happened."""

    def __init__(self):
        self.count = 0

    def __call__(self, done, of):
        self.count += 1


@pytest.fixture
def load(quick, tmp_path):
    """Loads the classifier of a dataset from a fresh cache -> (classifier, epochs trained for it)."""

    def call(training=None, test=None, settings=quick, cache=tmp_path):
        epochs = Epochs()
        classifier = load_small_classifier(
            training or stripes(), test, settings, device="cpu", cache=cache, progress=epochs
        )
        return classifier, epochs.count

    return call


def test_a_classifier_is_trained_once_and_comes_back_the_same(load):
    first, trained = load()
    second, trained_again = load()
    assert (trained, trained_again) == (2, 0)
    assert second.facts == first.facts
    images = stripes(seed=5).images
    assert torch.equal(first.features(images), second.features(images))
    assert torch.equal(first.logits(images), second.logits(images))


def test_other_images_and_other_settings_get_a_classifier_of_their_own(load, quick):
    load()
    assert load(settings=replace(quick, seed=1))[1] == 2
    assert load(stripes(seed=7))[1] == 2
    assert load(test=stripes(10, split="test"))[1] == 2
    assert load(stripes(size=16))[1] == 2
    assert load(replace(stripes(), classes=("rows", "columns")))[1] == 2


def test_the_cache_holds_safetensors_and_json_only(load, tmp_path):
    load()
    assert sorted(file.suffix for file in tmp_path.rglob("*") if file.is_file()) == [".json", ".safetensors"]


def test_the_accuracy_lies_beside_the_weights(load, tmp_path):
    classifier, _ = load(test=stripes(20, split="test", seed=1))
    (record,) = tmp_path.rglob("*.json")
    facts = json.loads(record.read_text())
    assert facts["accuracy"] == classifier.facts.accuracy
    assert facts["tested_on"] == "stripes8x1 test"


def test_loading_runs_no_pickle(load, monkeypatch):
    load()

    def refuse(*args, **kwargs):
        raise AssertionError("unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    assert load()[1] == 0


@pytest.mark.parametrize("suffix", [".safetensors", ".json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut short"])
def test_a_damaged_file_means_training_again(load, tmp_path, suffix, damage):
    good, _ = load()
    (file,) = tmp_path.rglob(f"*{suffix}")
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(b"" if damage == "empty" else content[: len(content) // 2])
    again, trained = load()
    assert trained == 2
    assert again.facts == good.facts
    assert load()[1] == 0


def test_weights_that_changed_after_their_record_are_not_taken(load, tmp_path):
    load()
    (file,) = tmp_path.rglob("*.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert load()[1] == 2


def test_a_write_that_fails_leaves_the_cache_as_it_was_and_the_result_there(load, tmp_path, monkeypatch, capsys):
    def refuse(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", refuse)
        load()
    said = f"classifiers cannot be cached in {tmp_path / 'classifiers'} (No space left on device): make room there or"
    assert said in capsys.readouterr().err
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []
    assert load()[1] == 2


def test_the_cache_is_where_the_environment_says(load, tmp_path, monkeypatch):
    monkeypatch.setenv("WCGAN_CACHE", str(tmp_path / "elsewhere"))
    load(cache=None)
    assert any((tmp_path / "elsewhere").rglob("*.safetensors"))


def test_a_datasets_name_cannot_leave_the_cache_folder(load, tmp_path):
    load(replace(stripes(), name="../../a folder/of images"))
    (file,) = tmp_path.rglob("*.safetensors")
    assert file.parent == tmp_path / "classifiers"
