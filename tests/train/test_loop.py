"""The loop: what it writes and when."""

import copy
import json
import sys
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from PIL import Image
from tests.train.cases import (
    different,
    iterate,
    last_tensors,
    of_kind,
    run_to_end,
    snapshot,
    tiny_batches,
    tiny_config,
    tiny_data,
    tiny_players,
    tiny_run,
)

from wcgan.core.device import find_hardware
from wcgan.core.processes import Rank
from wcgan.runs.checkpoint import read_checkpoint, read_newest
from wcgan.runs.sampler import load_generator
from wcgan.train import Callback, Custom
from wcgan.train import gan as module
from wcgan.train.batches import check_shares
from wcgan.train.gan import train
from wcgan.train.loop import DivergedError, first_words


def test_a_run_ends_at_its_last_iteration(tmp_path):
    run, outcome = run_to_end(tmp_path)
    assert (outcome.iteration, outcome.stopped_by, outcome.first_process) == (6, None, True)
    assert [line["what"] for line in of_kind(run, "event")] == ["started", "finished"]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_is_its_iterations_one_after_another(precision, tmp_path):
    averaged = {"ema": 0.5, "ema_statistics": "recomputed"}
    config = tiny_config(iterations=3, critic_steps=2, learning_rate=0.01, precision=precision, **averaged)
    config = replace(config, data=replace(config.data, flip=True))
    run, players, dtype = tiny_run(tmp_path / "run", config), tiny_players(config), getattr(torch, precision)
    train(config, tiny_data(), run)
    for iteration in range(3):
        iterate(players, config, iteration, dtype=dtype)
    module.make_refresh(players, tiny_batches(config), dtype)(3)
    assert different(last_tensors(run), snapshot(players)) == []


def test_a_line_of_metrics_says_losses_rate_images_and_time(tmp_path):
    run, _ = run_to_end(tmp_path, critic_steps=2, learning_rate=0.5, iterations=4)
    lines = of_kind(run, "train")
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4]
    assert [line["learning_rate"] for line in lines] == [0.5, 0.375, 0.25, 0.125]
    assert [line["images"] for line in lines] == [8, 16, 24, 32]
    assert {"loss/discriminator", "loss/generator", "seconds"} <= set(lines[0])
    assert lines[-1]["iterations_per_second"] > 0


def test_batches_that_need_more_shrinkage_are_counted_and_said_once(tmp_path, capsys):
    few = tiny_config(batch=2, generator_batch=2, iterations=4, log_every=2)  # two positions for four channels
    few = replace(few, generator=replace(few.generator, base=1, widths=(4, 4, 4), options={"eps": 0.0}))
    run = tiny_run(tmp_path / "run", few)
    train(few, tiny_data(), run)
    lines = of_kind(run, "retried")
    assert [line["iteration"] for line in lines] == [2, 4]
    for line in lines:  # two iterations of one update each
        assert line["layers"]["generator.blocks.0.norm1"] == 4
        assert line["batches"] == sum(line["layers"].values())
    said = [line for line in capsys.readouterr().err.splitlines() if "extra shrinkage" in line]
    assert len(said) == 1
    assert said[0].startswith("iteration 2: generator.blocks.0.norm1 cannot whiten a batch")


def test_a_run_whose_batches_can_be_whitened_says_nothing_of_shrinkage(tmp_path, capsys):
    run, _ = run_to_end(tmp_path)
    assert of_kind(run, "retried") == []
    assert "shrinkage" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("every", "saved", "expected"), [(1, 100, [1, 2, 3, 4, 5]), (2, 100, [2, 4, 5]), (9, 100, [5]), (9, 3, [3, 5])]
)
def test_metrics_are_written_every_so_often_with_checkpoints_and_at_the_end(every, saved, expected, tmp_path):
    run, _ = run_to_end(tmp_path, iterations=5, log_every=every, checkpoint_every=saved)
    assert [line["iteration"] for line in of_kind(run, "train")] == expected


def test_checkpoints_are_written_every_so_often_and_at_the_end_and_the_last_kept(tmp_path):
    run, _ = run_to_end(tmp_path, iterations=7, checkpoint_every=2, keep_checkpoints=2)
    assert sorted(p.name for p in run.checkpoints.glob("*.json")) == ["0000006.json", "0000007.json"]
    facts = read_newest(run.checkpoints).facts
    assert (facts["iteration"], facts["classes"], facts["data"]) == (7, ["a", "b", "c"], "tiny")


def test_grids_are_written_every_so_often_and_at_the_end(tmp_path):
    run, _ = run_to_end(tmp_path, iterations=5, sample_every=2)
    assert sorted(path.name for path in run.samples.iterdir()) == ["0000002.png", "0000004.png", "0000005.png"]
    with Image.open(run.samples / "0000005.png") as picture:
        # ten columns, a row for each of three classes, images of 8x8 shown eight times as large
        assert picture.size == (8 * (10 * 10 + 2), 8 * (3 * 10 + 2))


def test_no_grid_is_written_where_none_is_asked_for(tmp_path):
    run, _ = run_to_end(tmp_path, sample_every=0)
    assert not run.samples.exists()


def test_measuring_leaves_the_weights_alone(tmp_path):
    looked_at, _ = run_to_end(tmp_path / "a", lambda sampler: {"x": float(sampler.sample(3).sum())}, sample_every=1)
    alone, _ = run_to_end(tmp_path / "b")
    assert different(last_tensors(looked_at), last_tensors(alone)) == []


def test_tensorboard_has_every_scalar_to_the_last_iteration(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run, _ = run_to_end(tmp_path, lambda sampler: {"FID(classifier)": 2.0}, sample_every=3)
    events = EventAccumulator(str(run.folder)).Reload()
    assert [event.step for event in events.Scalars("loss/generator")] == [1, 2, 3, 4, 5, 6]
    assert [event.step for event in events.Scalars("FID(classifier)")] == [6]
    assert [event.step for event in events.Images("samples")] == [3, 6]


def test_tensorboard_has_every_iteration_of_a_resumed_run_once(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    class Interrupt(Callback):
        def on_metrics(self, iteration, values):
            if iteration == 3:
                raise KeyboardInterrupt

    config = tiny_config()  # with checkpoints after 2, 4 and 6
    run = tiny_run(tmp_path / "run", config)
    with pytest.raises(KeyboardInterrupt):
        train(config, tiny_data(), run, custom=Custom([Interrupt()]))
    train(config, tiny_data(), run)
    events = EventAccumulator(str(run.folder)).Reload()
    assert [event.step for event in events.Scalars("loss/generator")] == [1, 2, 3, 4, 5, 6]


def test_channels_last_and_half_precision_train(tmp_path):
    _, outcome = run_to_end(tmp_path, channels_last="yes", precision="bfloat16", iterations=2)
    assert outcome.iteration == 2


@pytest.mark.parametrize(
    ("compiled", "ending"), [(False, ""), (True, "; compiling the networks first: a minute or two")]
)
def test_the_first_words_say_what_it_runs_on_and_why_nothing_moves_yet(compiled, ending):
    hardware = find_hardware(tiny_config(device="cpu", compile="yes" if compiled else "no").train)
    assert first_words(hardware) == f"training on {hardware.describe()['device']}{ending}"


def test_the_first_words_count_the_processes(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert first_words(find_hardware(tiny_config(device="cpu").train)).startswith("training on 2 \u00d7 CPU, ")


# Evaluation


def scores(*values):
    """An evaluator that gives these distances one after the other."""
    remaining = list(values)
    return lambda sampler: {"FID(classifier)": remaining.pop(0), "protocol": {"features": "classifier"}}


def test_evaluation_runs_every_so_often_and_at_the_end(tmp_path):
    run, _ = run_to_end(tmp_path, scores(3.0, 2.0, 1.0), iterations=5, evaluate_every=2)
    found = [(line["iteration"], line["FID(classifier)"]) for line in of_kind(run, "evaluation")]
    assert found == [(2, 3.0), (4, 2.0), (5, 1.0)]
    assert of_kind(run, "evaluation")[0]["protocol"] == {"features": "classifier"}


def test_evaluation_runs_at_the_end_where_no_other_is_asked_for(tmp_path):
    run, _ = run_to_end(tmp_path, scores(3.0), evaluate_every=0)
    assert [line["iteration"] for line in of_kind(run, "evaluation")] == [6]


def test_a_failed_evaluation_loses_no_training(tmp_path):
    def fails(sampler):
        raise RuntimeError("no memory for the features")

    with pytest.raises(RuntimeError, match="features"):
        run_to_end(tmp_path, fails, evaluate_every=4, checkpoint_every=100)
    (checkpoint,) = tmp_path.rglob("0000004.json")
    assert read_checkpoint(checkpoint.with_suffix("")).facts["iteration"] == 4


def test_the_best_by_distance_is_kept_whatever_comes_later(tmp_path):
    run, _ = run_to_end(tmp_path, scores(5.0, 2.0, 7.0), evaluate_every=2, keep_checkpoints=1)
    best = read_checkpoint(run.checkpoints / "best")
    assert (best.facts["iteration"], best.facts["FID(classifier)"]) == (4, 2.0)
    assert load_generator(run.folder, "best").class_names == ("a", "b", "c")
    assert sorted(path.stem for path in run.checkpoints.glob("*.json")) == ["0000006", "best"]
    assert not torch.equal(best.tensors["generator.conv.weight"], last_tensors(run)["generator.conv.weight"])


def test_the_best_is_that_of_the_average_where_there_is_one(tmp_path):
    run, _ = run_to_end(tmp_path, scores(5.0), ema=0.5)
    best, last = read_checkpoint(run.checkpoints / "best").tensors, last_tensors(run)
    assert torch.equal(best["generator.conv.weight"], last["average.conv.weight"])
    drawn = [load_generator(run.folder, which).sample(4) for which in ("best", "last")]
    assert torch.equal(*drawn)


def test_the_best_before_a_stop_counts_after_it(tmp_path):
    config = tiny_config(iterations=4, evaluate_every=2)
    run = tiny_run(tmp_path / "run", config)

    def killed(sampler):
        raise KeyboardInterrupt

    values = scores(2.0)
    with pytest.raises(KeyboardInterrupt):
        train(config, tiny_data(), run, lambda s: values(s) if len(of_kind(run, "evaluation")) == 0 else killed(s))
    train(config, tiny_data(), run, scores(3.0))
    assert read_checkpoint(run.checkpoints / "best").facts["iteration"] == 2
    assert [line["FID(classifier)"] for line in of_kind(run, "evaluation")] == [2.0, 3.0]


def test_every_line_of_metrics_is_json_of_its_own(tmp_path):
    run, _ = run_to_end(tmp_path, scores(1.0))
    for line in run.metrics.read_text().splitlines():
        assert {"kind", "iteration"} <= set(json.loads(line))


# Several processes


@pytest.fixture
def as_process(monkeypatch):
    """Trains as if this process were the given one of several."""

    def install(rank):
        monkeypatch.setattr(sys.modules["wcgan.train.loop"], "join_processes", lambda device: nullcontext(rank))

    return install


def test_another_process_than_the_first_writes_nothing_and_evaluates_the_same(tmp_path, as_process):
    class Second(Rank):
        first = False

    def train_as(rank, folder):
        seen = []

        def evaluator(sampler):
            seen.append(copy.deepcopy(sampler.network.state_dict()))
            return {"FID": 1.0}

        as_process(rank)
        run, _ = run_to_end(folder, evaluator, evaluate_every=2, ema=0.5, ema_statistics="recomputed")
        return run, seen

    (_, expected), (run, seen) = train_as(Rank(), tmp_path / "a"), train_as(Second(), tmp_path / "b")
    assert [different(one, other) for one, other in zip(expected, seen, strict=True)] == [[], [], []]
    assert [path.name for path in run.folder.iterdir()] == ["config.yaml"]


def test_a_loss_that_is_not_finite_in_another_process_ends_this_one_too(tmp_path, as_process, monkeypatch):
    began = []
    iterate = module.train_iteration
    monkeypatch.setattr(module, "train_iteration", lambda *a, **b: began.append(1) or iterate(*a, **b))

    class Other(Rank):
        def any(self, flag):
            return flag or len(began) == 2

    as_process(Other())
    with pytest.raises(DivergedError, match=r"^a loss is no longer finite at iteration 2"):
        run_to_end(tmp_path)


def test_a_batch_that_cannot_be_shared_equally_is_said():
    with pytest.raises(ValueError, match=r"train\.batch=4 cannot be shared equally by 3 processes"):
        check_shares(tiny_config(), Rank(0, 3))
    with pytest.raises(ValueError, match=r"train\.generator_batch=4 cannot be shared equally by 3 processes"):
        check_shares(tiny_config(batch=6), Rank(0, 3))
