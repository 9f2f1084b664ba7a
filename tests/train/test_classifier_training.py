"""Classifiers in the loop: run folders, resumption bit for bit, seeds side by side."""

import json
from dataclasses import replace

import pytest
import torch
from tests.train.classifier_cases import CPU, new_runs, seeded, tiny_config, tiny_splits

from wcgan.runs.checkpoint import CheckpointError, read_newest
from wcgan.runs.config import ClassifyConfig
from wcgan.runs.sampler import load_generator
from wcgan.train import classifier as module
from wcgan.train.classifier import (
    ClassifierBatches,
    build_learner,
    classifier_step,
    measure_error,
    train_classifiers,
)
from wcgan.train.learner import learner_to_tensors, set_learning_rate
from wcgan.train.loop import DivergedError
from wcgan.train.start_classifier import load_classifier


def run_seeds(folder, seeds=(0,), stop_at=None, **train):
    configs = seeded(tiny_config(**train), seeds)
    runs = new_runs(folder, configs)
    outcome = train_classifiers(configs, *tiny_splits(), runs, stop_at)
    return runs, configs, outcome


def last_tensors(run):
    return read_newest(run.checkpoints).tensors


def same(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def lines_of(run, kind):
    return [line for line in run.lines() if line["kind"] == kind]


def test_a_run_writes_what_a_reader_needs(tmp_path):
    (run,), (config,), outcome = run_seeds(tmp_path, iterations=6, evaluate_every=4)
    assert outcome.iteration == 6
    assert run.config(ClassifyConfig) == config
    lines = lines_of(run, "train")
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert {"loss/training", "error/training", "seconds"} <= lines[0].keys()
    assert [line["images"] for line in lines] == [8 * n for n in range(1, 7)]
    assert [line["learning_rate"] for line in lines] == pytest.approx([0.1] * 4 + [0.01] * 2)
    evaluations = lines_of(run, "evaluation")
    assert [line["iteration"] for line in evaluations] == [4, 6]
    reference = {"dataset": "tiny", "split": "test", "images": 7, "of": 7}
    assert evaluations[-1]["protocol"] == {"name": "test split", "reference": reference}
    assert [event["what"] for event in lines_of(run, "event")] == ["started", "finished"]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_is_its_updates_one_after_another(precision, tmp_path):
    (run,), (config,), _ = run_seeds(tmp_path, iterations=6, drops=(2, 4), warm_up=1, precision=precision)
    training, _ = tiny_splits()
    learner, batches = build_learner(config, training.images, CPU), ClassifierBatches(training, config.train, CPU)
    for iteration, rate in enumerate([0.01, 0.1, 0.01, 0.01, 0.001, 0.001]):
        set_learning_rate(learner.optimizer, rate)
        classifier_step(learner, batches.draw(iteration), getattr(torch, precision))
    torch.testing.assert_close(last_tensors(run), learner_to_tensors(learner), rtol=1e-5, atol=1e-7)


def test_the_error_is_that_of_the_last_checkpoint(tmp_path):
    (run,), (config,), _ = run_seeds(tmp_path)
    training, test = tiny_splits()
    learner = build_learner(config, training.images, CPU)
    for name, network in learner.networks.items():
        prefix = f"{name}."
        tensors = {k.removeprefix(prefix): v for k, v in last_tensors(run).items() if k.startswith(prefix)}
        network.load_state_dict(tensors)
    assert lines_of(run, "evaluation")[-1]["error"] == measure_error(learner, test, CPU)["error"].item()


def test_seeds_side_by_side_are_each_seed_alone(tmp_path):
    together, *_ = run_seeds(tmp_path / "together", (3, 5, 4), evaluate_every=2)
    for run, seed in zip(together, (3, 5, 4), strict=True):
        (alone,), *_ = run_seeds(tmp_path / f"alone-{seed}", (seed,), evaluate_every=2)
        assert same(last_tensors(run), last_tensors(alone))
        for kind, name in (("train", "loss/training"), ("evaluation", "error")):
            assert [line[name] for line in lines_of(run, kind)] == [line[name] for line in lines_of(alone, kind)]
    assert not same(last_tensors(together[0]), last_tensors(together[1]))


@pytest.mark.parametrize("stop_at", [1, 3, 4])
def test_a_resumed_run_has_the_same_bits(stop_at, tmp_path):
    whole, *_ = run_seeds(tmp_path / "whole", (0, 1))
    runs, configs, outcome = run_seeds(tmp_path / "parts", (0, 1), stop_at)
    assert outcome.iteration == stop_at
    assert train_classifiers(configs, *tiny_splits(), runs).iteration == 6
    for mine, theirs in zip(runs, whole, strict=True):
        assert same(last_tensors(mine), last_tensors(theirs))
        assert [line["loss/training"] for line in lines_of(mine, "train")] == [
            line["loss/training"] for line in lines_of(theirs, "train")
        ]


def test_seeds_that_were_killed_apart_go_on_from_where_all_of_them_were(tmp_path):
    whole, *_ = run_seeds(tmp_path / "whole", (0, 1))
    runs, configs, _ = run_seeds(tmp_path / "parts", (0, 1), stop_at=4)
    for suffix in (".safetensors", ".json"):  # as if killed before the second could save
        (runs[1].checkpoints / f"0000004{suffix}").unlink()
    train_classifiers(configs, *tiny_splits(), runs)
    for mine, theirs in zip(runs, whole, strict=True):
        assert same(last_tensors(mine), last_tensors(theirs))
        assert [line["iteration"] for line in lines_of(mine, "train")] == [1, 2, 3, 4, 5, 6]


def test_seeds_without_a_common_checkpoint_are_refused_and_nothing_is_lost(tmp_path):
    runs, configs, _ = run_seeds(tmp_path, (0, 1), stop_at=4)
    for suffix in (".safetensors", ".json"):
        (runs[1].checkpoints / f"0000004{suffix}").unlink()
        (runs[0].checkpoints / f"0000002{suffix}").unlink()
    before = [run.lines() for run in runs]
    with pytest.raises(ValueError, match=r"seed-0 has no checkpoint of iteration 2, which another run goes on from$"):
        train_classifiers(configs, *tiny_splits(), runs)
    assert [run.lines() for run in runs] == before


def test_a_finished_run_is_left_as_it_is(tmp_path):
    runs, configs, _ = run_seeds(tmp_path)
    before = runs[0].metrics.read_bytes()
    assert train_classifiers(configs, *tiny_splits(), runs).iteration == 6
    assert runs[0].metrics.read_bytes() == before


def test_other_images_are_refused(tmp_path):
    runs, configs, _ = run_seeds(tmp_path, stop_at=4)
    training, test = tiny_splits()
    with pytest.raises(ValueError, match=r"the images of tiny are not those that .* was trained on"):
        train_classifiers(configs, replace(training, fingerprint="other"), test, runs)


def test_one_seed_that_diverges_is_said_and_keeps_its_last_good_state(tmp_path, monkeypatch):
    original, calls = module.classifier_step, []

    def ill(learner, inputs, *rest):
        calls.append(learner)
        losses = original(learner, inputs, *rest)
        broken = len(calls) == 10  # the fifth iteration of the second
        return {name: value * torch.nan for name, value in losses.items()} if broken else losses

    monkeypatch.setattr(module, "classifier_step", ill)
    with pytest.raises(DivergedError, match=r"loss/training is no longer finite at iteration 5.*0000004.safetensors"):
        run_seeds(tmp_path, (0, 1))
    events = json.loads((tmp_path / "seed-1" / "metrics.jsonl").read_text().splitlines()[-1])
    assert events["what"] == "diverged"


def test_a_trained_classifier_is_loaded_and_asked(tmp_path):
    (run,), *_ = run_seeds(tmp_path)
    predictor, test = load_classifier(run.folder, device="cpu"), tiny_splits()[1]
    probabilities = predictor.probabilities(test.images, batch=3)
    assert probabilities.shape == (7, 3)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(7))
    wrong = (probabilities.argmax(1) != test.labels).double().mean().item()
    assert lines_of(run, "evaluation")[-1]["error"] == pytest.approx(100 * wrong)
    assert (predictor.class_names, predictor.iteration) == (("a", "b", "c"), 6)
    for wrong in (test.images.float(), test.images[0]):
        with pytest.raises(
            ValueError, match=r"images must be uint8 pixels \(N, C, H, W\), got torch.(float32|uint8) \("
        ):
            predictor.probabilities(wrong)


def test_the_best_state_is_kept_too(tmp_path):
    (run,), *_ = run_seeds(tmp_path, evaluate_every=1)
    errors = [line["error"] for line in lines_of(run, "evaluation")]
    best = load_classifier(run.folder, "best", device="cpu")
    assert best.iteration == 1 + errors.index(min(errors))


def test_a_checkpoint_that_is_not_there_is_named(tmp_path):
    (run,), *_ = run_seeds(tmp_path)
    with pytest.raises(CheckpointError, match=r"has no checkpoint 3 \(0000003.json is missing\); it has 0000002"):
        load_classifier(run.folder, "3", device="cpu")


def test_a_folder_of_seeds_says_to_name_one(tmp_path):
    run_seeds(tmp_path, (0, 1))
    with pytest.raises(ValueError, match=r"holds the runs of several seeds: name one, such as .*seed-0$"):
        load_classifier(tmp_path)


def test_a_classifier_is_no_generator(tmp_path):
    (run,), *_ = run_seeds(tmp_path)
    with pytest.raises(ValueError, match=r"seed-0 is the run of a classifier, and that of a GAN is needed here$"):
        load_generator(run.folder)


@pytest.mark.parametrize("normalization", ["BN", "WC", "DBN", "IterNorm", "W-only", "C-only"])
def test_every_kind_of_layer_trains(normalization, tmp_path):
    configs = seeded(tiny_config(normalization), (0,))
    assert train_classifiers(configs, *tiny_splits(), new_runs(tmp_path, configs)).iteration == 6
