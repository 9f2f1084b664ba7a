"""SIGINT and SIGTERM on the real command: a checkpoint, an exit code that says so, and how to go on."""

import signal

import pytest
from tests.end_to_end.cases import begin, training, wait_until, write_photos

from wcgan.runs.checkpoint import read_newest
from wcgan.runs.folder import Run


@pytest.mark.slow  # quick are `train/test_resume.py`, in the tests' own process, and `train/test_distributed.py`
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_command_with_a_checkpoint_and_says_how_to_go_on(number, tmp_path):
    run = Run(tmp_path / "run")
    photos = write_photos(tmp_path / "photos")
    arguments = training(photos, run.folder, iterations=100_000, checkpoint_every=100_000)
    process = begin(arguments, tmp_path / "cache")
    try:
        assert wait_until(lambda: any(line["kind"] == "train" for line in run.lines()), process)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    iteration = read_newest(run.checkpoints).facts["iteration"]
    assert out.splitlines() == [
        f"stopped at iteration {iteration}; continue with: wcgan train --resume --out {run.folder}",
        f"report: {run.folder / 'report.html'}",
    ]
    assert "of 100,000, stopped" in (run.folder / "report.html").read_text()
    assert "Traceback" not in err
    lines = run.lines()
    assert [line["iteration"] for line in lines if line["kind"] == "train"] == list(range(1, iteration + 1))
    assert (lines[-1]["what"], lines[-1]["signal"]) == ("stopped", number)
