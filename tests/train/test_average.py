"""The running statistics of the moving average, where they are recomputed."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.train.cases import (
    different,
    iterate,
    last_tensors,
    tiny_batches,
    tiny_config,
    tiny_data,
    tiny_players,
    tiny_run,
)

from wcgan.norm import WhiteningLayer
from wcgan.runs.checkpoint import section
from wcgan.runs.sampler import load_generator
from wcgan.train import Callback, Custom, train
from wcgan.train.gan import STATISTICS_BATCHES, build_players, make_refresh
from wcgan.train.journal import Journal

CONFIG = tiny_config(ema=0.5, ema_statistics="recomputed")


def refreshed(config, *iterations, precision=torch.float32):
    """Players after two iterations whose average was refreshed after these."""
    players = tiny_players(config)
    for iteration in range(2):
        iterate(players, config, iteration)
    refresh = make_refresh(players, tiny_batches(config), precision)
    for iteration in iterations:
        refresh(iteration)
    return players


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
def test_recomputed_statistics_are_means_over_batches_of_the_averages_own_activations(precision):
    players = refreshed(CONFIG, 7, precision=precision)
    twin = copy.deepcopy(players.average)
    means, covariances = {}, {}

    def note(layer, inputs, _):
        x = inputs[0].transpose(0, 1).flatten(1).double()  # (d, m)
        means.setdefault(layer, []).append(x.mean(1))
        covariances.setdefault(layer, []).append(torch.cov(x))

    layers = [layer for layer in twin.modules() if isinstance(layer, WhiteningLayer)]
    for layer in layers:
        layer.register_forward_hook(note)
    noise, labels = tiny_batches(CONFIG).latent(7, STATISTICS_BATCHES)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        for z, y in zip(noise, labels, strict=True):
            twin(z, y)
    ours = [layer for layer in players.average.modules() if isinstance(layer, WhiteningLayer)]
    for mine, theirs in zip(ours, layers, strict=True):
        assert torch.allclose(mine.running_mean.double(), torch.stack(means[theirs]).mean(0), atol=1e-5)
        expected = torch.stack(covariances[theirs]).mean(0)
        assert torch.allclose(mine.running_covariance.double(), expected, rtol=1e-4, atol=1e-5)
        assert mine.num_batches_tracked == STATISTICS_BATCHES


def test_recomputed_statistics_do_not_depend_on_when_they_were_recomputed_before():
    once, often = refreshed(CONFIG, 7).average, refreshed(CONFIG, 3, 5, 7).average
    assert not different(once.state_dict(), often.state_dict())
    assert different(once.state_dict(), refreshed(CONFIG, 8).average.state_dict())  # of other batches


def test_recomputing_leaves_weights_modes_and_the_generator_alone():
    before, after = refreshed(CONFIG), refreshed(CONFIG, 7)
    assert not different(dict(before.average.named_parameters()), dict(after.average.named_parameters()))
    assert not different(before.generator.state_dict(), after.generator.state_dict())
    assert all(module.training for module in after.average.modules())
    assert [layer.momentum for layer in after.average.modules() if isinstance(layer, WhiteningLayer)] == [0.01] * 3


def test_averaged_statistics_are_not_recomputed():
    for config in (tiny_config(ema=0.5), tiny_config(ema_statistics="recomputed")):
        assert make_refresh(tiny_players(config), tiny_batches(config), torch.float32) is None


def test_an_unconditional_generator_is_refreshed_without_labels():
    for name, head in (("WC", "plain"), ("WC", "acgan")):
        config = tiny_config(name, head, ema=0.5, ema_statistics="recomputed")
        players = refreshed(config, 7)
        assert players.average.norm.num_batches_tracked == STATISTICS_BATCHES


def test_labels_for_statistics_are_as_frequent_as_in_training():
    data = replace(tiny_data(), labels=torch.tensor([0] * 9 + [2]))
    real = tiny_batches(tiny_config(generated_labels="real"), data).latent(0, 100)[1]
    assert set(real.unique().tolist()) == {0, 2}
    assert 0.8 < (real == 0).float().mean() < 0.98
    uniform = tiny_batches(tiny_config(generated_labels="uniform"), data).latent(0, 100)[1]
    assert (uniform.flatten().bincount() > 90).all()  # of 400 labels


def test_labels_for_statistics_are_balanced_in_every_batch_where_those_of_training_are():
    config = tiny_config(generated_labels="balanced", generator_batch=8)
    for iteration in (0, 7):
        labels = tiny_batches(config).latent(iteration, 10)[1]
        assert labels.shape == (10, 8)
        assert {tuple(sorted(batch.bincount(minlength=3).tolist())) for batch in labels} == {(2, 3, 3)}


def test_every_process_recomputes_the_statistics_of_whole_batches():
    players = build_players(CONFIG, torch.device("cpu"), sync=True)
    synced = {name: network for name, network in players.networks.items() if name != "discriminator"}
    found = {
        name: {layer.sync for layer in network.modules() if isinstance(layer, WhiteningLayer)}
        for name, network in synced.items()
    }
    assert found == {"generator": {True}, "average": {False}}


def test_samples_evaluations_and_checkpoints_have_statistics_of_their_moment(tmp_path, monkeypatch):
    """Each of them is due at another iteration; what it sees has the statistics that its weights ask for."""
    config = tiny_config(
        iterations=5, ema=0.5, ema_statistics="recomputed", evaluate_every=2, checkpoint_every=4, sample_every=3
    )
    run, seen, drawn = tiny_run(tmp_path / "run", config), [], {}

    def evaluator(sampler):
        seen.append(copy.deepcopy(sampler.network))
        return {"FID": float(len(seen))}  # the first is the best

    def draw(_, iteration, sampler):
        drawn[iteration] = copy.deepcopy(sampler.network)

    monkeypatch.setattr(Journal, "samples", draw)
    train(config, tiny_data(), run, evaluator)
    assert len(seen) == 3  # after 2, 4 and 5
    batches = tiny_batches(config)

    def expected(network, iteration):
        players = tiny_players(config)
        players.average.load_state_dict(network.state_dict())
        make_refresh(players, batches, torch.float32)(iteration)
        return players.average.state_dict()

    assert list(drawn) == [3, 5]
    for iteration, network in [*zip((2, 4, 5), seen, strict=True), *drawn.items()]:
        assert not different(network.state_dict(), expected(network, iteration))
    last = section(last_tensors(run), "average")
    assert not different(last, dict(seen[-1].state_dict()))
    best = load_generator(run.folder, "best").network.state_dict()
    assert not different(best, dict(seen[0].state_dict()))


def test_the_checkpoint_of_a_stop_has_statistics_of_its_moment(tmp_path):
    class Stop(Callback):
        def on_metrics(self, iteration, values):
            if iteration == 3:
                self.training.stop()

    config = tiny_config(iterations=9, ema=0.5, ema_statistics="recomputed", checkpoint_every=100)
    run = tiny_run(tmp_path / "run", config)
    assert train(config, tiny_data(), run, custom=Custom([Stop()])).iteration == 4
    last, players = section(last_tensors(run), "average"), tiny_players(config)
    players.average.load_state_dict(last)
    make_refresh(players, tiny_batches(config), torch.float32)(4)
    assert not different(last, players.average.state_dict())
