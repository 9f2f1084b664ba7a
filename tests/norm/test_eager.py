"""The layers in eager code beside the operators that compiled code runs: the same results, in fewer calls."""

import copy

import pytest
import torch
from tests.norm.cases import CHANNELS, EXACT, gradients, make_inputs, make_layer
from torch.autograd.graph import saved_tensors_hooks

from wcgan.norm import _base

TRAINED = ("BN", "WC", "cBN", "cWC", "cWC_sa")
LAYOUTS = {"contiguous": torch.contiguous_format, "channels last": torch.channels_last}


@pytest.fixture
def by_operators(monkeypatch):
    """A function that calls another without the eager ways through a layer."""

    def call(function, *args):
        with monkeypatch.context() as patch:
            for name in ("whiten_color_eagerly", "map_eagerly"):
                patch.setattr(_base, name, lambda *args: None)
            patch.setattr(_base, "is_eager", lambda args: False)
            return function(*args)

    return call


def run(layer, inputs, relu=False):
    """Output, gradients, and the state after it."""
    x = inputs[0].detach().requires_grad_()
    out = layer(x, *inputs[1:], relu=relu)
    found = gradients(out, x, *(p for p in layer.parameters() if p.requires_grad))
    counters = (layer.num_retried, layer.num_nonfinite)
    return [out.detach(), *found, *(t.clone() for t in (*layer.buffers(), *counters))]


def make_case(name, layout="contiguous", training=True, **options):
    layer = make_layer(name, momentum=0.3, **options)
    inputs = make_inputs(layer, 6, CHANNELS, 5, 3, dtype=options.get("dtype", torch.float64))
    layer(*inputs)
    return layer.train(training), (inputs[0].contiguous(memory_format=LAYOUTS[layout]), *inputs[1:])


@pytest.mark.parametrize("relu", [False, True], ids=["", "relu"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", TRAINED)
def test_eager_layers_equal_the_operators(name, training, layout, relu, by_operators):
    layer, inputs = make_case(name, layout, training)
    other = copy.deepcopy(layer)
    found, expected = run(layer, inputs, relu), by_operators(run, other, inputs, relu)
    torch.testing.assert_close(found, expected, **EXACT)
    assert found[0].stride() == inputs[0].stride()


@pytest.mark.parametrize(
    ("name", "training", "node"), [("WC", True, "_WhitenColor"), ("cWC", True, "_WhitenColor"), ("WC", False, "_Map")]
)
def test_eager_code_takes_the_way_of_few_calls(name, training, node):
    layer, inputs = make_case(name, training=training)
    assert layer(inputs[0].requires_grad_(), *inputs[1:]).grad_fn.name() == f"{node}Backward"


@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_a_covariance_that_was_shrunk_further_has_the_gradient_of_that(name, by_operators):
    layer, inputs = make_case(name, eps=0.0)
    inputs[0][:, 1] = 0
    other = copy.deepcopy(layer)
    found, expected = run(layer, inputs), by_operators(run, other, inputs)
    assert layer.num_retried == other.num_retried == 1
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", TRAINED)
def test_a_batch_that_is_not_finite_is_counted_alike(name, value, by_operators):
    layer, inputs = make_case(name)
    inputs[0][0, 1, 0, 0] = value
    other = copy.deepcopy(layer)
    found, expected = run(layer, inputs), by_operators(run, other, inputs)
    assert layer.num_nonfinite == 1
    torch.testing.assert_close(found, expected, equal_nan=True, **EXACT)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_gradients_that_nobody_wants_are_left_out(name, training, by_operators):
    layer, inputs = make_case(name, training=training)
    other = copy.deepcopy(layer)
    out = layer(*inputs)  # a batch without a gradient
    expected = by_operators(other, *inputs)
    torch.testing.assert_close(gradients(out, *layer.parameters()), gradients(expected, *other.parameters()), **EXACT)
    for parameter in (*layer.parameters(), *other.parameters()):
        parameter.requires_grad_(False)
    torch.testing.assert_close(run(layer, inputs), by_operators(run, other, inputs), **EXACT)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", TRAINED)
def test_the_output_can_be_changed_in_place(name, layout, training):
    layer, inputs = make_case(name, layout, training)
    x = inputs[0].requires_grad_()
    changed = gradients(layer(x, *inputs[1:]).relu_(), x)
    torch.testing.assert_close(changed, gradients(layer(x, *inputs[1:]).relu(), x), **EXACT)


def test_a_gradient_that_is_expanded_has_the_same_result_as_a_copy_of_it():
    layer, (x,) = make_case("WC", training=False)
    for training in (True, False):
        out = layer.train(training)(x.requires_grad_())
        (expanded,) = torch.autograd.grad((out * out.detach().sign()).sum() + out.sum(), x, retain_graph=True)
        (copied,) = torch.autograd.grad(out, x, out.detach().sign() + 1, retain_graph=True)
        torch.testing.assert_close(expanded, copied, **EXACT)
        (plain,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
        torch.testing.assert_close(plain, torch.autograd.grad(out, x, torch.ones_like(out))[0], **EXACT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype, by_operators):
    layer, inputs = make_case("WC", dtype=torch.float32)
    half = (inputs[0].to(dtype),)
    other = copy.deepcopy(layer)
    torch.testing.assert_close(run(layer, half), by_operators(run, other, half), rtol=1e-2, atol=1e-2)


def test_backward_keeps_the_input_and_otherwise_only_small_tensors():
    layer, (x,) = make_case("WC")
    x, kept = torch.cat([x] * 9).requires_grad_(), []
    with saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        layer(x)
    others = [t for t in kept if t.data_ptr() != x.data_ptr()]
    assert len(others) == len(kept) - 1
    assert max(t.untyped_storage().nbytes() for t in others) <= 8 * CHANNELS**2


def test_a_batch_beyond_the_limit_goes_by_the_operators(monkeypatch):
    monkeypatch.setattr("wcgan.functional._eager.LARGEST_ON_CPU", 8)
    layer, (x,) = make_case("WC")
    assert layer(x.requires_grad_()).grad_fn.name() != "_WhitenColorBackward"


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize(("wide", "narrow"), [(torch.float64, torch.float32), (torch.float32, torch.float64)])
@pytest.mark.parametrize("name", ["BN", "WC"])
def test_batches_of_another_type_than_the_layer_equal_the_operators(name, wide, narrow, training, by_operators):
    layer, inputs = make_case(name, dtype=narrow)
    other = copy.deepcopy(layer.train(training))
    mixed = (inputs[0].to(wide),)
    torch.testing.assert_close(run(layer, mixed), by_operators(run, other, mixed), rtol=1e-4, atol=1e-4)
