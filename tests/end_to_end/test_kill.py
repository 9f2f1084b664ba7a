"""SIGKILL at random moments: the run ends with the same bits as one that was left in peace."""

import random
import time

import pytest
from tests.end_to_end.cases import begin, training, wait_until, write_photos
from tests.train.cases import different, last_tensors

from wcgan.runs.folder import Run

KILLS = 14
ITERATIONS = 1000  # the last checkpoint but one is of 999


def newest(run):
    return max((int(path.stem) for path in run.checkpoints.glob("*.json") if path.stem.isdigit()), default=0)


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_every_bit_is_that_of_a_run_never_stopped(tmp_path):
    chance = random.Random(0)
    photos, cache = write_photos(tmp_path / "photos"), tmp_path / "cache"
    settings = {"iterations": ITERATIONS, "ema": 0.9, "beta1": 0.5}
    whole, run = Run(tmp_path / "whole"), Run(tmp_path / "run")
    alone = begin(training(photos, whole.folder, **settings), cache)
    _, err = alone.communicate(timeout=600)
    assert alone.returncode == 0, err

    arguments, reached = training(photos, run.folder, **settings), []
    while len(reached) < KILLS:
        before = newest(run)
        process = begin(arguments, cache)
        try:
            # Some die at any time after they began, most between two checkpoints or while one is written.
            early = len(reached) % 7 == 3
            awaited = before if early else before + 3 * chance.randint(1, 6)
            running = wait_until(lambda: newest(run) >= awaited, process)  # noqa: B023
            time.sleep(chance.uniform(0, 3 if early else 0.2))
        finally:
            process.kill()
            process.communicate()
        assert running, f"the run ended after {len(reached)} kills, before the {KILLS} that this test is about"
        reached.append(newest(run))
        if (run.folder / "config.yaml").exists():
            arguments = ["train", "--resume", "--out", str(run.folder)]
    assert process.returncode == -9
    assert sorted(set(reached))[-1] < ITERATIONS

    last = begin(arguments, cache)
    _, err = last.communicate(timeout=600)
    assert last.returncode == 0, err
    assert different(last_tensors(run), last_tensors(whole)) == []
    for each in (run, whole):
        lines = [line["iteration"] for line in each.lines() if line["kind"] == "train"]
        assert lines == list(range(1, ITERATIONS + 1))
        assert sorted(path.name for path in each.checkpoints.iterdir()) == [
            f"{number:07d}.{suffix}" for number in (ITERATIONS - 1, ITERATIONS) for suffix in ("json", "safetensors")
        ]
        assert (each.samples / f"{ITERATIONS:07d}.png").exists()
    grids = [(each.samples / f"{ITERATIONS:07d}.png").read_bytes() for each in (run, whole)]
    assert grids[0] == grids[1]
