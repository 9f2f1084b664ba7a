"""The journal: what it writes and tells the callbacks, and which scores it compares."""

from types import SimpleNamespace

import pytest
import torch
from tests.train.cases import of_kind, tiny_config, tiny_data, tiny_run
from torch import nn

from wcgan.core.device import find_hardware
from wcgan.core.processes import Rank
from wcgan.norm import WhiteningColoring2d
from wcgan.runs.checkpoint import read_checkpoint
from wcgan.train import Callback, Custom
from wcgan.train.custom import Training
from wcgan.train.gan import train
from wcgan.train.journal import Journal, facts_of


class Watch(Callback):
    """Remembers what it is told."""

    def __init__(self):
        self.metrics, self.checkpoints = [], []

    def on_metrics(self, iteration, values):
        self.metrics.append((iteration, dict(values)))

    def on_checkpoint(self, iteration, path):
        self.checkpoints.append((iteration, path.name))


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def said():
    return []


@pytest.fixture
def run(tmp_path):
    return tiny_run(tmp_path / "run", tiny_config())


@pytest.fixture
def journal(run, watch, said):
    """Of a run that begins."""
    config = run.config()
    progress = SimpleNamespace(say=said.append, show=lambda losses: None)
    journal = Journal(Training(run, config, 0), progress, Rank(), find_hardware(config.train), [watch])
    yield journal
    journal.close()


def test_the_speed_is_that_since_the_line_before(journal, run):
    for iteration, seconds in ((10, 5.0), (20, 10.0), (50, 12.0), (60, 12.0)):
        journal.losses(iteration, {"loss": 1.0}, seconds, rate=0.1, images=4)
    assert [line.get("iterations_per_second") for line in of_kind(run, "train")] == [None, 2.0, 15.0, None]


def test_shrinkage_is_said_when_it_begins_and_counted_for_the_layers_that_had_it(journal, run, watch, said):
    for iteration, counts in enumerate([(0, 0), (0, 3), (1, 5), (1, 5), (2, 5)]):
        journal.retries(iteration, dict(zip("ab", counts, strict=True)))
    assert [(line["iteration"], line["batches"], line["layers"]) for line in of_kind(run, "retried")] == [
        (1, 3, {"b": 3}),
        (2, 3, {"a": 1, "b": 2}),
        (4, 1, {"a": 1}),
    ]
    assert watch.metrics == [(1, {"retried": 3}), (2, {"retried": 3}), (4, {"retried": 1})]
    assert [sentence.partition(" cannot")[0] for sentence in said] == ["iteration 1: b"]


def test_shrinkage_of_a_network_that_was_trained_before_is_not_counted_again(tmp_path, capsys):
    config = tiny_config("WC", "plain", batch=2, generator_batch=2, iterations=4)
    whitening = WhiteningColoring2d(4, eps=0.0)  # of two positions, for four channels
    generator = nn.Sequential(nn.Linear(6, 4), nn.Unflatten(1, (4, 1, 1)), whitening, nn.ConvTranspose2d(4, 1, 8))
    run = tiny_run(tmp_path / "run", config)
    for stop_at in (2, 4):
        train(config, tiny_data(labels=False), run, stop_at=stop_at, custom=Custom(generator=generator))
    counts = [line["batches"] for line in of_kind(run, "retried")]
    assert (len(counts), sum(counts)) == (4, whitening.num_retried)
    assert len(set(counts)) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if "extra shrinkage" in line]
    assert [line.partition(":")[0] for line in said] == ["iteration 1", "iteration 3"]  # by each of the two trainings


def test_batches_over_which_an_average_recomputes_its_statistics_are_not_counted(tmp_path):
    average = {"ema": 0.5, "ema_statistics": "recomputed"}
    config = tiny_config("WC", "plain", batch=2, generator_batch=2, iterations=4, checkpoint_every=2, **average)
    whitening = WhiteningColoring2d(4, eps=0.0)  # of two positions, for four channels
    generator = nn.Sequential(nn.Linear(6, 4), nn.Unflatten(1, (4, 1, 1)), whitening, nn.ConvTranspose2d(4, 1, 8))
    run = tiny_run(tmp_path / "run", config)
    train(config, tiny_data(labels=False), run, custom=Custom(generator=generator))
    assert {layer for line in of_kind(run, "retried") for layer in line["layers"]} == {"generator.network.2"}


def test_only_scores_of_one_protocol_against_the_same_images_are_compared():
    def facts(name="paper-10k", fingerprint="a", **others):
        return facts_of({"protocol": {"name": name, "reference": {"fingerprint": fingerprint}, **others}})

    assert facts() == facts(seed=1)
    assert len({facts(), facts(name="all"), facts(fingerprint="b")}) == 3
    assert facts_of({}) == facts_of({"protocol": None}) == facts_of({"protocol": {"reference": "a"}})
    assert len({facts(), facts(statistics="of batches of 64"), facts(generator="not averaged")}) == 3


BEST = ("FID", lambda: {"weight": torch.ones(2)})


@pytest.mark.parametrize(
    ("fact", "comparable"), [({}, True), ({"name": "all"}, False), ({"statistics": "of batches of 2"}, False)]
)
def test_a_lower_score_of_another_protocol_leaves_the_best_the_best(fact, comparable, journal, run):
    run.record("evaluation", 1, FID=1.0, protocol={"features": "inception", **fact})
    journal.scores(2, {"FID": 3.0, "protocol": {"features": "inception"}}, BEST, {"iteration": 2})
    assert (run.checkpoints / "best.json").exists() is not comparable


def test_the_best_is_the_lowest_of_all_before_it_and_the_callbacks_are_told(journal, run, watch):
    for iteration, score in enumerate((3.0, 1.0, 2.0)):
        journal.scores(iteration, {"FID(classifier)": score, "seconds": 7.5}, BEST, {"iteration": iteration})
    best = read_checkpoint(run.checkpoints / "best")
    assert (best.facts["iteration"], best.facts["FID(classifier)"]) == (1, 1.0)
    assert watch.checkpoints == [(0, "best.safetensors"), (1, "best.safetensors")]


def test_an_evaluation_is_said_without_the_time_it_took(journal, said):
    journal.scores(4, {"FID": 12.345678, "accuracy": 0.5, "seconds": 7.5, "protocol": {}}, None, {})
    assert said == ["iteration 4: FID 12.35, accuracy 50.0%"]
