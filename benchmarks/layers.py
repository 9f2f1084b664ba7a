"""Time and peak memory of the layers, forward and backward, as ratios to batch norm.

    python benchmarks/layers.py [--device cpu|cuda] [--quick] [--widths 64,128] [--positions 2048,8192] [--out FILE]

All layers take turns within one run: each round times every layer once, starting with a different one. The fastest
round is reported, since other processes can only slow a layer down. Compare only ratios from the same run. With
`--threads 1`, the script measures CPU time of the thread, which depends little on the load of the machine.
"""

import argparse
import json
import math
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

import wcgan

CLASSES = 10
WIDTHS = (64, 128, 256, 512)
POSITIONS = (2048, 8192, 32768, 65536, 131072)
QUICK_WIDTHS = (64, 256)
QUICK_POSITIONS = (2048, 8192, 65536)
MOST_ELEMENTS_ON_CPU = 34_000_000  # per batch; larger ones take minutes
SECONDS_A_CASE, QUICK_SECONDS_A_CASE, FEWEST_ROUNDS, MOST_ROUNDS = 5.0, 1.0, 3, 30


class AutodiffWhitening(nn.Module):
    """Whitening and coloring as usually written: autograd differentiates every operation."""

    running_mean: Tensor
    running_covariance: Tensor

    def __init__(self, channels: int, sigma_to_whitening: Callable[[Tensor], Tensor], eps: float = 1e-3) -> None:
        super().__init__()
        self.sigma_to_whitening, self.eps = sigma_to_whitening, eps
        self.weight, self.bias = nn.Parameter(torch.empty(channels, channels)), nn.Parameter(torch.zeros(channels))
        nn.init.xavier_uniform_(self.weight)
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_covariance", torch.eye(channels))

    def forward(self, x: Tensor) -> Tensor:
        n, d, h, w = x.shape
        features = x.transpose(0, 1).reshape(d, n * h * w)  # (N, d, H, W) -> (d, m)
        mean = features.mean(1, keepdim=True)
        centred = features - mean
        covariance = centred @ centred.mT / (features.shape[1] - 1)
        sigma = (1 - self.eps) * covariance + self.eps * torch.eye(d, device=x.device)
        whitened = self.sigma_to_whitening(sigma) @ centred
        colored = torch.addmm(self.bias.unsqueeze(1), self.weight, whitened)
        with torch.no_grad():
            self.running_mean.lerp_(mean.squeeze(1), 0.01)
            self.running_covariance.lerp_(covariance, 0.01)
        return colored.view(d, n, h, w).transpose(0, 1).contiguous()


def cholesky_whitening(sigma: Tensor) -> Tensor:
    eye = torch.eye(sigma.shape[0], device=sigma.device)
    return torch.linalg.solve_triangular(torch.linalg.cholesky(sigma), eye, upper=False)


def zca_whitening(sigma: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(sigma)
    return (vectors * values.rsqrt()) @ vectors.mT


# Name -> function that builds the layer for d channels. IterNorm whitens groups of 64 channels.
PEERS: dict[str, Callable[[int], nn.Module]] = {
    "BN": nn.BatchNorm2d,
    "WC": wcgan.WhiteningColoring2d,
    "WC autodiff": lambda d: AutodiffWhitening(d, cholesky_whitening),
    "ZCA autodiff": lambda d: AutodiffWhitening(d, zca_whitening),
    "WzcaC": lambda d: wcgan.normalization("WzcaC", d),
    "IterNorm": lambda d: wcgan.normalization("IterNorm", d),
    "cBN": lambda d: wcgan.normalization("cBN", d, CLASSES),
    "cWC": lambda d: wcgan.normalization("cWC", d, CLASSES),
    "cWC_sa": lambda d: wcgan.normalization("cWC_sa", d, CLASSES),
}


@dataclass(frozen=True)
class Measurement:
    """One layer on one batch with `width` channels and `positions` = N H W.

    Attributes:
        milliseconds: of a forward and backward pass, in the fastest round.
        peak_bytes: the most that was allocated at once, input, output and gradients included.
    """

    peer: str
    width: int
    positions: int
    milliseconds: float
    peak_bytes: int


def positions_to_shape(positions: int) -> tuple[int, int, int]:
    """m -> (N, H, W): 32 or 64 samples of a square grid."""
    for samples in (32, 64):
        side = math.isqrt(positions // samples)
        if side and samples * side**2 == positions:
            return samples, side, side
    raise ValueError(f"positions must be 32 or 64 times a square, got {positions}")


def make_steps(width: int, positions: int, device: str) -> tuple[dict[str, Callable[[], object]], int]:
    """A forward and backward step for each layer on one batch of correlated channels, and the batch's size in bytes."""
    samples, height, side = positions_to_shape(positions)
    generator = torch.Generator().manual_seed(0)
    mixing = torch.eye(width) + torch.randn(width, width, generator=generator) / math.sqrt(width)
    batch = torch.randn(samples, width, height * side, generator=generator)
    x = (mixing @ batch).view(samples, width, height, side).to(device).requires_grad_()
    cotangent = torch.randn(x.shape, generator=generator).to(device)
    labels = (torch.arange(samples) % CLASSES).to(device)

    def make_step(layer: nn.Module) -> Callable[[], object]:
        inputs = (x, labels) if isinstance(layer, wcgan.ConditionalWhiteningColoring2d) else (x,)

        def step() -> object:
            out = layer(*inputs)
            return out, torch.autograd.grad(out, (x, *layer.parameters()), cotangent)

        return step

    return {name: make_step(build(width).to(device)) for name, build in PEERS.items()}, x.nbytes


def step_to_peak_growth(step: Callable[[], object], device: str) -> int:
    """Peak memory of a step in bytes, beyond what was allocated before it."""
    if device == "cuda":
        step()  # libraries allocate their workspace at the first use, and keep it
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        return torch.cuda.max_memory_allocated() - before
    # The profiler records each call of PyTorch's CPU allocator, whichever operator makes it. The maximum of the running
    # sum is the peak, exactly and repeatably; only scratch space inside the BLAS and LAPACK libraries escapes it.
    # BatchNorm's backward reserves the input's gradient twice and frees one unwritten, so its peak is five batches.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        held = step()
    del held
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    calls = sorted((e for e in events if e.get("name") == "[memory]"), key=lambda e: e["ts"])
    growth = peak = 0
    for call in calls:
        growth += call["args"]["Bytes"]
        peak = max(peak, growth)
    return peak


def step_to_milliseconds(step: Callable[[], object], device: str) -> float:
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        step()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    step()
    return (clock() - begin) * 1e3


def measure_case(width: int, positions: int, device: str, seconds: float) -> list[Measurement]:
    """Times all layers on one batch, in turns, for about this many seconds."""
    steps, batch_bytes = make_steps(width, positions, device)
    held = 2 * batch_bytes  # the input and the output's gradient exist before the step
    peaks = {name: held + step_to_peak_growth(step, device) for name, step in steps.items()}  # also the warm-up
    times: dict[str, list[float]] = {name: [] for name in steps}
    names, began = list(steps), time.perf_counter()
    for turn in range(MOST_ROUNDS):
        if turn >= FEWEST_ROUNDS and time.perf_counter() - began > seconds:
            break
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(step_to_milliseconds(steps[name], device))
    return [Measurement(name, width, positions, min(times[name]), peaks[name]) for name in names]


def fit_growth(rows: list[Measurement]) -> tuple[float | None, float | None]:
    """Exponents a and b of the least-squares fit `time ~ d^a m^b`; None if only one size was measured."""
    widths, positions = {r.width for r in rows}, {r.positions for r in rows}
    varying = [len(widths) > 1, len(positions) > 1]
    columns = [[math.log(r.width) for r in rows], [math.log(r.positions) for r in rows]]
    used = [column for column, varies in zip(columns, varying, strict=True) if varies]
    design = torch.tensor([[1.0] * len(rows), *used], dtype=torch.float64).mT
    target = torch.tensor([[math.log(r.milliseconds)] for r in rows], dtype=torch.float64)
    exponents = torch.linalg.lstsq(design, target).solution.flatten().tolist()[1:]
    return tuple(exponents.pop(0) if varies else None for varies in varying)  # type: ignore[return-value]


def rows_to_claims(rows: list[Measurement]) -> list[str]:
    """The library's targets, with the measured values."""
    found = {(r.peer, r.width, r.positions): r for r in rows}
    claims = []
    for peer, target in (("WC autodiff", 1.5), ("ZCA autodiff", 3)):
        for (name, width, positions), row in found.items():
            if name == peer and width == 256:
                ratio = row.milliseconds / found["WC", width, positions].milliseconds
                claims.append(f"WC vs {peer} at d=256, m={positions}: {ratio:.2f} times as fast (target {target})")
    for (name, width, positions), row in found.items():
        if name == "WC" and positions == 65536:
            ratio = row.peak_bytes / found["BN", width, positions].peak_bytes
            strict = row.peak_bytes / (4 * 4 * width * positions)  # four float32 batches
            claims.append(
                f"peak memory WC/BN at d={width}, m=65536: {ratio:.2f} (target 1.10); "
                f"against input, output and their gradients alone: {strict:.2f}"
            )
    return claims


def print_tables(rows: list[Measurement]) -> None:
    cases = list(dict.fromkeys((r.width, r.positions) for r in rows))
    found = {(r.peer, r.width, r.positions): r for r in rows}
    others = [name for name in PEERS if name != "BN"]
    header = f"{'d':>6}{'m':>9}{'BN':>12}   " + "".join(f"{name:>14}" for name in others)

    def line(width: int, positions: int, unit: str, value: Callable[[Measurement], float]) -> str:
        bn = value(found["BN", width, positions])
        ratios = (value(found[name, width, positions]) / bn for name in others)
        return f"{width:>6}{positions:>9}{bn:>12.2f}{unit}" + "".join(f"{ratio:>14.2f}" for ratio in ratios)

    print("\nTime of forward + backward, as a ratio to BN's", header, sep="\n")
    for case in cases:
        print(line(*case, " ms", lambda r: r.milliseconds))
    growth = {name: fit_growth([r for r in rows if r.peer == name]) for name in PEERS}
    for label, position in (("time ~ d^", 0), ("time ~ m^", 1)):
        values = [growth[name][position] for name in ("BN", *others)]
        bn, *rest = ("-" if value is None else f"{value:.2f}" for value in values)
        print(f"{label:>15}{bn:>12}   " + "".join(f"{value:>14}" for value in rest))
    print("\nPeak memory with input, output and gradients, as a ratio to BN's", header, sep="\n")
    for case in cases:
        print(line(*case, " MB", lambda r: r.peak_bytes / 1e6))


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    sizes = lambda text: tuple(int(part) for part in text.split(","))  # noqa: E731
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="fewer sizes, under a minute")
    parser.add_argument("--widths", type=sizes, metavar="D,...", help="channels d")
    parser.add_argument(
        "--positions", type=sizes, metavar="M,...", help="m = N H W, which must be 32 or 64 times a square"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads; PyTorch's default if not given")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the measurements to this JSON file")
    chosen = parser.parse_args(arguments)
    chosen.widths = chosen.widths or (QUICK_WIDTHS if chosen.quick else WIDTHS)
    chosen.positions = chosen.positions or (QUICK_POSITIONS if chosen.quick else POSITIONS)
    return chosen


def main(arguments: list[str] | None = None) -> None:
    chosen = parse_arguments(arguments)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    hardware = torch.cuda.get_device_name() if chosen.device == "cuda" else platform.machine()
    print(f"torch {torch.__version__}, {chosen.device} ({hardware}), {torch.get_num_threads()} threads, float32")
    seconds = QUICK_SECONDS_A_CASE if chosen.quick else SECONDS_A_CASE
    rows: list[Measurement] = []
    for width in chosen.widths:
        for positions in chosen.positions:
            if chosen.device == "cpu" and width * positions > MOST_ELEMENTS_ON_CPU:
                print(f"skipped on the CPU: d={width}, m={positions} has more than {MOST_ELEMENTS_ON_CPU:,} elements")
                continue
            print(f"measuring d={width}, m={positions}", file=sys.stderr, flush=True)
            rows += measure_case(width, positions, chosen.device, seconds)
    print_tables(rows)
    claims = rows_to_claims(rows)
    print("", *claims, sep="\n")
    if chosen.out:
        found = {
            "torch": torch.__version__,
            "device": f"{chosen.device} ({hardware})",
            "threads": torch.get_num_threads(),
            "measurements": [asdict(row) for row in rows],
            "growth": {name: fit_growth([row for row in rows if row.peer == name]) for name in PEERS},
            "claims": claims,
        }
        chosen.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
