"""Time per epoch of a classifier, for each normalisation and for several seeds trained side by side.

    python benchmarks/classify.py [--depth 32] [--where first] [--rows BN,WC,DBN,IterNorm] [--seeds 1,2,5] [--out FILE]

Runs iterations as `wcgan classify` does, compiled and as one CUDA graph where possible, on random images of CIFAR-10's
size. The configurations take turns, and the median over rounds is reported. Ratios are relative to BN with the same
number of seeds. `--device cpu --quick` runs the same code on a tiny network, to test the script: ignore its timings.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from _gpu.parts import keep_compiled_networks
from _gpu.timing import Timer, take_turns
from wcgan.core.device import Hardware, find_hardware
from wcgan.core.terminal import TrainingProgress
from wcgan.data import Dataset
from wcgan.nets import ClassifierConfig
from wcgan.runs.config import ClassifyConfig
from wcgan.runs.folder import find_commit
from wcgan.train.batches import dataset_on
from wcgan.train.classifier import ClassifierBatches, build_learner, make_step
from wcgan.train.graph import WARM_UP
from wcgan.train.start_classifier import fit_classifier

EPOCH = 50_000  # training images in CIFAR-10
ITERATIONS = 100  # per timing


class Spoken(TrainingProgress):
    def say(self, text: str) -> None:
        print(text, flush=True)


def random_images(count: int) -> Dataset:
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=random)
    labels = torch.randint(0, 10, (count,), generator=random)
    return Dataset(images, labels, tuple("0123456789"), "random", "train", "")


def make_timers(
    network: ClassifierConfig, rows: list[str], seeds: list[int], quick: bool, hardware: Hardware
) -> dict[str, Timer]:
    """A timer for each row and number of seeds, whose step is compiled and captured."""
    base = ClassifyConfig(classifier=network)
    if quick:
        base = replace(base, train=replace(base.train, batch=8))
    dataset = dataset_on(random_images(64 if quick else 10_000), hardware.device)
    timers: dict[str, Timer] = {}
    for row in rows:
        for count in seeds:
            config = fit_classifier(replace(base, classifier=replace(network, normalization=row)), dataset)
            configs = [replace(config, train=replace(config.train, seed=seed)) for seed in range(count)]
            learners = [build_learner(c, dataset.images, hardware.device, hardware.channels_last) for c in configs]
            batches = [ClassifierBatches(dataset, c.train, hardware.device) for c in configs]
            step = make_step(learners, batches, hardware, Spoken())
            for number in range(WARM_UP + 2):
                step(number)
            timers[f"{row}, {count}"] = partial(seconds_of, step, 2 if quick else ITERATIONS, hardware.device)
            print(f"ready: {row} with {count} side by side", flush=True)
    return timers


def seconds_of(step: Callable[[int], object], count: int, device: torch.device) -> float:
    """Seconds per iteration."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    begin = time.perf_counter()
    for number in range(count):
        step(number)
    wait()
    return (time.perf_counter() - begin) / count


def times_to_report(times: dict[str, list[float]], batch: int) -> dict[str, dict[str, float]]:
    """Milliseconds per iteration, seconds per epoch and seed, and the ratio to BN with the same number of seeds."""
    report: dict[str, dict[str, float]] = {}
    for name, values in times.items():
        count = int(name.rpartition(", ")[2])
        report[name] = {
            "iteration_ms": round(1e3 * median(values), 3),
            "epoch_s_of_a_seed": round(median(values) * EPOCH / batch / count, 3),
        }
        baseline = times.get(f"BN, {count}")
        if baseline is not None:
            report[name]["ratio_to_bn"] = round(median(a / b for a, b in zip(values, baseline, strict=True)), 3)
    return report


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--where", choices=("first", "all"), default="first")
    parser.add_argument("--rows", default="BN,WC,DBN,IterNorm")
    parser.add_argument("--seeds", default="1,2,5", help="numbers of seeds to train side by side")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="run the same code on a tiny network")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results to this JSON file")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU on this machine; --device cpu --quick runs the same code in miniature")
    if chosen.device == "cpu" and not chosen.quick:
        parser.error("--device cpu needs --quick, whose timings mean nothing")
    network = ClassifierConfig(
        depth=8 if chosen.quick else chosen.depth, width=4 if chosen.quick else 16, where=chosen.where
    )
    hardware = find_hardware(replace(ClassifyConfig().train, device=chosen.device))
    keep_compiled_networks()
    rows, seeds = chosen.rows.split(","), [int(number) for number in chosen.seeds.split(",")]
    timers = make_timers(network, rows, seeds, chosen.quick, hardware)
    times = take_turns(timers, chosen.rounds)
    found = times_to_report(times, ClassifyConfig().train.batch)
    for name, figures in found.items():
        print(f"{name:14}" + "".join(f"{key.replace('_', ' ')} {value:<10}" for key, value in figures.items()))
    if chosen.out is not None:
        report: dict[str, Any] = {
            "network": f"ResNet-{network.depth}, {network.where}",
            "hardware": hardware.describe(),
            "commit": find_commit() or "unknown",
            "times": found,
        }
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
