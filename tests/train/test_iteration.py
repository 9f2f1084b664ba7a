"""One iteration: who moves when, which games run, what the average is."""

import copy
import math
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from tests.train.cases import (
    different,
    float64,
    iterate,
    snapshot,
    tiny_batches,
    tiny_config,
    tiny_data,
    tiny_players,
    with_discriminator,
)

from wcgan.core.device import Hardware
from wcgan.core.terminal import TrainingProgress
from wcgan.norm import VARIANTS
from wcgan.runs.config import Config, TrainConfig
from wcgan.train import gan as module
from wcgan.train.batches import augment, average_weight
from wcgan.train.learner import update_average

GAMES = {
    "hinge": {"loss": "hinge"},
    "wasserstein": {"loss": "wasserstein", "gradient_penalty": 10.0},
}


def run_iteration(config, iteration=0, players=None, precision=torch.float32):
    players = players or tiny_players(config)
    return players, iterate(players, config, iteration, dtype=precision)


@pytest.fixture
def updates(monkeypatch):
    """Each update of a network, with its loss and what was changed by it."""
    seen = []
    original = module.update

    def watched(optimizer, loss, network, rank):
        before = {name: value.detach().clone() for name, value in network.named_parameters()}
        original(optimizer, loss, network, rank)
        changed = [name for name, value in network.named_parameters() if not torch.equal(value, before[name])]
        seen.append((type(network).__name__, loss.detach(), changed))

    monkeypatch.setattr(module, "update", watched)
    return seen


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_critic_steps_are_counted(steps, updates):
    run_iteration(tiny_config(critic_steps=steps))
    assert [name for name, _, _ in updates] == ["Discriminator"] * steps + ["Generator"]


def test_a_discriminator_update_changes_no_parameter_of_the_generator(monkeypatch):
    config = tiny_config(class_weight_generator=0.0)
    players = tiny_players(config)
    before = {name: value.clone() for name, value in players.generator.named_parameters()}
    monkeypatch.setattr(players.generator_optimizer, "step", lambda: None)
    run_iteration(config, players=players)
    assert [n for n, value in players.generator.named_parameters() if not torch.equal(value, before[n])] == []


def test_a_generator_update_changes_no_parameter_of_the_discriminator(monkeypatch):
    config = tiny_config()
    players = tiny_players(config)
    before = {name: value.clone() for name, value in players.discriminator.named_parameters()}
    monkeypatch.setattr(players.discriminator_optimizer, "step", lambda: None)
    run_iteration(config, players=players)
    assert [n for n, value in players.discriminator.named_parameters() if not torch.equal(value, before[n])] == []


def test_both_networks_change_in_an_iteration(updates):
    players, _ = run_iteration(tiny_config())
    for name, _, changed in updates:
        assert changed, name
    assert len(updates[-1][2]) > len(list(players.generator.parameters())) / 2


def test_running_statistics_move_in_both_updates():
    config = tiny_config(critic_steps=3)
    players, _ = run_iteration(config)
    counts = {int(v) for k, v in players.generator.state_dict().items() if k.endswith("num_batches_tracked")}
    assert counts == {4}


def test_every_update_is_shown_its_own_images(monkeypatch):
    config = tiny_config("cWC", "projection", critic_steps=2, augment=("cutout",), **GAMES["wasserstein"])
    players, inputs, seen = tiny_players(config), tiny_batches(config).draw(0), []
    original = module.gradient_penalty

    def recorded(discriminator, real, fake, labels, between):
        seen.append((real, labels, between))
        return original(discriminator, real, fake, labels, between)

    monkeypatch.setattr(module, "gradient_penalty", recorded)
    run_iteration(config, players=players)
    expected = augment(inputs.real, inputs.real_view), inputs.real_labels, inputs.between
    for each, found in zip(expected, zip(*seen, strict=True), strict=True):
        assert torch.equal(torch.stack(found), each)


HEADS = {"plain": ("WC", "plain"), "projection": ("cWC", "projection"), "acgan": ("cWC", "acgan")}


def scores_before(players, inputs):
    """What the discriminator says of the first real and generated images, before anything is trained."""
    generator, discriminator = copy.deepcopy((players.generator, players.discriminator))
    labels, fake_labels = (None if each is None else each[0] for each in (inputs.real_labels, inputs.critic_labels))
    conditional, projection = generator.config.conditional, discriminator.config.head == "projection"
    with torch.no_grad():
        fake = generator(inputs.critic_noise[0], fake_labels if conditional else None)
        real_scores = discriminator(inputs.real[0], labels if projection else None).realness
        return real_scores, discriminator(fake, fake_labels if projection else None).realness


@pytest.mark.parametrize("head", HEADS)
def test_the_discriminator_is_to_score_real_images_high_and_generated_ones_low(head):
    config = with_discriminator(tiny_config(*HEADS[head]), spectral_norm=False)
    players, inputs = tiny_players(config), tiny_batches(config).draw(0)
    real, fake = scores_before(players, inputs)
    _, losses = run_iteration(config, players=players)
    expected = (1 - real).clamp_min(0).mean() + (1 + fake).clamp_min(0).mean()
    swapped = (1 + real).clamp_min(0).mean() + (1 - fake).clamp_min(0).mean()
    assert abs(expected - swapped) > 1e-3
    assert losses["loss/discriminator"].item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("head", HEADS)
def test_every_game_with_every_head_has_finite_losses(game, head):
    config = tiny_config(*HEADS[head], critic_steps=2, **GAMES[game])
    players, losses = run_iteration(config)
    expected = {"loss/discriminator", "loss/generator"}
    expected |= {"loss/gradient_penalty"} if game == "wasserstein" else set()
    expected |= {"loss/class_real", "loss/class_generated"} if head == "acgan" else set()
    assert set(losses) == expected
    assert all(loss.isfinite() and not loss.requires_grad for loss in losses.values())
    assert all(value.isfinite().all() for value in snapshot(players).values())


@pytest.mark.parametrize("name", VARIANTS)
def test_every_normalisation_trains(name):
    head = "projection" if VARIANTS[name].conditional else "plain"
    _, losses = run_iteration(tiny_config(name, head))
    assert all(loss.isfinite() for loss in losses.values())


@pytest.mark.parametrize(
    ("normalization", "last", "head"),
    [("WC", None, "projection"), ("WC", None, "acgan"), ("cWC", None, "plain"), ("WC", "cWC", "plain")],
)
def test_labels_reach_whichever_network_asks_for_them(normalization, last, head):
    config = tiny_config("cWC", head)
    config = replace(config, generator=replace(config.generator, normalization=normalization, last_normalization=last))
    _, losses = run_iteration(config)
    assert all(loss.isfinite() for loss in losses.values())


def test_a_dcgan_trains():
    config = tiny_config()
    config = replace(config, generator=replace(config.generator, kind="dcgan"))
    _, losses = run_iteration(with_discriminator(config, kind="dcgan"))
    assert all(loss.isfinite() for loss in losses.values())


def test_half_precision_trains_with_losses_and_weights_in_full():
    players, losses = run_iteration(tiny_config(), precision=torch.bfloat16)
    assert {loss.dtype for loss in losses.values()} == {torch.float32}
    assert {value.dtype for value in players.generator.parameters()} == {torch.float32}
    assert all(loss.isfinite() for loss in losses.values())


def test_what_is_minimised_with_acgan_is_realness_and_weighted_class_losses(updates):
    _, losses = run_iteration(tiny_config("cWC", "acgan"))
    (_, minimised_by_d, _), (_, minimised_by_g, _) = updates
    assert TrainConfig().class_weight_discriminator == 1
    assert TrainConfig().class_weight_generator == 0.1
    assert minimised_by_d.item() == pytest.approx((losses["loss/discriminator"] + losses["loss/class_real"]).item())
    assert minimised_by_g.item() == pytest.approx(
        (losses["loss/generator"] + 0.1 * losses["loss/class_generated"]).item()
    )


def test_acgans_discriminator_learns_classes_from_real_images_only(monkeypatch):
    config = with_discriminator(tiny_config("cWC", "acgan", label_smoothing=0.25), spectral_norm=False)
    players, inputs, seen = tiny_players(config), tiny_batches(config).draw(0), []
    logits = players.discriminator(inputs.real[0]).logits

    def recorded(*arguments):
        seen.append(arguments)
        return arguments[0].sum() * 0

    monkeypatch.setattr(module, "class_loss", recorded)
    run_iteration(config, players=players)
    assert torch.allclose(seen[0][0], logits, atol=1e-6)
    assert torch.equal(seen[0][1], inputs.real_labels[0])
    assert torch.equal(seen[1][1], inputs.labels)
    assert [smoothing for *_, smoothing in seen] == [0.25, 0.25]


def test_what_is_minimised_with_a_penalty_is_the_loss_and_ten_penalties(updates):
    _, losses = run_iteration(tiny_config("WC", "plain", **GAMES["wasserstein"]))
    expected = losses["loss/discriminator"] + 10 * losses["loss/gradient_penalty"]
    assert updates[0][1].item() == pytest.approx(expected.item())


@pytest.mark.parametrize(("name", "weight"), [("consistency", 10.0), ("lecam", 0.3)])
def test_what_is_minimised_with_a_regularisation_is_the_loss_and_its_weighted_sum(name, weight, updates):
    _, losses = run_iteration(tiny_config("WC", "plain", **{name: weight}))
    regularisation = losses[f"loss/{name}"]
    assert regularisation > 1e-4
    expected = losses["loss/discriminator"] + weight * regularisation
    assert updates[0][1].item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("head", ["plain", "projection", "acgan"])
def test_freezing_the_discriminator_changes_no_bit_of_an_iteration(monkeypatch, head):
    """What the generator's update leaves out is gradients of the discriminator, which nobody uses."""

    def trained():
        players, _ = run_iteration(tiny_config(head=head, critic_steps=2))
        assert all(p.requires_grad for p in players.discriminator.parameters())
        return snapshot(players)

    frozen = trained()
    monkeypatch.setattr(module, "frozen", lambda network: nullcontext())
    assert different(frozen, trained()) == []


def test_the_generators_update_asks_for_no_gradient_of_the_discriminator():
    config = tiny_config()
    players = tiny_players(config)
    needed = []
    players.discriminator.register_forward_pre_hook(
        lambda network, _: needed.append({p.requires_grad for p in network.parameters()})
    )
    run_iteration(config, players=players)
    assert needed == [{True}, {False}]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own, which differ from release to release
def test_compiled_iterations_follow_plain_ones():
    config = tiny_config("WC", "plain", critic_steps=2)
    with float64():
        compiled, plain = tiny_players(config), tiny_players(config)
        hardware = Hardware(torch.device("cpu"), torch.float32, True, False, "")
        module.compile_players(compiled, config, hardware, TrainingProgress())
        for iteration in range(3):
            one, other = (iterate(players, config, iteration, dtype=torch.float32) for players in (compiled, plain))
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)  # losses are taken in float32
    torch.testing.assert_close(snapshot(compiled), snapshot(plain), rtol=1e-4, atol=1e-5)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    def trained(seed):
        players, _ = run_iteration(tiny_config(seed=seed))
        return snapshot(players)

    assert different(trained(0), trained(0)) == []
    assert "generator.conv.weight" in different(trained(0), trained(1))


def test_building_the_networks_leaves_the_global_randomness_alone():
    before = torch.get_rng_state()
    tiny_players(tiny_config())
    assert torch.equal(torch.get_rng_state(), before)


def test_the_average_follows_its_formula():
    config = tiny_config(ema=0.75)
    players = tiny_players(config)
    average = {name: value.clone() for name, value in players.average.state_dict().items()}
    assert different(average, dict(players.generator.state_dict())) == []
    for iteration in range(3):
        run_iteration(config, iteration, players)
        for name, value in players.generator.state_dict().items():
            moved = 0.75 * average[name] + 0.25 * value if value.is_floating_point() else value
            average[name] = moved.clone()
    for name, value in players.average.state_dict().items():
        assert torch.allclose(value, average[name], rtol=1e-5, atol=1e-7), name


def test_without_decay_there_is_no_average_and_samples_come_from_the_generator():
    players = tiny_players(tiny_config(ema=0.0))
    assert players.average is None
    assert players.sampled_generator is players.generator
    for settings in ({"ema": 0.5}, {"ema_half_life": 100}):
        averaged = tiny_players(tiny_config(**settings))
        assert averaged.average is not None
        assert averaged.sampled_generator is averaged.average


def test_a_half_life_in_images_halves_the_weight_of_a_state():
    train = TrainConfig(critic_steps=5, batch=64, ema_half_life=3200, ema_start=640)
    weights = [average_weight(train, iteration) for iteration in range(12)]
    assert weights[:2] == [1.0, 1.0]  # a copy, until 640 images have been seen
    assert math.prod(1 - weight for weight in weights[2:12]) == pytest.approx(0.5)  # 10 iterations of 320 images
    assert average_weight(TrainConfig(ema=0.75), 0) == 0.25
    assert average_weight(TrainConfig(ema=0.75, ema_ramp=0.2), 9) == 0.25
    assert average_weight(TrainConfig(), 0) is None


def test_the_half_life_of_an_average_that_keeps_up_is_a_share_of_the_images_so_far():
    train = TrainConfig(critic_steps=5, batch=64, ema_half_life=3200, ema_ramp=0.25)
    weights = [average_weight(train, iteration) for iteration in (0, 1, 8, 39, 40, 1000)]
    assert weights == [1.0, *(1 - 0.5 ** (320 / half_life) for half_life in (80, 640, 3120, 3200, 3200))]


def test_an_iteration_is_drawn_with_its_weight_in_the_average():
    config = tiny_config(ema_half_life=40, ema_ramp=0.5, ema_start=8)
    for iteration in range(5):
        weight = tiny_batches(config).draw(iteration).average_weight
        assert weight.item() == pytest.approx(average_weight(config.train, iteration))


def test_an_average_has_one_decay():
    with pytest.raises(ValueError, match=r"train.ema=0.9 and train.ema_half_life=100 both set the decay: set one to 0"):
        tiny_config(ema=0.9, ema_half_life=100)


def test_the_average_is_never_trained():
    config = tiny_config(ema=0.5)
    players, _ = run_iteration(config)
    assert not any(p.requires_grad for p in players.average.parameters())
    assert all(p.grad is None for p in players.average.parameters())


def test_an_average_of_weight_1_is_the_generator():
    config = tiny_config(ema=0.5)
    players, _ = run_iteration(config)
    update_average(players.average, players.generator, torch.tensor(1.0))
    assert different(dict(players.average.state_dict()), dict(players.generator.state_dict())) == []


def test_a_batch_may_be_larger_than_the_data():
    config = tiny_config(batch=8, generator_batch=8)
    players = tiny_players(config)
    losses = iterate(players, config, data=tiny_data(3))
    assert all(loss.isfinite() for loss in losses.values())


def test_settings_of_an_iteration_are_the_papers_by_default():
    train = Config().train
    assert (train.critic_steps, train.batch, train.generator_batch) == (5, 64, 128)
    assert (train.learning_rate, train.beta1, train.beta2, train.schedule) == (2e-4, 0.0, 0.9, "linear")
    assert train.ema == 0
