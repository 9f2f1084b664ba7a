"""CUDA graphs, as far as they can be looked at without a GPU; tests/cuda/test_training.py replays them."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.train.cases import (
    different,
    iterate,
    snapshot,
    tiny_batches,
    tiny_config,
    tiny_data,
    tiny_players,
    tiny_run,
)

from wcgan.core.device import Hardware
from wcgan.norm import VARIANTS
from wcgan.train.gan import set_learning_rates, train, train_iteration
from wcgan.train.graph import LARGEST_EIGEN, GraphedIteration, hardware_for, have_tensors_in_common, hindrance

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


# Order of an iteration: beside each other, as branches of a graph, two passes must leave what they leave in this order


def test_the_host_issues_the_generators_own_pass_after_the_discriminators_updates():
    """Networks that draw random numbers depend on it: branches of a graph are issued in this order too."""
    config = tiny_config(critic_steps=2, ema=0.5)
    players, calls = tiny_players(config), []
    for name, network in players.networks.items():
        network.register_forward_pre_hook(lambda *_, name=name: calls.append((name, torch.is_grad_enabled())))
    for name, optimizer in players.optimizers.items():
        optimizer.register_step_post_hook(lambda *_, name=name: calls.append(name))
    iterate(players, config)
    images, judged, own = ("generator", False), ("discriminator", True), ("generator", True)
    updates = [judged, "discriminator_optimizer"] * 2
    expected = [images] * 2 + updates + [own, judged, "generator_optimizer"]
    assert calls == expected


@pytest.mark.parametrize("name", ["BN", "WC", "cWC"])
def test_running_statistics_move_for_the_discriminators_batches_and_then_for_the_generators_own(name):
    config = config_of(name, width=4, critic_steps=3)
    players, inputs = tiny_players(config), tiny_batches(config).draw(0)
    apart, reordered = copy.deepcopy(players.generator), copy.deepcopy(players.generator)
    labels = [None] * 4 if inputs.labels is None else [*inputs.critic_labels, inputs.labels]
    passes = list(zip([*inputs.critic_noise, inputs.noise], labels, strict=True))
    with torch.no_grad():
        for noise, label in passes:
            apart(noise, label)
        for noise, label in (passes[-1], *passes[:-1]):
            reordered(noise, label)
    train_iteration(players, inputs, config, torch.float32)
    after = dict(players.generator.named_buffers())
    assert different(after, dict(apart.named_buffers())) == []
    assert different(after, dict(reordered.named_buffers())) != []


def test_networks_that_have_a_tensor_in_common_are_not_branches():
    players = tiny_players(config_of("WC"))
    one, other = players.generator, players.discriminator
    assert not have_tensors_in_common([one, other])
    assert have_tensors_in_common([one, torch.nn.Sequential(other, one.norm)])
    for common in (torch.nn.Parameter(torch.zeros(1)), torch.nn.Buffer(torch.zeros(1))):
        holders = [torch.nn.Module(), torch.nn.Module()]
        for holder in holders:
            holder.common = common
        assert have_tensors_in_common(holders)
