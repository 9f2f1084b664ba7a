"""The measurements: each function takes a `Bench` and adds its results to the report."""

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import eager
import wcgan
from _gpu.bench import Bench
from _gpu.peers import LAYERS, VARIANTS, Variant, kernels_to_shares, use_autodiff
from _gpu.table import BASELINES
from _gpu.timing import Timer, make_timer, take_turns
from curves import measure_curves
from roofline import config_to_work, work_to_floor
from wcgan.core.device import find_hardware
from wcgan.core.processes import Rank
from wcgan.data import Dataset
from wcgan.functional import covariance_to_whitening
from wcgan.functional._factorisations import RETRY_SHRINKAGE
from wcgan.kernels import cholesky
from wcgan.nets import build_generator
from wcgan.reproduce.timed_iteration import (
    PrintedProgress,
    Step,
    iteration_config,
    keep_compiled_networks,
    synthetic_data,
)
from wcgan.runs.config import Config
from wcgan.train import graph
from wcgan.train.batches import batches_of
from wcgan.train.gan import build_players, compile_players, make_step
from wcgan.train.start import load_data

EPS = 1e-3


def measure_factorisation(bench: Bench) -> None:
    """Covariance -> whitening matrix: our kernel, and the library's factorisation and triangular solve."""
    for width in bench.sizes.widths:
        samples = torch.randn(max(bench.sizes.batches), width, 4 * width, device=bench.device)
        every = samples @ samples.mT / samples.shape[-1]
        eye = torch.eye(width, device=bench.device)
        for number in bench.sizes.batches:
            path = ("factorisation_us", f"d={width}, batch {number}")
            if not bench.wants(*path):
                continue
            with bench.attempt(*path):
                covariance = every[:number].contiguous()
                peers: dict[str, Callable[[], object]] = {
                    "ours": partial(factorise, covariance),
                    "library": partial(factorise_by_library, covariance, eye.expand_as(covariance)),
                }
                timers = {name: make_timer([call] * bench.sizes.calls, bench.device) for name, call in peers.items()}
                times = take_turns(timers, bench.sizes.rounds)
                bench.add(*path, value={n: round(1e6 * median(t), 2) for n, t in times.items()})


def factorise(covariance: Tensor) -> object:
    """The kernel if the GPU supports it; otherwise the layer's fallback."""
    if covariance.is_cuda and cholesky.supports(covariance, RETRY_SHRINKAGE):
        return cholesky.factorise(covariance, EPS, RETRY_SHRINKAGE)
    return covariance_to_whitening(covariance, eps=EPS)


def factorise_by_library(covariance: Tensor, eye: Tensor) -> Tensor:
    lower, _ = torch.linalg.cholesky_ex((1 - EPS) * covariance + EPS * eye)
    return torch.linalg.solve_triangular(lower, eye, upper=False)


def measure_layers(bench: Bench) -> None:
    """Forward and backward of a layer."""
    wide = [(bench.sizes.float32_shape, torch.float32, rounding) for rounding in (False, True)]
    for shape, dtype, rounding in [*((shape, torch.bfloat16, False) for shape in bench.sizes.shapes), *wide]:
        case = f"{shape} {str(dtype).removeprefix('torch.')}{', TF32 allowed' * rounding}"
        inputs = make_inputs(shape, dtype, bench)
        timers: dict[str, Timer] = {}
        for name, (build, passes) in LAYERS.items():
            path = ("layer_us", case, name)
            if not bench.wants(*path):
                continue
            with bench.attempt(*path), passes(), tf32_allowed() if rounding else nullcontext():
                layer = build(shape[1]).to(bench.device)
                calls = [partial(forward_backward, layer, x, cotangent) for x, cotangent in inputs]
                calls = [calls[i % len(calls)] for i in range(bench.sizes.calls)]
                graphed = not isinstance(layer, wcgan.norm.WhiteningLayer) or layer.whitening != "zca"
                timers[name] = make_timer(calls if graphed else calls[:2], bench.device, graphed)
        for name, times in take_turns(timers, bench.sizes.rounds).items():
            bench.add("layer_us", case, name, value=round(1e6 * median(times), 2))


def make_inputs(shape: tuple[int, int, int], dtype: torch.dtype, bench: Bench) -> list[tuple[Tensor, Tensor]]:
    """Batches of correlated channels and output gradients: twice the size of the cache, or one per call."""
    samples, channels, side = shape
    random = torch.Generator(bench.device).manual_seed(0)

    def draw(*size: int) -> Tensor:
        return torch.randn(size, generator=random, device=bench.device)

    cache = torch.cuda.get_device_properties(0).L2_cache_size if bench.device == "cuda" else 0
    elements = samples * channels * side**2
    count = max(1, min(bench.sizes.calls, math.ceil(cache / (elements * dtype.itemsize))))
    mixing = torch.eye(channels, device=bench.device) + draw(channels, channels) / math.sqrt(channels)
    found = []
    for _ in range(count):
        batch = (mixing @ draw(samples, channels, side**2)).view(samples, channels, side, side)
        pair = [t.to(dtype, memory_format=torch.channels_last) for t in (batch, draw(samples, channels, side, side))]
        found.append((pair[0].requires_grad_(), pair[1]))
    return found


def forward_backward(layer: nn.Module, x: Tensor, cotangent: Tensor) -> object:
    out = layer(x)
    return out, torch.autograd.grad(out, (x, *layer.parameters()), cotangent)


def measure_eager(bench: Bench) -> None:
    """Layers as a person's own loop calls them, host included, and a ResNet-50 before and after its conversion."""
    ways: list[tuple[str, Callable[..., eager.Times]]] = [
        (mode, partial(eager.measure_layers, mode=mode)) for mode in eager.MODES
    ]
    if bench.device == "cuda":
        ways.append(("compiled", eager.measure_compiled))
    shapes = bench.sizes.eager_shapes
    cases = [(shape, dtype, *way) for way in ways for shape in shapes for dtype in (torch.bfloat16, torch.float32)]
    for (samples, channels, side), dtype, name, measure in cases:
        case = f"({samples}, {channels}, {side}) {str(dtype).removeprefix('torch.')}, {name}"
        if not bench.wants("eager_us", case):
            continue
        with bench.attempt("eager_us", case), tf32_allowed():
            shape, rounds, calls = (samples, channels, side, side), bench.sizes.rounds, bench.sizes.calls
            times = measure(shape, device=bench.device, dtype=dtype, rounds=rounds, calls=calls)
            bench.add("eager_us", case, value={n: round(1e6 * median(t), 1) for n, t in times.items()})
            ratios = {n: round(ratio, 3) for n, ratio in eager.times_to_ratios(times).items()}
            bench.add("eager_ratio", case, value=ratios)
    for case, products in (("TF32 not allowed", nullcontext), ("TF32 allowed", tf32_allowed)):
        path = ("resnet50_ms", case)
        if bench.sizes.images is None or not bench.wants(*path):
            continue
        with bench.attempt(*path), products():
            times = eager.measure_networks(eager.build_resnet50, bench.sizes.images, bench.device, 5, 3)
            bench.add(*path, value={n: round(1e3 * median(t), 2) for n, t in times.items()})


@contextmanager
def tf32_allowed() -> Iterator[None]:
    """Lets PyTorch round float32 products to TF32, as most training code does."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def measure_iterations(bench: Bench) -> None:
    """A whole iteration as in `wcgan train`: each variant takes turns with its baseline."""
    keep_compiled_networks()
    baselines: dict[str, Step] = {}
    for name, variant in VARIANTS.items():
        if not bench.wants("iteration_ms", name):
            continue
        with bench.attempt("iteration_ms", name), variant.within():
            step = make_iteration(variant, bench)
            baseline = BASELINES[name]
            if name in BASELINES.values():
                baselines[name] = step
            steps = {n: s for n, s in ((baseline, baselines.get(baseline)), (name, step)) if s is not None}
            times = take_turns({n: iteration_timer(s, bench) for n, s in steps.items()}, bench.sizes.iteration_rounds)
            bench.add("iteration_ms", name, value=round(1e3 * median(times[name]), 3))
            bench.add("fastest_iteration_ms", name, value=round(1e3 * min(times[name]), 3))
            if baseline in times:
                ratios = [a / b for a, b in zip(times[name], times[baseline], strict=True)]
                bench.add("ratio_to_bn", name, value=round(median(ratios), 4))
            config = variant_config(variant, bench)
            floor = asdict(work_to_floor(config_to_work(config)))
            bench.add("floor", name, value={key: round(number, 4) for key, number in floor.items()})
            if bench.device == "cuda":
                milliseconds, counts = profile_kernels(step)
                bench.add("kernel_ms", name, value=milliseconds)
                bench.add("kernels", name, value=counts)


def variant_config(variant: Variant, bench: Bench) -> Config:
    settings = (*bench.sizes.train_settings, *variant.settings)
    return iteration_config(variant.normalization, bench.sizes.network_width, settings)


def measure_long(bench: Bench, folder: Path | None) -> None:
    """BN and WC in turn, twice, for as long as a card needs to get warm, with its clock and power; on real images if
    there is a folder of them."""
    if not bench.wants("long_iteration"):
        return
    with bench.attempt("long_iteration"):
        dataset = None
        if folder is not None:
            config = variant_config(VARIANTS["BN"], bench)
            dataset = load_data(replace(config, data=replace(config.data, folder=str(folder))))
        keep_compiled_networks()
        steps = {name: make_iteration(VARIANTS[name], bench, dataset) for name in ("BN", "WC")}
        turns = [run_for(steps[name], bench) | {"name": name} for name in ("BN", "WC") * 2]
        bench.add("long_iteration", value=turns)


def run_for(step: Step, bench: Bench) -> dict[str, Any]:
    """Iterations for some seconds: milliseconds of one, and what the card says of itself every two seconds."""
    timing, spent, times = iteration_timer(step, bench), 0.0, []
    states: list[tuple[float, ...]] = []
    while spent < bench.sizes.long_seconds:
        begin = time.perf_counter()
        times.append(timing())
        spent += time.perf_counter() - begin
        if bench.device == "cuda" and spent >= 2 * len(states):
            states.append(read_card())
    clocks, watts, degrees = (median(values) for values in zip(*states, strict=True)) if states else (None,) * 3
    return {"ms": round(1e3 * median(times), 3), "clock_mhz": clocks, "watts": watts, "celsius": degrees}


def read_card() -> tuple[float, ...]:
    """Clock of the multiprocessors, power and temperature, as the driver's own program prints them."""
    query = "--query-gpu=clocks.sm,power.draw,temperature.gpu"
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits", f"--id={torch.cuda.current_device()}"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return tuple(map(float, text.split(",")))


def make_iteration(variant: Variant, bench: Bench, dataset: Dataset | None = None) -> Step:
    """A step after compilation, capture and warm-up; on random images unless there are others."""
    config = variant_config(variant, bench)
    hardware = find_hardware(replace(config.train, device=bench.device))
    players = build_players(config, hardware.device, hardware.channels_last)
    if variant.autodiff:
        use_autodiff(players, config.train)
    batches = batches_of(config, dataset or synthetic_data(config), hardware.device, Rank())
    compile_players(players, config, hardware, PrintedProgress(print))
    step = make_step(players, batches, config, hardware, PrintedProgress(print))
    for number in range(graph.WARM_UP + 2):
        step(number)
    return step


def iteration_timer(step: Step, bench: Bench) -> Timer:
    """Seconds per iteration, timed over enough iterations (20 at most)."""
    numbers = iter(range(10, sys.maxsize))

    def timing(count: int) -> float:
        if bench.device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            step(next(numbers))
        if bench.device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count

    return partial(timing, max(1, min(20, int(bench.sizes.timing_seconds / timing(1)))))


def profile_kernels(step: Step, iterations: int = 3) -> tuple[dict[str, float], dict[str, float]]:
    """Kernels of an iteration or another step, by kind: their milliseconds and their number."""
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for number in range(iterations):
            step(number)
        torch.cuda.synchronize()
    kernels = found.key_averages()
    times = kernels_to_shares((kernel.key, kernel.self_device_time_total / 1e3 / iterations) for kernel in kernels)
    counts = kernels_to_shares((kernel.key, kernel.count / iterations) for kernel in kernels)
    return {k: round(t, 3) for k, t in times.items()}, {k: round(n, 1) for k, n in counts.items()}


def measure_inference(bench: Bench) -> None:
    """Images from a folded generator in bfloat16, compiled, where every normalisation layer is a constant map."""
    timers: dict[str, Timer] = {}
    for name in ("BN", "WC"):
        if not bench.wants("inference_ms", name):
            break
        with bench.attempt("inference_ms", name):
            draw = make_inference(name, bench)
            timers[name] = make_timer([draw] * 5, bench.device)
            if bench.device == "cuda":
                milliseconds, counts = profile_kernels(draw)
                bench.add("inference_kernel_ms", name, value=milliseconds)
                bench.add("inference_kernels", name, value=counts)
    for name, times in take_turns(timers, bench.sizes.rounds).items():
        bench.add("inference_ms", name, value=round(1e3 * median(times), 4))


def make_inference(normalization: str, bench: Bench) -> Callable[..., Tensor]:
    """A function that draws a batch of images."""
    dtype = torch.bfloat16 if bench.device == "cuda" else torch.float32
    config = iteration_config(normalization, bench.sizes.network_width, [])
    generator = build_generator(config.generator).to(bench.device)
    noise = torch.randn(bench.sizes.inference_batch, config.generator.noise, device=bench.device)
    with torch.no_grad():
        generator(noise)  # so that the statistics are not the identity
    folded = wcgan.fold(generator).to(dtype=dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    noise = noise.to(dtype)
    if bench.device == "cuda":
        folded.compile(dynamic=False)

    @torch.no_grad()
    def draw(number: int = 0) -> Tensor:
        images: Tensor = folded(noise)
        return images

    return draw


def measure_runs(bench: Bench, iterations: int, folder: Path | None, weights: Path | None) -> None:
    """Training with the kernels and with plain operators, together with the runs already in the file."""
    with bench.attempt("runs"):
        measure_curves(
            iterations,
            folder,
            weights,
            list(bench.sizes.run_settings),
            note=lambda name, found: bench.add("runs", value=found, measured=("runs", name)),
            wants=lambda name: bench.wants("runs", name),
            known=bench.report.get("runs"),
        )
