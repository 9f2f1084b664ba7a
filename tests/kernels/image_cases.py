"""Images and features for the kernels of `wcgan.kernels.images`, and PyTorch's convolution in float64 as the reference.

Operands are half-precision numbers, whose products are exact in float32: only sums and the result are rounded.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import torch
from tests.kernels.cases import PRECISIONS, additions, assert_within
from torch import Tensor
from torch.nn.functional import conv2d

from wcgan.functional._images import columns_of, kernel_to_matrix

LAST = torch.channels_last


class Case(NamedTuple):
    """A convolution of an image, and the gradient by its output."""

    image: Tensor
    weight: Tensor
    bias: Tensor | None
    output: Tensor
    """In channels-last memory, some of it 0."""
    grad: Tensor

    @property
    def matrix(self) -> Tensor:
        return kernel_to_matrix(self.weight, self.bias)


def make_case(
    shape: tuple[int, int, int, int], d: int, dtype: torch.dtype, biased: bool = True, device: str = "cpu"
) -> Case:
    """Images `(N, c, H, W)` and d features."""

    def draw(*size: int) -> Tensor:
        return torch.randn(size, device=device).to(dtype)

    n, channels, height, width = shape
    output, grad = (draw(n, d, height, width).to(memory_format=LAST) for _ in range(2))
    return Case(draw(*shape), draw(d, channels, 3, 3), draw(d) if biased else None, output.relu(), grad)


def check_expand(kernels: ModuleType, case: Case, relu: bool, wide: bool = False) -> None:
    """Image to features; if `wide`, of a float32 image that is to be rounded."""
    image = torch.randn_like(case.image, dtype=torch.float32) if wide else case.image
    out = kernels.expand(image, case.matrix, relu)
    assert out.is_contiguous(memory_format=LAST)
    rounded, weight, bias = (None if t is None else t.double() for t in (image.to(out.dtype), case.weight, case.bias))
    expected = conv2d(rounded, weight, bias, padding=1)
    size = conv2d(rounded.abs(), weight.abs(), None if bias is None else bias.abs(), padding=1)
    bound = _additions(9 * image.shape[1] + 1) * size + _rounding(expected, out.dtype)
    assert_within(out, expected.relu() if relu else expected, bound, "expand")


def check_reduce(kernels: ModuleType, case: Case, masked: bool, dtype: torch.dtype) -> None:
    """The gradient by the image, in a type, of a convolution with a ReLU if `masked`."""
    channels, saved = case.image.shape[1], case.output if masked else None
    grad = torch.where(case.output > 0, case.grad, 0.0) if masked else case.grad
    bias = None if masked else torch.randn(channels, device=grad.device)
    out = kernels.reduce(case.grad, case.matrix, saved, bias, channels, dtype)
    expected, size = (
        torch.nn.grad.conv2d_input(case.image.shape, w, g, padding=1) for w, g in _wide_and_sizes(case.weight, grad)
    )
    if bias is not None:
        expected, size = (t + b.double().view(-1, 1, 1) for t, b in ((expected, bias), (size, bias.abs())))
    bound = _additions(9 * case.grad.shape[1]) * size + _rounding(expected, dtype)
    assert_within(out, expected, bound, "reduce")


def check_outer(kernels: ModuleType, case: Case, masked: bool) -> None:
    """The gradient by kernel and bias, of a convolution with a ReLU if `masked`."""
    grad = torch.where(case.output > 0, case.grad, 0.0) if masked else case.grad
    out = kernels.outer(case.image, case.grad, case.output if masked else None, columns_of(case.image.shape[1]))
    pairs = _wide_and_sizes(case.image, grad)
    weights = [torch.nn.grad.conv2d_weight(x, case.weight.shape, g, padding=1) for x, g in pairs]
    expected, size = (kernel_to_matrix(w, g.sum((0, 2, 3))) for w, (_, g) in zip(weights, pairs, strict=True))
    assert out.dtype == torch.float32
    assert_within(out, expected, _additions(grad.numel() // grad.shape[1]) * size, "outer")


def _wide_and_sizes(*tensors: Tensor) -> list[list[Tensor]]:
    return [[t.double() for t in tensors], [t.double().abs() for t in tensors]]


def _additions(terms: int) -> float:
    return additions(terms, PRECISIONS["float16"])


def _rounding(expected: Tensor, dtype: torch.dtype) -> Tensor:
    """Of the result; numbers below the smallest normal one have fewer digits."""
    kind = torch.finfo(dtype)
    return kind.eps / 2 * 1.01 * expected.abs().clamp(min=kind.smallest_normal)
