"""Folders of runs as training writes them, whole or with pieces missing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

FID, IS, ACCURACY = "FID(classifier)", "IS(classifier)", "accuracy(classifier)"


def protocol(**changes: Any) -> dict[str, Any]:
    return {
        "features": "classifier",
        "classifier": {
            "trained_on": "digits train",
            "images": 1438,
            "tested_on": "digits test",
            "accuracy": 0.9832,
            "weights": "8cb768829f48",
        },
        "reference": {"dataset": "digits", "split": "test", "images": 359, "of": 359, "fingerprint": "5f2a"},
        "generated": 1000,
        "labels": "uniform",
        "splits": 10,
        "seed": 0,
        "std": {"IS(classifier)": 0.21},
        **changes,
    }


def config(variant: str = "cWC", iterations: int = 1000, dataset: str = "digits", **train: Any) -> dict[str, Any]:
    return {
        "data": {"name": dataset, "folder": None, "resolution": None, "strict": False},
        "generator": {"kind": "resnet", "base": 4, "widths": [64, 64], "noise": 128, "normalization": variant},
        "discriminator": {"kind": "resnet", "widths": [64, 64], "head": "projection", "spectral_norm": True},
        "train": {"loss": "hinge", "iterations": iterations, "batch": 64, "learning_rate": 2e-4, "seed": 0, **train},
        "preset": "digits",
    }


def training(until: int = 1000, every: int = 10, slope: float = 1.0) -> list[dict[str, Any]]:
    return [
        {
            "kind": "train",
            "iteration": i,
            "loss/discriminator": 0.4 + slope * math.exp(-i / 300) + 0.1 * math.sin(i * 0.7),
            "loss/generator": -0.3 * slope + 0.3 * math.sin(i / 90) + 0.1 * math.sin(i * 1.3),
            "learning_rate": 2e-4 * (1 - i / 1000),
            "images": i * 320,
            "seconds": i * 0.123,
            "iterations_per_second": 8.1,
        }
        for i in range(every, until + 1, every)
    ]


def evaluations(until: int = 1000, every: int = 200, scale: float = 1.0, **changes: Any) -> list[dict[str, Any]]:
    return [
        {
            "kind": "evaluation",
            "iteration": i,
            FID: scale * (1.5 + 60 * math.exp(-i / 200)),
            IS: 8.8 - 6 * scale * math.exp(-i / 250),
            ACCURACY: 0.98 - 0.6 * scale * math.exp(-i / 250),
            "protocol": protocol(**changes),
            "seconds": 4.2,
        }
        for i in range(every, until + 1, every)
    ]


COUNTS = {  # protocol -> images for FID, images for IS
    "paper-10k": (10_000, 50_000),
    "paper-10k, 10 sets of 1,000": (10_000, 10_000),
    "paper-10k, 2,000 generated against 10,000, 10 sets of 200": (2_000, 2_000),
}


def published(iteration: int, name: str = "paper-10k", seed: int = 0, **scores: float) -> dict[str, Any]:
    """An evaluation by Inception, with the counts that the protocol's name stands for."""
    protocol = {"name": name, "features": "inception", "inception": {"weights": "6726825d"}, "seed": seed}
    if name in COUNTS:
        generated, scored = COUNTS[name]
        protocol |= {
            "reference": {"split": "test", "images": 10_000},
            "generated": generated,
            "splits": 10,
            "scored_by_IS": scored,
        }
    deviations = {"IS": 0.11} if "IS" in scores else {}
    return {"kind": "evaluation", "iteration": iteration, **scores, "protocol": {**protocol, "std": deviations}}


def classifier_config(normalization: str = "WC", iterations: int = 1000, **train: Any) -> dict[str, Any]:
    network = {"depth": 32, "width": 16, "normalization": normalization, "where": "first", "channels": 3, "classes": 10}
    return {
        "data": {"name": "cifar10", "folder": None, "resolution": None, "strict": False},
        "classifier": {**network, "options": {}},
        "train": {"iterations": iterations, "batch": 128, "seed": 0, "drops": [500, 750], **train},
        "preset": f"cifar10/ResNet-32 {normalization}",
    }


def classifier_records(error: float = 7.0, until: int = 1000) -> list[dict[str, Any]]:
    """A classifier's training, 50 iterations a second where no evaluation came between, its last error as given."""
    records = [event(0, "started", device="NVIDIA H200", commit="1a2b3c4d5e")]
    for i in range(50, until + 1, 50):
        left = 1 - i / until
        losses = {"loss/training": 0.01 + 2 * left, "error/training": 60 * left}
        records.append({"kind": "train", "iteration": i, **losses, "images": i * 128, "seconds": i / 50})
        records[-1]["iterations_per_second"] = 5.0 if i % 100 else 50.0
        if i % 100:
            continue
        reference = {"dataset": "cifar10", "split": "test", "images": 10_000, "of": 10_000}
        scores = {"error": error + 50 * left, "loss/test": 0.3 + 2 * left}
        protocol = {"name": "test split", "reference": reference}
        records.append({"kind": "evaluation", "iteration": i, **scores, "protocol": protocol, "seconds": 0.2})
    return [*records, event(until, "finished")]


def event(iteration: int, what: str, **values: Any) -> dict[str, Any]:
    time = "2026-01-01T00:00:00+00:00"
    return {"kind": "event", "iteration": iteration, "what": what, "time": time, **values}


def grid(size: int = 16, columns: int = 10) -> Image.Image:
    """A grid of little pictures on white."""
    side = columns * (size + 2) + 2
    pixels = np.full((side, side), 255, dtype=np.uint8)
    y, x = np.mgrid[:size, :size] / size - 0.5
    for row in range(columns):
        for column in range(columns):
            top, left = 2 + row * (size + 2), 2 + column * (size + 2)
            blob = np.exp(-((x - 0.03 * (column - 5)) ** 2 + y**2) * (4 + 3 * row))
            pixels[top : top + size, left : left + size] = (255 * blob).astype(np.uint8)
    return Image.fromarray(pixels)


def write_run(
    folder: Path,
    settings: dict[str, Any] | None = None,
    records: list[dict[str, Any]] | None = None,
    samples: tuple[int, ...] = (500, 1000),
) -> Path:
    """A finished run, unless told otherwise; `settings={}` and `records=[]` leave their files out."""
    folder.mkdir(parents=True)
    settings = config() if settings is None else settings
    finished = [event(0, "started", device="cpu"), *training(), *evaluations(), event(1000, "finished", seconds=123.0)]
    records = finished if records is None else records
    if settings:
        (folder / "config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    if records:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    for iteration in samples:
        (folder / "samples").mkdir(exist_ok=True)
        grid().save(folder / "samples" / f"{iteration:07d}.png")
    return folder
