"""A run that starts with the weights of another."""

import gc
import sys
import weakref
from unittest.mock import Mock

import pytest
import torch
from tests.data.cases import random_images, save
from tests.train.cases import last_tensors
from tests.train.test_start import configured

from wcgan.runs.checkpoint import read_checkpoint
from wcgan.runs.folder import Run
from wcgan.train.fine_tuning import rows_by_class, take_weights
from wcgan.train.start import dry_run, go_on, start


def write_photos(folder, *classes, side=8, channels=3):
    for number, image in enumerate(random_images(4 * len(classes), channels, side)):
        save(folder / classes[number % len(classes)] / f"{number}.png", image)
    return folder


@pytest.fixture
def source(tmp_path):
    """A run on cats, dogs and owls."""
    start(configured(write_photos(tmp_path / "animals", "cat", "dog", "owl"), "train.ema=0.9"), tmp_path / "source")
    return tmp_path / "source"


def first_tensors(folder):
    return read_checkpoint(folder / "checkpoints" / "0000000").tensors


def test_weights_are_those_of_the_other_run_and_training_goes_on_from_them(source, tmp_path, capsys):
    config = configured(tmp_path / "animals", "train.ema=0.9", "train.seed=7", "train.iterations=1")
    assert start(config, tmp_path / "run", origin=source).iteration == 1
    before, first = last_tensors(Run(source)), first_tensors(tmp_path / "run")
    assert [key for key in first if not torch.equal(first[key], before[key])] == []
    after = last_tensors(Run(tmp_path / "run"))
    assert not torch.equal(after["generator.dense.weight"], before["generator.dense.weight"])
    assert "starting with the weights of source, iteration 3\n" in capsys.readouterr().err
    assert Run(tmp_path / "run").config().origin == str(source)


def test_the_length_taken_from_the_other_run_and_how_to_change_it_are_said(source, tmp_path, capsys):
    config = configured(tmp_path / "animals", "train.ema=0.9", "train.iterations=3")
    plan = dry_run(config, tmp_path / "run", origin=source)
    start(config, tmp_path / "run", origin=source)
    passes = 3 * config.train.critic_steps * config.train.batch / 12
    length = f"3 iterations of {config.train.critic_steps} + 1 updates, {passes:.1f} passes over the data"
    assert f"\ntraining for {length}; --iterations N sets another length\n" in capsys.readouterr().err
    assert plan["training"] == f"{config.train.loss}, {length}; --iterations N sets another length"
    assert "--iterations" not in dry_run(config, tmp_path / "other")["training"]


def test_averages_that_the_other_run_did_not_have_are_not_missed(source, tmp_path, capsys):
    config = configured(tmp_path / "animals", "train.lecam=0.3", "train.ema=0.9", "train.iterations=1")
    start(config, tmp_path / "run", origin=source)
    assert "not taken over" not in capsys.readouterr().err


def test_a_class_of_the_same_name_keeps_its_coloring_and_another_starts_as_the_mean(source, tmp_path, capsys):
    photos = write_photos(tmp_path / "pets", "dog", "hamster")
    start(configured(photos, "train.iterations=1"), tmp_path / "run", origin=source)
    before, first = last_tensors(Run(source)), first_tensors(tmp_path / "run")
    embedding = "discriminator.head.embedding.parametrizations.weight.original"
    for key in ("generator.blocks.0.norm1.class_weight", "generator.blocks.0.norm2.class_bias", embedding):
        assert torch.equal(first[key][0], before[key][1]), key
        torch.testing.assert_close(first[key][1], before[key].mean(0))
    assert "iteration 3; 1 new class starts as the mean of the old\n" in capsys.readouterr().err


def test_what_cannot_be_taken_over_is_named_in_one_message(source, tmp_path, capsys):
    photos = write_photos(tmp_path / "grey", "cat", "dog", "owl", channels=1)
    start(configured(photos, "train.iterations=1"), tmp_path / "run", origin=source)
    said = capsys.readouterr().err
    assert "; not taken over: conv of the generator and blocks.0 of the discriminator\n" in said
    key = "generator.dense.weight"
    assert torch.equal(first_tensors(tmp_path / "run")[key], last_tensors(Run(source))[key])


def test_a_shipped_generator_is_an_origin_by_its_name(tmp_path, capsys, monkeypatch):
    from wcgan.paper.presets import find_config

    settings = ["train.iterations=1", "train.batch=4", "train.generator_batch=4", "train.device=cpu"]
    photos = write_photos(tmp_path / "letters", "3", "a", side=16, channels=1)
    config = find_config(origin="digits-cWC_sa", data=str(photos), settings=settings)
    assert (config.generator.normalization, config.data.resolution) == ("cWC_sa", 16)
    start(config, tmp_path / "run", origin="digits-cWC_sa")
    said = capsys.readouterr().err
    assert "starting with the weights of digits-cWC_sa, iteration" in said
    assert "not taken over: " in said
    assert "the discriminator" in said
    assert Run(tmp_path / "run").config().origin == "digits-cWC_sa"


def test_a_fine_tuned_run_that_is_resumed_does_not_start_from_the_origin_again(source, tmp_path):
    config = configured(tmp_path / "animals", "train.ema=0.9")
    start(config, tmp_path / "run", origin=source, stop_at=2)
    middle = last_tensors(Run(tmp_path / "run"))
    start(config, tmp_path / "run", resume=True, origin=source, stop_at=2)
    assert torch.equal(last_tensors(Run(tmp_path / "run"))["generator.dense.weight"], middle["generator.dense.weight"])
    assert go_on(tmp_path / "run").iteration == 3


def test_killed_before_its_first_checkpoint_and_resumed_a_run_has_the_weights_of_its_origin(
    source, tmp_path, monkeypatch
):
    config = configured(tmp_path / "animals", "train.ema=0.9", "train.iterations=1")
    monkeypatch.setattr(sys.modules["wcgan.train.start"], "save_checkpoint", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        start(config, tmp_path / "run", origin=source)
    monkeypatch.undo()
    with Run(tmp_path / "run").owned(), pytest.raises(ValueError, match=r"is in use by process \d+"):
        go_on(tmp_path / "run")
    assert dry_run(config, tmp_path / "run", resume=True)["weights"] == "start as those of source, iteration 3"
    go_on(tmp_path / "run")
    before, first = last_tensors(Run(source)), first_tensors(tmp_path / "run")
    assert [key for key in first if not torch.equal(first[key], before[key])] == []


def test_while_it_trains_a_run_keeps_no_second_copy_of_the_weights_of_its_origin(source, tmp_path, monkeypatch):
    module, kept = sys.modules["wcgan.train.start"], []

    def take(*arguments):
        weights = take_weights(*arguments)
        kept.append(weakref.ref(weights.players.generator))
        return weights

    def trains(*arguments):
        gc.collect()
        return [reference() for reference in kept]

    monkeypatch.setattr(module, "take_weights", take)
    monkeypatch.setattr(module, "train", trains)
    assert start(configured(tmp_path / "animals", "train.ema=0.9"), tmp_path / "run", origin=source) == [None]


def test_networks_that_share_nothing_are_refused_and_leave_no_folder(source, tmp_path):
    other = (
        "generator.widths=[6, 6]",
        "generator.noise=9",
        "discriminator.widths=[6, 6, 6]",
        "generator.normalization=cBN",
    )
    photos = write_photos(tmp_path / "grey", "cat", "dog", channels=1)
    with pytest.raises(ValueError, match=r"no weight in .* fits the generator"):
        start(configured(photos, *other), tmp_path / "run", origin=source)
    assert not (tmp_path / "run").exists()


def test_rows_of_classes_without_names_are_their_mean():
    assert rows_by_class(torch.tensor([[1.0], [3.0]]), [], ["a"]).tolist() == [[2.0]]
