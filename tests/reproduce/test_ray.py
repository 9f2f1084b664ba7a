"""Runs as tasks on a real cluster of this machine: a worker dies, and nothing is lost or counted twice."""

import gc
import os
import signal
import sys
import threading
import time
import warnings

import pytest
from tests.reproduce.cases import holders, lines_of, tiny
from tests.train.cases import different, last_tensors

from wcgan.report.numbers import number
from wcgan.reproduce.command import display_runs, reproduce
from wcgan.reproduce.complete_run import complete_run
from wcgan.reproduce.plan import plan_table
from wcgan.reproduce.ray import _complete_on_worker, _leave_token, connected, import_ray, run_on_cluster
from wcgan.runs.checkpoint import read_newest
from wcgan.runs.folder import Run

ray = import_ray()
needs_ray = pytest.mark.skipif(ray is None, reason="Ray is not installed: pip install 'wcgan[cluster]'")
pytestmark = pytest.mark.usefixtures("digits_at_hand")
ITERATIONS = 40
ROWS = ("BN", "cWC")
CHECKPOINTS = "train.checkpoint_every=5"


@pytest.fixture(scope="module")
def cluster():
    """Two workers on this machine."""
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray leaves files open until they are collected
        ray.shutdown()
        gc.collect()


@pytest.fixture(scope="module")
def planned(pictures):
    def plan(out, iterations=ITERATIONS, rows=ROWS):
        return plan_table("digits", rows, settings=tiny(iterations, CHECKPOINTS, pictures=pictures), out=out)

    return plan


@pytest.fixture(scope="module")
def whole(tmp_path_factory, digits_cache, planned):
    """The runs, one after another and never stopped."""
    plan = planned(tmp_path_factory.mktemp("whole"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WCGAN_CACHE", str(digits_cache))
        patch.delenv("WCGAN_INCEPTION_WEIGHTS", raising=False)
        assert [complete_run(run).status for run in plan.runs] == ["done", "done"]
    return plan


def newest(run):
    return max((int(path.stem) for path in Run(run.folder).checkpoints.glob("0*.json")), default=0)


def kill_worker_of(run, seen, over):
    """Kills the process that holds the run's lock, once it has written two checkpoints, unless all is over."""
    lock = run.folder.parents[2] / ".locks" / ".".join(run.folder.parts[-3:])
    while not over.is_set():
        if newest(run) >= 10:
            seen.append(newest(run))
            for process in holders(lock):
                os.kill(process, signal.SIGKILL)
            return
        time.sleep(0.01)


def assert_same_as(run, other):
    """Every iteration and the evaluation once, and every bit that of the other."""
    assert different(last_tensors(Run(run.folder)), last_tensors(Run(other.folder))) == []
    assert [line["iteration"] for line in lines_of(run.folder, "train")] == list(range(1, ITERATIONS + 1))
    figures = [{k: v for k, v in line.items() if k != "seconds"} for line in lines_of(run.folder, "evaluation")]
    assert figures == [{k: v for k, v in e.items() if k != "seconds"} for e in lines_of(other.folder, "evaluation")]
    assert len(figures) == 1


@pytest.mark.slow
@needs_ray
def test_a_worker_killed_in_the_middle_costs_nothing_but_time(cluster, whole, tmp_path, planned):
    plan, seen, over = planned(tmp_path), [], threading.Event()
    killer = threading.Thread(target=kill_worker_of, args=(plan.runs[0], seen, over))
    killer.start()
    try:
        result = reproduce(plan, ray="local")
    finally:
        over.set()
        killer.join()
    assert seen
    assert 10 <= seen[0] < ITERATIONS
    assert (result.problems, result.exit_code) == ((), 0)
    events = [line["what"] for line in lines_of(plan.runs[0].folder, "event")]
    assert events == ["started", "resumed", "finished"]
    assert [line["what"] for line in lines_of(plan.runs[1].folder, "event")] == ["started", "finished"]
    for run, other in zip(plan.runs, whole.runs, strict=True):
        assert_same_as(run, other)
    text = result.files["md"].read_text(encoding="utf-8")
    for run in plan.runs:
        row = next(line for line in text.splitlines() if line.startswith(f"| {run.row.preset} |"))
        assert f"| {number(lines_of(run.folder, 'evaluation')[0]['FID(classifier)'])} |" in row


@pytest.mark.slow
@needs_ray
def test_all_stop_at_a_checkpoint_when_asked_and_the_same_call_goes_on(cluster, whole, tmp_path, planned, monkeypatch):
    monkeypatch.setattr("wcgan.reproduce.ray.SECONDS_BETWEEN_LOOKS", 0.01)
    plan = planned(tmp_path)

    def stopping():
        return any(newest(run) >= 5 for run in plan.runs)

    endings = list(run_on_cluster(ray, plan.runs, plan.out, None, lambda *words: None, stopping))
    assert [result.status for _, result in endings] == ["stopped", "stopped"]
    begun = [(Run(run.folder), result.iteration) for run, result in endings if result.iteration]
    assert begun
    for run, iteration in begun:
        assert read_newest(run.checkpoints).facts["iteration"] == iteration < ITERATIONS
    assert reproduce(plan, ray="local").exit_code == 0
    for run, other in zip(plan.runs, whole.runs, strict=True):
        assert_same_as(run, other)


@needs_ray
def test_a_task_that_fails_comes_back_as_its_sentence_and_the_others_end_well(cluster, tmp_path, planned):
    plan = planned(tmp_path, 4)
    plan.runs[0].folder.parent.mkdir(parents=True)
    plan.runs[0].folder.write_text("not a folder")
    result = reproduce(plan, ray="local")
    assert result.exit_code == 1
    (problem,) = result.problems
    assert problem.startswith("digits/BN, seed 0: ")
    assert len(lines_of(plan.runs[1].folder, "evaluation")) == 1


@needs_ray
def test_what_is_done_is_not_sent_to_the_cluster(tmp_path, planned, capsys):
    plan = planned(tmp_path, 2, ["BN"])
    assert [complete_run(run).status for run in plan.runs] == ["done"]
    capsys.readouterr()
    result = reproduce(plan, ray="local")  # nothing is left, so that none is started
    assert result.exit_code == 0
    assert not [line for line in capsys.readouterr().err.splitlines() if "running" in line]


def test_a_worker_that_sees_another_folder_says_so_and_writes_nothing(tmp_path, planned):
    plan = planned(tmp_path / "out")
    mark, token = _leave_token(plan.out)
    assert _leave_token(plan.out) == (mark, token)
    before = sorted(tmp_path.rglob("*"))
    for place, word in ((tmp_path / "elsewhere" / ".shared", token), (mark, "another")):
        result = _complete_on_worker(plan.runs[0], {}, place, word)
        assert result.status == "failed"
        assert f"{place.parent} is another folder on" in result.sentence
    assert sorted(tmp_path.rglob("*")) == before


@needs_ray
@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1:1", r"no Ray cluster answers at 127\.0\.0\.1:1 \(.*refused.*\): --ray local starts one here"),
        ("nonsense", "--ray takes local, auto or HOST:PORT, got 'nonsense'"),
    ],
)
def test_an_address_where_no_cluster_is_is_said_at_once(address, sentence, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ValueError, match=sentence), connected(ray, address):
        pass


def test_without_ray_the_runs_go_one_after_another_and_a_note_says_so(tmp_path, monkeypatch, planned):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert import_ray() is None
    result = reproduce(planned(tmp_path, 2, ["BN"]), ray="local")
    assert result.exit_code == 0
    assert "Ray is not installed" in result.files["md"].read_text(encoding="utf-8")


def test_a_change_is_one_line_where_there_is_no_terminal(tmp_path, capsys, planned):
    first, second = planned(tmp_path).runs
    with display_runs([first, second], live=True) as show:
        for run, state, words in (
            (first, "running", "1 of 40"),
            (first, "running", "2 of 40"),
            (second, "failed", "why"),
            (first, "done", "FID 3"),
        ):
            show(run, state, words)
    assert capsys.readouterr().err.splitlines() == [
        "digits/BN, seed 0: running (1 of 40)",
        "digits/cWC, seed 0: failed (why)",
        "digits/BN, seed 0: done (FID 3)",
    ]
