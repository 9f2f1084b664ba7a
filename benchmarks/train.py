"""Time of a training iteration of the CIFAR-10 networks, as ratios to batch norm, and where it is spent.

    python benchmarks/train.py [--device cpu|cuda] [--width N] [--rounds N] [--threads N] [--set SECTION.FIELD=VALUE]
    python benchmarks/train.py --device cuda --ways eager compiled graph both [--peers BN WC]
    torchrun --nproc-per-node 2 benchmarks/train.py ...     also counts and times the communication

Uses the paper's networks with spectral norm on synthetic images: unconditional for BN and WC, with a projection
discriminator for cBN and cWC. On a GPU, the networks have the paper's widths and run as in `wcgan train`; for the
paper's settings, use `--set train.precision=float32 --set train.compile=no`. On a CPU, where that takes minutes per
iteration, all widths are 32. All four take turns within one run: each round times every one once, starting with a
different one. The fastest round is reported, since other processes can only slow it down. With `--ways`, each runs in
eager mode, compiled, as a CUDA graph, or both. With `--threads 1`, the script measures CPU time of the thread, which
depends little on the load of the machine.
"""

import argparse
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from wcgan.core.device import find_hardware
from wcgan.core.processes import Rank, join_processes
from wcgan.reproduce.timed_iteration import (
    WIDTH_ON_CPU,
    Step,
    build_workbench,
    iteration_config,
    rotated,
    step_to_seconds,
)
from wcgan.runs.config import Config

PEERS = ("BN", "WC", "cBN", "cWC")
BASELINES = {"WC": "BN", "cWC": "cBN"}
WAYS = {
    "eager": ["train.compile=no", "train.cuda_graph=no"],
    "compiled": ["train.compile=yes", "train.cuda_graph=no"],
    "graph": ["train.compile=no", "train.cuda_graph=yes"],
    "both": ["train.compile=yes", "train.cuda_graph=yes"],
}
ROUNDS = 5


@dataclass(frozen=True)
class Measurement:
    """One peer; seconds of an iteration in the fastest round.

    Attributes:
        seconds: all of it.
        data: what is drawn for it: real images, noise, labels.
        discriminator: its updates, with the images generated for them.
        generator: its update.
        calls: sums over processes in an iteration; 0 for a single process.
        sent: bytes in them.
        exchange: seconds of the same sums one after the other, with nothing between them.
    """

    peer: str
    seconds: float
    data: float
    discriminator: float
    generator: float
    calls: int = 0
    sent: int = 0
    exchange: float = 0.0


@dataclass(frozen=True)
class Steps:
    """The steps to time for a peer; each takes the number of the iteration."""

    iteration: Step
    short_iteration: Step
    data: Step
    critic_steps: int
    warm_up: int

    def __iter__(self) -> Any:
        return iter((self.iteration, self.short_iteration, self.data))


def make_steps(config: Config, rank: Rank) -> Steps:
    bench = build_workbench(config, rank, print)
    short = replace(config, train=replace(config.train, critic_steps=1))
    return Steps(bench.step(config), bench.step(short), bench.batches.draw, config.train.critic_steps, bench.warm_up)


def times_to_measurement(peer: str, whole: float, short: float, data: float, critic_steps: int) -> Measurement:
    """How the time of an iteration is spent, derived from an iteration with a single discriminator update.

    The difference is what an update of the discriminator takes, with its data and its generated images; what is left
    of the short iteration is the generator's. Nothing is inserted into the code that is measured, and on a GPU nothing
    is made to wait. Whitening is in both, and is what the same networks with batch normalisation do without.
    """
    update = (whole - short) / (critic_steps - 1) if critic_steps > 1 else 0.0
    return Measurement(peer, whole, data, critic_steps * update - data, short - update)


class Wire:
    """Counts the all-reduces in its block."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, torch.dtype, torch.device]] = []

    def __enter__(self) -> "Wire":
        self._send = send = dist.all_reduce

        def count(values: Tensor, *args: Any, **kwargs: Any) -> Any:
            self.sent.append((values.numel(), values.dtype, values.device))
            return send(values, *args, **kwargs)

        dist.all_reduce = count  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        dist.all_reduce = self._send

    def replay(self) -> Step:
        """A step with the same all-reduces and nothing else."""
        tensors = [torch.zeros(count, dtype=dtype, device=device) for count, dtype, device in self.sent]

        def step(_: int) -> None:
            for values in tensors:
                dist.all_reduce(values)

        return step


def measure(configs: dict[str, Config], rounds: int, rank: Rank) -> list[Measurement]:
    """Times all peers in turns; the fastest round of each is reported."""
    device = find_hardware(next(iter(configs.values())).train).device
    steps = {name: make_steps(config, rank) for name, config in configs.items()}
    wires = {name: Wire() for name in steps}
    replays: dict[str, Step] = {}
    for name, parts in steps.items():
        for part in parts:
            for number in range(parts.warm_up):
                part(number)
        with wires[name]:
            parts.iteration(parts.warm_up)
        replays[name] = wires[name].replay()
    times: dict[str, list[list[float]]] = {name: [] for name in steps}
    names = list(steps)
    for turn in range(rounds):
        for name in rotated(names, turn):
            timed = [*steps[name], *([replays[name]] if rank.count > 1 else [])]
            times[name].append([step_to_seconds(step, turn, device, rank) for step in timed])
    rows = []
    for name in names:
        whole, short, data, *exchange = (min(column) for column in zip(*times[name], strict=True))
        row = times_to_measurement(name, whole, short, data, steps[name].critic_steps)
        sent = sum(count * dtype.itemsize for count, dtype, _ in wires[name].sent)
        rows.append(replace(row, calls=len(wires[name].sent), sent=sent, exchange=sum(exchange)))
    return rows


def baseline_of(name: str) -> str:
    """The baseline of a peer, run the same way."""
    peer, _, way = name.partition(" ")
    return f"{BASELINES.get(peer, peer)} {way}".strip()


def print_tables(rows: list[Measurement]) -> None:
    found = {row.peer: row for row in rows}
    w = max(len(name) for name in found) + 2
    print(f"\n{'':{w}}{'ms/iteration':>13}{'ratio':>8} to{'':{w - 2}}{'data':>8}{'D':>8}{'G':>8}{'whitening':>12}")
    for row in rows:
        baseline = baseline_of(row.peer)
        shares = "".join(f"{part / row.seconds:8.1%}" for part in (row.data, row.discriminator, row.generator))
        ratio = row.seconds / found[baseline].seconds if baseline in found else float("nan")
        whitening = f"{1 - 1 / ratio:12.1%}" if row.peer != baseline else f"{'-':>12}"
        print(f"{row.peer:{w}}{1e3 * row.seconds:13.2f}{ratio:8.2f} {baseline:{w}}{shares}{whitening}")
    print("data, D and G add up; whitening is the part of D and G that batch normalisation does without")
    print("the paper: WC/BN = 1.32, at full width on a Titan X")
    if any(row.calls for row in rows):
        print(f"\n{'':{w}}{'sums':>6}{'MB':>10}{'ms alone':>10}{'of the iteration':>18}")
        for row in rows:
            share = row.exchange / row.seconds
            print(f"{row.peer:{w}}{row.calls:6}{row.sent / 1e6:10.2f}{1e3 * row.exchange:10.2f}{share:18.1%}")
    print("\nimages per second of the loader, cold and warm: python benchmarks/loader.py")


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=("cpu", "cuda"), default=default)
    parser.add_argument(
        "--width",
        type=int,
        metavar="N",
        help=f"width of all layers; by default {WIDTH_ON_CPU} on a CPU, and the paper's on a GPU",
    )
    parser.add_argument("--full", action="store_true", help="use the paper's widths on a CPU too")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads; PyTorch's default if not given")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS, help="which ones to time; all by default")
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=[], help="eager mode, compiled, as a CUDA graph, or both"
    )
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the measurements to this JSON file")
    chosen = parser.parse_args(arguments)
    if chosen.width is None and chosen.device == "cpu" and not chosen.full:
        chosen.width = WIDTH_ON_CPU
    return chosen


def main(arguments: list[str] | None = None) -> None:
    chosen = parse_arguments(arguments)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    settings = [*chosen.settings, f"train.device={chosen.device}"]
    configs = {
        f"{name} {way}".strip(): iteration_config(name, chosen.width, [*settings, *WAYS.get(way, [])])
        for way in chosen.ways or [""]
        for name in chosen.peers
    }
    train = next(iter(configs.values())).train
    hardware = find_hardware(train)
    with join_processes(hardware.device) as rank:
        rows = measure(configs, chosen.rounds, rank)
    if not rank.first:
        return
    facts = {
        **hardware.describe(),
        "width": "full" if chosen.width is None else str(chosen.width),
        "updates": f"{train.critic_steps} of D on {train.batch} + {train.batch}, 1 of G on {train.generator_batch}",
        "processes": str(rank.count),
    }
    print(*(f"{name}: {value}" for name, value in facts.items()), sep="; ")
    print_tables(rows)
    if chosen.out:
        chosen.out.write_text(json.dumps({**facts, "measurements": [asdict(row) for row in rows]}, indent=1))


if __name__ == "__main__":
    main()
