"""Building blocks of the GAN networks: initialised convolutions, and the residual and DCGAN blocks made of them."""

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, conv_transpose2d, leaky_relu, max_pool2d, normalize, relu
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.parametrize import ParametrizationList, register_parametrization

from wcgan.functional._images import convolve_image, convolve_to_image, kernel_dtype
from wcgan.norm.conditional import is_compiled_inference, is_exporting

Layer = TypeVar("Layer", bound=nn.Module)
MakeNorm = Callable[[int], nn.Module]
"""Channels -> a normalisation layer."""


def prepare(layer: Layer, constant: float, spectral: bool = False, bound: float | None = None) -> Layer:
    """Initialises a layer in place, and adds spectral normalisation if `spectral`.

    Weights are uniform with variance `constant / (k^2 (cin + cout))`, or uniform in [-bound, bound] if `bound` is
    given. Biases are 0.
    """
    weight, bias = layer.weight, getattr(layer, "bias", None)
    assert isinstance(weight, Tensor)
    if bound is None:
        nn.init.xavier_uniform_(weight, gain=math.sqrt(constant / 2))
    else:
        nn.init.uniform_(weight, -bound, bound)
    if isinstance(bias, Tensor):
        nn.init.zeros_(bias)
    if spectral:
        register_parametrization(layer, "weight", SpectralNorm(weight))
    return layer


class SpectralNorm(_SpectralNorm):
    r"""PyTorch's spectral normalisation with two products per training step instead of three.

    .. math:: u = W v / |W v|, \qquad \sigma = |W^\top u|, \qquad v = W^\top u / \sigma

    PyTorch computes :math:`\sigma = u^\top W v` after these, which is the same number. State and starting values are
    PyTorch's too; in evaluation, u and v are not updated and its formula is used.
    """

    ready: Tensor | None = None
    """The normalised weight, where `normalize_weights` has computed it."""

    def _power_method(self, weight_mat: Tensor, n_power_iterations: int) -> None:
        if not weight_mat.is_meta:  # nothing to compute, and a second for a network
            super()._power_method(weight_mat, n_power_iterations)

    def forward(self, weight: Tensor) -> Tensor:
        if self.ready is not None:
            return self.ready
        if not self.training:
            normalized: Tensor = super().forward(weight)
            return normalized
        (single,) = _normalize_equal([(weight, self)])
        return single


def normalize_weights(network: nn.Module) -> list[SpectralNorm]:
    """Takes the training step of all spectral normalisations of a network together, before its layers ask one by one.

    Returns those that hold a result; set their `ready` to None after the forward pass.
    """
    groups: dict[tuple[tuple[int, ...], bool], list[tuple[Tensor, SpectralNorm]]] = {}
    for module in network.modules():
        if isinstance(module, ParametrizationList) and isinstance(norm := module[0], SpectralNorm) and norm.training:
            weight = module.original
            groups.setdefault((tuple(weight.shape), is_channels_last(weight)), []).append((weight, norm))
    for members in groups.values():
        for (_, norm), weight in zip(members, _normalize_equal(members), strict=True):
            norm.ready = weight
    return [norm for members in groups.values() for _, norm in members]


def _normalize_equal(members: list[tuple[Tensor, SpectralNorm]]) -> list[Tensor]:
    """One training step of spectral normalisations whose weights have the same shape and memory format.

    Stacked, they take as many kernels as one of them, in the backward pass too: the gradient waits for all weights.
    They are stacked as they lie in memory, so that the gradients lie there in the same way.
    """
    first, eps = members[0][0], members[0][1].eps
    axes = (0, 2, 3, 1) if is_channels_last(first) else tuple(range(first.dim()))
    stacked = torch.stack([weight.permute(axes) for weight, _ in members])  # (n, o, ...)
    matrix = stacked.flatten(2)  # (n, o, i)
    inner, outer = [axis - 1 for axis in axes[1:]], [axes.index(axis) - 1 for axis in range(1, first.dim())]
    with torch.no_grad():
        v = torch.stack([norm._v.view(first.shape[1:]).permute(inner) for _, norm in members]).flatten(1)
        u = normalize((matrix * v.unsqueeze(1)).sum(2), dim=1, eps=eps)
    product = (matrix * u.unsqueeze(2)).sum(1)
    with torch.no_grad():
        v = normalize(product, dim=1, eps=eps)
        for (_, norm), left, right in zip(members, u.unbind(), v.unbind(), strict=True):
            norm._u.copy_(left)
            norm._v.copy_(right.view(stacked.shape[2:]).permute(outer).flatten())
    sigma = (product * v).sum(1)  # u and v are constants to its gradient, as in PyTorch
    back = (0, *(axis + 1 for axis in outer))
    return [weight.permute(back) for weight in (stacked / sigma.view(-1, *[1] * first.dim())).unbind()]


def is_channels_last(weight: Tensor) -> bool:
    """Whether a weight lies in channels-last and not in contiguous order too, as those with one channel do."""
    return weight.dim() == 4 and not weight.is_contiguous() and weight.is_contiguous(memory_format=torch.channels_last)


class UpsampledConv2d(nn.Conv2d):
    """Nearest-neighbour upsampling by 2, then a 3x3 convolution, as one 4x4 transposed convolution of stride 2.

    Upsampling is a transposed convolution with a 2x2 box, so the two kernels compose into one. That takes 4/9 of the
    multiplications, and no upsampled map in memory.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        kernel = avg_pool2d(self.weight.flip(2, 3), 2, stride=1, padding=1, divisor_override=1)  # 3x3 * box -> 4x4
        return conv_transpose2d(x, kernel.transpose(0, 1), self.bias, stride=2, padding=1)


class PooledConv2d(nn.Conv2d):
    """A 3x3 convolution, then average pooling by 2, as one 4x4 convolution of stride 2."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        kernel = avg_pool2d(self.weight, 2, stride=1, padding=1)  # 3x3 * box / 4 -> 4x4
        return conv2d(x, kernel, self.bias, stride=2, padding=1)


class FromImageConv2d(nn.Conv2d):
    """A 3x3 convolution of an image, then a ReLU, on a GPU in one kernel if the network is compiled and trained."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        dtype = _kernel_dtype(self, x)
        if dtype is None or self.bias is None:
            return relu(super().forward(x))
        return convolve_image(x, self.weight, self.bias, dtype)


class ToImageConv2d(nn.Conv2d):
    """A 3x3 convolution to an image, on a GPU by a kernel of its own if the network is compiled and trained."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        dtype = _kernel_dtype(self, x)
        if dtype is None:
            return super().forward(x)
        return convolve_to_image(x, self.weight, self.bias, dtype)


def _kernel_dtype(layer: nn.Conv2d, x: Tensor) -> torch.dtype | None:
    """The type that the kernels for images compute in, where they take a layer's place: in training, if compiled."""
    if not layer.training or is_exporting():
        return None
    return kernel_dtype(x, layer.in_channels, layer.out_channels)


def normalize_relu(norm: nn.Module, x: Tensor, labels: Tensor | None) -> Tensor:
    """Applies a normalisation layer of this library, with labels if given, and a ReLU, in one pass on a GPU."""
    return norm(x, relu=True) if labels is None else norm(x, labels, relu=True)


def add_upsampled(fine: Tensor, coarse: Tensor) -> Tensor:
    """`(N, c, 2h, 2w)` plus nearest-neighbour upsampled `(N, c, h, w)`, as a broadcast sum.

    The gradient of a broadcast is a plain sum of four values, faster than that of an upsampled copy.
    """
    height, width = coarse.shape[2:]
    if is_compiled_inference():
        # Expanded first: the compiler would write a sum of six dimensions in their order, and transpose it to
        # channels-last in a second kernel. It makes no copy of what is expanded.
        repeated = coarse[:, :, :, None, :, None].expand(-1, -1, -1, 2, -1, 2)  # (N, c, h, 2, w, 2)
        return fine + repeated.flatten(4).flatten(2, 3)
    wide = fine.unflatten(3, (width, 2)).unflatten(2, (height, 2))  # (N, c, h, 2, w, 2)
    return (wide + coarse[:, :, :, None, :, None]).flatten(4).flatten(2, 3)


class UpBlock(nn.Module):
    """R^U: norm, ReLU, upsampling, 3x3 convolution, norm, ReLU, 3x3 convolution; plus a 1x1 shortcut.

    The shortcut convolves before it upsamples: the same result at a quarter of the cost.
    """

    def __init__(self, inputs: int, outputs: int, make_norm: MakeNorm) -> None:
        super().__init__()
        self.norm1 = make_norm(inputs)
        self.conv1 = prepare(UpsampledConv2d(inputs, outputs), 4)
        self.norm2 = make_norm(outputs)
        self.conv2 = prepare(nn.Conv2d(outputs, outputs, 3, padding=1), 4)
        self.shortcut = prepare(nn.Conv2d(inputs, outputs, 1), 4)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        h = self.conv1(normalize_relu(self.norm1, x, labels))  # (N, cin, s, s) -> (N, cout, 2s, 2s)
        h = self.conv2(normalize_relu(self.norm2, h, labels))
        return add_upsampled(h, self.shortcut(x))


class SameBlock(nn.Module):
    """R^S of a generator: norm, ReLU, 3x3 convolution, twice; plus its input."""

    def __init__(self, width: int, make_norm: MakeNorm) -> None:
        super().__init__()
        self.norm1 = make_norm(width)
        self.conv1 = prepare(nn.Conv2d(width, width, 3, padding=1), 4)
        self.norm2 = make_norm(width)
        self.conv2 = prepare(nn.Conv2d(width, width, 3, padding=1), 4)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        h = self.conv1(normalize_relu(self.norm1, x, labels))
        h = self.conv2(normalize_relu(self.norm2, h, labels))
        return x + h


class SelfAttention(nn.Module):
    r"""Self-attention of SAGAN: :math:`x + \gamma\, o(x)`, where every position gathers from all others.

    Keys and values are pooled to half the side. :math:`\gamma` starts at 0, and the layer as the identity.

    Args:
        width: channels of the input; keys have an eighth of them, values a half.
        spectral: whether its convolutions are spectrally normalised, as in a discriminator.

    Reference:
        Zhang, Goodfellow, Metaxas and Odena, "Self-attention generative adversarial networks", ICML 2019.
    """

    def __init__(self, width: int, spectral: bool = False) -> None:
        super().__init__()
        few, some = max(1, width // 8), max(1, width // 2)
        self.query, self.key, self.value, self.out = (
            prepare(nn.Conv2d(inputs, outputs, 1, bias=False), 2, spectral)
            for inputs, outputs in ((width, few), (width, few), (width, some), (some, width))
        )
        self.gamma = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        query = self.query(x).flatten(2)  # (N, c, h, w) -> (N, c/8, hw)
        key, value = (max_pool2d(conv(x), 2).flatten(2) for conv in (self.key, self.value))  # (N, ., hw/4)
        weights = (query.mT @ key).softmax(-1)  # (N, hw, hw/4)
        gathered = (value @ weights.mT).unflatten(2, x.shape[2:])  # (N, c/2, h, w)
        return x + self.gamma * self.out(gathered)


class Deconvolution(nn.Module):
    """C^U: norm, ReLU, 4x4 transposed convolution of stride 2 with Glorot initialisation."""

    def __init__(self, inputs: int, outputs: int, make_norm: MakeNorm) -> None:
        super().__init__()
        self.norm = make_norm(inputs)
        self.conv = prepare(nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1), 2)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        h: Tensor = self.conv(normalize_relu(self.norm, x, labels))  # (N, cin, s, s) -> (N, cout, 2s, 2s)
        return h


class DownBlock(nn.Module):
    """R^D, or R^S without `down`: ReLU, 3x3 convolution, ReLU, 3x3 convolution, average pooling; plus a shortcut.

    The shortcut is a 1x1 convolution if size or width changes. It pools first: the same result as pooling last, at a
    quarter of the cost. The first block of a network takes an image and has no ReLU before its first convolution.
    """

    def __init__(self, inputs: int, outputs: int, *, down: bool, first: bool, spectral: bool) -> None:
        super().__init__()
        self.down = down
        self.first = first
        start = FromImageConv2d(inputs, outputs) if first else nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv1 = prepare(start, 4, spectral)
        last = PooledConv2d(outputs, outputs) if down else nn.Conv2d(outputs, outputs, 3, padding=1)
        self.conv2 = prepare(last, 4, spectral)
        learnt = first or down or inputs != outputs
        self.shortcut = prepare(nn.Conv2d(inputs, outputs, 1), 4, spectral) if learnt else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv2(self.conv1(x) if self.first else relu(self.conv1(relu(x))))
        return h + self.shortcut(avg_pool2d(x, 2) if self.down else x)


class LeakyConvolution(nn.Module):
    """C^S (3x3, stride 1) or, with `down`, C^D (4x4, stride 2) of a discriminator: convolution, LeakyReLU.

    The convolution has Glorot initialisation.
    """

    def __init__(self, inputs: int, outputs: int, *, down: bool, slope: float, spectral: bool) -> None:
        super().__init__()
        self.slope = slope
        kernel, stride = (4, 2) if down else (3, 1)
        self.conv = prepare(nn.Conv2d(inputs, outputs, kernel, stride, padding=1), 2, spectral)

    def forward(self, x: Tensor) -> Tensor:
        return leaky_relu(self.conv(x), self.slope)

    def extra_repr(self) -> str:
        return f"slope={self.slope}"
