"""The images of all the discriminator's updates in one pass: those that one pass after another would give."""

import copy

import pytest
import torch
from tests.train.cases import iterate, snapshot, tiny_batches, tiny_config, tiny_players

from wcgan.train import gan as module
from wcgan.train.gan import critic_images

PENALTY = {"loss": "wasserstein", "gradient_penalty": 10.0}
CONFIGS = {
    "BN": ("BN", "plain", {}),
    "WC": ("WC", "plain", {}),
    "WC, penalty": ("WC", "plain", PENALTY),
    "cBN": ("cBN", "projection", {}),
    "cWC": ("cWC", "projection", {}),
    "cWC_sa": ("cWC_sa", "projection", {}),
    "cWC, ACGAN": ("cWC", "acgan", {}),
    "cWC, ACGAN, penalty": ("cWC", "acgan", PENALTY),
}


@pytest.fixture(params=CONFIGS)
def config(request):
    normalization, head, settings = CONFIGS[request.param]
    return tiny_config(normalization, head, critic_steps=5, batch=8, **settings)


@torch.no_grad()
def one_after_another(generator, noise, labels, together=False):
    """The slow, obvious way."""
    assert not together
    return torch.stack([generator(z, None if labels is None else labels[i]) for i, z in enumerate(noise)])


def drawn(config):
    inputs = tiny_batches(config).draw(0)
    return inputs.critic_noise, inputs.critic_labels if config.generator.conditional else None


def test_images_are_the_same(config):
    generator = tiny_players(config).generator
    expected = one_after_another(copy.deepcopy(generator), *drawn(config))
    torch.testing.assert_close(critic_images(generator, *drawn(config)), expected, rtol=1e-5, atol=1e-6)


def test_images_are_the_same_to_rounding_in_float64(config):
    generator = tiny_players(config).generator.double()
    noise, labels = drawn(config)
    expected = one_after_another(copy.deepcopy(generator), noise.double(), labels)
    torch.testing.assert_close(critic_images(generator, noise.double(), labels), expected, rtol=1e-12, atol=1e-12)


def test_running_statistics_are_the_same(config):
    generator = tiny_players(config).generator
    slow = copy.deepcopy(generator)
    one_after_another(slow, *drawn(config))
    critic_images(generator, *drawn(config))
    for (name, value), expected in zip(generator.state_dict().items(), slow.state_dict().values(), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")


def test_each_update_has_statistics_of_its_own():
    config = tiny_config("WC", "plain", critic_steps=2, batch=8)
    generator = tiny_players(config).generator
    noise, _ = drawn(config)
    alone = critic_images(copy.deepcopy(generator), noise[:1], None)
    beside_others = critic_images(copy.deepcopy(generator), torch.cat([noise[:1], 100 * noise[1:]]), None)
    torch.testing.assert_close(beside_others[0], alone[0], rtol=1e-5, atol=1e-6)


def test_with_the_statistics_of_an_iteration_all_its_images_are_one_batch(config):
    generator, inputs = tiny_players(config).generator, tiny_batches(config).draw(0)
    noise, labels = inputs.critic_noise, inputs.critic_labels if config.generator.conditional else None
    expected = copy.deepcopy(generator)(noise.flatten(0, 1), None if labels is None else labels.flatten())
    found = critic_images(generator, noise, labels, together=True)
    torch.testing.assert_close(found.flatten(0, 1), expected.detach(), rtol=1e-5, atol=1e-6)
    assert {int(layer.num_batches_tracked) for layer in generator.modules() if hasattr(layer, "parts")} == {1}


def test_an_iteration_uses_the_statistics_that_the_config_names(monkeypatch):
    asked = []
    draw = module.critic_images
    monkeypatch.setattr(module, "critic_images", lambda *given: asked.append(given[3]) or draw(*given))
    for statistics in ("update", "iteration"):
        config = tiny_config("cWC", "projection", critic_steps=2, batch=8, critic_statistics=statistics)
        iterate(tiny_players(config), config)
    assert asked == [False, True]


def test_no_graph_is_kept_for_them(config):
    assert not critic_images(tiny_players(config).generator, *drawn(config)).requires_grad


def test_after_the_pass_a_batch_is_normalised_as_one_again():
    config = tiny_config("WC", "plain", critic_steps=2, batch=8)
    generator = tiny_players(config).generator
    fresh, noise = copy.deepcopy(generator), drawn(config)[0].flatten(0, 1)
    critic_images(generator, *drawn(config))
    assert torch.equal(generator(noise), fresh(noise))


def test_an_iteration_ends_as_with_one_pass_after_another(config, monkeypatch):
    fast = tiny_players(config)
    slow = copy.deepcopy(fast)
    in_one = iterate(fast, config)
    monkeypatch.setattr(module, "critic_images", one_after_another)
    in_turn = iterate(slow, config)
    for name, loss in in_one.items():
        torch.testing.assert_close(loss, in_turn[name], rtol=1e-4, atol=1e-5)
    statistics = [name for name in snapshot(fast) if name.startswith("generator.") and "running" in name]
    for name in statistics:
        torch.testing.assert_close(snapshot(fast)[name], snapshot(slow)[name], rtol=1e-4, atol=1e-5)
