"""What a layer costs in eager code, host included: time of a call beside `nn.BatchNorm2d`, and of a ResNet-50.

    python benchmarks/eager.py [--device cpu|cuda] [--shapes 16x64x4x4,...] [--rounds N] [--compiled] [--networks]

Small batches, and all batches on a fast GPU, take as long as the host needs to issue their calls. All peers take turns:
a round times each once, a ratio is taken within its round, and the median of a peer's ratios counts. On a CPU the
thread's own processor time is taken, to which a busy machine adds less. `--compiled` adds WC under `torch.compile`.
`--networks` trains a ResNet-50 of torchvision before and after `wcgan.convert_batchnorm`.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

import wcgan
from layers import AutodiffWhitening, cholesky_whitening

CLASSES = 10
SHAPES = ((16, 64, 4, 4), (16, 8, 4, 4), (32, 128, 8, 8))
# A name, and what builds the layer for d channels.
PEERS: dict[str, Callable[[int], nn.Module]] = {
    "BN": nn.BatchNorm2d,
    "BN, ours": lambda d: wcgan.normalization("BN", d),
    "WC": wcgan.WhiteningColoring2d,
    "WC autodiff": lambda d: AutodiffWhitening(d, cholesky_whitening),
    "IterNorm": lambda d: wcgan.normalization("IterNorm", d),
    "cBN": lambda d: wcgan.normalization("cBN", d, CLASSES),
    "cWC": lambda d: wcgan.normalization("cWC", d, CLASSES),
}
COMPILED = "WC, compiled"
MODES = ("training", "evaluation with gradients", "evaluation")

Times = dict[str, list[float]]


def make_step(layer: nn.Module, mode: str, x: Tensor, cotangent: Tensor) -> Callable[[], object]:
    """One call of a layer, with its backward pass unless it is evaluated without gradients."""
    layer.train(mode == "training")
    labels = (torch.arange(x.shape[0], device=x.device) % CLASSES,)
    inputs = (x, *labels) if isinstance(layer, wcgan.ConditionalWhiteningColoring2d) else (x,)
    leaves = (x, *layer.parameters())

    def step() -> object:
        if mode == "evaluation":
            with torch.no_grad():
                return layer(*inputs)
        out = layer(*inputs)
        return out, torch.autograd.grad(out, leaves, cotangent)

    return step


def make_batch(shape: tuple[int, ...], device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A batch and the gradient of its output, in channels-last memory on a GPU, as networks have them there."""
    layout = torch.channels_last if device == "cuda" else torch.contiguous_format
    random = torch.Generator().manual_seed(0)
    x, cotangent = (
        torch.randn(shape, generator=random).to(device, dtype).contiguous(memory_format=layout) for _ in range(2)
    )
    return x.requires_grad_(), cotangent


def seconds_of(step: Callable[[], object], calls: int, device: str) -> float:
    """Seconds of one call, from the first one's issue to the last one's end."""
    clock = time.thread_time if device == "cpu" else time.perf_counter
    if device == "cuda":
        torch.cuda.synchronize()
    begin = clock()
    for _ in range(calls):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (clock() - begin) / calls


def take_turns(steps: dict[str, Callable[[], object]], rounds: int, calls: int, device: str) -> Times:
    """Seconds of each step in every round; one round comes first and is forgotten."""
    times: Times = {name: [] for name in steps}
    for _ in range(rounds + 1):
        for name, step in steps.items():
            times[name].append(seconds_of(step, calls, device))
    return {name: values[1:] for name, values in times.items()}


def times_to_ratios(times: Times, baseline: str = "BN") -> dict[str, float]:
    """The median of the ratios to the baseline, each taken within its round."""
    base = times[baseline]
    return {name: median(a / b for a, b in zip(values, base, strict=True)) for name, values in times.items()}


def measure_layers(
    shape: tuple[int, ...], mode: str, device: str, dtype: torch.dtype, rounds: int, calls: int
) -> Times:
    """All peers on one batch."""
    x, cotangent = make_batch(shape, device, dtype)
    steps = {}
    for name, build in PEERS.items():
        plain = name == "WC autodiff"
        if plain and (mode != "training" or dtype != torch.float32):  # it has no evaluation, and knows float32 alone
            continue
        steps[name] = make_step(build(shape[1]).to(device), mode, x, cotangent)
    return take_turns(steps, rounds, calls, device)


def measure_compiled(shape: tuple[int, ...], device: str, dtype: torch.dtype, rounds: int, calls: int) -> Times:
    """WC compiled by itself, in training, beside batch normalisation as it is and compiled."""
    x, cotangent = make_batch(shape, device, dtype)
    layers: dict[str, nn.Module] = {"BN": nn.BatchNorm2d(shape[1])}
    layers |= {"BN, compiled": nn.BatchNorm2d(shape[1]), COMPILED: wcgan.WhiteningColoring2d(shape[1])}
    for name in ("BN, compiled", COMPILED):
        layers[name].compile()
    steps = {name: make_step(layer.to(device), "training", x, cotangent) for name, layer in layers.items()}
    return take_turns(steps, rounds, calls, device)


def build_resnet50() -> nn.Module:
    """torchvision's ResNet-50."""
    try:
        from torchvision.models import resnet50  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except (ImportError, RuntimeError) as error:  # the latter where it was built for another PyTorch
        raise RuntimeError(f"torchvision cannot be imported: {error}") from error
    network: nn.Module = resnet50()
    return network


def measure_networks(
    build: Callable[[], nn.Module], images: tuple[int, ...], device: str, rounds: int, calls: int
) -> Times:
    """A training step of a classifier as it is, and with its batch normalisations converted."""
    torch.manual_seed(0)
    x = torch.randn(images).to(device).to(memory_format=torch.channels_last)
    steps: dict[str, Callable[[], object]] = {}
    for name, convert in (("BN", lambda network: network), ("WC", wcgan.convert_batchnorm)):
        network = convert(build()).to(device).to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
        steps[name] = partial(train_step, network, optimizer, x)
    return take_turns(steps, rounds, calls, device)


def train_step(network: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
        out = network(x)
    out.float().logsumexp(1).mean().backward()
    optimizer.step()


def parse_shapes(text: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(size) for size in shape.split("x")) for shape in text.split(","))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shapes", type=parse_shapes, default=SHAPES, metavar="NxDxHxW,...")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--calls", type=int, default=4, help="of each peer in a round")
    parser.add_argument("--compiled", action="store_true", help="also compiles WC by itself")
    parser.add_argument("--networks", action="store_true", help="also trains a ResNet-50")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cpu":
        torch.set_num_threads(1)
    print(f"torch {torch.__version__}, {chosen.device}, float32: microseconds of BN, and ratios to it")
    for shape in chosen.shapes:
        for mode in MODES:
            times = measure_layers(shape, mode, chosen.device, torch.float32, chosen.rounds, chosen.calls)
            ratios = ", ".join(f"{name} {ratio:.2f}" for name, ratio in times_to_ratios(times).items() if name != "BN")
            print(f"{shape}, {mode}: BN {1e6 * median(times['BN']):.0f} us; {ratios}", flush=True)
        if chosen.compiled:
            times = measure_compiled(shape, chosen.device, torch.float32, chosen.rounds, chosen.calls)
            print(f"{shape}, training: {COMPILED} {times_to_ratios(times)[COMPILED]:.2f}", flush=True)
    if chosen.networks:
        times = measure_networks(build_resnet50, (64, 3, 224, 224), chosen.device, 3, 1)
        print(f"ResNet-50: BN {1e3 * median(times['BN']):.1f} ms; WC {times_to_ratios(times)['WC']:.2f}")


if __name__ == "__main__":
    main()
