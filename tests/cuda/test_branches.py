"""Parallel branches of an iteration's CUDA graph give the bits of one stream."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from tests.train.cases import different, tiny_config, tiny_data

from wcgan.core.device import Hardware, deterministic_algorithms
from wcgan.core.processes import Rank
from wcgan.core.terminal import TrainingProgress
from wcgan.train.batches import batches_of
from wcgan.train.gan import build_players, compile_players, make_step
from wcgan.train.graph import WARM_UP, _side_streams, one_stream
from wcgan.train.learner import learner_to_tensors

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICE = torch.device("cuda", 0)
REPLAYS = 100
RECOMPUTED = {"ema": 0.9, "ema_statistics": "recomputed", "augment": ("color", "translation", "cutout")}
CONFIGS = {
    "BN": ("BN", "plain", {}),
    "WC": ("WC", "plain", {}),
    "cWC, average": ("cWC", "projection", {"ema": 0.9}),
    "cWC, recomputed statistics": ("cWC", "projection", RECOMPUTED),
}
CASES = [*((name, False) for name in CONFIGS), ("BN", True), ("WC", True), ("cWC, recomputed statistics", True)]


class Sentences(TrainingProgress):
    """Remembers what was said."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


class Training:
    """Players, of which several graphs are recorded: compiled once, they compute the same in each."""

    def __init__(self, name, compiled=False):
        normalization, head, settings = CONFIGS[name]
        sizes = {"critic_steps": 3, "batch": 32, "generator_batch": 64, "iterations": 1000}
        config = tiny_config(normalization, head, **sizes, **settings)
        wide = {"generator": {"widths": (64,)}, "discriminator": {"widths": (64, 64)}}
        self.config = replace(config, **{k: replace(getattr(config, k), **fields) for k, fields in wide.items()})
        self.hardware = Hardware(DEVICE, torch.bfloat16, compiled, True, None)
        self.players = build_players(self.config, DEVICE, channels_last=True)
        compile_players(self.players, self.config, self.hardware, TrainingProgress())
        self.batches = batches_of(self.config, tiny_data(), DEVICE, Rank())

    def record(self):
        """A step that replays a graph of its own."""
        progress = Sentences()
        step = make_step(self.players, self.batches, self.config, self.hardware, progress)
        for iteration in range(WARM_UP + 1):
            step(iteration)
        assert progress.said == []
        return step

    def tensors(self):
        return {name: value.cpu() for name, value in learner_to_tensors(self.players).items()}

    def replay(self, step, start, before=lambda: None):
        """Replays from a state -> the losses of each, and all tensors after the last."""
        for name, value in learner_to_tensors(self.players).items():
            value.copy_(start[name])
        losses = {}
        for iteration in range(REPLAYS):
            before()
            losses |= {f"{name} {iteration}": value.clone() for name, value in step(iteration)[0].items()}
        return {name: value.cpu() for name, value in losses.items()} | self.tensors()


class Load:
    """Keeps the card busy from another stream, so that branches get other shares of it in every replay."""

    def __init__(self):
        self.stream, self.calls = torch.cuda.Stream(), 0
        self.factor = torch.randn(4096, 4096, device=DEVICE, dtype=torch.bfloat16)
        self.product = torch.empty_like(self.factor)
        torch.cuda.synchronize()

    def __call__(self):
        self.calls += 1
        with torch.cuda.stream(self.stream):
            for _ in range(self.calls % 10):
                torch.mm(self.factor, self.factor, out=self.product)


@pytest.fixture
def deterministic(monkeypatch):
    """What would differ from replay to replay on one stream proves nothing."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # PyTorch asks for it
    with deterministic_algorithms(True):
        yield


@pytest.mark.filterwarnings("ignore")  # the compiler's own, which differ from release to release
@pytest.mark.parametrize(("name", "compiled"), CASES, ids=[f"{n}{', compiled' * c}" for n, c in CASES])
def test_losses_statistics_and_weights_are_the_bits_of_one_stream(name, compiled, deterministic):
    torch._dynamo.reset()
    training = Training(name, compiled)
    branches = training.record()
    with one_stream():
        alone = training.record()
    start = training.tensors()
    expected = training.replay(alone, start)
    assert all(value.isfinite().all() for value in expected.values())
    weights = {f"generator.{name}" for name, value in training.players.generator.named_parameters()}
    assert weights & set(different(start, {name: expected[name] for name in start}))
    assert different(training.replay(alone, start), expected) == []  # one stream always gives the same bits
    assert different(training.replay(branches, start), expected) == []
    assert different(training.replay(branches, start, Load()), expected) == []


@pytest.mark.parametrize("branches", [True, False], ids=["branches", "one stream"])
def test_the_generators_own_pass_is_recorded_on_a_stream_of_its_own(branches):
    training, seen = Training("WC"), []

    def watch(*_):
        if torch.cuda.is_current_stream_capturing():
            seen.append(torch.cuda.current_stream())

    training.players.generator.register_forward_pre_hook(watch)
    training.players.discriminator.register_forward_pre_hook(watch)
    with nullcontext() if branches else one_stream():
        training.record()
    first, (side,) = seen[0], _side_streams(1, DEVICE)
    assert seen == [first] * 4 + [side if branches else first, first]  # images, three updates, own pass, its scores
