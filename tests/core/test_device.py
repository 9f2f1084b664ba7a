"""Settings that mean what is fastest here, and devices that are not here."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from wcgan.core.device import find_device, find_hardware
from wcgan.runs.config import TrainConfig


@pytest.fixture
def machine(monkeypatch):
    """A machine with so many GPUs."""

    def install(gpus, half=True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: half)

    return install


def test_without_a_gpu_auto_is_the_cpu_in_full_precision_as_written(machine):
    machine(0)
    found = find_hardware(TrainConfig())
    assert (found.device, found.precision) == (torch.device("cpu"), torch.float32)
    assert (found.compile, found.channels_last) == (False, False)


def test_with_a_gpu_auto_is_half_precision_compiled_and_channels_last(machine):
    machine(1)
    found = find_hardware(TrainConfig())
    assert (found.device, found.precision) == (torch.device("cuda", 0), torch.bfloat16)
    assert (found.compile, found.channels_last) == (True, True)


def test_a_gpu_without_half_precision_trains_in_full(machine):
    machine(1, half=False)
    assert find_hardware(TrainConfig()).precision == torch.float32


def test_a_setting_wins_over_auto(machine):
    machine(1)
    found = find_hardware(TrainConfig(precision="float32", compile="no", channels_last="no", device="cpu"))
    assert (found.device, found.precision) == (torch.device("cpu"), torch.float32)
    assert (found.compile, found.channels_last) == (False, False)
    machine(0)
    found = find_hardware(TrainConfig(precision="bfloat16", compile="yes", channels_last="yes"))
    assert (found.precision, found.compile, found.channels_last) == (torch.bfloat16, True, True)


@pytest.fixture
def processes(monkeypatch):
    """So many processes on this machine, as `torchrun` says it; this is one of them."""

    def install(count, number):
        for name, value in (
            ("WORLD_SIZE", count),
            ("LOCAL_WORLD_SIZE", count),
            ("RANK", number),
            ("LOCAL_RANK", number),
        ):
            monkeypatch.setenv(name, str(value))

    return install


@pytest.mark.parametrize("wanted", ["auto", "cuda"])
def test_each_process_of_a_machine_has_a_gpu_of_its_own(wanted, machine, processes):
    machine(4)
    processes(4, 2)
    assert find_device(wanted) == torch.device("cuda", 2)


@pytest.mark.parametrize("number", range(3))
def test_more_processes_than_gpus_are_said_by_each(number, machine, processes):
    machine(2)
    processes(3, number)
    with pytest.raises(ValueError, match=r"3 processes cannot have a GPU each .* \(2 found\): start at most 2, or"):
        find_device("auto")
    assert find_device("cpu") == torch.device("cpu")


def test_a_single_process_on_a_gpu_replays_a_graph_unless_told_not_to(machine):
    machine(1)
    assert find_hardware(TrainConfig()).eager_because is None
    assert find_hardware(TrainConfig(cuda_graph="yes")).eager_because is None
    assert find_hardware(TrainConfig(cuda_graph="no")).eager_because == ""


def test_where_there_can_be_no_graph_auto_says_why(machine, processes):
    machine(2)
    assert find_hardware(TrainConfig(device="cpu")).describe()["cuda_graph"] == "no: the device is cpu"
    assert find_hardware(TrainConfig(device="cpu", cuda_graph="no")).describe()["cuda_graph"] == "no"
    processes(2, 0)
    assert find_hardware(TrainConfig()).eager_because == "several processes share the run"


def test_a_graph_that_must_be_and_cannot_is_one_sentence(machine, processes):
    machine(2)
    message = "^train.cuda_graph=yes needs a single process on a GPU, but {}: use auto or no$"
    with pytest.raises(ValueError, match=message.format("the device is cpu")):
        find_hardware(TrainConfig(device="cpu", cuda_graph="yes"))
    processes(2, 1)
    with pytest.raises(ValueError, match=message.format("several processes share the run")):
        find_hardware(TrainConfig(cuda_graph="yes"))


def test_a_gpu_can_be_chosen(machine):
    machine(4)
    assert find_device("cuda:3") == torch.device("cuda", 3)


@pytest.mark.parametrize(("wanted", "gpus"), [("cuda", 0), ("cuda:0", 0), ("cuda:2", 2)])
def test_a_gpu_that_is_not_there_is_said_with_how_many_are(wanted, gpus, machine):
    machine(gpus)
    with pytest.raises(
        ValueError, match=rf"there is no GPU {wanted} on this machine \({gpus} found\): use .*auto or cpu"
    ):
        find_device(wanted)


@pytest.mark.parametrize("wanted", ["gpu", "", "cuda:", "cuda:-1", "meta", "mps"])
def test_what_is_no_device_of_ours_is_said(wanted):
    with pytest.raises(ValueError, match=f"the device must be auto, cpu, cuda or cuda:N, got '{wanted}'"):
        find_device(wanted)


def test_what_was_found_is_described_in_words():
    described = find_hardware(TrainConfig(device="cpu")).describe()
    assert described["device"].startswith("CPU, ")
    assert (described["precision"], described["compile"], described["memory_format"]) == ("float32", "no", "contiguous")


# Determinism


def determinism():
    memory = torch.utils.deterministic.fill_uninitialized_memory
    return torch.get_deterministic_debug_mode(), torch.backends.cudnn.benchmark, memory


@pytest.mark.parametrize(("before", "timed"), [("default", False), pytest.param("warn", True, marks=pytest.mark.slow)])
def test_deterministic_algorithms_are_in_force_within_and_what_was_set_before_is_restored(before, timed):
    """In a process of its own: PyTorch's test suite, which others here import, forbids to set cuDNN's flags."""
    code = f"""
import torch
from wcgan.core.device import deterministic_algorithms
{inspect.getsource(determinism)}
torch.set_deterministic_debug_mode({before!r})
torch.backends.cudnn.benchmark = {timed}
own = determinism()
try:
    with deterministic_algorithms(True):
        assert determinism() == (2, False, False), determinism()
        raise KeyboardInterrupt
except KeyboardInterrupt:
    assert determinism() == own, determinism()
with deterministic_algorithms(False):
    assert determinism() == own, determinism()
print("restored")
"""
    folder = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300)
    assert ended.stdout == "restored\n", ended.stderr


@pytest.fixture
def workspace(monkeypatch):
    """The environment variable that cuBLAS reads."""

    def install(value, started=False):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: started)
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", value or "")
        if value is None:
            monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")

    return install


@pytest.mark.parametrize(("value", "started"), [(None, False), (":16:8", False), (":16:8", True)])
def test_a_deterministic_training_on_a_gpu_fixes_the_workspace_of_cublas(value, started, machine, workspace):
    machine(1)
    workspace(value, started)
    find_hardware(TrainConfig(deterministic=True))
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == (value or ":4096:8")


def test_no_other_training_touches_the_workspace(machine, workspace):
    machine(1)
    workspace(None, started=True)
    find_hardware(TrainConfig())
    find_hardware(TrainConfig(device="cpu", deterministic=True))
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


STARTED = ".* before CUDA starts: set it at the top of your program, or start a new process"


@pytest.mark.parametrize(("value", "started", "end"), [(None, True, STARTED), (":0:0", False, ".*, got :0:0")])
def test_a_workspace_that_cannot_be_fixed_is_one_sentence(value, started, end, machine, workspace):
    machine(1)
    workspace(value, started)
    with pytest.raises(ValueError, match=rf"^train.deterministic needs CUBLAS_WORKSPACE_CONFIG=:4096:8 in{end}$"):
        find_hardware(TrainConfig(deterministic=True))
