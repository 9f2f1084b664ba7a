"""Curves of two ways to train, and the verdict on them."""

import json

import pytest
import torch
from tests.benchmarks.scripts import load_script

from wcgan.functional import _operators

curves = load_script("curves")
TINY = ["data.name=digits", "train.device=cpu", "train.batch=4", "train.generator_batch=4", "train.critic_steps=1"]
TINY += ["generator.widths=[4, 4, 4]", "discriminator.widths=[4, 4, 4]"]


def run(level, fid=None):
    return {"losses": {name: [level] * 20 for name in curves.LOSSES}, "FID": fid}


def test_smoothing_takes_means_of_neighbours():
    assert curves.smooth([1.0, 3.0, 5.0, 7.0], 2) == [2.0, 4.0, 6.0]
    assert curves.smooth([1.0, 3.0], 10) == [2.0]


def test_distance_is_the_mean_gap_of_two_curves():
    assert curves.distance([0.0, 0.0, 3.0], [0.0, 2.0, 2.0]) == pytest.approx((0 + 2 + 1) / 3)
    with pytest.raises(ValueError, match="shorter"):
        curves.distance([0.0, 0.0, 3.0], [0.0, 2.0])


@pytest.mark.parametrize(("level", "fid", "within"), [(1.5, 31.0, True), (3.0, 40.0, False)])
def test_the_kernels_are_within_the_noise_where_another_seed_is_as_far(level, fid, within):
    runs = dict(zip(curves.RUNS, (run(level, fid), run(1.0, 30.0), run(2.0, 32.0)), strict=True))
    verdict = curves.runs_to_verdict(runs)
    assert list(verdict) == [*curves.LOSSES, "FID"]
    assert all(found["within_noise"] is within for found in verdict.values())
    assert verdict["FID"]["kernels_to_plain"] == fid - 30
    assert verdict["FID"]["seed_to_seed"] == 2


def test_without_weights_there_is_no_verdict_on_fid():
    runs = dict(zip(curves.RUNS, (run(1.0), run(1.0), run(2.0)), strict=True))
    assert list(curves.runs_to_verdict(runs)) == list(curves.LOSSES)


def test_a_curve_is_kept_in_few_points_with_their_iterations():
    whole = {"iterations": list(range(10, 2010, 10)), "losses": {"loss": [float(i) for i in range(200)]}, "FID": 1.0}
    thin = curves.thin(whole, points=40)
    assert len(thin["iterations"]) == len(thin["losses"]["loss"]) == 39
    assert (thin["iterations"][0], thin["losses"]["loss"][0]) == (100, 4.5)
    assert thin["FID"] == 1.0


def test_runs_differ_in_passes_and_seed_as_they_say(monkeypatch, tmp_path):
    seen, train = [], curves.train

    def spy(config, *rest):
        seen.append((_operators._state["kernels"], config.train.seed, config.train.iterations))
        return train(config, *rest)

    monkeypatch.setattr(curves, "train", spy)
    settings = [part for setting in TINY for part in ("--set", setting)]
    curves.main(["--iterations", "20", "--out", str(tmp_path / "curves.json"), *settings])
    assert seen == [(True, 0, 20), (False, 0, 20), (False, 1, 20)]
    assert _operators._state["kernels"]
    report = json.loads((tmp_path / "curves.json").read_text())
    assert list(report["runs"]) == list(curves.RUNS)
    assert all(torch.tensor(r["losses"]["loss/generator"]).isfinite().all() for r in report["runs"].values())


def test_runs_that_are_there_stay_and_are_judged_with_a_new_one():
    levels = {name: [float(level)] for level, name in enumerate(curves.RUNS)}
    old = {name: {"losses": dict.fromkeys(curves.LOSSES, level), "FID": None} for name, level in levels.items()}
    known = {"preset": curves.PRESET, "iterations": 20, "runs": old}
    report = curves.measure_curves(20, settings=TINY, known=known, wants=lambda name: name == "kernels")
    new = report["runs"]["kernels"]
    assert new["iterations"] == [20]
    assert report["runs"] == {**old, "kernels": new}
    gaps = {name: found["kernels_to_plain"] for name, found in report["verdict"].items()}
    assert gaps == {name: abs(new["losses"][name][0] - 1) for name in curves.LOSSES}
    assert {found["seed_to_seed"] for found in report["verdict"].values()} == {1}


@pytest.mark.parametrize("other", [{"iterations": 10}, {"preset": "digits/WC"}])
def test_runs_of_another_length_or_preset_are_not_mixed(other):
    known = {"preset": curves.PRESET, "iterations": 20, "runs": {}, **other}
    with pytest.raises(ValueError, match=r"runs of .* are there, which cannot be judged with 20 of cifar10/WC SN"):
        curves.measure_curves(20, settings=TINY, known=known)
