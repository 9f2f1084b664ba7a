"""`wcgan reproduce` as a person types it: a whole table on Ray with a worker killed, and those that are interrupted."""

import csv
import os
import random
import signal
import time

import pytest
from tests.end_to_end.cases import begin, wait_until
from tests.reproduce.cases import everything, holders, lines_of, tiny, write_pictures

from wcgan.norm import VARIANTS
from wcgan.reproduce.plan import plan_table
from wcgan.runs.checkpoint import read_newest
from wcgan.runs.folder import Run

KILLS = 3


def arguments(out, *more, settings):
    sets = [part for setting in settings for part in ("--set", setting)]
    return ["reproduce", "digits", "--out", str(out), *more, *sets]


def assert_whole(run, iterations):
    """Every iteration once, every figure once, and none after another."""
    assert [line["iteration"] for line in lines_of(run.folder, "train")] == list(range(1, iterations + 1))
    assert [line["iteration"] for line in lines_of(run.folder, "evaluation")] == [iterations]
    assert {"FID(classifier)", "IS(classifier)"} <= set(lines_of(run.folder, "evaluation")[0])


@pytest.mark.slow
def test_all_seventeen_variants_are_trained_and_measured_on_ray_while_workers_are_killed(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'wcgan[cluster]'")
    out, iterations, chance = tmp_path / "out", 60, random.Random(0)
    command = arguments(out, "--seeds", "2", "--ray", "local", settings=tiny(iterations))
    runs = plan_table("digits", seeds=2, settings=tiny(iterations), out=out).runs
    process = begin(command, tmp_path / "cache")
    killed = []
    try:
        while len(killed) < KILLS and process.poll() is None:
            working = [(lock, holders(lock)) for lock in (out / ".locks").glob("*")]
            victims = [(lock.name, found) for lock, found in working if found and lock.name not in killed]
            if victims:
                name, found = chance.choice(victims)
                time.sleep(chance.uniform(0, 2))
                os.kill(found[0], signal.SIGKILL)
                killed.append(name)
            time.sleep(0.5)
        printed, said = process.communicate(timeout=900)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert len(killed) == KILLS
    assert len(runs) == 2 * len(VARIANTS) == 34
    for run in runs:
        assert_whole(run, iterations)
    with (out / "digits" / "table.csv").open(encoding="utf-8", newline="") as file:
        text = file.read()
    for name in VARIANTS:
        assert [row for row in csv.reader(text.splitlines()) if f"digits/{name}" in row]
    page = (out / "digits" / "table.html").read_text(encoding="utf-8")
    assert [name for name in VARIANTS if f"digits/{name}" not in page] == []
    assert [line.partition(": ")[0] for line in printed.splitlines()[-5:]] == ["md", "csv", "tex", "html", "svg"]

    before = {path: content for path, content in everything(out).items() if "seed-" in str(path)}
    again = begin(command, tmp_path / "cache")
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0
    assert said.count(": done") == 34
    assert "running" not in said
    assert {path: content for path, content in everything(out).items() if "seed-" in str(path)} == before


def stop_in_training(process, folder, number):
    """Sends a signal once the run in a folder trains -> what the command printed; it ends as a signal's exit says."""
    try:
        assert wait_until(lambda: lines_of(folder, "train"), process)
        process.send_signal(number)
        printed, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    return printed


@pytest.mark.slow
def test_an_interrupted_table_says_where_it_stands_and_the_same_command_goes_on(tmp_path):
    out, iterations = tmp_path / "out", 60
    settings = tiny(iterations, pictures=write_pictures(tmp_path / "pictures"))
    command = arguments(out, "--rows", "BN,cWC", settings=settings)
    first, second = plan_table("digits", ["BN", "cWC"], settings=settings, out=out).runs
    printed = stop_in_training(begin(command, tmp_path / "cache"), first.folder, signal.SIGINT)
    reached = max(line["iteration"] for line in lines_of(first.folder, "train"))
    assert printed.splitlines()[:2] == [
        f"digits/BN, seed 0: stopped at iteration {reached}",
        "digits/cWC, seed 0: not started",
    ]
    assert printed.splitlines()[-1] == "stopped; the same command continues"
    assert (out / "digits" / "table.md").is_file()
    assert not second.folder.exists()

    again = begin(command, tmp_path / "cache")
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    for run in (first, second):
        assert_whole(run, iterations)
    assert [line["what"] for line in lines_of(first.folder, "event")] == ["started", "stopped", "resumed", "finished"]
    assert Run(first.folder).config().train.iterations == iterations


@pytest.mark.slow
def test_a_table_on_ray_that_is_terminated_ends_its_runs_at_a_checkpoint(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'wcgan[cluster]'")
    out, iterations = tmp_path / "out", 2_000
    settings = tiny(iterations, pictures=write_pictures(tmp_path / "pictures"))
    (run,) = plan_table("digits", ["BN"], settings=settings, out=out).runs
    command = arguments(out, "--rows", "BN", "--ray", "local", settings=settings)
    printed = stop_in_training(begin(command, tmp_path / "cache"), run.folder, signal.SIGTERM)
    assert printed.splitlines()[-1] == "stopped; the same command continues"
    reached = max(line["iteration"] for line in lines_of(run.folder, "train"))
    assert read_newest(Run(run.folder).checkpoints).facts["iteration"] == reached < iterations
