"""Cost of training on a GPU: factorisation, convolutions of images, a layer, an iteration, inference, whole runs.

    python benchmarks/gpu.py [--parts factorisation,layers,eager,iterations,...] [--seconds N] [--out FILE]
    python benchmarks/gpu.py --data FOLDER --inception-weights FILE     with FID in the last part

Everything is replayed as a CUDA graph, so that the timings exclude the host, with two exceptions: ZCA, because `eigh`
syncs with the host, and the part `eager`, which times layers and torchvision's ResNet-50 as a user's own loop calls
them, host included. Whatever is compared takes turns within one run, and the median is reported. Layers cycle through
more inputs than fit into the cache, where the shape allows. The file is written after each measurement; an existing
file is extended, so that parts can be measured one by one. No measurement starts after `--seconds`; those skipped are
listed. `--device cpu --quick` runs the same code on tiny sizes, to test the script: ignore its timings.
"""

import argparse
import json
import math
import os
import platform
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import wcgan
from _gpu.bench import QUICK, Bench, Sizes
from _gpu.images import measure_images
from _gpu.parts import (
    measure_eager,
    measure_factorisation,
    measure_inference,
    measure_iterations,
    measure_layers,
    measure_long,
    measure_runs,
)
from _gpu.table import print_table
from wcgan.runs.folder import find_commit

PARTS = ("factorisation", "images", "layers", "eager", "iterations", "long", "inference", "runs")


def parse_parts(text: str) -> tuple[str, ...]:
    parts = tuple(text.split(","))
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"takes some of {', '.join(PARTS)}, got {', '.join(unknown)!r}")
    return parts


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="run the same code on tiny sizes")
    parser.add_argument("--parts", type=parse_parts, default=PARTS, metavar="PART,...", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no measurement after this time")
    parser.add_argument("--iterations", type=int, default=2000, help="length of each run")
    parser.add_argument("--turn", type=float, metavar="SECONDS", help="length of a turn in the part long (60)")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder of the named datasets, for the runs")
    parser.add_argument("--inception-weights", type=Path, metavar="FILE", help="Inception weights, for FID")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file to write, or to extend")
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
    """The machine, and the versions of the software."""
    found = {"wcgan": wcgan.__version__, "torch": torch.__version__, "python": platform.python_version()}
    if device == "cuda":
        import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]

        found |= {"triton": triton.__version__, "cuda": str(torch.version.cuda)}
        found["cudnn"] = str(torch.backends.cudnn.version())
    machine = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, CPU"
    return {"machine": machine, "versions": found}


def main(arguments: list[str] | None = None) -> None:
    chosen = parse_arguments(arguments)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # for the deterministic iteration, before CUDA starts
    sizes = QUICK if chosen.quick else Sizes()
    if chosen.turn is not None:
        sizes = replace(sizes, long_seconds=chosen.turn)
    bench = Bench(chosen.device, sizes, chosen.out, chosen.seconds, find_commit() or "unknown")
    bench.report |= {**chosen.report, **describe(chosen.device), "commit": bench.commit}
    measure: dict[str, Callable[[], None]] = {
        "factorisation": partial(measure_factorisation, bench),
        "images": partial(measure_images, bench),
        "layers": partial(measure_layers, bench),
        "eager": partial(measure_eager, bench),
        "iterations": partial(measure_iterations, bench),
        "long": partial(measure_long, bench, chosen.data),
        "inference": partial(measure_inference, bench),
        "runs": partial(measure_runs, bench, chosen.iterations, chosen.data, chosen.inception_weights),
    }
    for part in chosen.parts:
        measure[part]()
    bench.write()
    print_table(bench.report)


if __name__ == "__main__":
    main()
