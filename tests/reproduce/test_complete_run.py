"""Where a run stands, from the lines it has written."""

import json
from types import SimpleNamespace

import pytest
import torch
from tests.evaluate.cases import random_weights
from tests.reproduce.cases import tiny

from wcgan.evaluate.command import EvaluationConfig
from wcgan.evaluate.inception import VARIABLE
from wcgan.reproduce import complete_run
from wcgan.reproduce.complete_run import Scorer, find_scorer, missing_figures, run_to_summary
from wcgan.reproduce.plan import plan_table
from wcgan.runs.folder import new_run

INCEPTION, INCOMPLETE, CLASSIFIER = Scorer("inception"), Scorer("inception", gives_is=False), Scorer("classifier")
LAST = 50_000
SETS = {"splits": 10, "scored_by_IS": 50_000}


def evaluation(name="paper-10k", generated=10_000, of=10_000, iteration=LAST, sets=SETS, **scores):
    reference = {"images": min(of, 10_000), "of": of}
    protocol = {"name": name, "generated": generated, "reference": reference, **sets}
    return {"kind": "evaluation", "iteration": iteration, "protocol": protocol, **scores}


def cifar(row="cWC SN + Proj. Discr."):
    """A run with IS and FID 10k by one protocol, and FID 5k by another."""
    return plan_table("conditional", [f"cifar10/{row}"]).runs[0]


def test_nothing_is_measured_of_a_run_without_lines():
    assert missing_figures(cifar(), INCEPTION, []) == {"paper-10k": ("is", "fid"), "paper-5k": ("fid",)}


def test_each_protocol_is_done_when_its_figures_are_there():
    ten = evaluation(IS=9.0, FID=13.5)
    five = evaluation("paper-5k", 5_000, sets={}, FID=16.0)
    assert missing_figures(cifar(), INCEPTION, [ten]) == {"paper-5k": ("fid",)}
    assert missing_figures(cifar(), INCEPTION, [five]) == {"paper-10k": ("is", "fid")}
    assert missing_figures(cifar(), INCEPTION, [five, ten]) == {}


@pytest.mark.parametrize(
    "line",
    [
        evaluation("paper-10k", IS=9.0, FID=13.5, iteration=LAST - 1),
        evaluation("50k-train", 50_000, of=50_000, IS=9.0, FID=13.5),
    ],
    ids=["earlier", "another protocol"],
)
def test_other_evaluations_do_not_count(line):
    assert missing_figures(cifar(), INCEPTION, [line])["paper-10k"] == ("is", "fid")


UNUSUAL = [{"statistics": "of batches of 64"}, {"generator": "not averaged"}]


@pytest.mark.parametrize("fact", UNUSUAL, ids=lambda fact: next(iter(fact)))
def test_figures_of_a_generator_that_was_used_unusually_do_not_count(fact):
    line = evaluation(IS=9.0, FID=13.5)
    line["protocol"] |= fact
    assert missing_figures(cifar(), INCEPTION, [line]) == missing_figures(cifar(), INCEPTION, [])


@pytest.mark.parametrize("protocol", [{}, {"name": "paper-10k"}, {"name": "paper-10k", "reference": {"of": "x"}}])
def test_a_figure_without_its_protocol_is_measured_again(protocol):
    line = evaluation("paper-10k", IS=9.0, FID=13.5) | {"protocol": protocol}
    assert missing_figures(cifar(), INCEPTION, [line])["paper-10k"] == ("is", "fid")


def test_of_trainings_own_evaluations_fid_counts_and_is_of_smaller_sets_does_not():
    own = evaluation("paper-10k, 10 sets of 1,000", sets={"splits": 10, "scored_by_IS": 10_000}, IS=9.0, FID=13.5)
    assert missing_figures(cifar(), INCEPTION, [own])["paper-10k"] == ("is",)


def test_only_the_figure_that_is_missing_is_missing():
    line = evaluation(sets={}, FID=13.5)
    assert missing_figures(cifar(), INCEPTION, [line])["paper-10k"] == ("is",)


def test_a_score_that_the_weights_cannot_give_is_not_missing():
    line = evaluation(sets={}, FID=13.5)
    assert missing_figures(cifar(), INCOMPLETE, [line]) == {"paper-5k": ("fid",)}
    (run,) = plan_table("unconditional", ["cifar10/GP + ResNet"]).runs  # the paper has its IS alone
    assert missing_figures(run, INCOMPLETE, []) == {}


def test_the_classifiers_figures_count_where_it_alone_can_look():
    lines = [
        evaluation(**{"IS(classifier)": 9.0, "FID(classifier)": 13.5}),
        evaluation("paper-5k", 5_000, sets={}, **{"FID(classifier)": 16.0}),
    ]
    assert missing_figures(cifar(), CLASSIFIER, lines) == {}
    assert missing_figures(cifar(), INCEPTION, lines) == missing_figures(cifar(), INCEPTION, [])


def test_inceptions_figures_count_wherever_they_were_taken():
    lines = [evaluation(IS=9.0, FID=13.5), evaluation("paper-5k", 5_000, sets={}, FID=16.0)]
    assert missing_figures(cifar(), CLASSIFIER, lines) == {}


def test_of_a_small_set_trainings_own_evaluation_is_the_one_that_counts():
    (run,) = plan_table("digits", ["cWC"]).runs
    sets = {"splits": 10, "scored_by_IS": 2000}
    scores = {"IS(classifier)": 9.0, "FID(classifier)": 13.5}
    line = evaluation("paper-10k, 2,000 generated against 359", 2000, 359, 1500, sets, **scores)
    assert missing_figures(run, CLASSIFIER, [line]) == {}
    fewer = evaluation("paper-10k, 20 generated against 359", 20, 359, 1500, sets | {"scored_by_IS": 20}, **scores)
    assert missing_figures(run, CLASSIFIER, [fewer]) == {"paper-10k": ("is", "fid")}


@pytest.mark.parametrize("fact", UNUSUAL, ids=lambda fact: next(iter(fact)))
def test_of_a_small_set_an_unusual_evaluation_does_not_count(fact):
    (run,) = plan_table("digits", ["cWC"]).runs
    scores = {"IS(classifier)": 9.0, "FID(classifier)": 13.5}
    sets = {"splits": 10, "scored_by_IS": 2000}
    line = evaluation("paper-10k, 2,000 generated against 359", 2000, 359, 1500, sets, **scores)
    line["protocol"] |= fact
    assert missing_figures(run, CLASSIFIER, [line]) == {"paper-10k": ("is", "fid")}


def test_the_figures_of_a_run_leave_out_unusual_evaluations(tmp_path):
    (run,) = plan_table("digits", ["WC"], settings=tiny(), out=tmp_path).runs
    usual, unusual = (
        evaluation("paper-10k", 20, 359, 12, {"splits": 10, "scored_by_IS": 20}, **{"FID(classifier)": fid})
        for fid in (13.5, 3.5)
    )
    unusual["protocol"] |= UNUSUAL[0]
    lines = [usual, unusual]
    new_run(run.folder, run.config).metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run_to_summary(run, CLASSIFIER).figures == "FID(classifier) 13.50"


@pytest.mark.parametrize(
    ("lines", "state", "iteration"),
    [
        ([], "not started", 0),
        ([{"kind": "train", "iteration": 7}], "unfinished", 7),
        ([{"kind": "train", "iteration": 12}], "unfinished", 12),
        (
            [{"kind": "train", "iteration": 12}, {"kind": "event", "iteration": 12, "what": "finished"}],
            "finished",
            12,
        ),
        ([{"kind": "train", "iteration": 7}, {"kind": "event", "iteration": 8, "what": "diverged"}], "diverged", 8),
        (
            [
                {"kind": "event", "iteration": 8, "what": "diverged"},
                {"kind": "event", "iteration": 6, "what": "resumed"},
            ],
            "unfinished",
            6,
        ),
    ],
)
def test_a_run_stands_where_its_lines_say(lines, state, iteration, tmp_path):
    (run,) = plan_table("digits", ["WC"], settings=tiny(), out=tmp_path).runs
    new_run(run.folder, run.config).metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    summary = run_to_summary(run, CLASSIFIER)
    assert (summary.status, summary.iteration) == (state, iteration)


def test_a_run_that_was_killed_after_its_last_evaluation_is_not_done(tmp_path):
    (run,) = plan_table("digits", ["WC"], settings=tiny(), out=tmp_path).runs
    scores = {"FID(classifier)": 13.5, "IS(classifier)": 9.0}
    line = evaluation("paper-10k", 20, 359, 12, {"splits": 10, "scored_by_IS": 20}, **scores)
    folder = new_run(run.folder, run.config)
    folder.metrics.write_text(json.dumps(line) + "\n")
    assert run_to_summary(run, CLASSIFIER).status == "unfinished"
    folder.event(12, "finished")
    assert run_to_summary(run, CLASSIFIER).status == "done"


def test_a_run_that_diverged_has_no_figures(tmp_path):
    (run,) = plan_table("digits", ["WC"], settings=tiny(), out=tmp_path).runs
    line = evaluation("paper-10k", 20, 359, 12, {"splits": 10, "scored_by_IS": 20}, **{"FID(classifier)": 13.5})
    lines = [line | {"IS(classifier)": 9.0}, {"kind": "event", "iteration": 12, "what": "diverged"}]
    new_run(run.folder, run.config).metrics.write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert missing_figures(run, CLASSIFIER, lines) == {}
    summary = run_to_summary(run, CLASSIFIER)
    assert (summary.status, summary.figures) == ("diverged", "")


@pytest.mark.parametrize("scorer", [INCEPTION, CLASSIFIER], ids=lambda scorer: scorer.features)
def test_what_is_missing_is_measured_by_the_scorer_with_the_runs_own_seed(scorer, tmp_path, monkeypatch):
    asked = []

    def evaluate(target, config):
        asked.append((target, config))
        return SimpleNamespace(iteration=12, scores={"FID": 13.5})

    monkeypatch.setattr(complete_run, "evaluate", evaluate)
    *_, planned = plan_table("digits", ["WC"], seeds=4, settings=tiny(), out=tmp_path).runs
    run = new_run(planned.folder, planned.config)
    complete_run._measure(run, "paper-10k", ("fid",), scorer)
    options = {"protocol": "paper-10k", "metrics": ("fid",), "features": (scorer.features,), "images": 20, "seed": 3}
    assert asked == [(str(run.folder), EvaluationConfig(**options, device="cpu"))]
    (line,) = run.lines()
    assert (line["kind"], line["iteration"], line["FID"]) == ("evaluation", 12, 13.5)


def test_without_weights_the_classifier_looks_and_a_note_says_so():
    assert find_scorer() == CLASSIFIER
    assert "not the paper's Inception" in CLASSIFIER.note


@pytest.mark.parametrize("complete", [True, False])
def test_with_weights_inception_looks_and_a_note_says_where_they_lack_their_last_layer(complete, tmp_path, monkeypatch):
    weights = random_weights()
    if not complete:
        weights = {name: value for name, value in weights.items() if not name.startswith("fc.")}
    torch.save(weights, tmp_path / "weights.pth")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "weights.pth"))
    scorer = find_scorer()
    assert scorer == (INCEPTION if complete else INCOMPLETE)
    assert (scorer.note is None) == complete
