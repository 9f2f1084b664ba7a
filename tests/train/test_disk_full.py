"""A disk that is full: one sentence, the checkpoint before intact, nothing half-written left."""

import errno
import os
import subprocess
import threading
from dataclasses import replace

import pytest
import torch
from tests.train.cases import last_tensors, tiny_config, tiny_data, tiny_run

from wcgan.runs.checkpoint import CheckpointError, read_newest, write_checkpoint
from wcgan.train.gan import train

MIB = 2**20


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one MiB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a file system is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def tensors(megabytes):
    return {"generator.weight": torch.ones(int(megabytes * MIB / 4))}


def assert_refused_and_intact(folder, megabytes):
    with pytest.raises(CheckpointError) as failure:
        write_checkpoint(folder, "0000002", tensors(megabytes), {"iteration": 2})
    message = str(failure.value)
    assert message.startswith(f"no space left to write {folder}/0000002")
    assert "free some and resume the run; the checkpoint before it is intact" in message
    assert [path.name for path in folder.iterdir() if path.suffix == ".tmp"] == []
    found = read_newest(folder)
    assert (found.facts["iteration"], found.damaged) == (1, ())


def test_a_full_disk_leaves_the_checkpoint_before_intact(small_disk):
    write_checkpoint(small_disk, "0000001", tensors(0.4), {"iteration": 1})
    assert_refused_and_intact(small_disk, 0.7)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT], ids=["full", "over quota"])
@pytest.mark.parametrize("which", [1, 3], ids=["tensors", "facts"])
def test_no_space_for_either_file_leaves_the_checkpoint_before_intact(number, which, tmp_path, monkeypatch):
    write_checkpoint(tmp_path, "0000001", tensors(0.01), {"iteration": 1})
    calls = []
    original = os.fsync

    def fsync(descriptor):  # each file, then its folder
        calls.append(descriptor)
        if len(calls) == which:
            raise OSError(number, os.strerror(number))
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert_refused_and_intact(tmp_path, 0.01)


def test_another_error_of_the_disk_is_not_called_a_full_one(tmp_path, monkeypatch):
    def fsync(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output error"):
        write_checkpoint(tmp_path, "0000001", tensors(0.01), {"iteration": 1})
    assert list(tmp_path.iterdir()) == []


def test_a_run_on_a_disk_that_fills_up_stops_with_a_sentence_and_goes_on_when_there_is_space(small_disk):
    config = tiny_config(iterations=6, checkpoint_every=1, keep_checkpoints=2)
    run, data = tiny_run(small_disk / "run", config), tiny_data()

    def fill_up(sampler):
        (small_disk / "other").write_bytes(bytes(free_bytes(small_disk)))
        return {}

    with pytest.raises(CheckpointError, match="no space left"):
        train(replace(config, train=replace(config.train, evaluate_every=3)), data, run, fill_up)
    before = read_newest(run.checkpoints)
    assert (before.facts["iteration"], before.damaged) == (2, ())
    (small_disk / "other").unlink()
    assert train(config, data, run).iteration == 6
    assert last_tensors(run)


def test_a_disk_too_full_for_a_line_of_metrics_is_said_to_be(tmp_path, monkeypatch):
    config = tiny_config()
    run = tiny_run(tmp_path / "run", config)

    def record(*arguments, **values):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(run, "record", record)
    with pytest.raises(CheckpointError, match=f"no space left in {tmp_path}/run: free some and resume the run"):
        train(config, tiny_data(), run)


def test_a_disk_that_fills_up_with_samples_is_one_sentence_and_no_traceback_of_a_thread(small_disk, capsys):
    (small_disk / "other").write_bytes(bytes(free_bytes(small_disk) - 100_000))
    config = tiny_config(iterations=500, sample_every=1, checkpoint_every=500)
    run, before = tiny_run(small_disk / "run", config), threading.excepthook
    with pytest.raises(CheckpointError, match=r"no space left in .*; checkpoints already written are intact"):
        train(config, tiny_data(), run)
    assert "Traceback" not in capsys.readouterr().err
    assert threading.excepthook is before


def free_bytes(folder):
    status = os.statvfs(folder)
    return status.f_bavail * status.f_bsize
