"""The convolutions at an image, and their gradients: our kernels beside the library's convolution."""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor

from _gpu.bench import Bench
from _gpu.timing import make_timer, take_turns
from wcgan.functional import _images

Call = Callable[[], object]
GEOMETRY = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)  # stride, padding, dilation, transposed, its padding, groups


def measure_images(bench: Bench) -> None:
    """Each pass of each convolution, in bfloat16 and channels-last memory.

    From an image, ours includes the bias and a ReLU, and the mask of the ReLU in its gradients; to an image, the bias.
    The library's convolution includes neither.
    """
    for shape in bench.sizes.convolutions:
        sets = [make_calls(*shape, bench.device) for _ in range(2)]  # maps in turn, so that none stays in the cache
        for name in sets[0]:
            path = ("convolution_us", f"{shape} {name}")
            if not bench.wants(*path):
                continue
            with bench.attempt(*path):
                timers = {
                    who: make_timer([each[name][who] for each in sets] * (bench.sizes.calls // 2), bench.device)
                    for who in ("ours", "library")
                }
                times = take_turns(timers, bench.sizes.rounds)
                bench.add(*path, value={who: round(1e6 * median(t), 2) for who, t in times.items()})


def make_calls(samples: int, inputs: int, outputs: int, side: int, device: str) -> dict[str, dict[str, Call]]:
    """Pass -> ours and the library's, on fresh tensors."""

    def draw(*size: int) -> Tensor:
        return torch.randn(size, device=device, dtype=torch.bfloat16).to(memory_format=torch.channels_last)

    x, grad, weight = draw(samples, inputs, side, side), draw(samples, outputs, side, side), draw(outputs, inputs, 3, 3)
    names = ("gradient of the input", "gradient of the weight")
    calls = from_image(x, grad, weight) if inputs < outputs else to_image(x, grad, weight)
    library: list[Call] = [partial(torch.ops.aten.convolution, x, weight, None, *GEOMETRY)]
    for k in range(2):
        wanted = [k == 0, k == 1, False]
        library.append(partial(torch.ops.aten.convolution_backward, grad, x, weight, None, *GEOMETRY, wanted))
    both = zip(("forward", *names), calls, library, strict=True)
    return {name: {"ours": ours, "library": theirs} for name, ours, theirs in both}


def from_image(x: Tensor, grad: Tensor, weight: Tensor) -> list[Call]:
    matrix = _images.kernel_to_matrix(weight, weight.new_ones(weight.shape[0]))
    saved = _images.expand(x, matrix, True)
    return [
        partial(_images.expand, x, matrix, True),
        partial(_images.reduce, grad, matrix, saved, None, x.shape[1], x.dtype),
        partial(_images.outer, x, grad, saved),
    ]


def to_image(x: Tensor, grad: Tensor, weight: Tensor) -> list[Call]:
    channels = weight.shape[0]
    matrix = _images.kernel_to_matrix(weight.flip(2, 3).transpose(0, 1))
    return [
        partial(_images.reduce, x, matrix, None, weight.new_ones(channels), channels, x.dtype),
        partial(_images.expand, grad, matrix, False),
        partial(_images.outer, grad, x, None),
    ]
