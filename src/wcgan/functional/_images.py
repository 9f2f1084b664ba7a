"""3x3 convolutions between images and feature maps as operators with GPU kernels, for networks that are compiled.

A kernel and its bias are the rows of a matrix, `kernel_to_matrix`, and an image is a matrix of nine neighbours of each
position, `image_to_columns`. The operators are the three products with it, and each one's gradient consists of the
others. Where the kernels do not support a convolution (`kernel_dtype`), networks use PyTorch's.
"""

from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn.functional import fold, pad, unfold

from wcgan.functional import _operators
from wcgan.functional._operators import is_autocast, register, register_gradient

HALF = (torch.bfloat16, torch.float16)


def convolve_image(x: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """`relu(conv2d(x, weight, bias, padding=1))` of an image, in a type: `(N, c, H, W)` -> `(N, d, H, W)`."""
    # Channels last as the compiler has it, or it copies twice. Each number is read nine times: rounded, half the bytes.
    x = x.to(dtype, memory_format=torch.channels_last)
    out: Tensor = expand(x, kernel_to_matrix(weight, bias).to(dtype), True)
    return out


def convolve_to_image(x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """`conv2d(x, weight, bias, padding=1)` to an image, in a type: `(N, d, H, W)` -> `(N, c, H, W)`."""
    # What a convolution gathers, its adjoint spreads: with the kernel turned around, they are the same.
    matrix = kernel_to_matrix(weight.flip(2, 3).transpose(0, 1))
    out: Tensor = reduce(x.to(dtype), matrix.to(dtype), None, bias, weight.shape[0], dtype)
    return out


def kernel_to_matrix(weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`(d, c, 3, 3)` and `(d,)` -> `(d, columns)`: a row has the taps in order, each of all channels, and the bias."""
    taps = weight.permute(0, 2, 3, 1).flatten(1)  # (d, 9c)
    columns = columns_of(weight.shape[1])
    matrix = pad(taps, (0, columns - taps.shape[1]))
    if bias is None:
        return matrix
    place = torch.arange(columns, device=weight.device) == taps.shape[1]
    return matrix + bias.unsqueeze(1) * place  # as a sum: the gradient of the bias is contiguous, as Adam wants it


def columns_of(channels: int) -> int:
    """Columns for images of so many channels: nine for each, one of ones, and zeros up to a power of two."""
    return max(16, 1 << (9 * channels).bit_length())


def kernel_dtype(x: Tensor, inputs: int, outputs: int) -> torch.dtype | None:
    """The type that the kernels compute in, if they support this convolution in the program being compiled, or None.

    They do on a GPU, under an autocast to half precision. A program that runs as it is written has PyTorch's operators:
    its gradients may be differentiated again.

    Args:
        x: the image or the features `(N, inputs, H, W)`.
        inputs: channels that are expected.
        outputs: channels of the result.
    """
    if not (torch.compiler.is_compiling() and _operators._state["kernels"] and x.is_floating_point()):
        return None
    if x.dim() != 4 or x.shape[1] != inputs:
        return None
    (channels, width), (n, _, height, side) = sorted((inputs, outputs)), x.shape
    fits = channels <= 4 and width % 16 == 0 and 32 <= width <= 1024
    fits = fits and 0 < n * height * side < 2**30 and height * side < 2**26  # offsets are 32-bit
    return _autocast_dtype(x.device) if fits else None


def _autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The type of the autocast around this call, if a device has kernels for it."""
    if not (_has_kernels(device) and is_autocast(device)):
        return None
    dtype = torch.get_autocast_dtype(device.type)
    return dtype if dtype in HALF else None


_autocast_dtype._dynamo_marked_constant = True  # type: ignore[attr-defined]  # called while tracing


def _has_kernels(device: torch.device) -> bool:
    if device.type != "cuda" or _operators._import_kernels() is None:
        return False
    from wcgan.kernels import capability

    return capability(device) >= (8, 0)


def _kernels_for(x: Tensor, dtype: torch.dtype) -> Any:
    """The kernels, if they compute in this type on the device of x, or None."""
    if not (x.is_cuda and dtype in HALF and _has_kernels(x.device)):
        return None
    from wcgan.kernels import images

    return images


# The products as plain operations


def image_to_columns(image: Tensor, dtype: torch.dtype) -> Tensor:
    """`(N, c, H, W)` -> `(N, H W, columns)`: nine neighbours of each position, 0 outside the image, then 1, then 0."""
    n, channels, height, width = image.shape
    taps = unfold(image.to(dtype), 3, padding=1).unflatten(1, (channels, 9))  # (N, c, 9, HW)
    columns = taps.permute(0, 3, 2, 1).flatten(2)
    ones = columns.new_ones(n, height * width, 1)
    return pad(torch.cat([columns, ones], 2), (0, columns_of(channels) - 9 * channels - 1))


def _rows(features: Tensor, saved: Tensor | None) -> Tensor:
    """`(N, d, H, W)` -> `(N, HW, d)`; 0 where the output of a ReLU was 0."""
    masked = features if saved is None else torch.where(saved <= 0, 0.0, features)
    return masked.flatten(2).mT


# The products as operators


def _fake_expand(image: Tensor, matrix: Tensor, relu: bool) -> Tensor:
    n, _, height, width = image.shape
    return _channels_last(image, (n, matrix.shape[0], height, width), matrix.dtype)


@register("image_to_features", _fake_expand)
def expand(image: Tensor, matrix: Tensor, relu: bool) -> Tensor:
    r"""The columns C of an image times a matrix, :math:`C M^\top`, and a ReLU: `(N, c, H, W)` -> `(N, d, H, W)`.

    In the type of the matrix `(d, columns)`, to which the image is rounded.
    """
    if kernels := _kernels_for(image, matrix.dtype):
        out: Tensor = kernels.expand(image, matrix, relu)
        return out
    y = (image_to_columns(image, matrix.dtype) @ matrix.mT).mT.unflatten(2, image.shape[2:])
    out = _channels_last(image, y.shape, y.dtype)
    return out.copy_(torch.relu(y) if relu else y)


def _fake_reduce(
    features: Tensor, matrix: Tensor, saved: Tensor | None, bias: Tensor | None, channels: int, dtype: torch.dtype
) -> Tensor:
    n, _, height, width = features.shape
    return _channels_last(features, (n, channels, height, width), dtype)


@register("features_to_image", _fake_reduce)
def reduce(
    features: Tensor,
    matrix: Tensor,
    saved: Optional[Tensor],
    bias: Optional[Tensor],
    channels: int,
    dtype: torch.dtype,
) -> Tensor:
    r"""The adjoint of `expand`, plus a bias `(c,)`: features `(N, d, H, W)` -> `(N, c, H, W)` in a type.

    .. math:: x_i(v) = b_i + \sum_k (y M)_{v - s_k, (k, i)}

    If `saved`, the output of a ReLU, is given, the features are the gradient by it, and 0 where it is 0.
    """
    if kernels := _kernels_for(features, matrix.dtype):
        out: Tensor = kernels.reduce(features, matrix, saved, bias, channels, dtype)
        return out
    taps = (_rows(features, saved) @ matrix)[..., : 9 * channels]  # (N, HW, 9c)
    columns = taps.unflatten(2, (9, channels)).permute(0, 3, 2, 1).flatten(1, 2)  # (N, 9c, HW), channels first
    image = fold(columns, features.shape[2:], 3, padding=1)
    if bias is not None:
        image = image + bias.view(-1, 1, 1)
    out = _channels_last(features, image.shape, dtype)
    return out.copy_(image)


def _fake_outer(image: Tensor, features: Tensor, saved: Tensor | None) -> Tensor:
    shape = (features.shape[1], columns_of(image.shape[1]))
    return features.new_empty(shape, dtype=_wide(features))


@register("image_and_features", _fake_outer)
def outer(image: Tensor, features: Tensor, saved: Optional[Tensor]) -> Tensor:
    r"""The gradient of the matrix, :math:`y^\top C`: `(N, c, H, W)`, `(N, d, H, W)` -> `(d, columns)`, in float32.

    `saved` is as in `reduce`.
    """
    if kernels := _kernels_for(features, features.dtype):
        out: Tensor = kernels.outer(image, features, saved, columns_of(image.shape[1]))
        return out
    dtype = _wide(features)
    columns = image_to_columns(image.to(features.dtype), dtype)
    return (_rows(features.to(dtype), saved).mT @ columns).sum(0)


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _channels_last(like: Tensor, shape: Any, dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device, memory_format=torch.channels_last)


# Gradients


def _save_expand(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    image, matrix, relu = inputs
    ctx.save_for_backward(image, matrix, output if relu else None)


def _expand_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    image, matrix, saved = ctx.saved_tensors
    to_image, to_matrix = ctx.needs_input_grad[:2]
    return (
        reduce(grad, matrix, saved, None, image.shape[1], image.dtype) if to_image else None,
        outer(image, grad, saved).to(matrix.dtype) if to_matrix else None,
        None,
    )


def _save_reduce(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    features, matrix, saved, bias, _, _ = inputs
    assert saved is None, "the gradient of a gradient through a ReLU is not implemented"
    ctx.save_for_backward(features, matrix)
    ctx.bias_dtype = None if bias is None else bias.dtype


def _reduce_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    features, matrix = ctx.saved_tensors
    to_features, to_matrix, _, to_bias = ctx.needs_input_grad[:4]
    wide = _wide(features)
    return (
        expand(grad, matrix, False) if to_features else None,
        outer(grad, features, None).to(matrix.dtype) if to_matrix else None,
        None,
        grad.sum((0, 2, 3), dtype=wide).to(ctx.bias_dtype) if to_bias else None,
        None,
        None,
    )


register_gradient(expand, _expand_gradient, _save_expand)
register_gradient(reduce, _reduce_gradient, _save_reduce)
