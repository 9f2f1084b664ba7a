"""Train with the GPU kernels and with plain PyTorch, and compare losses and FID; a second seed shows the noise.

    python benchmarks/curves.py [--iterations 2000] [--data FOLDER] [--inception-weights FILE] [--out FILE]

Runs the unconditional CIFAR-10 preset three times: with the kernels, with plain operators and the same seed, and with
plain operators and another seed. GANs amplify rounding errors, so the first two runs diverge after a few hundred
iterations. The kernels pass if the first two runs differ no more than the last two, which differ only in their seed.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from wcgan.core.config import override
from wcgan.core.device import find_hardware
from wcgan.data import Dataset
from wcgan.evaluate.inception import VARIABLE
from wcgan.functional import plain_passes
from wcgan.paper.presets import preset
from wcgan.runs.config import Config
from wcgan.runs.folder import new_run
from wcgan.train.gan import train
from wcgan.train.start import evaluator_for, fit_config, load_data

PRESET = "cifar10/WC SN + ResNet"
# Name -> which passes to use, and the seed.
RUNS: dict[str, tuple[Callable[[], AbstractContextManager[None]], int]] = {
    "kernels": (nullcontext, 0),
    "plain": (plain_passes, 0),
    "plain, another seed": (plain_passes, 1),
}
LOSSES = ("loss/discriminator", "loss/generator")
LOG_EVERY, SMOOTHED, KEPT = 10, 10, 40  # iterations per line; lines per average; points kept per curve


def run_config(iterations: int, seed: int, folder: Path | None, settings: list[str]) -> Config:
    """A shorter version of the preset, which writes only losses and the last checkpoint."""
    config = preset(PRESET)
    config = replace(config, data=replace(config.data, folder=None if folder is None else str(folder)))
    fixed = [f"train.iterations={iterations}", f"train.seed={seed}", f"train.log_every={LOG_EVERY}"]
    quiet = ["train.sample_every=0", f"train.checkpoint_every={iterations}"]
    return override(config, [*fixed, *quiet, *settings])


def train_once(config: Config, dataset: Dataset, folder: Path, passes: AbstractContextManager[None]) -> dict[str, Any]:
    """Train one run in a new folder. Returns its losses, and its FID if Inception weights are given."""
    dataset = replace(dataset, labels=None, classes=())  # Inception alone, without a small classifier
    config = fit_config(config, dataset)
    evaluator = evaluator_for(config, dataset)
    run = new_run(folder, config)
    if find_hardware(config.train).compile:
        torch.compiler.reset()  # PyTorch limits the versions of a network, and earlier runs count
    with passes:
        train(config, dataset, run, evaluator)
    lines = [line for line in run.lines() if line["kind"] == "train"]
    scores = [line["FID"] for line in run.lines() if line["kind"] == "evaluation" and "FID" in line]
    return {
        "iterations": [line["iteration"] for line in lines],
        "losses": {name: [line[name] for line in lines] for name in LOSSES},
        "FID": scores[-1] if scores else None,
        "iterations_per_second": lines[-1].get("iterations_per_second"),
    }


def smooth(values: list[float], width: int) -> list[float]:
    """Moving average over `width` values."""
    width = min(width, len(values))
    return torch.tensor(values, dtype=torch.float64).unfold(0, width, 1).mean(1).tolist()


def distance(a: list[float], b: list[float]) -> float:
    """Mean absolute difference between two curves."""
    return sum(abs(x - y) for x, y in zip(a, b, strict=True)) / len(a)


def runs_to_verdict(runs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """For each loss and for FID: the gap between kernels and plain operators, and the gap between two seeds.

    Args:
        runs: results of `thin`, as they are stored, so that stored runs and new ones are treated alike.
    """
    fast, plain, other = (runs[name] for name in RUNS)
    gaps = {
        name: (
            distance(fast["losses"][name], plain["losses"][name]),
            distance(plain["losses"][name], other["losses"][name]),
        )
        for name in LOSSES
    }
    if None not in (fast["FID"], plain["FID"], other["FID"]):
        gaps["FID"] = (abs(fast["FID"] - plain["FID"]), abs(plain["FID"] - other["FID"]))
    return {
        name: {"kernels_to_plain": gap, "seed_to_seed": noise, "within_noise": gap <= noise}
        for name, (gap, noise) in gaps.items()
    }


def thin(run: dict[str, Any], points: int = KEPT) -> dict[str, Any]:
    """A run with its curves smoothed and reduced to a few points."""
    width = min(SMOOTHED, len(run["iterations"]))
    iterations = run["iterations"][width - 1 :]
    step = max(1, -(-len(iterations) // points))
    losses = {name: [round(v, 4) for v in smooth(values, width)[::step]] for name, values in run["losses"].items()}
    return {**run, "iterations": iterations[::step], "losses": losses}


def measure_curves(
    iterations: int,
    folder: Path | None = None,
    weights: Path | None = None,
    settings: list[str] | None = None,
    note: Callable[[str, dict[str, Any]], None] = lambda *_: None,
    wants: Callable[[str], bool] = lambda _: True,
    known: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """All runs and the verdict.

    Args:
        iterations: the length of each run.
        folder: the folder of the named datasets.
        weights: Inception's weights; without them, FID is not computed.
        settings: more settings for the config, as `section.field=value`.
        note: called after each run with its name and the report so far.
        wants: called before each run with its name; returns whether to train it.
        known: an earlier report; its runs are kept unless they are trained again.

    Raises:
        ValueError: if the earlier report has another preset or number of iterations.
    """
    report: dict[str, Any] = {"preset": PRESET, "iterations": iterations, "runs": {}}
    if known and (known["preset"], known["iterations"]) != (PRESET, iterations):
        there = f"{known['iterations']} iterations of {known['preset']}"
        raise ValueError(f"runs of {there} are there, which cannot be judged with {iterations} of {PRESET}")
    if weights is not None:
        os.environ[VARIABLE] = str(weights)
    inception = [] if weights is None else ["train.evaluate_with=inception"]
    dataset = load_data(run_config(iterations, 0, folder, settings or []))
    runs: dict[str, dict[str, Any]] = dict((known or report)["runs"])
    for name, (passes, seed) in RUNS.items():
        if not wants(name):
            continue
        config = run_config(iterations, seed, folder, [*(settings or []), *inception])
        with tempfile.TemporaryDirectory() as place:
            runs[name] = thin(train_once(config, dataset, Path(place) / "run", passes()))
        report["runs"] = {name: runs[name] for name in RUNS if name in runs}
        if len(runs) == len(RUNS):
            report["verdict"] = runs_to_verdict(runs)
        note(name, report)
    return report


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="folder of the named datasets")
    parser.add_argument("--inception-weights", type=Path, metavar="FILE", help="Inception weights, for FID")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write curves and verdict to this JSON file")
    chosen = parser.parse_args(arguments)
    report = measure_curves(chosen.iterations, chosen.data, chosen.inception_weights, chosen.settings)
    for name, found in report["verdict"].items():
        print(f"{name:20} kernels to plain {found['kernels_to_plain']:.4f}, seed to seed {found['seed_to_seed']:.4f}")
    if chosen.out:
        chosen.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
