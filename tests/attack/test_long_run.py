"""A long training: memory, open files and the size of the log per iteration stay as they were at its beginning."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wcgan.report.charts import HEIGHT, WIDTH, Series, series_to_svg
from wcgan.report.html import CHART, tag

SETTINGS = ["generator.widths=[4,4]", "discriminator.widths=[4,4,4]", "train.batch=4", "train.generator_batch=4"]
SETTINGS += ["train.sample_every=2000", "train.checkpoint_every=1000", "train.evaluate_images=500"]
SETTLED = 0.1  # of the run: caches are filled by then


def last_iteration(metrics: Path) -> int:
    lines = metrics.read_bytes()[-4000:].splitlines()[:-1] if metrics.exists() else []
    return json.loads(lines[-1])["iteration"] if len(lines) > 1 else 0


def sample(process: subprocess.Popen[bytes], metrics: Path) -> tuple[int, int, int, int]:
    """Iteration, megabytes in memory, open files, bytes of metrics."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    resident = int(status.split("VmRSS:")[1].split()[0]) // 1024
    files = len(os.listdir(f"/proc/{process.pid}/fd"))
    return last_iteration(metrics), resident, files, metrics.stat().st_size if metrics.exists() else 0


def samples_to_picture(samples: list[tuple[int, int, int, int]]) -> str:
    """Memory, open files and the log's growth while it trains, side by side: docs/images/long-run.svg."""
    known = [row for row in samples if 100 <= row[0] < samples[-1][0]]  # at the last it evaluates
    curves = {
        "Resident memory (MB)": [(row[0], row[1]) for row in known],
        "Open files": [(row[0], row[2]) for row in known],
        "metrics.jsonl, bytes per iteration": [(row[0], row[3] / row[0]) for row in known],
    }
    panels = [
        tag(
            "svg",
            tag("text", title, x=16, y=20, class_="title"),
            tag("svg", series_to_svg(title, [Series("", 0, tuple(points))]), y=28, width=WIDTH, height=HEIGHT),
            x=WIDTH * place,
        )
        for place, (title, points) in enumerate(curves.items())
    ]
    paper = tag("rect", width="100%", height="100%", class_="paper")
    size = {"viewBox": f"0 0 {WIDTH * len(panels)} {HEIGHT + 36}", "width": WIDTH * len(panels), "height": HEIGHT + 36}
    title = "Memory, open files and the size of the log over a long run"
    content = (tag("title", title), tag("style", CHART), paper, *panels)
    picture = tag("svg", *content, xmlns="http://www.w3.org/2000/svg", role="img", **size)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{picture}\n'


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("iterations", [20_000])
def test_memory_files_and_log_are_flat_over_a_long_run(tmp_path, iterations):
    run = tmp_path / "run"
    command = [sys.executable, "-m", "wcgan", "train", "digits/cWC", "--out", str(run)]
    for setting in (f"train.iterations={iterations}", *SETTINGS):
        command += ["--set", setting]
    samples = []
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | {"OMP_NUM_THREADS": "1"})
        try:
            while process.poll() is None:
                try:
                    samples.append(sample(process, run / "metrics.jsonl"))
                except (OSError, IndexError):  # it has just ended
                    break
                time.sleep(1)
            assert process.wait(600) == 0, (tmp_path / "output").read_text()
        finally:
            process.kill()
            process.wait()
    (tmp_path / "long-run.svg").write_text(samples_to_picture(samples), encoding="utf-8")
    samples = [row for row in samples if SETTLED * iterations <= row[0] < iterations]  # the last is evaluated
    first, last = samples[0], samples[-1]
    assert last[0] > 0.8 * iterations
    assert max(row[1] for row in samples) - first[1] < 32, samples  # MB
    assert max(row[2] for row in samples) - first[2] <= 2, samples  # one is a checkpoint being written
    middle = samples[len(samples) // 2]
    halves = [(b[3] - a[3]) / (b[0] - a[0]) for a, b in ((first, middle), (middle, last))]  # bytes per iteration
    assert abs(halves[1] / halves[0] - 1) < 0.1, halves
