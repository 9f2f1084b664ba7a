"""How a training ends when something goes wrong."""

import signal

import pytest
import torch
from tests.train.cases import last_tensors, of_kind, run_to_end, tiny_config, tiny_data, tiny_run

from wcgan.runs.checkpoint import read_newest
from wcgan.train import gan as module
from wcgan.train.gan import train
from wcgan.train.loop import DivergedError, loop_on
from wcgan.train.losses import LOSSES


@pytest.fixture
def loss_at(monkeypatch):
    """Makes the generator's loss another value at an iteration."""

    def install(iteration, change):
        calls = []
        hinge = LOSSES["hinge"]

        def changed(fake):
            calls.append(fake)
            return change(hinge.generator(fake)) if len(calls) == iteration else hinge.generator(fake)

        monkeypatch.setitem(LOSSES, "hinge", hinge._replace(generator=changed))

    return install


def test_a_loss_that_is_not_finite_stops_the_run_and_says_which_and_where(tmp_path, loss_at):
    loss_at(5, lambda loss: loss * float("nan"))
    with pytest.raises(DivergedError) as failure:
        run_to_end(tmp_path)
    message = str(failure.value)
    assert "loss/generator is no longer finite at iteration 5" in message
    assert "the first tensor with NaN or Inf is generator." in message
    assert "the last good state is 0000004.safetensors" in message


def test_after_divergence_the_last_good_state_is_whole(tmp_path, loss_at):
    config = tiny_config(keep_checkpoints=1)
    run = tiny_run(tmp_path / "run", config)
    loss_at(5, lambda loss: loss * float("inf"))
    with pytest.raises(DivergedError):
        train(config, tiny_data(), run)
    found = read_newest(run.checkpoints)
    assert found.facts["iteration"] == 4
    assert all(tensor.isfinite().all() for tensor in found.tensors.values())
    (event,) = [line for line in of_kind(run, "event") if line["what"] == "diverged"]
    assert event["iteration"] == 5
    assert event["loss"] == "loss/generator"
    assert event["tensor"].startswith("generator.")


def test_divergence_between_two_lines_of_the_log_is_noticed_at_the_next(tmp_path, loss_at):
    loss_at(2, lambda loss: loss + (loss.detach() * float("nan")))  # the value alone: weights stay finite
    with pytest.raises(DivergedError, match="a loss is no longer finite at iteration 4"):
        run_to_end(tmp_path, log_every=4, checkpoint_every=100)


def test_divergence_before_the_first_checkpoint_says_that_there_is_none(tmp_path, loss_at):
    loss_at(1, lambda loss: loss * float("nan"))
    with pytest.raises(DivergedError, match="no checkpoint had been written yet"):
        run_to_end(tmp_path)


@pytest.mark.parametrize(("every", "stopped", "kept"), [(2, False, "0000002"), (3, True, "0000003")])
def test_weights_that_are_not_finite_never_become_the_last_checkpoint(every, stopped, kept, tmp_path, monkeypatch):
    class Spoiled(torch.autograd.Function):
        """Itself, with a slope that is not a number: the loss is finite, the weights after the step are not."""

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, slope):
            return slope * float("nan")

    calls = []
    hinge = LOSSES["hinge"]

    def spoiled(fake):
        calls.append(1)
        if stopped and len(calls) == 4:
            signal.raise_signal(signal.SIGTERM)
        return hinge.generator(Spoiled.apply(fake) if len(calls) == 4 else fake)

    monkeypatch.setitem(LOSSES, "hinge", hinge._replace(generator=spoiled))
    config = tiny_config(keep_checkpoints=1, checkpoint_every=every)
    run = tiny_run(tmp_path / "run", config)
    message = rf"^generator\.\S+ is no longer finite at iteration 4; the last good state is {kept}\.safetensors$"
    with pytest.raises(DivergedError, match=message):
        train(config, tiny_data(), run)
    assert all(tensor.isfinite().all() for tensor in last_tensors(run).values())


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried ..."),
    ],
    ids=["cuda", "cpu"],
)
def test_a_batch_too_large_for_memory_is_said_with_what_to_lower(error, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(module, "train_iteration", fail)
    message = r"^train.batch=4 and train.generator_batch=8 do not fit into the memory of cpu: lower them with --set$"
    with pytest.raises(ValueError, match=message):
        run_to_end(tmp_path, batch=4, generator_batch=8)


def test_an_operation_without_a_deterministic_variant_is_one_sentence(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        torch.use_deterministic_algorithms(True)
        try:
            torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
        finally:
            torch.use_deterministic_algorithms(False)

    monkeypatch.setattr(module, "train_iteration", fail)
    with pytest.raises(ValueError, match=r"^train.deterministic is not possible: put_ has no deterministic variant$"):
        run_to_end(tmp_path)


def test_a_deterministic_training_on_a_cpu_computes_as_any_other():
    with loop_on(tiny_config(deterministic=True).train, [], ""):
        assert not torch.are_deterministic_algorithms_enabled()


def test_another_error_is_not_taken_for_a_lack_of_memory(tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("a bug")

    monkeypatch.setattr(module, "train_iteration", fail)
    with pytest.raises(RuntimeError, match=r"^a bug$"):
        run_to_end(tmp_path)
