"""Where a converted ResNet-50 spends a training step on a GPU: each of its normalisation layers alone, then the whole.

    python benchmarks/resnet50.py [--images 64] [--out FILE]

A layer is timed in eager code, forward and backward, in bfloat16 and channels-last memory: milliseconds of the host
until all is issued, milliseconds until the GPU has finished, and the milliseconds and launches of its kernels.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import eager
import wcgan
from wcgan.core.terminal import rows_to_markdown

# Channels and side of the layers of a ResNet-50 for 224 x 224 pixels -> how many there are.
LAYERS = {
    (64, 112): 1,
    (64, 56): 6,
    (256, 56): 4,
    (128, 56): 1,
    (128, 28): 7,
    (512, 28): 5,
    (256, 28): 1,
    (256, 14): 11,
    (1024, 14): 7,
    (512, 14): 1,
    (512, 7): 5,
    (2048, 7): 4,
}
KINDS: dict[str, Callable[[int], nn.Module]] = {
    "BN": nn.BatchNorm2d,
    "WC": wcgan.WhiteningColoring2d,
    "WC, groups of 64": lambda channels: wcgan.WhiteningColoring2d(channels, groups=max(1, channels // 64)),
}


class Cost(NamedTuple):
    """Of one call."""

    host_ms: float
    whole_ms: float
    kernels_ms: float
    launches: float


def measure(step: Callable[[], object], device: str, calls: int = 10) -> Cost:
    """Times a step after a warm-up; kernels only on a GPU."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in range(4):
        step()
    wait()
    begin = time.perf_counter()
    for _ in range(calls):
        step()
    host = time.perf_counter() - begin
    wait()
    whole = time.perf_counter() - begin
    kernels_ms = launches = 0.0
    if device == "cuda":
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            step()
            wait()
        kernels = [entry for entry in found.key_averages() if entry.self_device_time_total > 0]
        kernels_ms = sum(entry.self_device_time_total for entry in kernels) / 1e3
        launches = sum(entry.count for entry in kernels)
    return Cost(1e3 * host / calls, 1e3 * whole / calls, kernels_ms, launches)


def layer_step(layer: nn.Module, images: int, channels: int, side: int, device: str) -> Callable[[], object]:
    x, cotangent = (
        torch.randn(images, channels, side, side, device=device, dtype=torch.bfloat16).to(
            memory_format=torch.channels_last
        )
        for _ in range(2)
    )
    x.requires_grad_()
    layer.to(device)
    return lambda: torch.autograd.grad(layer(x), (x, *layer.parameters()), cotangent)


def to_row(name: str, kind: str, cost: Cost) -> tuple[str, ...]:
    return (name, kind, *(f"{value:.2f}" for value in cost[:3]), f"{cost.launches:.0f}")


def main(arguments: list[str] | None = None, layers: dict[tuple[int, int], int] = LAYERS) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--layers-only", action="store_true", help="leave the whole network out")
    parser.add_argument("--out", type=Path, metavar="FILE", help="Markdown file to write")
    chosen = parser.parse_args(arguments)
    torch.set_float32_matmul_precision("high")
    rows = []
    for (channels, side), count in layers.items():
        for kind, build in KINDS.items():
            step = layer_step(build(channels), chosen.images, channels, side, chosen.device)
            rows.append(to_row(f"{channels}, {side} ({count})", kind, measure(step, chosen.device)))
    if not chosen.layers_only:
        x = torch.randn(chosen.images, 3, 224, 224, device=chosen.device).to(memory_format=torch.channels_last)
        for kind in ("BN", "WC"):
            network = eager.build_resnet50()
            network = wcgan.convert_batchnorm(network) if kind == "WC" else network
            network = network.to(chosen.device).to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
            optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
            cost = measure(lambda n=network, o=optimizer: eager.train_step(n, o, x), chosen.device, 5)  # type: ignore[misc]
            rows.append(to_row("ResNet-50", kind, cost))
    heads = ("channels, side (layers)", "", "host ms", "whole ms", "kernels ms", "launches")
    text = "\n".join(rows_to_markdown(heads, rows, right=heads[2:]))
    print(text)
    if chosen.out is not None:
        chosen.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
