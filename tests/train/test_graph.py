"""CUDA graphs, as far as they can be looked at without a GPU; tests/cuda/test_training.py replays them."""

from dataclasses import replace

import pytest
import torch
from tests.train.cases import different, iterate, snapshot, tiny_batches, tiny_config, tiny_data, tiny_players, tiny_run

from wcgan.core.device import Hardware
from wcgan.norm import VARIANTS
from wcgan.train.gan import set_learning_rates, train, train_iteration
from wcgan.train.graph import LARGEST_EIGEN, GraphedIteration, hardware_for, hindrance

ABLE = Hardware(torch.device("cpu"), torch.float32, False, False, None)  # as one that records
WHY = "ZCA whitening of 36 channels waits for its eigenvalues"


def config_of(name="WzcaC", width=36, **train):
    """With more channels than eigenvalues are found of without a wait; DBN whitens at most 16 of them together."""
    config = tiny_config(name, "projection" if VARIANTS[name].conditional else "plain", **train)
    return replace(config, generator=replace(config.generator, widths=(width,)))


@pytest.mark.parametrize("name", VARIANTS)
def test_whitening_that_makes_the_host_wait_is_known_beforehand(name):
    assert hindrance(tiny_players(config_of(name))) == (WHY if name == "WzcaC" else None)


def test_zca_makes_the_host_wait_with_either_gradient():
    config = config_of()
    options = {"whitening": "zca-decomposition"}
    assert hindrance(tiny_players(replace(config, generator=replace(config.generator, options=options)))) == WHY


def test_eigenvalues_of_few_channels_do_not_make_it_wait():
    assert hindrance(tiny_players(config_of(width=LARGEST_EIGEN))) is None
    jacobi = pytest.importorskip("wcgan.kernels.jacobi", reason="Triton is not installed")
    assert jacobi.LARGEST == LARGEST_EIGEN


def test_what_cannot_be_recorded_is_said_once_and_trains_as_it_is():
    config, said = config_of(), []
    players, plain = tiny_players(config), tiny_players(config)
    run = GraphedIteration(lambda inputs: train_iteration(players, inputs, config, torch.float32), players, said.append)
    for iteration in range(5):
        set_learning_rates(players, config.train, iteration)
        run(tiny_batches(config).draw(iteration))
        iterate(plain, config, iteration)
    assert said == [f"an iteration is not one CUDA graph: {WHY}; going on without"]
    assert not run.replays
    assert different(snapshot(players), snapshot(plain)) == []


def test_what_must_be_recorded_and_cannot_is_an_error():
    players = tiny_players(config_of())
    with pytest.raises(ValueError, match=f"^train.cuda_graph=yes is not possible: {WHY}; use auto or no$"):
        GraphedIteration(dict, players, print, required=True)


def test_hardware_is_described_as_the_networks_use_it():
    assert hardware_for(tiny_players(config_of()), ABLE).describe()["cuda_graph"] == f"no: {WHY}"
    assert hardware_for(tiny_players(config_of("WC")), ABLE).describe()["cuda_graph"] == "yes"
    assert hardware_for(tiny_players(config_of()), replace(ABLE, eager_because="")).describe()["cuda_graph"] == "no"


def test_a_run_whose_networks_cannot_be_recorded_says_so_where_others_could_be(tmp_path, monkeypatch):
    monkeypatch.setattr("wcgan.train.loop.find_hardware", lambda settings: ABLE)
    config = config_of(iterations=1)
    run = tiny_run(tmp_path / "run", config)
    train(config, tiny_data(), run)
    assert run.lines()[0]["cuda_graph"] == f"no: {WHY}"


def test_a_run_says_that_it_has_no_graph_on_a_cpu(tmp_path):
    run = tiny_run(tmp_path / "run", tiny_config(iterations=1))
    train(tiny_config(iterations=1), tiny_data(), run)
    started = run.lines()[0]
    assert (started["what"], started["cuda_graph"]) == ("started", "no: the device is cpu")
