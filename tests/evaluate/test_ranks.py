"""Processes that share an evaluation give the figures of one process alone."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from tests.evaluate.cases import Replay, plan, stripes

from wcgan.core.processes import Rank, process_group
from wcgan.evaluate import metrics
from wcgan.evaluate.metrics import precision_recall
from wcgan.evaluate.protocol import METRICS
from wcgan.evaluate.score import evaluate_generator
from wcgan.evaluate.small_classifier import ClassifierSettings
from wcgan.evaluate.train_small_classifier import load_small_classifier

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch was built without gloo"
)
KINDS = ("FID", "IS", "KID", "precision", "recall", "accuracy")
NAMES = tuple(f"{kind}(classifier)" for kind in KINDS)


def measure(rank, cache):
    metrics.CHUNK = 50  # so that each process has some of them
    settings = ClassifierSettings(width=4, epochs=2, batch=8)
    classifier = load_small_classifier(stripes(), None, settings, device="cpu", cache=cache)
    scores = evaluate_generator(
        Replay(stripes()),
        stripes(700, split="test", seed=2),
        [classifier],
        plan(700, 600, sets=3, scored=900),
        classes=2,
        metrics=METRICS,
        kid_subset_size=50,
        rank=rank,
        cache=cache,
    )
    spread = torch.randn(2, 300, 4, generator=torch.Generator().manual_seed(0))
    shares = precision_recall(spread[0] + 1, spread[1, :170], rank=rank)
    assert all(0 < share < 1 for share in shares)
    return {
        **{name: scores[name] for name in NAMES},
        **scores["protocol"]["std"],
        "precision": shares[0],
        "recall": shares[1],
    }


def work(index, count, folder):
    torch.set_num_threads(1)
    with process_group("gloo", init_method=f"file://{folder}/meeting", rank=index, world_size=count):
        torch.save(measure(Rank(index, count), folder / f"cache-{index}"), folder / f"{index}.pt")
    tasks = Path("/proc/self/task")  # on Linux: one file per thread
    assert not [task for task in tasks.glob("*/comm") if "gloo" in task.read_text()]


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_the_figures_do_not_depend_on_the_number_of_processes(tmp_path, count):
    alone = measure(Rank(), tmp_path / "alone")
    multiprocessing.spawn(work, (count, tmp_path), nprocs=count)
    for index in range(count):
        shared = torch.load(tmp_path / f"{index}.pt")
        assert shared == {name: pytest.approx(value, rel=1e-6, abs=1e-9) for name, value in alone.items()}
