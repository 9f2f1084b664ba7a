"""What whitening costs on a GPU: the factorisation, a layer, a training iteration, inference, and whole runs.

    python benchmarks/gpu.py [--parts factorisation,layers,eager,iterations,...] [--seconds N] [--out FILE]
    python benchmarks/gpu.py --data FOLDER --inception-weights FILE     with FID in the last part

Everything is replayed as a CUDA graph, so that it is the GPU that is timed and not the host, and all that is compared
takes turns within one run; a median counts. Only ZCA is run as it is: `eigh` makes the host wait; and the part `eager`,
which is of the host: layers and a ResNet-50 of torchvision as a person's own loop calls them. The layers walk over
more inputs than the cache holds, where the shape allows. The file is written after each measurement, and a file that is
there is added to, so that parts can be measured one by one. `--seconds` is asked before each measurement: what does not
fit is skipped and said. `--device cpu --quick` runs the same code in miniature; its figures mean nothing.
"""

import argparse
import json
import math
import platform
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import wcgan
from _gpu.bench import QUICK, Bench, Sizes
from _gpu.parts import (
    measure_eager,
    measure_factorisation,
    measure_inference,
    measure_iterations,
    measure_layers,
    measure_runs,
)
from _gpu.table import print_table
from wcgan.runs.folder import find_commit

PARTS = ("factorisation", "layers", "eager", "iterations", "inference", "runs")


def parse_parts(text: str) -> tuple[str, ...]:
    parts = tuple(text.split(","))
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"takes some of {', '.join(PARTS)}, got {', '.join(unknown)!r}")
    return parts


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="the same code on tiny sizes")
    parser.add_argument("--parts", type=parse_parts, default=PARTS, metavar="PART,...", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=math.inf, help="no measurement begins after so many")
    parser.add_argument("--iterations", type=int, default=2000, help="of each run")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the data sets lie, for the runs")
    parser.add_argument("--inception-weights", type=Path, metavar="FILE", help="for FID; without, losses alone")
    parser.add_argument("--out", type=Path, metavar="FILE", help="a JSON file, added to where it is there")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU on this machine; --device cpu --quick runs the same code in miniature")
    chosen.report = {}
    if chosen.out is not None and chosen.out.is_file():
        try:
            chosen.report = json.loads(chosen.out.read_text(encoding="utf-8"))
        except ValueError:
            parser.error(f"--out {chosen.out} is there and is not JSON: name another file, or remove it")
        here, there = describe(chosen.device)["machine"], chosen.report.get("machine")
        if there not in (None, here):
            parser.error(f"--out {chosen.out} has figures of {there}, and this is {here}: name another file")
    return chosen


def describe(device: str) -> dict[str, Any]:
    """The machine and the versions of everything that matters."""
    found = {"wcgan": wcgan.__version__, "torch": torch.__version__, "python": platform.python_version()}
    if device == "cuda":
        import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]

        found |= {"triton": triton.__version__, "cuda": str(torch.version.cuda)}
        found["cudnn"] = str(torch.backends.cudnn.version())
    machine = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, CPU"
    return {"machine": machine, "versions": found}


def main(arguments: list[str] | None = None) -> None:
    chosen = parse_arguments(arguments)
    bench = Bench(
        chosen.device, QUICK if chosen.quick else Sizes(), chosen.out, chosen.seconds, find_commit() or "unknown"
    )
    bench.report |= {**chosen.report, **describe(chosen.device), "commit": bench.commit}
    measure: dict[str, Callable[[], None]] = {
        "factorisation": partial(measure_factorisation, bench),
        "layers": partial(measure_layers, bench),
        "eager": partial(measure_eager, bench),
        "iterations": partial(measure_iterations, bench),
        "inference": partial(measure_inference, bench),
        "runs": partial(measure_runs, bench, chosen.iterations, chosen.data, chosen.inception_weights),
    }
    for part in chosen.parts:
        measure[part]()
    bench.write()
    print_table(bench.report)


if __name__ == "__main__":
    main()
