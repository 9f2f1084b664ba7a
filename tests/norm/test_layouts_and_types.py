"""Memory formats, number types, autocast, and the small habits of a module in a network."""

import copy

import pytest
import torch
from tests.norm.cases import (
    CHANNELS,
    EXACT,
    PATHS,
    WHITENED_PATHS,
    gradients,
    make_batch,
    make_inputs,
    make_layer,
    oracle_train,
    snapshot,
)
from torch import nn

import wcgan

MODES = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
HALF = pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])


def used_layer(name, training, dtype=torch.float64, **options):
    """A layer whose running statistics are those of one batch."""
    layer = make_layer(name, dtype=dtype, momentum=1.0, **options)
    layer(*make_inputs(layer, 6, CHANNELS, 3, 3, seed=3, dtype=dtype))
    return layer.train(training)


# Memory


@MODES
@pytest.mark.parametrize("name", PATHS)
def test_channels_last_in_gives_channels_last_out_and_the_same_values(name, training):
    layer = used_layer(name, training)
    x, *labels = make_inputs(layer, 5, CHANNELS, 3, 2)
    expected = copy.deepcopy(layer)(x, *labels)
    last = x.to(memory_format=torch.channels_last).requires_grad_()
    out = layer(last, *labels)
    torch.testing.assert_close(out, expected, **EXACT)
    assert out.is_contiguous(memory_format=torch.channels_last)
    (gradient,) = torch.autograd.grad(out, last, torch.randn_like(out))
    assert gradient.is_contiguous(memory_format=torch.channels_last)


LAYOUTS = {
    "every other sample": make_batch(10, CHANNELS, 3, 2)[::2],
    "a slice of channels": make_batch(5, CHANNELS + 3, 3, 2)[:, 2 : CHANNELS + 2],
    "every other place": make_batch(5, CHANNELS, 6, 2)[:, :, ::2],
    "transposed places": make_batch(5, CHANNELS, 2, 3).transpose(2, 3),
    "expanded places": make_batch(5, CHANNELS, 3, 1).expand(5, CHANNELS, 3, 2),
}


@MODES
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["BN", "WC", "DBN", "cWC", "cBN", "C-only"])
def test_strided_input_gives_the_values_of_contiguous_input(name, layout, training):
    x = LAYOUTS[layout].detach().requires_grad_()
    layer = used_layer(name, training)
    labels = make_inputs(layer, 5, CHANNELS, 3, 2)[1:]
    dense = x.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
    expected = copy.deepcopy(layer)(dense, *labels)
    out = layer(x, *labels)
    torch.testing.assert_close(out, expected, **EXACT)
    torch.testing.assert_close(gradients(out, x), gradients(expected, dense), **EXACT)


SEQUENCES = {  # with channels innermost, but not a matrix (N L, d) in memory
    "positions first": make_batch(3, 5, CHANNELS).permute(1, 2, 0),
    "a slice of positions": make_batch(5, 6, CHANNELS)[:, 1:4].transpose(1, 2),
}


@MODES
@pytest.mark.parametrize("layout", SEQUENCES)
@pytest.mark.parametrize("name", ["WC", "cWC"])
def test_sequences_may_lie_anywhere_in_memory(name, layout, training):
    x = SEQUENCES[layout].detach().requires_grad_()
    layer = make_layer(name, dim=1, momentum=1.0)
    layer(*make_inputs(layer, 6, CHANNELS, 3, seed=3))
    layer.train(training)
    labels = make_inputs(layer, 5, CHANNELS, 3)[1:]
    dense = x.detach().clone(memory_format=torch.contiguous_format).requires_grad_()
    expected = copy.deepcopy(layer)(dense, *labels)
    out = layer(x, *labels)
    torch.testing.assert_close(out, expected, **EXACT)
    cotangent = torch.empty_like(x).copy_(make_batch(5, CHANNELS, 3, seed=1))  # in the batch's own layout
    found, wanted = (torch.autograd.grad(z, y, cotangent)[0] for z, y in ((out, x), (expected, dense)))
    torch.testing.assert_close(found, wanted, **EXACT)


@MODES
@pytest.mark.parametrize("name", PATHS)
def test_the_input_is_left_as_it_was(name, training):
    layer = used_layer(name, training)
    x, *labels = make_inputs(layer, 5, CHANNELS, 3, 2)
    before = x.clone()
    out = layer(x, *labels)
    assert torch.equal(x, before)
    assert out.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("name", PATHS)
def test_an_empty_batch_passes_in_evaluation(name):
    layer = used_layer(name, training=False)
    x, *labels = make_inputs(layer, 0, CHANNELS, 3, 2)
    assert layer(x, *labels).shape == (0, CHANNELS, 3, 2)


# Number types


@MODES
@pytest.mark.parametrize("name", PATHS)
def test_float32_is_near_float64(name, training):
    layer = used_layer(name, training, dtype=torch.float32)
    wide = copy.deepcopy(layer).double()
    x, *labels = make_inputs(layer, 6, CHANNELS, 3, 3, dtype=torch.float32)
    out = layer(x, *labels)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.double(), wide(x.double(), *labels), rtol=1e-4, atol=1e-4)


@HALF
@MODES
@pytest.mark.parametrize("name", PATHS)
def test_under_autocast_a_half_batch_gives_a_half_output_from_float32_statistics(name, training, half):
    layer = used_layer(name, training, dtype=torch.float32)
    exact = copy.deepcopy(layer)
    x, *labels = make_inputs(layer, 6, CHANNELS, 3, 3, dtype=half)
    x = (x + 8).requires_grad_()  # a mean that half precision would not cancel
    with torch.autocast("cpu", dtype=half):
        out = layer(x, *labels)
    expected = exact(x.detach().float(), *labels)
    out.float().square().mean().backward()
    assert out.dtype == half
    assert x.grad.dtype == half
    assert all(parameter.grad.dtype == torch.float32 for parameter in layer.parameters())
    rounding = torch.finfo(half).eps * expected.abs().max().item() * CHANNELS
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=rounding)
    for key, value in snapshot(exact).items():
        torch.testing.assert_close(snapshot(layer)[key], value, rtol=1e-5, atol=1e-5)


@MODES
@pytest.mark.parametrize("name", PATHS)
def test_autocast_changes_nothing_for_a_float32_batch(name, training):
    layer = used_layer(name, training, dtype=torch.float32)
    plain = copy.deepcopy(layer)
    x, *labels = make_inputs(layer, 6, CHANNELS, 3, 3, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x, *labels)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, plain(x, *labels), rtol=1e-6, atol=1e-6)


@HALF
def test_a_network_trains_under_autocast(half):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), wcgan.WhiteningColoring2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), wcgan.WhiteningColoring2d(8)
    )
    with torch.autocast("cpu", dtype=half):
        loss = model(torch.randn(4, 3, 8, 8)).float().square().mean()
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@HALF
@pytest.mark.parametrize("name", ["WC", "BN", "cWC"])
def test_a_layer_cast_to_half_works_in_both_modes(name, half):
    layer = make_layer(name, dtype=torch.float32).to(half)
    inputs = make_inputs(layer, 6, CHANNELS, 3, 3, dtype=half)
    out = layer(*inputs)
    assert (out.dtype, out.isfinite().all().item()) == (half, True)
    out = layer.eval()(*inputs)
    assert (out.dtype, out.isfinite().all().item()) == (half, True)


# Habits


@pytest.mark.parametrize("name", PATHS)
def test_gradients_accumulate_over_batches_and_zero_grad_drops_them(name):
    layer = make_layer(name)
    parameters = list(layer.parameters())
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for seed in range(2):
        inputs = make_inputs(layer, 5, CHANNELS, 2, 2, seed=seed)
        loss = layer(*inputs).pow(3).sum()
        if parameters:
            loss.backward()
            expected = torch.autograd.grad(oracle_train(layer, *inputs).pow(3).sum(), parameters)
            total = [t + e for t, e in zip(total, expected, strict=True)]
    torch.testing.assert_close([parameter.grad for parameter in parameters], total, **EXACT)
    layer.zero_grad()
    assert all(parameter.grad is None for parameter in parameters)


@pytest.mark.parametrize("name", PATHS)
def test_a_layer_used_twice_in_one_graph_has_the_sum_of_both_gradients(name):
    layer = make_layer(name)
    x, *labels = make_inputs(layer, 5, CHANNELS, 2, 2)
    leaves = [x.requires_grad_(), *layer.parameters()]
    out = layer(layer(x, *labels), *labels)
    expected = oracle_train(layer, oracle_train(layer, x, *labels), *labels)
    torch.testing.assert_close(out, expected, **EXACT)
    torch.testing.assert_close(gradients(out, *leaves), gradients(expected, *leaves), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", WHITENED_PATHS)
def test_frozen_parameters_get_no_gradient_and_the_input_still_does(name):
    layer = make_layer(name).requires_grad_(False)
    x, *labels = make_inputs(layer, 5, CHANNELS, 2, 2)
    layer(x.requires_grad_(), *labels).pow(3).sum().backward()
    (expected,) = torch.autograd.grad(oracle_train(layer, x, *labels).pow(3).sum(), x)
    torch.testing.assert_close(x.grad, expected, **EXACT)
    assert all(parameter.grad is None for parameter in layer.parameters())


@pytest.mark.parametrize("name", ["WC", "cWC_sa", "BN"])
def test_the_layer_s_device_and_dtype_are_those_it_was_asked_for(name):
    options = {"classes": 3} if name.startswith("c") else {}
    layer = wcgan.normalization(name, CHANNELS, device="meta", dtype=torch.float64, **options)
    assert all(tensor.is_meta for tensor in (*layer.parameters(), *layer.buffers()))
    assert all(parameter.dtype == torch.float64 for parameter in layer.parameters())
    assert layer.running_mean.dtype == torch.float64


@pytest.mark.parametrize("default", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_layer_made_without_a_dtype_has_the_default_one_and_statistics_no_narrower_than_float32(default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        layer = wcgan.WhiteningColoring2d(CHANNELS)
    finally:
        torch.set_default_dtype(before)
    assert layer.weight.dtype == default
    assert {layer.running_mean.dtype, layer.running_covariance.dtype} == {torch.promote_types(default, torch.float32)}


def cast(name, half):
    return make_layer(name, dtype=torch.float32).to(half)


def made(name, half):
    return make_layer(name, dtype=half)


def loaded(name, half):
    """With a state that was saved when statistics were rounded, too."""
    layer = make_layer(name, dtype=torch.float32).to(half)
    rounded = {k: v.to(half) if v.is_floating_point() else v for k, v in layer.state_dict().items()}
    layer.load_state_dict(rounded, assign=True)
    return layer


@HALF
@pytest.mark.parametrize("make", [cast, made, loaded], ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", ["BN", "C-only", "WC", "DBN", "cWC_sa"])
def test_statistics_of_a_half_layer_hold_a_large_input(name, make, half):
    layer = make(name, half)
    layer.momentum = 0.5
    reference = copy.deepcopy(layer).float()
    for seed in range(10):
        x, *labels = make_inputs(layer, 8, CHANNELS, 3, 3, seed=seed, dtype=torch.float32)
        x = (600 * x).to(half)  # a variance beyond the largest float16
        layer(x, *labels), reference(x.float(), *labels)
    out, expected = layer.eval()(x, *labels), reference.eval()(x.float(), *labels)
    assert out.dtype == half
    rounding = torch.finfo(half).eps * expected.abs().max().item() * CHANNELS**2
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=rounding)
    torch.testing.assert_close(dict(layer.named_buffers()), dict(reference.named_buffers()), rtol=1e-5, atol=1e-5)


@HALF
@pytest.mark.parametrize("name", ["WC", "DBN", "cBN", "cWC_sa"])
def test_a_half_network_folds(name, half):
    layer = make_layer(name, dtype=torch.float32, momentum=0.5).to(half)
    x, *labels = make_inputs(layer, 6, CHANNELS, 3, 3, dtype=half)
    layer(x, *labels)
    expected = copy.deepcopy(layer).float().eval()(x.float(), *labels)
    out = wcgan.fold(layer)(x, *labels)
    rounding = torch.finfo(half).eps * expected.abs().max().item() * CHANNELS**2
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=rounding)
