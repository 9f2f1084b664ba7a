"""CUDA graphs, as far as they can be looked at without a GPU; tests/cuda/test_training.py replays them."""

import pytest
import torch
from tests.train.cases import different, iterate, snapshot, tiny_batches, tiny_config, tiny_data, tiny_players, tiny_run

from wcgan.norm import VARIANTS
from wcgan.train import train
from wcgan.train.graph import GraphedIteration, hindrance
from wcgan.train.iteration import learning_rate, train_iteration
from wcgan.train.learner import set_learning_rate

ZCA = [name for name, variant in VARIANTS.items() if variant.whitening == "zca"]
WHY = "ZCA whitening waits for its eigenvalues"


@pytest.mark.parametrize("name", VARIANTS)
def test_whitening_that_makes_the_host_wait_is_known_beforehand(name):
    head = "projection" if VARIANTS[name].conditional else "plain"
    players = tiny_players(tiny_config(name, head))
    assert hindrance(players) == (WHY if name in ZCA else None)


def test_what_cannot_be_recorded_is_said_once_and_trains_as_it_is():
    config, said = tiny_config(ZCA[0], "plain"), []
    players, plain = tiny_players(config), tiny_players(config)
    run = GraphedIteration(lambda inputs: train_iteration(players, inputs, config, torch.float32), players, said.append)
    for iteration in range(5):
        set_learning_rate(players, learning_rate(config.train, iteration))
        run(tiny_batches(config).draw(iteration))
        iterate(plain, config, iteration)
    assert said == [f"an iteration is not one CUDA graph: {WHY}; going on without"]
    assert not run.replays
    assert different(snapshot(players), snapshot(plain)) == []


def test_what_must_be_recorded_and_cannot_is_an_error():
    players = tiny_players(tiny_config(ZCA[0], "plain"))
    with pytest.raises(ValueError, match=f"^train.cuda_graph=yes is not possible: {WHY}; use auto or no$"):
        GraphedIteration(dict, players, print, required=True)


def test_a_run_says_that_it_has_no_graph_on_a_cpu(tmp_path):
    run = tiny_run(tmp_path / "run", tiny_config(iterations=1))
    train(tiny_config(iterations=1), tiny_data(), run)
    started = run.lines()[0]
    assert (started["what"], started["cuda_graph"]) == ("started", "no: the device is cpu")
