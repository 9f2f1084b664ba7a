"""Convolutions between images and features as products with the columns of an image, against PyTorch's convolution."""

import pytest
import torch
from torch.library import opcheck
from torch.nn.functional import conv2d

from wcgan.functional import _images

ops = torch.ops.wcgan
EXACT = {"rtol": 1e-12, "atol": 1e-12}
N, SIDES, D = 2, (4, 5), 6


def leaf(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).requires_grad_()


def assert_same_with_gradients(output, expected, leaves):
    torch.testing.assert_close(output, expected, **EXACT)
    cotangent = torch.linspace(-1, 2, output.numel(), dtype=torch.float64).view_as(output)
    gradients = [torch.autograd.grad(out, leaves, cotangent) for out in (output, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_convolution_of_an_image_and_a_relu(channels):
    x, weight, bias = leaf(N, channels, *SIDES), leaf(D, channels, 3, 3), leaf(D)
    out = _images.convolve_image(x, weight, bias, torch.float64)
    assert out.is_contiguous(memory_format=torch.channels_last)
    assert_same_with_gradients(out, conv2d(x, weight, bias, padding=1).relu(), (x, weight, bias))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_convolution_to_an_image(channels):
    x, weight, bias = leaf(N, D, *SIDES), leaf(channels, D, 3, 3), leaf(channels)
    out = _images.convolve_to_image(x, weight, bias, torch.float64)
    assert_same_with_gradients(out, conv2d(x, weight, bias, padding=1), (x, weight, bias))
    out = _images.convolve_to_image(x, weight, None, torch.float64)
    assert_same_with_gradients(out, conv2d(x, weight, padding=1), (x, weight))


@pytest.mark.parametrize("relu", [True, False])
def test_image_to_features_keeps_the_rules_of_operators(relu):
    matrix = leaf(D, _images.columns_of(3))
    opcheck(ops.image_to_features.default, (leaf(N, 3, *SIDES), matrix, relu))


def test_features_to_image_keeps_the_rules_of_operators():
    matrix = leaf(D, _images.columns_of(3))
    opcheck(ops.features_to_image.default, (leaf(N, D, *SIDES), matrix, None, leaf(3), 3, torch.float64))


def test_image_and_features_keeps_the_rules_of_operators():
    features = leaf(N, D, *SIDES).detach()
    opcheck(ops.image_and_features.default, (leaf(N, 3, *SIDES).detach(), features, features.relu()))


def test_columns_are_a_power_of_two_with_room_for_the_ones():
    assert [_images.columns_of(channels) for channels in range(1, 5)] == [16, 32, 32, 64]
