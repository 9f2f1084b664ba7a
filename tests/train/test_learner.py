"""The optimisers: which parameter moves how far, by the rates, the schedule and the decay of a config."""

import pytest
import torch
from tests.train.cases import CPU, iterate, tiny_config, tiny_players
from torch import nn

from wcgan.core.processes import ALONE
from wcgan.norm import WhiteningColoring2d, freeze_statistics
from wcgan.runs.config import TrainConfig
from wcgan.train.gan import learning_rate
from wcgan.train.learner import laid_out_like, place, set_learning_rate, update


def run_iteration(config, iteration=0):
    players = tiny_players(config)
    return players, iterate(players, config, iteration)


def test_the_adam_of_the_config_is_used():
    players = tiny_players(tiny_config(beta1=0.25, beta2=0.75, learning_rate=0.125))
    for optimizer in (players.generator_optimizer, players.discriminator_optimizer):
        assert optimizer.param_groups[0]["betas"] == (0.25, 0.75)
        assert optimizer.param_groups[0]["lr"] == 0.125


@pytest.mark.parametrize(("own", "expected"), [(4.0, 2.4), (0.0, 0.0)])
def test_the_discriminator_may_have_a_rate_of_its_own(own, expected):
    config = tiny_config(iterations=10, learning_rate=1.0, learning_rate_discriminator=own)
    players, _ = run_iteration(config, iteration=4)
    assert players.generator_optimizer.param_groups[0]["lr"] == pytest.approx(0.6)
    assert players.discriminator_optimizer.param_groups[0]["lr"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("normalization", "decaying"), [("cWC", {"weight", "class_weight"}), ("cWC_sa", {"weight", "dictionary"})]
)
def test_weight_decay_shrinks_coloring_matrices_and_nothing_else(normalization, decaying):
    def after_one_iteration(decay):
        settings = {"critic_steps": 1, "learning_rate": 0.1, "coloring_decay": decay, "iterations": 10}
        players, _ = run_iteration(tiny_config(normalization, **settings))
        return dict(players.generator.named_parameters())

    before = dict(tiny_players(tiny_config(normalization)).generator.named_parameters())
    plain, decayed = after_one_iteration(0.0), after_one_iteration(0.5)
    changed = [name for name in before if not torch.equal(plain[name], decayed[name])]
    assert {name.rpartition(".")[2] for name in changed} == decaying
    assert all("norm" in name for name in changed)
    for name in changed:
        assert torch.allclose(plain[name] - decayed[name], 0.05 * before[name], atol=1e-6), name


@pytest.mark.parametrize("normalization", ["cWC", "cWC_sa", "cBN"])
def test_what_belongs_to_one_class_moves_by_its_share_of_the_rate(normalization):
    def moved_by(share):
        config = tiny_config(normalization, critic_steps=1, learning_rate=0.1, class_rate=share, iterations=10)
        before, players = tiny_players(config).generator, run_iteration(config)[0]
        return {
            name: parameter - start
            for (name, parameter), start in zip(players.generator.named_parameters(), before.parameters(), strict=True)
        }

    plain, slow = moved_by(1.0), moved_by(0.25)
    of_one_class = {name for name in plain if name.rpartition(".")[2] in ("class_weight", "class_bias", "assignment")}
    assert of_one_class
    for name in plain:
        share = 0.25 if name in of_one_class else 1.0
        assert torch.allclose(slow[name], share * plain[name], atol=1e-6), name


def test_groups_keep_their_share_of_a_rate_that_falls():
    config = tiny_config("cWC", iterations=10, learning_rate=1.0, class_rate=0.25, coloring_decay=0.1)
    groups = run_iteration(config, iteration=4)[0].generator_optimizer.param_groups
    found = [(group["weight_decay"], round(group["lr"], 6)) for group in groups]
    assert found == [(0.1, 0.6), (0.1, 0.15), (0.0, 0.6), (0.0, 0.15)]


def test_an_iteration_uses_the_rate_of_its_schedule():
    config = tiny_config(iterations=10, learning_rate=1.0)
    players, _ = run_iteration(config, iteration=4)
    assert players.generator_optimizer.param_groups[0]["lr"] == pytest.approx(0.6)
    assert players.discriminator_optimizer.param_groups[0]["lr"] == pytest.approx(0.6)


def test_a_rate_that_is_a_tensor_is_set_in_place():
    players = tiny_players(tiny_config())
    rates = [torch.tensor(0.5), torch.tensor(0.5)]
    for optimizer, rate in zip(players.optimizers.values(), rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        set_learning_rate(optimizer, 0.25)
    assert [rate.item() for rate in rates] == [0.25, 0.25]


def test_a_network_that_was_evaluated_is_trained_but_for_its_frozen_statistics():
    network = nn.Sequential(nn.Dropout(), WhiteningColoring2d(2), WhiteningColoring2d(2))
    freeze_statistics(network[2])
    place(network.eval(), CPU, channels_last=False, sync=False)
    assert [module.training for module in network.modules()] == [True, True, True, False]


def test_a_parameter_that_a_loss_does_not_reach_stays_where_it_is():
    network = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    reached, other = network
    update(optimizer, (reached(torch.ones(3, 2)) + other(torch.ones(3, 2))).sum(), network, ALONE)
    before = [layer.weight.clone() for layer in network]
    update(optimizer, reached(torch.ones(3, 2)).sum(), network, ALONE)
    assert [torch.equal(*pair) for pair in zip(before, (reached.weight, other.weight), strict=True)] == [False, True]


def test_gradients_have_the_layout_of_their_parameters():
    weight = torch.empty(4, 3, 2, 2).to(memory_format=torch.channels_last)
    values = torch.randn(4, 3, 2, 2)
    laid_out = laid_out_like(weight, values)
    assert laid_out.stride() == weight.stride()
    assert torch.equal(laid_out, values)
    assert laid_out_like(values, values) is values


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"schedule": "linear"}, {0: 2e-4, 50: 1e-4, 99: 2e-6, 100: 0.0, 120: 0.0}),
        ({"schedule": "constant"}, {0: 2e-4, 50: 2e-4, 99: 2e-4}),
        ({"schedule": "constant", "drop_at": 30}, {0: 2e-4, 29: 2e-4, 30: 2e-5, 99: 2e-5}),
        ({"drop_at": 30}, {0: 2e-4, 29: 1.42e-4, 30: 1.4e-5, 99: 2e-7}),
        ({"schedule_end": 200, "drop_at": 30}, {0: 2e-4, 30: 1.7e-5, 99: 1.01e-5}),
        ({"schedule_start": 60}, {0: 2e-4, 60: 2e-4, 70: 1.5e-4, 99: 5e-6, 100: 0.0}),
        ({"schedule_start": 60, "schedule_end": 80}, {59: 2e-4, 70: 1e-4, 80: 0.0, 99: 0.0}),
    ],
    ids=[
        "linear",
        "constant",
        "constant with a drop",
        "linear with a drop",
        "linear beyond the end",
        "late",
        "late and early",
    ],
)
def test_learning_rates_follow_their_schedule(schedule, expected):
    train = TrainConfig(iterations=100, learning_rate=2e-4, **schedule)
    assert {i: learning_rate(train, i) for i in expected} == pytest.approx(expected)
