"""A run's folder: metrics that survive damage, one process at a time, and a status that all readers share."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.train.cases import tiny_config, tiny_data, tiny_run

from wcgan.runs.folder import LOCK, Run, differences_to_text, is_begun, new_run, read_metrics, seed_folders
from wcgan.runs.status import RunStatus, metrics_to_status
from wcgan.train.gan import train

# Metrics


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path)
    for iteration in (1, 2, 3):
        run.record("train", iteration, **{"loss/generator": 0.5 * iteration})
    run.event(3, "stopped", signal=15)
    return run


def test_lines_come_back_as_they_were_recorded(run: Run) -> None:
    lines, damaged = read_metrics(run.metrics)
    assert lines[:2] == [{"kind": "train", "iteration": n, "loss/generator": 0.5 * n} for n in (1, 2)]
    assert (lines[3]["what"], lines[3]["signal"], damaged) == ("stopped", 15, [])


def test_no_flipped_bit_goes_unnoticed_and_no_other_line_is_lost(run: Run) -> None:
    whole, lines = run.metrics.read_bytes(), run.lines()
    for place in range(len(whole)):
        run.metrics.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        found, damaged = read_metrics(run.metrics)
        assert [line for line in lines if line in found] == found
        assert len(lines) - 2 <= len(found) < len(lines)  # a newline that is gone joins two
        assert damaged


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"\xff\xfe",
        b"[1]",
        b"null",
        b'{"kind": "train"}',
        b'{"kind": "train", "iteration": "3"}',
        b'{"kind": "train", "iteration": -1}',
        b'{"kind": "train", "iteration": true}',
        b'{"kind": 3, "iteration": 3}',
        b'{"kind": "event", "iteration": 3}',
        b'{"kind": "evaluation", "iteration": 3, "protocol": 3}',
        b'{"kind": "train", "iteration": 3, "protocol": null}',
        b'{"kind": "train", "iteration": 1' + b"0" * 400 + b"}",
        b"[" * 5000,
        b'{"crc": "00000000", "kind": "train", "iteration": 3}',
        b'{"crc": 5, "kind": "train", "iteration": 3}',
        b'{"cr": "77dd7e1d", "kind": "train", "iteration": 3}',
        b'{ "kind": "train", "iteration": 3}',
    ],
)
def test_a_line_that_cannot_be_read_is_set_aside_with_a_warning(
    text: bytes, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    before = run.lines()
    first, *rest = run.metrics.read_bytes().splitlines()
    run.metrics.write_bytes(b"\n".join([first, text, *rest, b""]))
    assert read_metrics(run.metrics) == (before, [text])
    run.forget_after(3)
    assert run.lines() == before
    assert run.metrics.with_name("metrics.damaged.jsonl").read_bytes() == text + b"\n"
    assert "moved what cannot be read (lines: 1) to metrics.damaged.jsonl" in caplog.text
    caplog.clear()
    run.forget_after(3)
    assert caplog.text == ""
    run.metrics.write_bytes(run.metrics.read_bytes() + b"later\n")
    run.forget_after(3)
    assert run.metrics.with_name("metrics.damaged.jsonl").read_bytes() == text + b"\nlater\n"


def test_lines_of_older_versions_have_no_checksum_and_are_read(tmp_path: Path) -> None:
    old = [{"kind": "train", "iteration": 1, "loss/generator": 0.5}, {"kind": "event", "iteration": 1, "what": "x"}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in old))
    assert read_metrics(tmp_path / "metrics.jsonl") == (old, [])


def test_lines_that_an_editor_ended_as_on_windows_are_read(run: Run) -> None:
    before = run.lines()
    run.metrics.write_bytes(run.metrics.read_bytes().replace(b"\n", b"\r\n"))
    assert read_metrics(run.metrics) == (before, [])


def test_what_is_recorded_after_half_a_line_is_a_line_of_its_own(run: Run) -> None:
    before = run.lines()
    with run.metrics.open("ab") as file:
        file.write(b'{"kind": "train", "iter')
    run.record("train", 4)
    assert run.lines() == [*before, {"kind": "train", "iteration": 4}]


def test_measurements_past_a_checkpoint_are_dropped_and_events_stay(run: Run) -> None:
    run.forget_after(1)
    assert [(line["kind"], line["iteration"]) for line in run.lines()] == [("train", 1), ("event", 3)]


def test_metrics_that_are_no_file_are_named_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(ValueError, match=r"metrics\.jsonl cannot be read: it is a named pipe, not a file"):
        Run(tmp_path).lines()
    assert read_metrics(tmp_path / "nothing.jsonl") == ([], [])


# One process at a time

HOLD = """
import sys, time
from pathlib import Path
from wcgan.runs.folder import Run
with Run(Path(sys.argv[1])).owned():
    print("mine", flush=True)
    time.sleep(600)
"""


def test_a_folder_in_use_is_refused_by_the_name_of_the_process_and_free_once_that_is_killed(tmp_path: Path) -> None:
    config = tiny_config()
    run = tiny_run(tmp_path / "run", config)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(run.folder)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "mine\n"
            before = sorted(path.name for path in run.folder.iterdir())
            with pytest.raises(ValueError, match=rf"run is in use by process {holder.pid} on .+: wait for it to end"):
                train(config, tiny_data(), run)
            assert sorted(path.name for path in run.folder.iterdir()) == before
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
    assert (run.folder / LOCK).exists()  # the file of a killed process, whose lock is gone
    assert train(config, tiny_data(), run).iteration == config.train.iterations
    assert not (run.folder / LOCK).exists()


def test_a_folder_that_a_killed_process_had_begun_is_new(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("process 1 on here\n")
    (tmp_path / ".config.yaml.0123abcd.tmp").write_text("data: {")
    assert not is_begun(tmp_path)
    assert new_run(tmp_path, tiny_config()).config() == tiny_config()
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    assert is_begun(tmp_path)


def test_a_file_that_an_editor_keeps_beside_the_config_makes_a_folder_begun(tmp_path: Path) -> None:
    (tmp_path / ".config.yaml.swp").touch()
    assert is_begun(tmp_path)


def test_folders_of_seeds_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("seed-10", "seed-9", "seed-\u00b2", "seed-", "seed-x", "other-1"):
        (tmp_path / name).mkdir()
    (tmp_path / "seed-3").touch()
    assert [path.name for path in seed_folders(tmp_path)] == ["seed-9", "seed-10"]


@pytest.mark.parametrize(("count", "ending"), [(10, "field9 is 9, not 10"), (11, "; 1 more"), (12, "; 2 more")])
def test_only_the_first_ten_differences_are_named(count: int, ending: str) -> None:
    text = differences_to_text({f"field{n}": (n, n + 1) for n in range(count)})
    assert text.endswith(ending)
    assert ("field9" in text, "field10" in text) == (True, False)


def test_where_there_are_no_locks_training_goes_on_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*arguments: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", without)
    with Run(tmp_path).owned():
        pass
    assert list(tmp_path.iterdir()) == []


# Status


@pytest.mark.parametrize(
    ("events", "iteration", "status"),
    [
        ([], 0, "not started"),
        (["started"], 3, "unfinished"),
        (["started", "stopped"], 3, "stopped"),
        (["started", "stopped", "resumed"], 3, "unfinished"),
        (["started", "diverged"], 3, "diverged"),
        (["started"], 6, "unfinished"),  # killed while it was evaluated
        (["started", "finished"], 6, "finished"),
        (["started", "finished"], 5, "unfinished"),  # to be longer from now on
        (["started", "finished", "resumed"], 6, "unfinished"),
    ],
)
def test_the_last_event_tells_the_status(events: list[str], iteration: int, status: str) -> None:
    lines = [{"kind": "event", "iteration": 0, "what": what} for what in events]
    lines += [{"kind": "train", "iteration": n} for n in range(1, iteration + 1)]
    assert metrics_to_status(lines, 6) is RunStatus(status)
    assert f"{metrics_to_status(lines, 6)}" == status
