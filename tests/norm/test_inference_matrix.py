"""The inference matrix: factorised once, and again when the running covariance has changed."""

import pytest
import torch
from tests.norm.cases import CHANNELS, EXACT, make_batch, make_inputs, make_layer
from torch.optim.swa_utils import AveragedModel

import wcgan
import wcgan.norm._running


@pytest.fixture
def factorisations(monkeypatch):
    """A list that grows by one at each factorisation of running statistics."""
    calls = []
    original = wcgan.norm._running.factorise

    def counted(*args):
        calls.append(args)
        return original(*args)

    monkeypatch.setattr(wcgan.norm._running, "factorise", counted)
    return calls


def trained(name="WC", **options):
    """A layer in evaluation mode whose statistics are no longer those of the start."""
    layer = make_layer(name, momentum=0.5, **options)
    layer(*make_inputs(layer, 5, CHANNELS, 2, 2, seed=3))
    return layer.eval()


def assert_fresh(layer):
    """The layer's output is the one of a new layer with the same state."""
    x = make_batch(5, CHANNELS, 2, 2, seed=5)
    again = make_layer("WC")
    again.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), again.eval()(x), **EXACT)


def test_evaluation_factorises_once(factorisations):
    layer = trained()
    x = make_batch(5, CHANNELS, 2, 2)
    layer(x)
    factorisations.clear()
    for _ in range(3):
        layer.eval()(x)
    assert factorisations == []


def test_training_does_not_factorise_the_running_statistics(factorisations):
    layer = make_layer("WC")
    factorisations.clear()
    for seed in range(3):
        layer(make_batch(5, CHANNELS, 2, 2, seed=seed))
    assert factorisations == []
    layer.eval()(make_batch(5, CHANNELS, 2, 2))
    assert len(factorisations) == 1


def in_place(layer):
    layer.running_covariance.mul_(4)


def through_detach(layer):
    layer.running_covariance.detach().mul_(4)


def one_entry(layer):
    layer.running_covariance[0, 0] += 3


def a_new_tensor(layer):
    layer.running_covariance = layer.running_covariance * 4


def a_training_batch(layer):
    layer.train()(make_batch(5, CHANNELS, 2, 2, seed=6) * 3)
    layer.eval()


def a_training_batch_by_flag(layer):
    layer.training = True
    layer(make_batch(5, CHANNELS, 2, 2, seed=6) * 3)
    layer.training = False


def a_loaded_state(layer):
    layer.load_state_dict(trained_elsewhere().state_dict())


def a_state_assigned(layer):
    layer.load_state_dict(trained_elsewhere().state_dict(), assign=True)


def a_reset(layer):
    layer.reset_running_stats()


def trained_elsewhere():
    layer = make_layer("WC", momentum=0.5)
    layer(make_batch(5, CHANNELS, 2, 2, seed=6) * 3)
    return layer


CHANGES = [
    in_place,
    through_detach,
    one_entry,
    a_new_tensor,
    a_training_batch,
    a_training_batch_by_flag,
    a_loaded_state,
    a_state_assigned,
    a_reset,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_inference_matrix_follows_a_change_of_the_statistics(change):
    layer = trained()
    x = make_batch(5, CHANNELS, 2, 2, seed=5)
    before = layer(x)
    change(layer)
    assert not torch.allclose(layer(x), before)
    assert_fresh(layer)


def test_an_average_of_models_has_the_inference_matrix_of_its_own_statistics():
    model = make_layer("WC", momentum=0.5)
    average = AveragedModel(model).eval()
    average(make_batch(5, CHANNELS, 2, 2))
    model(make_batch(5, CHANNELS, 2, 2, seed=6) * 3)
    average.update_parameters(model)
    average.update_parameters(model)
    assert_fresh(average.module)


def test_a_layer_made_and_trained_in_inference_mode_evaluates_with_its_statistics():
    with torch.inference_mode():
        layer = trained()
        layer.train()(make_batch(5, CHANNELS, 2, 2, seed=6) * 3)
        layer.eval()
        assert_fresh(layer)


def test_another_type_makes_the_inference_matrix_anew():
    layer = trained(dtype=torch.float32).double()
    assert_fresh(layer)


def test_a_layer_made_without_storage_evaluates_once_it_has_a_state():
    source = trained()
    layer = make_layer("WC", dtype=torch.float64)
    with torch.device("meta"):
        empty = wcgan.WhiteningColoring2d(CHANNELS, dtype=torch.float64)
    empty.to_empty(device="cpu").load_state_dict(source.state_dict())
    layer.load_state_dict(source.state_dict())
    x = make_batch(5, CHANNELS, 2, 2)
    assert torch.equal(empty.eval()(x), layer.eval()(x))
