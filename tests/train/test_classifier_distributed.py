"""Two processes that share every batch follow one that has it whole; in float64, where only rounding parts them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from tests.train.cases import float64
from tests.train.classifier_cases import new_runs, seeded, tiny_config, tiny_splits

from wcgan.runs.checkpoint import read_newest
from wcgan.runs.folder import Run
from wcgan.train.classifier import train_classifiers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch was built without gloo"
    ),
]
SEEDS = (0, 1)
FIGURES = {"loss/training", "error/training", "error", "loss/test", "images", "learning_rate"}
PROGRAM = """
import os, sys
from pathlib import Path
import torch
from tests.train.test_classifier_distributed import SEEDS, train_in_float64
train_in_float64(Path(sys.argv[1]), first=os.environ["RANK"] == "0")
"""


def train_in_float64(folder, first=True):
    """Trains into the folder; of several processes the first makes it."""
    with float64():
        configs = seeded(tiny_config("WC", iterations=8, evaluate_every=4, learning_rate=0.01), SEEDS)
        runs = new_runs(folder, configs) if first else [Run(folder / f"seed-{seed}") for seed in SEEDS]
        train_classifiers(configs, *tiny_splits(), runs)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """What one process wrote, and what two did."""
    folder = tmp_path_factory.mktemp("classifiers")
    train_in_float64(folder / "one")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    (folder / "program.py").write_text(PROGRAM)
    root = str(Path(__file__).parents[2])
    subprocess.run(
        [*launch, str(folder / "program.py"), str(folder / "two")],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": root},
        check=True,
        capture_output=True,
        timeout=600,
    )
    return folder / "one", folder / "two"


@pytest.mark.parametrize("seed", SEEDS)
def test_two_processes_learn_what_one_learns(folders, seed):
    one, two = (read_newest(folder / f"seed-{seed}" / "checkpoints").tensors for folder in folders)
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-7, atol=1e-9, msg=name)


@pytest.mark.parametrize("seed", SEEDS)
def test_they_write_the_same_figures_once(folders, seed):
    one, two = (Run(folder / f"seed-{seed}").lines() for folder in folders)
    assert [(line["kind"], line["iteration"]) for line in two] == [(line["kind"], line["iteration"]) for line in one]
    for mine, theirs in zip(two, one, strict=True):
        for name in FIGURES & theirs.keys():
            assert mine[name] == pytest.approx(theirs[name], rel=1e-9)
