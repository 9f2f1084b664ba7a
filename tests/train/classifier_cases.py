"""Tiny classifiers, data and runs, shared by the tests of classification."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.train.cases import tiny_data

from wcgan.data import Dataset
from wcgan.nets import ClassifierConfig
from wcgan.runs.config import ClassifyConfig, ClassifyTrainConfig, DataConfig
from wcgan.runs.folder import Run, new_run

CPU = torch.device("cpu")


def tiny_config(normalization: str = "WC", **train: Any) -> ClassifyConfig:
    """A network of eight layers and width 4 for 8 x 8 images of one channel and three classes."""
    settings = {
        "iterations": 6,
        "batch": 8,
        "drops": (4,),
        "crop": 2,
        "log_every": 1,
        "checkpoint_every": 2,
        "evaluate_every": 0,
        "device": "cpu",
        **train,
    }
    network = ClassifierConfig(depth=8, width=4, normalization=normalization, channels=1, classes=3)
    return ClassifyConfig(DataConfig(), network, ClassifyTrainConfig(**settings))


def tiny_splits() -> tuple[Dataset, Dataset]:
    return tiny_data(30), replace(tiny_data(7), split="test")


def seeded(config: ClassifyConfig, seeds: tuple[int, ...]) -> list[ClassifyConfig]:
    return [replace(config, train=replace(config.train, seed=seed)) for seed in seeds]


def new_runs(folder: Path, configs: list[ClassifyConfig]) -> list[Run]:
    return [new_run(folder / f"seed-{config.train.seed}", config) for config in configs]
