"""The inference matrix: factorised once, and again when the running covariance has changed."""

import copy

import pytest
import torch
from tests.norm.cases import CHANNELS, EXACT, WHITENED_PATHS, make_batch, make_inputs, make_layer
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
        layer(x)
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


def other_memory(layer):
    layer.running_covariance.data = layer.running_covariance.data * 4


def through_data_and_evaluation_again(layer):
    layer.running_covariance.data.mul_(4)
    layer.eval()


def through_numpy_and_evaluation_again(layer):
    layer.running_covariance.numpy()[:] *= 4
    layer.eval()


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
    other_memory,
    through_data_and_evaluation_again,
    through_numpy_and_evaluation_again,
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


def test_another_type_makes_the_inference_matrix_anew_and_at_once(factorisations):
    layer = trained(dtype=torch.float32).double()
    factorisations.clear()
    layer(make_batch(5, CHANNELS, 2, 2))
    assert factorisations == []
    assert_fresh(layer)


def test_memory_that_is_used_again_is_not_taken_for_what_it_held():
    layer = trained()
    for scale in range(1, 40):  # the memory of the matrix's statistics is free, and likely the next to be taken
        layer(make_batch(5, CHANNELS, 2, 2))
        layer.running_covariance.data = torch.eye(CHANNELS, dtype=torch.float64)
        layer.running_covariance.data = torch.eye(CHANNELS, dtype=torch.float64) * scale
        assert_fresh(layer)


def test_a_matrix_made_within_a_transform_stays_there():
    layer = trained()
    layer.running_covariance.mul_(4)
    torch.func.grad(lambda x: layer(x).square().sum())(make_batch(5, CHANNELS, 2, 2))
    assert_fresh(layer)
    layer(make_batch(5, CHANNELS, 2, 2)).sum().backward()


def second(layer):
    return "running_var" if layer.whitening == "standardize" else "running_covariance"


@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_functional_call_with_another_covariance_uses_it_and_leaves_the_layer_alone(name):
    layer = trained(name)
    inputs = make_inputs(layer, 5, CHANNELS, 2, 2, seed=5)
    expected, key = layer(*inputs), second(layer)
    for scale in range(2, 40):  # each new tensor likely where the last one was
        out = torch.func.functional_call(layer, {key: getattr(layer, key) * scale}, inputs)
        fresh = copy.deepcopy(layer)
        getattr(fresh, key).mul_(scale)
        assert torch.equal(out, fresh(*inputs))
        assert torch.equal(layer(*inputs), expected)


def test_what_changes_no_statistics_between_a_pass_and_its_gradient_does_no_harm():
    layer = trained()
    x = make_batch(5, CHANNELS, 2, 2)
    out = layer(x)
    torch.func.functional_call(layer, {"running_covariance": layer.running_covariance * 3}, (x,))
    layer.eval().to("cpu")
    out.sum().backward()
    assert layer.weight.grad.isfinite().all()


@pytest.mark.parametrize("change", [in_place, a_new_tensor], ids=lambda change: change.__name__)
def test_a_changed_matrix_is_not_used_for_the_gradient_of_an_earlier_pass(change):
    layer = trained()
    out = layer(make_batch(5, CHANNELS, 2, 2))
    change(layer)
    layer.eval()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_the_gradient_of_a_covariance_that_was_handed_over_is_that_of_the_formula():
    layer = trained()
    x = make_batch(5, CHANNELS, 2, 2)

    def call(covariance):
        return torch.func.functional_call(layer, {"running_covariance": covariance}, (x,))

    assert torch.autograd.gradcheck(call, layer.running_covariance.clone().requires_grad_())


@pytest.mark.parametrize("updates", range(6))
def test_a_copy_with_as_many_changes_as_its_original_is_not_taken_for_it(updates):
    layer = trained()
    layer(make_batch(5, CHANNELS, 2, 2))
    twin = copy.deepcopy(layer)
    twin.training = True  # by flag: no `eval()` afterwards to make the matrix anew
    for seed in range(updates):
        twin(make_batch(5, CHANNELS, 2, 2, seed=seed) * 3)
    twin.training = False
    assert_fresh(twin)


@pytest.mark.parametrize(("name", "value"), [("eps", 0.1), ("iterations", 1)])
def test_the_inference_matrix_follows_a_change_of_the_options(name, value):
    layer = trained("IterNorm")
    inputs = make_inputs(layer, 5, CHANNELS, 2, 2)
    before = layer(*inputs)
    setattr(layer, name, value)
    fresh = copy.deepcopy(layer)
    assert not torch.allclose(layer(*inputs), before)
    assert torch.equal(layer(*inputs), fresh.eval()(*inputs))


@pytest.mark.parametrize("name", ["WC", *(pytest.param(name, marks=pytest.mark.slow) for name in ("BN", "cWC"))])
def test_a_compiled_function_uses_the_covariance_that_it_is_handed(name):
    layer = trained(name)
    inputs, key = make_inputs(layer, 5, CHANNELS, 2, 2), second(layer)

    def call(covariance):
        return torch.func.functional_call(layer, {key: covariance}, inputs)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for scale in (3, 5, 1):
        covariance = getattr(layer, key) * scale
        torch.testing.assert_close(compiled(covariance), call(covariance), **EXACT)


@pytest.mark.parametrize("move", [lambda layer: layer, lambda layer: layer.float().double()], ids=["made", "moved"])
def test_a_layer_put_into_evaluation_in_inference_mode_can_be_differentiated(move):
    layer = move(make_layer("WC"))
    with torch.inference_mode():
        layer.eval()
    layer(make_batch(5, CHANNELS, 2, 2)).sum().backward()
    assert layer.weight.grad.isfinite().all()
