"""The time and disk that a table needs, from a short training of each row."""

import time
from dataclasses import replace

import pytest
import torch
from tests.reproduce.cases import tiny

from wcgan.reproduce.complete_run import Scorer
from wcgan.reproduce.estimate_cost import (
    Estimate,
    UnitCosts,
    estimate_cost,
    estimates_to_lines,
    measure_gan_costs,
    runs_to_estimate,
    warm_seconds_per_step,
)
from wcgan.reproduce.plan import plan_table
from wcgan.runs.folder import Run
from wcgan.train.start import start

SCORER = Scorer("classifier")
pytestmark = pytest.mark.usefixtures("digits_at_hand")


def planned(tmp_path, rows=("BN", "cWC"), **options):
    return plan_table("digits", rows, settings=tiny(40), out=tmp_path / "out", **options)


def test_a_step_is_timed_after_the_warm_up_and_neither_more_nor_less(monkeypatch):
    now, calls = 100.0, []

    def step(number):
        nonlocal now
        now += 5 if not calls else 0.25  # the first call compiles, and uses up the time to warm up
        calls.append(number)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert warm_seconds_per_step(step, torch.device("cpu"), seconds=0.6) == 0.25
    assert calls == [0, 0, 1, 2]  # no step begins after the time is up


def test_costs_are_those_of_the_runs_own_iterations_and_checkpoints(tmp_path, monkeypatch):
    (run,) = planned(tmp_path, rows=["cWC"]).runs
    monkeypatch.setattr(time, "monotonic", time.process_time)  # whatever else the machine does
    few, many = (
        measure_gan_costs(replace(run.config, train=replace(run.config.train, critic_steps=n)), SCORER, 0.1)
        for n in (1, 16)
    )
    assert many.seconds_per_iteration > 3 * few.seconds_per_iteration  # about 8 times as many updates
    start(run.config, tmp_path / "run", stop_at=4)
    newest = sorted((tmp_path / "run" / "checkpoints").glob("0*"))[-2:]
    assert few.checkpoint_bytes == pytest.approx(sum(path.stat().st_size for path in newest), rel=0.01)


def test_an_estimate_counts_training_evaluations_checkpoints_and_grids(tmp_path):
    runs = planned(tmp_path, rows=["BN"], seeds=2).runs
    taken = UnitCosts(seconds_per_iteration=2.0, seconds_per_image=0.01, checkpoint_bytes=1000, grid_bytes=10)
    row = runs_to_estimate(runs, SCORER, taken, small=True)
    assert (row.row.preset, row.iterations, row.seeds, row.done) == ("digits/BN", 40, 2, 0)
    assert row.seconds == pytest.approx(2 * (40 * 2.0 + 20 * 0.01))  # training's own evaluation is of 20 images
    assert row.bytes == 2 * (3 * 1000 + 2 * 6 * 10)


def test_a_run_that_was_stopped_has_less_left(tmp_path):
    (run,) = planned(tmp_path, rows=["BN"]).runs
    start(run.config, run.folder, stop_at=5)
    taken = UnitCosts(seconds_per_iteration=2.0, seconds_per_image=0.0, checkpoint_bytes=1, grid_bytes=0)
    assert runs_to_estimate([run], SCORER, taken, small=True).seconds == pytest.approx(35 * 2.0)


def test_a_finished_run_that_is_to_be_measured_has_no_evaluation_of_training_left(tmp_path):
    (run,) = plan_table("convergence", ["cifar10/WC SN + ResNet"], out=tmp_path).runs
    run = replace(run, config=replace(run.config, train=replace(run.config.train, iterations=7, evaluate_every=5)))
    finished = Run(run.folder)
    finished.folder.mkdir(parents=True)
    finished.record("train", 7)
    finished.event(7, "finished")
    taken = UnitCosts(seconds_per_iteration=1.0, seconds_per_image=1.0, checkpoint_bytes=0, grid_bytes=0)
    assert runs_to_estimate([run], Scorer("inception"), taken, small=True).seconds == 0


def test_the_images_of_every_protocol_are_part_of_the_time(tmp_path):
    taken = UnitCosts(seconds_per_iteration=0.0, seconds_per_image=1.0, checkpoint_bytes=0, grid_bytes=0)
    runs = plan_table("conditional", ["cifar10/cWC SN + Proj. Discr."], out=tmp_path).runs
    row = runs_to_estimate(runs, Scorer("inception"), taken)
    assert row.seconds == 25 * 10_000 + 50_000 + 5_000  # training's own, ten sets of 5,000, FID 5k
    runs = plan_table("convergence", ["cifar10/WC SN + ResNet"], out=tmp_path).runs
    assert runs_to_estimate(runs, Scorer("inception"), taken).seconds == 50 * 10_000 + 50_000


def test_a_table_is_estimated_row_by_row_and_nothing_is_written(quick_estimates, tmp_path):
    rows, notes = estimate_cost(planned(tmp_path))
    assert [row.row.preset for row in rows] == ["digits/BN", "digits/cWC"]
    assert all(row.seconds > 0 and row.bytes > 0 and not row.missing for row in rows)
    assert not (tmp_path / "out").exists()
    assert notes == [SCORER.note]


def test_a_row_that_cannot_be_trained_says_why(tmp_path):
    plan = plan_table("mnist", ["mnist/BN"], out=tmp_path / "out")
    ((row,), _) = estimate_cost(plan)
    assert "mnist is not in " in row.missing
    assert estimates_to_lines([row])[-1].startswith(
        "1 of 1 rows cannot be trained here and are left out of the sum: mnist is not in "
    )


def test_what_several_rows_lack_is_said_once(tmp_path):
    rows, _ = estimate_cost(plan_table("mnist", ["mnist"], out=tmp_path / "out"))
    lines = estimates_to_lines(rows)
    assert [line for line in lines if "mnist is not in " in line] == lines[-1:]
    assert lines[-1].startswith("4 of 4 rows cannot be trained here")
    assert lines[-2].split()[-5:] == ["0", "of", "4", "-", "-"]  # not 0 s, which would read as free


def test_lines_have_each_row_and_the_sum_in_80_columns():
    rows = plan_table("unconditional").table.rows
    estimates = [Estimate(row, 100_000, 3, 1, 3600.0 * n, 10**9 * n) for n, row in enumerate(rows, start=1)]
    lines = estimates_to_lines(estimates, ["a note"])
    assert " ".join(lines[1].split()) == "cifar10/GP + ResNet 100,000 1 of 3 1 h 1.0 GB"
    assert " ".join(lines[-2].split()) == "all, one run after another 12 of 36 3 d 6 h 78.0 GB"
    assert lines[-1] == "a note"
    assert max(map(len, lines)) <= 80
