"""Runs that go on: from any directory, with moved data, for longer; and what a run may not change."""

import os
import shutil

import pytest
from tests.data.cases import random_images, save
from tests.train.cases import different, last_tensors
from tests.train.test_start import configured

from wcgan.runs.folder import Run
from wcgan.runs.status import RunStatus, metrics_to_status
from wcgan.train.start import go_on, start
from wcgan.train.start_classifier import go_on_with_classifiers, start_classifiers


def write_photos(folder, seed=0, count=8):
    for number, image in enumerate(random_images(count, 3, 8, seed=seed)):
        save(folder / ("cat", "dog")[number % 2] / f"{number}.png", image)
    return folder


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of three iterations, begun in the folder above its pictures with a relative path."""
    write_photos(tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    start(configured("photos", "data.resolution=8"), tmp_path / "run")
    return Run(tmp_path / "run")


def everything(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_begun_with_a_relative_path_is_resumed_from_another_directory(run, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert go_on(run.folder).iteration == 3
    assert run.config().data.name == str(tmp_path / "photos")


def test_a_moved_run_is_pointed_to_its_data_and_remembers_the_place(run, tmp_path, capsys):
    shutil.move(tmp_path / "photos", tmp_path / "moved")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"the images of .*run are no longer in .*photos: --resume --data FOLDER"):
            go_on(run.folder)
        (tmp_path / "photos").touch()  # a file in their place
    assert go_on(run.folder, data="moved", settings=["train.iterations=4"]).iteration == 4
    config = run.config()
    assert (config.data.name, config.data.resolution) == (str(tmp_path / "moved"), 8)
    assert f"data.name is now {tmp_path}/moved (was {tmp_path}/photos)" in capsys.readouterr().err
    assert go_on(run.folder).iteration == 4


def test_other_images_in_place_of_the_runs_own_are_refused_and_nothing_is_written(run, tmp_path):
    write_photos(tmp_path / "others", seed=1)
    before = everything(run.folder)
    with pytest.raises(ValueError, match=r"the images of others are not those that .*run was trained on"):
        go_on(run.folder, data="others")
    assert everything(run.folder) == before


def test_images_that_a_run_has_learnt_from_cannot_be_kept_out_later(tmp_path):
    start(configured(write_photos(tmp_path / "photos", count=20)), tmp_path / "run")
    with pytest.raises(ValueError, match=r"was begun with another config \(data\.held_out is False, not True\)"):
        go_on(tmp_path / "run", settings=["data.held_out=true"])


def test_another_resolution_is_refused_by_its_name_wherever_the_images_are(run, tmp_path):
    shutil.move(tmp_path / "photos", tmp_path / "moved")
    with pytest.raises(ValueError, match=r"was begun with another config \(data\.resolution is 8, not 16\)"):
        go_on(run.folder, data="moved", settings=["data.resolution=16"])


def test_a_finished_run_is_extended_to_what_one_of_that_length_with_the_same_schedule_is(run, tmp_path):
    longer = "train.iterations=5", "train.schedule_end=3"
    whole = configured("photos", "data.resolution=8", *longer)
    start(whole, tmp_path / "whole")
    assert go_on(run.folder, settings=longer).iteration == 5
    assert different(last_tensors(run), last_tensors(Run(tmp_path / "whole"))) == []
    events = [line["what"] for line in run.lines() if line["kind"] == "event"]
    assert events == ["started", "finished", "changed", "resumed", "finished"]


def test_a_run_that_is_to_go_on_is_no_longer_finished(run):
    lines = run.lines()
    assert metrics_to_status(lines, planned=3) is RunStatus.FINISHED
    assert metrics_to_status(lines, planned=5) is RunStatus.UNFINISHED
    stopped = [{"kind": "event", "iteration": 3, "what": what} for what in ("stopped", "changed")]
    assert metrics_to_status(stopped, planned=5) is RunStatus.STOPPED


def test_an_extension_that_was_killed_before_its_first_checkpoint_goes_on(run):
    config = run.folder / "config.yaml"
    config.write_text(config.read_text().replace("iterations: 3", "iterations: 4"))
    assert go_on(run.folder).iteration == 4


def test_what_a_run_writes_and_what_it_runs_on_may_change(run):
    changed = ["train.log_every=2", "train.sample_every=7", "train.keep_checkpoints=1", "train.precision=float32"]
    go_on(run.folder, settings=[*changed, "train.deterministic=true"])
    train = run.config().train
    assert (train.log_every, train.sample_every, train.keep_checkpoints, train.precision) == (2, 7, 1, "float32")
    assert train.deterministic


def test_a_refusal_names_the_differences_to_the_runs_own_config_and_only_those(run):
    before = everything(run.folder)
    message = r"was begun with another config \(train\.batch is 4, not 8\): a resumed run may change its length"
    with pytest.raises(ValueError, match=message):
        go_on(run.folder, settings=["train.batch=8", "train.iterations=9"])
    assert everything(run.folder) == before


def test_a_run_cannot_become_shorter_than_it_is(run):
    with pytest.raises(ValueError, match=r"train\.iterations=2 is less than the 3 iterations that .*run has"):
        go_on(run.folder, settings=["train.iterations=2"])
    assert run.config().train.iterations == 3


def test_a_config_is_not_changed_while_another_process_trains(run):
    with run.owned(), pytest.raises(ValueError, match=r"is in use by process \d+"):
        go_on(run.folder, settings=["train.iterations=5"])
    assert run.config().train.iterations == 3


def test_classifiers_are_extended_and_pointed_to_moved_data(tmp_path, monkeypatch):
    from tests.train.classifier_cases import tiny_config as tiny_classifier

    from wcgan.core.config import override
    from wcgan.runs.config import ClassifyConfig

    monkeypatch.chdir(tmp_path)
    for split in ("train", "test"):
        write_photos(tmp_path / "photos" / split)
    config = override(tiny_classifier(), ["data.name=photos"])
    start_classifiers(config, tmp_path / "run", seeds=2)
    os.rename("photos", "moved")
    longer = config.train.iterations + 1
    settings = [f"train.iterations={longer}"]
    assert go_on_with_classifiers(tmp_path / "run", data="moved", settings=settings).iteration == longer
    for seed in (0, 1):
        own = Run(tmp_path / "run" / f"seed-{seed}").config(ClassifyConfig)
        assert (own.data.name, own.train.seed) == (str(tmp_path / "moved"), seed)
