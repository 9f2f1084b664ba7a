"""A search: its ranges, its trials, early stopping, and a search that was killed."""

import math
import os
import signal
import subprocess
import sys

import pytest
from tests.train.test_start import TINY

from wcgan.paper.presets import configure
from wcgan.reproduce.tune import (
    Search,
    Trial,
    best_first,
    fid_at,
    open_study,
    suggest_new,
    text_to_search,
    trials_to_command,
    tune,
)
from wcgan.runs.folder import LOCK, Run

RATES = text_to_search("train.learning_rate=1e-4..1e-2")

pytestmark = pytest.mark.usefixtures("digits_at_hand")


def config_of(settings):
    return configure("digits/cWC", settings=[*TINY, "train.iterations=4", "train.checkpoint_every=1", *settings])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train.learning_rate = 1e-4..1e-3", Search("train.learning_rate", 1e-4, 1e-3)),
        ("train.critic_steps=1..5", Search("train.critic_steps", 1, 5)),
        ("train.augment=[[], [translation, cutout]]", Search("train.augment", choices=("[]", "[translation, cutout]"))),
        ("data.flip=[true, false]", Search("data.flip", choices=("true", "false"))),
    ],
)
def test_a_search_is_a_range_or_a_list(text, expected):
    search = text_to_search(text)
    assert search == expected
    assert type(search.low) is type(expected.low)
    config_of(search.ends[:1])


@pytest.mark.parametrize(
    "text", ["train.beta1", "beta1=0..1", "train.beta1=0.5", "train.beta1=[0.5]", "train.beta1=a..b"]
)
def test_anything_else_is_refused_with_the_two_forms(text):
    with pytest.raises(ValueError, match=r"--search takes section.field=low..high or section.field=\[choice, choice\]"):
        text_to_search(text)


def test_ends_in_the_wrong_order_are_said():
    with pytest.raises(ValueError, match="the lower end comes first"):
        text_to_search("train.beta1=0.9..0.5")


@pytest.fixture
def optuna():
    return pytest.importorskip("optuna")


def test_trials_are_runs_and_the_best_is_named(optuna, tmp_path):
    searches, said = [RATES, text_to_search("generator.normalization=[cWC, cBN]")], []
    trials, stopped_by = tune(config_of, searches, tmp_path / "tune", 4, rungs=2, say=said.append)
    assert stopped_by is None
    assert sorted(trial.number for trial in trials) == [0, 1, 2, 3]
    assert len(said) == 4
    assert all("FID(classifier)" in line for line in said)
    finished = [trial for trial in trials if trial.status == "finished"]
    assert len(finished) >= 3  # which are not compared with anything
    assert finished == sorted(finished, key=lambda trial: trial.fid)
    for trial in trials:
        folder = tmp_path / "tune" / f"trial-{trial.number}"
        assert (trial.score, trial.fid) == fid_at(folder, trial.iteration)
        settings = dict(setting.split("=") for setting in trial.settings)
        config = Run(folder).config()
        assert config.generator.normalization == settings["generator.normalization"]
        assert config.train.learning_rate == float(settings["train.learning_rate"])
    command = trials_to_command("digits/cWC", trials)
    assert command == f'wcgan train "digits/cWC" --set "{trials[0].settings[0]}" --set "{trials[0].settings[1]}"'


def test_settings_are_tried_once_and_the_search_ends_when_all_were(optuna, tmp_path):
    said, search = [], text_to_search("train.critic_steps=1..2")
    trials, _ = tune(config_of, [search], tmp_path / "tune", 5, rungs=1, say=said.append)
    assert sorted(trial.settings for trial in trials) == [("train.critic_steps=1",), ("train.critic_steps=2",)]
    assert said[-1] == "all settings of the search have been tried, with 2 of 5 trials"


def test_a_search_that_knows_the_best_of_many_choices_still_tries_the_others(optuna, tmp_path):
    search = text_to_search("train.critic_steps=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]")
    study, tried = open_study(optuna, tmp_path, {}, {}), []
    while found := suggest_new(optuna, study, [search]):
        trial, settings = found
        tried.append(settings[0])
        trial.set_user_attr("settings", settings)
        trial.report(float(trial.params[search.name]), 1)
        study.tell(trial, float(trial.params[search.name]))
    assert sorted(tried) == sorted(search.ends)
    assert type(study.sampler).__name__ == "TPESampler"
    assert all(trial.state.is_finished() for trial in study.trials)


@pytest.mark.parametrize(("text", "count"), [("a.b=[1, 2, 1]", 2), ("a.b=1..5", 5), ("a.b=1..5.0", math.inf)])
def test_the_settings_of_a_search_are_counted(text, count):
    assert text_to_search(text).count == count


def test_the_command_for_the_best_has_the_data_and_the_settings_of_the_search():
    best = Trial(0, ("train.beta2=0.99",), "finished", 4, 3.0)
    command = trials_to_command("folder", [best], "my pets", ["train.iterations=8"])
    assert command == """wcgan train "folder" --data 'my pets' --set "train.iterations=8" --set "train.beta2=0.99\""""


def test_trials_that_diverged_come_after_all_others():
    statuses = {"diverged": None, "stopped early": 9.0, "finished": 3.0}
    trials = [Trial(number, (), status, 4, fid) for number, (status, fid) in enumerate(statuses.items())]
    assert [trial.status for trial in best_first(trials)] == ["finished", "stopped early", "diverged"]


@pytest.mark.slow
def test_a_trial_behind_the_median_is_stopped_at_its_rung(optuna, tmp_path, monkeypatch):
    scores = iter([3.0, 1.0] * 3 + [9.0])  # three trials that finish, and one that is behind at its first rung
    monkeypatch.setattr("wcgan.reproduce.tune.fid_at", lambda folder, iteration: ("FID", next(scores)))
    trials, _ = tune(config_of, [RATES], tmp_path / "tune", 4, rungs=2, say=lambda line: None)
    assert [(trial.status, trial.iteration, trial.fid) for trial in trials][-1] == ("stopped early", 2, 9.0)
    assert max(line["iteration"] for line in Run(tmp_path / "tune" / "trial-3").lines()) == 2


@pytest.mark.slow
def test_a_search_that_was_killed_goes_on_with_the_trial_it_was_at(optuna, tmp_path):
    program = """
import os, signal
from tests.reproduce.test_tune import RATES, config_of
from wcgan.reproduce import tune as module
done, original = [], module.fid_at
def fid_at(folder, iteration):
    done.append(iteration)
    if len(done) == 2:  # the second rung of the first trial
        os.kill(os.getpid(), signal.SIGKILL)
    return original(folder, iteration)
module.fid_at = fid_at
from pathlib import Path
module.tune(config_of, [RATES], Path("tune"), 2, rungs=2)
"""
    places = os.pathsep.join(os.path.abspath(place) for place in (".", *sys.path) if place)
    killed = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": places}, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    before = (tmp_path / "tune" / "trial-0" / "metrics.jsonl").read_text()
    with pytest.raises(
        ValueError, match=r"exists already: name another folder \(--out\), or resume the search \(--resume\)"
    ):
        tune(config_of, [RATES], tmp_path / "tune", 2, rungs=2)
    trials, _ = tune(config_of, [RATES], tmp_path / "tune", 2, rungs=2, resume=True, say=lambda line: None)
    assert len(trials) == 2
    assert (tmp_path / "tune" / "trial-0" / "metrics.jsonl").read_text().startswith(before)
    folders = sorted(path.name for path in (tmp_path / "tune").glob("trial-*"))
    assert folders == ["trial-0", "trial-2"]  # the first went on as trial 1, in the folder it had
    with pytest.raises(ValueError, match="is a search with another search"):
        tune(config_of, [text_to_search("train.beta1=0.0..0.5")], tmp_path / "tune", 3, resume=True)


def test_a_search_goes_on_with_the_settings_that_it_began_with(optuna, tmp_path):
    def other(settings):
        return config_of(["train.iterations=2", *settings])

    (tmp_path / "tune").mkdir()
    (tmp_path / "tune" / LOCK).touch()  # of a process that was killed as it began
    tune(config_of, [RATES], tmp_path / "tune", 1, rungs=1, resume=True, say=lambda line: None)
    with pytest.raises(ValueError, match=r"is a search with other settings \(train\.iterations is 4, not 2\)"):
        tune(other, [RATES], tmp_path / "tune", 2, rungs=1, resume=True)


def test_without_optuna_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"a search is run by Optuna: pip install 'wcgan\[tune\]'"):
        tune(config_of, [RATES], tmp_path / "tune", 3)


def test_a_setting_that_the_config_refuses_is_said_before_anything_is_written(tmp_path):
    pytest.importorskip("optuna")
    with pytest.raises(ValueError, match=r"train.beta2 must be in \[0, 1\)"):
        tune(config_of, [text_to_search("train.beta2=0.5..1.5")], tmp_path / "tune", 3)
    assert not (tmp_path / "tune").exists()
