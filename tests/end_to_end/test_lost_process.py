"""Two processes of one run, of which one is killed or hangs: the other ends with one sentence, and soon."""

import os
import signal
import socket
import subprocess
import sys

import pytest
import torch.distributed as dist
from tests.end_to_end.cases import training, wait_until, write_photos

from wcgan.runs.folder import Run

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch was built without gloo"
)


def begin_two(arguments, cache, **variables):
    """The two processes of a run, as `torchrun` starts them, without its own hand in how they end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WCGAN_CACHE": str(cache)}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "wcgan", *arguments],
            env={**os.environ, **shared, **variables, "OMP_NUM_THREADS": "1", "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]


ENDED = "wcgan: another process of this run has ended; its own message says why"
HANGS = "wcgan: another process of this run has not answered for 0.5 minutes; WCGAN_PATIENCE sets how many"


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        pytest.param(signal.SIGKILL, ENDED, id="killed"),
        pytest.param(signal.SIGSTOP, HANGS, id="hung", marks=pytest.mark.slow),
    ],
)
def test_a_process_that_is_gone_ends_the_other_with_one_sentence(number, sentence, tmp_path):
    run = Run(tmp_path / "run")
    photos = write_photos(tmp_path / "photos")
    # With --resume into a new folder, each process meets what the other has just begun to write.
    arguments = [*training(photos, run.folder, iterations=100_000, checkpoint_every=100_000), "--resume"]
    first, second = begin_two(arguments, tmp_path / "cache", WCGAN_PATIENCE="0.5")
    try:
        assert wait_until(lambda: any(line["kind"] == "train" for line in run.lines()), first), first.communicate()
        second.send_signal(number)
        _, said = first.communicate(timeout=120)
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
    assert first.returncode == 2
    assert "Traceback" not in said
    assert [line for line in said.splitlines() if line.startswith("wcgan: ")] == [said.splitlines()[-1]]
    assert said.splitlines()[-1] == sentence
    assert not (run.folder / "run.lock").exists()
