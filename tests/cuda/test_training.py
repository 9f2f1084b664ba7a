"""Training on a GPU: replays of the graph follow ordinary iterations, and nothing waits for the device."""

import copy
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from tests.train.cases import different, float64, last_tensors, tiny_config, tiny_data, tiny_run

from wcgan.core.device import Hardware
from wcgan.core.processes import Rank
from wcgan.core.terminal import TrainingProgress
from wcgan.nets import build_generator
from wcgan.runs.folder import Run
from wcgan.runs.sampler import Sampler
from wcgan.train import gan
from wcgan.train.batches import GanBatches, batches_of
from wcgan.train.gan import build_players, compile_players, make_step, train
from wcgan.train.graph import WARM_UP
from wcgan.train.learner import learner_to_tensors

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),  # PyTorch says that it is a prototype
]
DEVICE = torch.device("cuda", 0)
ITERATIONS = 10
ALONE = "WCGAN_TEST_ALONE"
PENALTY = {"loss": "wasserstein", "gradient_penalty": 10.0}
RECIPE = {
    "augment": ("color", "translation", "cutout"),
    "consistency": 10.0,
    "lecam": 0.3,
    "coloring_decay": 0.1,
    "class_rate": 0.5,
    "learning_rate_discriminator": 1e-3,
    "ema_half_life": 100,
    "ema_start": 5 * 24,  # after the graph's recording
    "ema_statistics": "recomputed",
}
CONFIGS = {
    "BN": ("BN", "plain", {}),
    "WC": ("WC", "plain", {}),
    "WC, penalty": ("WC", "plain", PENALTY),
    "cWC, average": ("cWC", "projection", {"ema": 0.9}),
    "cWC_sa": ("cWC_sa", "projection", {}),
    "cWC, ACGAN": ("cWC", "acgan", {}),
    "WC, recipe": ("WC", "plain", RECIPE),
    "cWC, recipe": ("cWC", "projection", RECIPE | {"equal_classes": 0.1, "critic_statistics": "iteration"}),
    "cWC, whitened classes": ("cWC", "projection", RECIPE | {"equal_classes": 0.1, "equal_classes_whitened": True}),
}


@pytest.fixture(params=CONFIGS)
def config(request):
    normalization, head, settings = CONFIGS[request.param]
    return tiny_config(normalization, head, critic_steps=3, batch=8, generator_batch=16, iterations=100, **settings)


class Sentences(TrainingProgress):
    """Remembers what was said."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


class Training:
    """Players and the step that trains them, with a graph or without."""

    def __init__(self, config, graph, compiled=False, dtype=torch.float32, channels_last=False):
        hardware = Hardware(DEVICE, dtype, compiled, channels_last, None if graph else "")
        self.players = build_players(config, DEVICE, channels_last)
        compile_players(self.players, config, hardware, TrainingProgress())
        self.progress = Sentences()
        self.batches = batches_of(config, tiny_data(), DEVICE, Rank())
        self.step = make_step(self.players, self.batches, config, hardware, self.progress)

    def losses(self, iterations=ITERATIONS):
        """Of each iteration."""
        return [{name: loss.item() for name, loss in self.step(i)[0].items()} for i in range(iterations)]

    def tensors(self):
        return {name: value.cpu() for name, value in learner_to_tensors(self.players).items()}


@contextmanager
def no_synchronisation():
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def assert_all_close(actual, expected, rtol, atol):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


def test_replays_follow_ordinary_iterations(config):
    graphed, plain = Training(config, graph=True), Training(config, graph=False)
    for one, other in zip(graphed.losses(), plain.losses(), strict=True):
        assert one == pytest.approx(other, rel=1e-3, abs=1e-3)
    assert graphed.progress.said == []


def test_weights_moments_and_statistics_follow_in_float64(config):
    """Where rounding is far below Adam's epsilon: in float32, a gradient that is 0 but for rounding is a full step."""
    with float64():
        graphed, plain = Training(config, graph=True), Training(config, graph=False)
        graphed.losses()
        plain.losses()
    assert graphed.progress.said == []
    assert_all_close(graphed.tensors(), plain.tensors(), rtol=1e-6, atol=1e-8)


def test_every_replay_uses_inputs_and_a_rate_of_its_own():
    config = tiny_config(iterations=ITERATIONS, learning_rate=0.01)
    training = Training(config, graph=True)
    losses = training.losses()
    assert len({tuple(values.values()) for values in losses}) == ITERATIONS
    before = training.tensors()
    training.step(ITERATIONS)  # past the end of the schedule: a rate of 0
    after = training.tensors()
    weights = [name for name, _ in training.players.generator.named_parameters()]
    assert all(torch.equal(before[f"generator.{name}"], after[f"generator.{name}"]) for name in weights)
    assert not torch.equal(before["generator.norm.running_mean"], after["generator.norm.running_mean"])


@pytest.mark.parametrize("normalization", ["WC", "cWC"])
def test_after_500_iterations_no_running_covariance_has_a_negative_eigenvalue(normalization):
    """No average of covariances has one; a race between kernels had shown itself so."""
    head = "plain" if normalization == "WC" else "projection"
    config = tiny_config(normalization, head, critic_steps=3, batch=8, generator_batch=16, iterations=500)
    training = Training(config, graph=True, dtype=torch.bfloat16, channels_last=True)
    for iteration in range(500):
        training.step(iteration)
    covariances = [v for name, v in training.tensors().items() if name.endswith("running_covariance")]
    assert covariances
    for covariance in covariances:
        eigenvalues = torch.linalg.eigvalsh(covariance.double())
        assert eigenvalues[0] >= -1e-6 * eigenvalues[-1]


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_an_iteration_never_waits_for_the_gpu(config, graph):
    training = Training(config, graph)
    training.losses(WARM_UP + 1)
    with no_synchronisation():
        for iteration in range(WARM_UP + 1, WARM_UP + 7):  # through several epochs of the ten images
            training.step(iteration)


def test_images_on_the_host_are_brought_without_a_wait():
    config = tiny_config()
    data = tiny_data()
    batches = GanBatches(data.images, data.labels, config.classes, config.generator.noise, config.train, DEVICE)
    expected = batches.draw(1)
    with no_synchronisation():
        inputs = batches.draw(1)
    assert all(torch.equal(one, other) for one, other in zip(inputs, expected, strict=True) if one is not None)
    assert {values.device for values in inputs if values is not None} == {DEVICE}


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_samples_between_replays_are_those_of_the_new_weights_and_statistics(ema):
    config = tiny_config(ema=ema, iterations=100, learning_rate=0.01)
    training = Training(config, graph=True)
    sampler, drawn = Sampler(training.players.sampled_generator), []
    for iteration in range(WARM_UP + 3):
        training.step(iteration)
        drawn.append(sampler.sample(16))
        fresh = build_generator(config.generator).to(DEVICE)
        fresh.load_state_dict(copy.deepcopy(training.players.sampled_generator.state_dict()))
        assert (drawn[-1].int() - Sampler(fresh).sample(16).int()).abs().max() <= 1  # the rounding of a pixel
    assert not torch.equal(drawn[-1], drawn[-2])


@pytest.mark.parametrize("channels_last", ["no", "yes"])
def test_a_killed_run_goes_on_where_its_checkpoint_is(channels_last, tmp_path, monkeypatch):
    settings = {"precision": "float32", "compile": "no", "cuda_graph": "yes", "channels_last": channels_last}
    config = tiny_config(device="cuda", iterations=14, checkpoint_every=7, critic_steps=2, ema=0.9, **settings)
    original = GanBatches.draw

    def killed(batches, iteration):
        if iteration == 11:
            raise KeyboardInterrupt
        return original(batches, iteration)

    with float64():
        whole, run = tiny_run(tmp_path / "whole", config), tiny_run(tmp_path / "run", config)
        train(config, tiny_data(), whole)
        monkeypatch.setattr(GanBatches, "draw", killed)
        with pytest.raises(KeyboardInterrupt):
            train(config, tiny_data(), run)
        monkeypatch.setattr(GanBatches, "draw", original)
        train(config, tiny_data(), run)
    assert_all_close(last_tensors(run), last_tensors(whole), rtol=1e-6, atol=1e-8)


def test_a_run_goes_on_from_one_device_to_another_and_back(tmp_path):
    run = tiny_run(tmp_path / "run", tiny_config())
    for iterations, device in ((2, "cpu"), (8, "cuda"), (10, "cpu"), (12, "cuda")):
        settings = {"compile": "no", "channels_last": "auto"}
        train(tiny_config(iterations=iterations, device=device, schedule="constant", **settings), tiny_data(), run)
        tensors = last_tensors(run)
        assert {int(v) for k, v in tensors.items() if k.endswith(".step")} == {iterations}
        assert all(value.isfinite().all() for value in tensors.values())


@pytest.mark.filterwarnings("ignore")  # the compiler's own, which differ from release to release
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_networks_are_replayed_too(dtype):
    torch._dynamo.reset()
    config = tiny_config(critic_steps=3, batch=8, generator_batch=16, iterations=100)
    graphed = Training(config, True, compiled=True, dtype=dtype, channels_last=True)
    plain = Training(config, False, compiled=True, dtype=dtype, channels_last=True)
    tolerance = 1e-3 if dtype == torch.float32 else 5e-2
    for one, other in zip(graphed.losses(), plain.losses(), strict=True):
        assert one == pytest.approx(other, rel=tolerance, abs=tolerance)
    assert graphed.progress.said == []


def test_a_recording_that_fails_is_said_and_nothing_is_lost(request, monkeypatch):
    """In a process of its own: PyTorch's allocator keeps traces of a recording that was cut short."""
    if ALONE not in os.environ:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", request.node.nodeid]
        settings = {"cwd": request.config.rootpath, "env": os.environ | {ALONE: "1"}, "timeout": 300}
        ended = subprocess.run(command, capture_output=True, text=True, **settings)
        assert ended.returncode == 0, ended.stdout
        return

    original = gan.train_iteration

    def waiting(*arguments):
        losses = original(*arguments)
        losses["loss/generator"].item()
        return losses

    config = tiny_config(iterations=100)
    with float64():
        plain = Training(config, graph=False)
        plain.losses()
        monkeypatch.setattr(gan, "train_iteration", waiting)
        training = Training(config, graph=True)
        training.losses()
    (sentence,) = training.progress.said
    assert sentence.startswith("an iteration is not one CUDA graph: ")
    assert sentence.endswith("; going on without")
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert_all_close(training.tensors(), plain.tensors(), rtol=1e-6, atol=1e-8)


def test_a_deterministic_training_gives_the_same_bits_in_another_process(tmp_path):
    """Each compiles anew: what a cache remembers of the other is no proof."""
    command = [sys.executable, "-m", "wcgan", "train", "digits/cWC", "--deterministic", "--device", "cuda"]
    command += ["--iterations", "200", "--stop-at", "100", "--set", "train.sample_every=0", "--out"]
    for name in ("one", "other"):
        own = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"{name}-inductor"), "TRITON_CACHE_DIR": str(tmp_path / name)}
        ended = subprocess.run([*command, str(tmp_path / f"run-{name}")], env=os.environ | own, timeout=900)
        assert ended.returncode == 0
    one, other = (last_tensors(Run(tmp_path / f"run-{name}")) for name in ("one", "other"))
    assert different(one, other) == []
