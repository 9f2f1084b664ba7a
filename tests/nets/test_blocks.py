"""The blocks against the same blocks spelt out, one plain operation after another."""

import copy

import pytest
import torch
from tests.nets.cases import make_images, make_labels, randomize
from torch import nn
from torch.nn.functional import avg_pool2d, conv2d, conv_transpose2d, interpolate, leaky_relu, relu
from torch.nn.utils.parametrizations import spectral_norm

import wcgan
from wcgan.nets.blocks import (
    Deconvolution,
    DownBlock,
    LeakyConvolution,
    PooledConv2d,
    SameBlock,
    SelfAttention,
    UpBlock,
    UpsampledConv2d,
    prepare,
)

EXACT = {"rtol": 1e-10, "atol": 1e-10}
IN, OUT = 4, 5


def make(block):
    randomize(block)
    return block.double()


def make_input(side=6, channels=IN):
    return make_images(channels=channels, side=side, dtype=torch.float64).requires_grad_()


def conv(layer, x, padding=1, stride=1):
    return conv2d(x, layer.weight, layer.bias, padding=padding, stride=stride)


def assert_same_with_gradients(module, output, reference, x):
    """Outputs, first derivatives, and what a gradient penalty asks for: derivatives of the derivative by the input."""
    torch.testing.assert_close(output, reference, **EXACT)
    leaves = (x, *module.parameters())
    weights = torch.linspace(-1, 2, output.numel(), dtype=torch.float64).view_as(output)
    for first, second in zip(*(derivatives(out * weights, x, leaves) for out in (output, reference)), strict=True):
        torch.testing.assert_close(first, second, **EXACT)


def derivatives(output, x, leaves):
    slope = torch.autograd.grad(output.square().sum(), leaves, create_graph=True)
    return *slope, *torch.autograd.grad(slope[0].square().sum(), leaves, allow_unused=True, materialize_grads=True)


def test_an_upsampled_convolution_is_upsampling_then_convolution():
    layer, x = make(UpsampledConv2d(IN, OUT)), make_input(side=3)
    reference = conv(layer, interpolate(x, scale_factor=2.0, mode="nearest"))
    assert_same_with_gradients(layer, layer(x), reference, x)


def test_a_pooled_convolution_is_convolution_then_pooling():
    layer, x = make(PooledConv2d(IN, OUT)), make_input()
    assert_same_with_gradients(layer, layer(x), avg_pool2d(conv(layer, x), 2), x)


def test_an_up_block_normalises_before_each_convolution_and_upsamples_after_the_first_relu():
    block, x = make(UpBlock(IN, OUT, wcgan.WhiteningColoring2d)), make_input(side=3)
    up = {"scale_factor": 2.0, "mode": "nearest"}
    h = conv(block.conv1, interpolate(relu(block.norm1(x)), **up))
    h = conv(block.conv2, relu(block.norm2(h)))
    reference = h + conv(block.shortcut, interpolate(x, **up), padding=0)
    torch.testing.assert_close(block(x), reference, **EXACT)


def test_a_deconvolution_normalises_before_its_convolution():
    block, x = make(Deconvolution(IN, OUT, wcgan.WhiteningColoring2d)), make_input(side=3)
    reference = conv_transpose2d(relu(block.norm(x)), block.conv.weight, block.conv.bias, stride=2, padding=1)
    torch.testing.assert_close(block(x), reference, **EXACT)


@pytest.mark.parametrize("make_block", [UpBlock, Deconvolution])
def test_a_block_with_conditional_layers_hands_them_the_labels(make_block):
    block = make(make_block(IN, OUT, lambda width: wcgan.normalization("cBN", width, classes=3))).eval()
    x, labels = make_input(side=3), make_labels()
    one_by_one = torch.cat([block(x[i : i + 1], labels[i : i + 1]) for i in range(len(x))])
    torch.testing.assert_close(block(x, labels), one_by_one, **EXACT)
    assert not torch.allclose(block(x, labels), block(x, labels.roll(1)))


@pytest.mark.parametrize("down", [True, False])
@pytest.mark.parametrize("outputs", [IN, OUT])
def test_a_down_block_pools_after_both_branches(down, outputs):
    block, x = make(DownBlock(IN, outputs, down=down, first=False, spectral=False)), make_input()
    h = conv(block.conv2, relu(conv(block.conv1, relu(x))))
    shortcut = conv(block.shortcut, x, padding=0) if down or outputs != IN else x
    reference = avg_pool2d(h + shortcut, 2) if down else h + shortcut
    assert_same_with_gradients(block, block(x), reference, x)


def test_the_first_down_block_has_no_relu_before_its_first_convolution():
    block, x = make(DownBlock(3, OUT, down=True, first=True, spectral=False)), make_input(channels=3)
    h = avg_pool2d(conv(block.conv2, relu(conv(block.conv1, x))), 2)
    reference = h + conv(block.shortcut, avg_pool2d(x, 2), padding=0)
    assert_same_with_gradients(block, block(x), reference, x)


def test_a_down_block_that_changes_neither_size_nor_width_adds_its_input_itself():
    block = DownBlock(IN, IN, down=False, first=False, spectral=False)
    assert [name for name, _ in block.named_parameters() if name.startswith("shortcut")] == []


@pytest.mark.parametrize(("down", "kernel", "stride"), [(False, 3, 1), (True, 4, 2)])
def test_a_leaky_convolution_convolves_then_bends(down, kernel, stride):
    block, x = make(LeakyConvolution(IN, OUT, down=down, slope=0.2, spectral=False)), make_input()
    assert block.conv.kernel_size == (kernel, kernel)
    torch.testing.assert_close(block(x), leaky_relu(conv(block.conv, x, stride=stride), 0.2), **EXACT)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_spectral_normalisation_equals_pytorchs_and_shares_its_state(training):
    torch.manual_seed(0)
    plain = nn.Conv2d(3, 5, 2, dtype=torch.float64)
    ours = prepare(copy.deepcopy(plain), 2, spectral=True)
    theirs = spectral_norm(plain)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    for layer in (ours, theirs):
        layer.train(training)
        for _ in range(2):
            layer(x).sin().sum().backward()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-12, atol=1e-12)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-12, atol=1e-12)


def test_two_passes_through_spectral_normalisation_before_one_backward_pass():
    torch.manual_seed(0)
    layer, x = prepare(nn.Linear(3, 2), 2, spectral=True), torch.randn(4, 3)
    (layer(x).sum() - layer(-x).sin().sum()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_a_same_block_adds_two_normalised_convolutions_to_its_input():
    block, x = make(SameBlock(IN, wcgan.WhiteningColoring2d)), make_input(side=5)
    h = conv(block.conv1, relu(block.norm1(x)))
    reference = x + conv(block.conv2, relu(block.norm2(h)))
    torch.testing.assert_close(block(x), reference, **EXACT)


@pytest.mark.parametrize("spectral", [False, True])
def test_attention_gathers_from_pooled_positions_by_softmax(spectral):
    block, x = make(SelfAttention(8, spectral)), make_input(side=4, channels=8)
    for _ in range(10):
        block(x)  # spectral norms are estimated in training
    block.eval()
    query, key, value, out = (layer.weight[:, :, 0, 0] for layer in (block.query, block.key, block.value, block.out))
    expected = torch.zeros_like(x)
    for n in range(len(x)):
        pooled = []  # the largest key and value, channel by channel, of each 2 x 2 positions
        for i, j in [(0, 0), (0, 2), (2, 0), (2, 2)]:
            four = x[n, :, i : i + 2, j : j + 2].flatten(1)  # (8, 4)
            pooled.append(((key @ four).amax(1), (value @ four).amax(1)))
        for i in range(4):
            for j in range(4):
                agreement = torch.stack([(query @ x[n, :, i, j]) @ k for k, _ in pooled]).exp()
                gathered = sum(a * v for a, (_, v) in zip(agreement / agreement.sum(), pooled, strict=True))
                expected[n, :, i, j] = x[n, :, i, j] + block.gamma * (out @ gathered)
    assert_same_with_gradients(block, block(x), expected, x)


def test_attention_starts_as_the_identity():
    x = make_images(channels=8, side=4)
    assert torch.equal(SelfAttention(8)(x), x)
