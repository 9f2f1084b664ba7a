"""Running statistics: what moves them, what must not, and what is counted."""

import copy

import pytest
import torch
from tests.norm.cases import (
    CHANNELS,
    EXACT,
    PATHS,
    VARIANTS,
    WHITENED_PATHS,
    assert_unchanged,
    gradients,
    make_batch,
    make_inputs,
    make_layer,
    snapshot,
)

import wcgan
from wcgan.functional._factorisations import FACTORISATIONS
from wcgan.norm import use_batch_statistics

STATISTICS = ("running_mean", "running_var", "running_covariance", "num_batches_tracked")


def statistics(layer):
    return {name: tensor for name, tensor in snapshot(layer).items() if name in STATISTICS}


# Batches that are not finite


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_a_batch_that_is_not_finite_stays_out_of_the_running_statistics(name, value):
    layer = make_layer(name)
    inputs = make_inputs(layer, 5, CHANNELS, 2, 2)
    layer(*inputs)
    before = statistics(layer)
    bad = inputs[0].clone()
    bad[1, 2, 0, 1] = value
    out = layer(bad, *inputs[1:])
    torch.testing.assert_close(statistics(layer), before, rtol=0, atol=0)
    assert layer.num_nonfinite == 1
    assert out[:, 2].isnan().all()


@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_the_batch_after_one_that_is_not_finite_is_as_if_that_had_never_been(name):
    layer = make_layer(name)
    undisturbed = copy.deepcopy(layer)
    inputs = make_inputs(layer, 5, CHANNELS, 2, 2)
    layer(torch.full_like(inputs[0], torch.nan), *inputs[1:])
    assert torch.equal(layer(*inputs), undisturbed(*inputs))
    torch.testing.assert_close(statistics(layer), statistics(undisturbed), rtol=0, atol=0)
    assert (layer.num_nonfinite, layer.num_batches_tracked) == (1, 1)


def test_with_a_full_whitening_one_nan_makes_the_whole_output_nan():
    layer = make_layer("WC")
    x = make_batch(5, CHANNELS, 2, 2)
    x[0, 0, 0, 0] = torch.nan
    assert layer(x).isnan().all()


def test_a_batch_whose_covariance_overflows_is_counted_as_not_finite():
    layer = make_layer("WC", dtype=torch.float32)
    before = statistics(layer)
    layer(make_batch(5, CHANNELS, 2, 2, dtype=torch.float32) * 1e25)
    assert layer.num_nonfinite == 1
    torch.testing.assert_close(statistics(layer), before, rtol=0, atol=0)


def test_evaluation_counts_nothing_and_moves_nothing():
    layer = make_layer("WC").eval()
    before = snapshot(layer)
    layer(torch.full((5, CHANNELS, 2, 2), torch.nan, dtype=torch.float64))
    layer(make_batch(5, CHANNELS, 2, 2))
    torch.testing.assert_close(snapshot(layer), before, rtol=0, atol=0)


def test_a_layer_without_running_statistics_still_counts_batches_that_are_not_finite():
    layer = make_layer("WC", track_running_stats=False)
    layer(torch.full((5, CHANNELS, 2, 2), torch.nan, dtype=torch.float64))
    layer(make_batch(5, CHANNELS, 2, 2))
    assert layer.num_nonfinite == 1


# Covariances that cannot be factorised


def duplicated_channels(seed):
    """Two channels alike at a scale beside which the shrinkage is lost in rounding."""
    x = make_batch(8, CHANNELS, 3, 3, seed=seed, dtype=torch.float32) * 1e6
    x[:, 1] = x[:, 0]
    return x


@pytest.fixture
def attempts(monkeypatch):
    """Whether each factorisation was retried. Rounding decides that, and differs between processors and code paths."""
    plain, found = FACTORISATIONS["cholesky"], []

    def factorise(*args):
        whitening = plain.factorise(*args)
        found.append(bool(whitening.retry.any()))
        return whitening

    monkeypatch.setitem(FACTORISATIONS, "cholesky", plain._replace(factorise=factorise))
    return found


@pytest.mark.parametrize("name", [n for n in WHITENED_PATHS if wcgan.VARIANTS[n].whitening == "cholesky"])
def test_batches_without_a_cholesky_factor_are_retried_and_counted(name, attempts):
    layer = make_layer(name, dtype=torch.float32)
    labels = make_inputs(layer, 8, CHANNELS, 3, 3)[1:]
    retried = 0
    for seed in range(12):
        x = duplicated_channels(seed).requires_grad_()
        attempts.clear()
        out = layer(x, *labels)
        retried += any(attempts)
        assert out.isfinite().all()
        assert all(gradient.isfinite().all() for gradient in gradients(out, x, *layer.parameters()))
    assert 0 < retried == layer.num_retried
    assert (layer.num_batches_tracked, layer.num_nonfinite) == (12, 0)


@pytest.mark.parametrize("name", ["WzcaC", "DBN"])
def test_zca_retries_where_an_eigenvalue_is_lost_in_rounding(name):
    layer = make_layer(name, dtype=torch.float32)
    x = duplicated_channels(0).requires_grad_()
    out = layer(x)
    assert out.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients(out, x, *layer.parameters()))
    assert (layer.num_retried, layer.num_batches_tracked) == (1, 1)


def test_an_ordinary_batch_is_not_retried():
    layer = make_layer("WC", dtype=torch.float32)
    layer(make_batch(8, CHANNELS, 3, 3, dtype=torch.float32))
    assert layer.num_retried == 0


def test_running_statistics_that_cannot_be_factorised_are_retried_too(attempts):
    compared = 0
    for seed in range(12):
        layer = make_layer("WC", dtype=torch.float32, momentum=1.0)
        trained = layer(duplicated_channels(seed))
        attempts.clear()
        evaluated = layer.eval()(duplicated_channels(seed))
        if layer.num_retried and any(attempts):
            torch.testing.assert_close(evaluated, trained, rtol=1e-3, atol=1e-3)
            compared += 1
    assert compared > 0


def test_counters_are_not_saved():
    assert not {"num_retried", "num_nonfinite"} & set(make_layer("WC").state_dict())


# What moves the statistics


def test_statistics_start_at_mean_zero_and_covariance_one():
    layer = wcgan.WhiteningColoring2d(CHANNELS)
    assert torch.equal(layer.running_mean, torch.zeros(CHANNELS))
    assert torch.equal(layer.running_covariance, torch.eye(CHANNELS))
    grouped = wcgan.WhiteningColoring2d(CHANNELS, groups=2)
    assert torch.equal(grouped.running_covariance, torch.eye(2).expand(2, 2, 2))
    assert torch.equal(wcgan.normalization("BN", CHANNELS).running_var, torch.ones(CHANNELS))


def test_reset_running_stats_returns_to_the_start():
    layer = make_layer("WC").eval()
    fresh = snapshot(layer)
    layer.train()(make_batch(5, CHANNELS, 2, 2))
    layer(torch.full((5, CHANNELS, 2, 2), torch.nan, dtype=torch.float64))
    layer.reset_running_stats()
    torch.testing.assert_close(snapshot(layer), fresh, rtol=0, atol=0)


@pytest.mark.parametrize("name", PATHS)
def test_a_cumulative_average_of_one_batch_whitens_it_in_evaluation(name):
    layer = make_layer(name, momentum=None)
    inputs = make_inputs(layer, 5, CHANNELS, 2, 2)
    trained = layer(*inputs)
    if layer.whitening == "standardize":  # training divides by the biased variance, as batch normalisation does
        m = inputs[0][:, 0].numel()
        layer.running_var.mul_((m - 1) / m)
    torch.testing.assert_close(layer.eval()(*inputs), trained, **EXACT)


def test_the_statistics_carry_no_gradient():
    layer = make_layer("WC")
    layer(make_batch(5, CHANNELS, 2, 2).requires_grad_())
    assert not any(buffer.requires_grad for buffer in layer.buffers())


def test_training_without_gradients_moves_the_statistics_too():
    layer, other = make_layer("WC"), make_layer("WC")
    x = make_batch(5, CHANNELS, 2, 2)
    layer(x.requires_grad_())
    with torch.no_grad():
        other(x)
    torch.testing.assert_close(snapshot(other), snapshot(layer), rtol=0, atol=0)


# Statistics of the batch in evaluation


def trained_layer(name, dtype=torch.float64, **options):
    """A layer with running statistics of another batch, and a batch."""
    layer = make_layer(name, dtype=dtype, momentum=0.5, **options)
    layer(*make_inputs(layer, 6, CHANNELS, 3, 2, seed=3, dtype=dtype))
    return layer, make_inputs(layer, 8, CHANNELS, 3, 2, seed=4, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", VARIANTS)
def test_with_batch_statistics_evaluation_has_the_output_of_training(name, dtype):
    layer, inputs = trained_layer(name, dtype)
    with torch.no_grad():
        wanted = copy.deepcopy(layer)(*inputs)
        found = use_batch_statistics(layer.eval())(*inputs)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_with_batch_statistics_groups_are_whitened_as_in_training(name):
    layer, inputs = trained_layer(name, groups=2)
    wanted = copy.deepcopy(layer)(*inputs)
    torch.testing.assert_close(use_batch_statistics(layer.eval())(*inputs), wanted, **EXACT)


@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_batch_statistics_are_not_the_running_ones(name):
    layer, inputs = trained_layer(name)
    usual = layer.eval()(*inputs)
    assert not torch.allclose(use_batch_statistics(layer)(*inputs), usual, atol=0.1)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", PATHS)
def test_with_batch_statistics_the_state_stays_as_it_was(name, training):
    layer, inputs = trained_layer(name)
    before, saved = snapshot(layer), copy.deepcopy(layer.state_dict())
    use_batch_statistics(layer).train(training)(*inputs)
    assert_unchanged(layer, before)
    torch.testing.assert_close(dict(layer.state_dict()), dict(saved), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["WC", "BN"])
def test_with_batch_statistics_half_precision_leaves_the_running_ones_as_they_were(name):
    layer, _ = trained_layer(name, torch.float32)
    before = {key: value.clone() for key, value in layer.named_buffers()}
    use_batch_statistics(layer.eval()).half()
    torch.testing.assert_close(dict(layer.named_buffers()), before, rtol=0, atol=0)


def test_every_whitening_layer_of_a_network_uses_its_batch_and_batch_normalisation_does_not():
    network = torch.nn.Sequential(make_layer("WC"), torch.nn.BatchNorm2d(CHANNELS).double(), make_layer("BN"))
    x = make_batch(8, CHANNELS, 3, 2, seed=4)
    network(3 * x + 1)
    network.eval()
    wanted = copy.deepcopy(network)
    wanted[0].train()
    wanted[2].train()
    assert torch.equal(use_batch_statistics(network)(x), wanted(x))


def test_batch_statistics_are_those_of_one_process():
    layer = use_batch_statistics(make_layer("WC", sync=True))
    assert not layer.sync
