"""A run that was stopped and resumed ends with the same bits as one that never was."""

import shutil
import signal
from dataclasses import replace

import pytest
import torch
from tests.train.cases import different, last_tensors, tiny_config, tiny_data, tiny_run

from wcgan.runs.checkpoint import CheckpointError, read_newest, write_checkpoint
from wcgan.runs.folder import Run, new_run, resumed_run
from wcgan.train import gan as module
from wcgan.train.batches import GanBatches
from wcgan.train.gan import train


class Killed(BaseException):
    """Stands in for SIGKILL: nothing handles it."""


@pytest.fixture
def at_iteration(monkeypatch):
    """Calls something right before an iteration is computed."""
    original = GanBatches.draw

    def install(number, action):
        def watched(batches, iteration):
            if iteration + 1 == number:
                action()
            return original(batches, iteration)

        monkeypatch.setattr(GanBatches, "draw", watched)

    return install


def kill():
    raise Killed


@pytest.fixture
def killed_at(at_iteration, tmp_path):
    """A new run of a config that is killed right before an iteration."""

    def train_until(moment, config):
        run = tiny_run(tmp_path / "run", config)
        at_iteration(moment, kill)
        with pytest.raises(Killed):
            train(config, tiny_data(labels=config.conditional), run)
        at_iteration(0, kill)
        return run

    return train_until


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    """A config -> its run, trained once for all tests, which leave it as it is."""
    runs = []

    def train_once(config):
        found = [run for known, run in runs if known == config]
        if not found:
            found = [tiny_run(tmp_path_factory.mktemp("whole") / "run", config)]
            assert train(config, tiny_data(labels=config.conditional), found[0]).stopped_by is None
            runs.append((config, found[0]))
        return found[0]

    return train_once


def train_lines(run):
    return [line["iteration"] for line in run.lines() if line["kind"] == "train"]


def events(run):
    return [line["what"] for line in run.lines() if line["kind"] == "event"]


@pytest.mark.parametrize("stop_at", [1, 3])
def test_stopped_where_it_was_told_and_resumed_every_bit_is_the_same(stop_at, tmp_path, never_stopped):
    config = tiny_config(ema=0.9, beta1=0.5)
    run = tiny_run(tmp_path / "run", config)
    outcome = train(config, tiny_data(), run, stop_at=stop_at)
    assert (outcome.iteration, outcome.stopped_by) == (stop_at, None)
    assert events(run) == ["started", "stopped"]
    assert read_newest(run.checkpoints).facts["iteration"] == stop_at
    assert train(config, tiny_data(), run, stop_at=stop_at).iteration == stop_at  # it is there already
    assert train(config, tiny_data(), run).iteration == config.train.iterations
    assert events(run) == ["started", "stopped", "resumed", "finished"]
    assert not different(last_tensors(run), last_tensors(never_stopped(config)))


def test_with_every_option_of_a_recipe_a_resumed_run_has_the_same_bits(tmp_path, never_stopped):
    config = tiny_config(
        augment=("color", "translation", "cutout"),
        augment_ramp=30,
        consistency=10.0,
        lecam=0.3,
        coloring_decay=0.1,
        class_rate=0.5,
        equal_classes=0.1,
        learning_rate_discriminator=1e-3,
        ema_half_life=8,
        ema_start=8,
        ema_statistics="recomputed",
    )
    config = replace(config, data=replace(config.data, flip=True))
    run = tiny_run(tmp_path / "run", config)
    train(config, tiny_data(), run, stop_at=3)
    train(config, tiny_data(), run)
    assert not different(last_tensors(run), last_tensors(never_stopped(config)))


def test_told_to_stop_past_its_end_a_run_finishes(tmp_path):
    config = tiny_config()
    run = tiny_run(tmp_path / "run", config)
    assert train(config, tiny_data(), run, stop_at=10**6).iteration == config.train.iterations
    assert events(run)[-1] == "finished"


def test_killed_right_after_its_last_checkpoint_and_resumed_a_run_is_finished(tmp_path):
    config = tiny_config()
    run = tiny_run(tmp_path / "run", config)
    train(config, tiny_data(), run)
    whole = run.metrics.read_bytes()
    run.metrics.write_bytes(whole[: whole.rindex(b"\n", 0, -1) + 1])
    assert events(run) == ["started"]
    assert not train(config, tiny_data(), run).trained
    assert events(run) == ["started", "finished"]


def test_an_iteration_to_stop_at_is_at_least_the_first(tmp_path):
    config = tiny_config()
    with pytest.raises(ValueError, match="--stop-at must be an iteration, at least 1, got 0"):
        train(config, tiny_data(), tiny_run(tmp_path / "run", config), stop_at=0)


@pytest.mark.parametrize(("number", "moment"), [(signal.SIGTERM, 1), (signal.SIGINT, 3), (signal.SIGTERM, 4)])
def test_stopped_by_a_signal_and_resumed_every_bit_is_the_same(number, moment, tmp_path, at_iteration, never_stopped):
    config = tiny_config(ema=0.9, beta1=0.5)
    run = tiny_run(tmp_path / "run", config)
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    at_iteration(moment, lambda: signal.raise_signal(number))
    outcome = train(config, tiny_data(), run)
    assert (outcome.iteration, outcome.stopped_by) == (moment, number)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert read_newest(run.checkpoints).facts["iteration"] == moment
    at_iteration(0, kill)
    assert train(config, tiny_data(), run).iteration == 6
    assert different(last_tensors(run), last_tensors(never_stopped(config))) == []
    assert events(run) == ["started", "stopped", "resumed", "finished"]
    assert train_lines(run) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("moment", [1, 3, 4, 6])
def test_killed_and_resumed_every_bit_is_the_same(moment, never_stopped, killed_at):
    config = tiny_config("WC", "plain", loss="wasserstein", gradient_penalty=10.0, critic_steps=2)
    run = killed_at(moment, config)
    train(config, tiny_data(labels=False), run)
    whole = never_stopped(config)
    assert different(last_tensors(run), last_tensors(whole)) == []
    assert train_lines(run) == train_lines(whole) == [1, 2, 3, 4, 5, 6]


def test_a_killed_runs_metrics_are_those_of_one_never_stopped(never_stopped, killed_at):
    config = tiny_config(iterations=9, log_every=2, checkpoint_every=4)
    run = killed_at(8, config)
    assert train_lines(run) == [2, 4, 6]
    train(config, tiny_data(), run)
    keys = ("iteration", "loss/discriminator", "loss/generator", "learning_rate", "images")
    measured, expected = (
        [[line[key] for key in keys] for line in r.lines() if line["kind"] == "train"]
        for r in (run, never_stopped(config))
    )
    assert measured == expected
    assert [row[0] for row in measured] == [2, 4, 6, 8, 9]


def test_a_last_line_that_was_cut_short_is_left_out(killed_at):
    config = tiny_config()
    run = killed_at(2, config)
    with run.metrics.open("a") as file:
        file.write('{"kind": "train", "iterat')
    train(config, tiny_data(), run)
    assert train_lines(run) == [1, 2, 3, 4, 5, 6]
    assert events(run) == ["started", "started", "finished"]


def test_a_finished_run_is_left_as_it_is(never_stopped, monkeypatch):
    config = tiny_config()
    run = never_stopped(config)
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    monkeypatch.setattr(module, "train_iteration", kill)
    outcome = train(config, tiny_data(), run)
    assert (outcome.iteration, outcome.stopped_by) == (6, None)
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before


def test_a_damaged_newest_checkpoint_is_said_and_the_one_before_taken(capsys, never_stopped, killed_at):
    config = tiny_config()
    run = killed_at(5, config)
    newest = run.checkpoints / "0000004.safetensors"
    newest.write_bytes(newest.read_bytes()[:-7])
    train(config, tiny_data(), run)
    said = capsys.readouterr().err
    assert "passed over a damaged checkpoint: 0000004" in said
    assert "going on from 0000002.safetensors" in said
    assert different(last_tensors(run), last_tensors(never_stopped(config))) == []
    assert train_lines(run) == [1, 2, 3, 4, 5, 6]


def test_where_no_checkpoint_can_be_read_nothing_is_trained_or_lost(tmp_path, never_stopped):
    config = tiny_config()
    run = Run(shutil.copytree(never_stopped(config).folder, tmp_path / "run"))
    for path in run.checkpoints.glob("*.safetensors"):
        path.write_bytes(b"")
    lines = run.metrics.read_bytes()
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be read"):
        train(config, tiny_data(), run)
    assert run.metrics.read_bytes() == lines


def test_a_stop_after_a_fall_back_keeps_as_many_checkpoints_that_can_be_read(at_iteration, killed_at):
    config = tiny_config(keep_checkpoints=2)
    run = killed_at(5, config)
    (run.checkpoints / "0000004.json").write_text("{}")
    at_iteration(3, lambda: signal.raise_signal(signal.SIGTERM))
    train(config, tiny_data(), run)
    assert [read_newest(run.checkpoints, at_most).facts["iteration"] for at_most in (3, 2)] == [3, 2]


def test_a_resumed_run_keeps_its_clock(killed_at):
    config = tiny_config()
    run = killed_at(3, config)
    train(config, tiny_data(), run)
    seconds = [line["seconds"] for line in run.lines() if line["kind"] == "train"]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0


def test_networks_that_no_longer_fit_the_checkpoint_are_said_to(tmp_path, never_stopped):
    run = Run(shutil.copytree(never_stopped(tiny_config()).folder, tmp_path / "run"))
    changed = tiny_config(ema=0.9, iterations=8)
    with pytest.raises(CheckpointError, match=r"0000006\.safetensors does not fit the run's config"):
        train(changed, tiny_data(), run)


# The folder


def test_a_folder_that_holds_anything_is_never_begun_in(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(
        ValueError, match=r"exists already: name another folder \(--out\), or resume the run \(--resume\)"
    ):
        new_run(tmp_path, tiny_config())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(ValueError, match="exists already"):
        new_run(tmp_path / "mine.txt", tiny_config())


def test_an_empty_folder_may_be_begun_in(tmp_path):
    assert new_run(tmp_path, tiny_config()).config() == tiny_config()


def test_a_run_is_resumed_with_its_own_config(tmp_path):
    tiny_run(tmp_path / "run", tiny_config(seed=5))
    run, config = resumed_run(tmp_path / "run")
    assert config == tiny_config(seed=5)
    assert resumed_run(tmp_path / "run", tiny_config(seed=5))[0].folder == run.folder


def test_another_config_is_refused_with_each_difference(tmp_path):
    tiny_run(tmp_path / "run", tiny_config(seed=5))
    message = (
        r"generator\.normalization is cWC, not WC; train\.seed is 5, not 6\): "
        "begin a new run with another --out"
    )
    with pytest.raises(ValueError, match=message):
        resumed_run(tmp_path / "run", tiny_config("WC", seed=6))


def test_what_is_not_a_run_is_said_to_be_none(tmp_path):
    with pytest.raises(ValueError, match="nowhere is not there; name the folder of a run"):
        resumed_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"is not the folder of a run: it has no config\.yaml"):
        resumed_run(tmp_path)


def test_the_config_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    def fail(*arguments):
        raise Killed

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(Killed):
        new_run(tmp_path, tiny_config())
    assert not (tmp_path / "config.yaml").exists()


def test_the_global_randomness_plays_no_part(tmp_path, at_iteration, never_stopped):
    config = tiny_config()
    whole = never_stopped(config)
    run = tiny_run(tmp_path / "run", config)
    at_iteration(3, lambda: torch.manual_seed(123))
    train(config, tiny_data(), run)
    assert different(last_tensors(run), last_tensors(whole)) == []


def test_other_images_than_the_run_was_trained_on_are_refused_and_nothing_changes(tmp_path, at_iteration):
    config = tiny_config()
    run = tiny_run(tmp_path / "run", config)
    at_iteration(3, lambda: signal.raise_signal(signal.SIGTERM))
    train(config, tiny_data(), run)
    lines = run.metrics.read_bytes()
    with pytest.raises(ValueError, match=r"images of tiny are not those that .* was trained on"):
        train(config, replace(tiny_data(), fingerprint="other"), run)
    assert run.metrics.read_bytes() == lines


def test_an_iteration_that_float32_cannot_tell_from_the_next_is_gone_on_from(tmp_path):
    late = 2**24 + 1
    config = tiny_config(iterations=late + 1)
    run = tiny_run(tmp_path / "run", config)
    train(config, tiny_data(), run, stop_at=2)
    found = read_newest(run.checkpoints)
    write_checkpoint(run.checkpoints, str(late), found.tensors, {**found.facts, "iteration": late})
    assert train(config, tiny_data(), run).iteration == late + 1
