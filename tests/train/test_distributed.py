"""Two processes that share every batch follow one process that has it whole; only the first of them writes.

The runs that are compared differ in the order of sums and in nothing else, so what separates them is rounding. They run
in float64, since float32's rounding does not stay small, however right the sums: Adam makes a full step of a gradient
that is 0 but for rounding (that of a shift which the next layer's mean takes away, say), and the penalty on a ReLU
network's gradient jumps when rounding moves a unit across its kink. In float64 such a gradient is far below Adam's
epsilon, and six iterations meet no such unit.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from PIL import Image
from tests.test_documents import python_blocks
from tests.train.cases import float64

import wcgan.train
from wcgan import data
from wcgan.cli import main
from wcgan.core.processes import Rank
from wcgan.paper.presets import configure
from wcgan.paper.presets import preset as find_preset
from wcgan.runs.checkpoint import read_checkpoint, read_newest
from wcgan.runs.folder import Run
from wcgan.train.batches import GanBatches
from wcgan.train.gan import build_players, train_iteration
from wcgan.train.start import start

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this PyTorch was built without gloo"
)
ITERATIONS = 6
SETTINGS = {
    "generator.widths": "[8,8]",
    "generator.noise": 8,
    "discriminator.widths": "[8,8,8]",
    "discriminator.resolution": 16,
    "train.batch": 8,
    "train.generator_batch": 16,
    "train.schedule": "constant",
    "train.critic_steps": 2,
    "train.log_every": 1,
    "train.sample_every": 0,
    "train.checkpoint_every": ITERATIONS,
    "train.keep_checkpoints": 1000,
}
RECIPE = {
    "data.flip": "true",
    "train.augment": "[color,translation,cutout]",
    "train.lecam": 0.3,
    "train.coloring_decay": 0.1,
    "train.class_rate": 0.5,
    "train.equal_classes": 0.1,
    "train.equal_classes_whitened": "true",
    "train.critic_statistics": "iteration",
    "train.generated_labels": "balanced",
    "train.learning_rate_discriminator": 0.002,
    "train.ema": 0,
    "train.ema_half_life": 100,
    "train.ema_start": 50,
    "train.ema_statistics": "recomputed",
}
HINGE, PENALTY = "digits/cWC", "cifar10/WC GP + ResNet"
IN_FLOAT64 = """
import os
import sys
from pathlib import Path
import torch
import torch.distributed as dist
torch.set_default_dtype(torch.float64)
from wcgan.cli import main
from wcgan.paper.presets import configure
from wcgan.train.start import start

then = sys.argv.index("then")
preset, images, out, *settings = sys.argv[1:then]
meet, place = dist.init_process_group, {"rank": int(os.environ["RANK"]), "world_size": 2}
# in a file, since a second group of processes would wait for ever in the store of the first
dist.init_process_group = lambda *a, **b: meet(*a, **b, **place, init_method=f"file://{out}-meeting")
start(configure(preset, images, settings=settings), Path(out))
dist.init_process_group = meet
sys.argv[1:] = sys.argv[then + 1:]
main()
"""
PATIENCE = 600  # seconds, on a busy machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three classes of eight images, which have no test split: nothing is evaluated."""
    folder = tmp_path_factory.mktemp("ranks")
    rng = np.random.default_rng(0)
    for number in range(24):
        path = folder / "images" / str(number % 3) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (4, 4), np.uint8))
        coarse.resize((16, 16), Image.Resampling.BICUBIC).save(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WCGAN_CACHE", str(folder / "cache"))
        data.load(folder / "images")  # packed once: of two processes one would wait for the other, and say so
        yield folder


def arguments(folder, preset, out, **settings):
    """Of the command line."""
    chosen = [f"--set={name}={value}" for name, value in (SETTINGS | settings).items()]
    return ["train", preset, "--out", str(folder / out), "--data", str(folder / "images"), *chosen]


def start_two(folder, out, *program):
    """`torchrun` with two processes, each with a folder for what it says."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--redirects=3"]
    return subprocess.Popen(
        [*launch, "--log-dir", str(folder / f"{out}-says"), *program],
        env=os.environ | {"OMP_NUM_THREADS": "1", "WCGAN_CACHE": str(folder / "cache")},
        stderr=subprocess.DEVNULL,
    )


def said(folder, out):
    """What the two processes wrote to their standard output and error."""
    logs = [sorted((folder / f"{out}-says").rglob(name)) for name in ("stdout.log", "stderr.log")]
    return [[path.read_text() for path in paths] for paths in logs]


def run_one(folder, preset, out, settings):
    with float64():
        start(configure(preset, str(folder / "images"), settings=settings), folder / out)


def train_lines(folder):
    return [line for line in Run(folder).lines() if line["kind"] == "train"]


def losses_of(folder):
    """The names of the losses, and their values in each of the first iterations."""
    lines = train_lines(folder)[:ITERATIONS]
    assert [line["iteration"] for line in lines] == list(range(1, ITERATIONS + 1))
    names = sorted(name for name in lines[0] if name.startswith("loss/"))
    return names, torch.tensor([[line[name] for name in names] for line in lines], dtype=torch.float64)


def weights_of(folder):
    return read_checkpoint(folder / "checkpoints" / f"{ITERATIONS:07d}").tensors


@pytest.fixture(scope="module")
def two(folder):
    """Two processes train six iterations with a penalty, then the recipe until SIGTERM; one process does both too."""

    def chosen(**settings):
        return [f"{name}={value}" for name, value in (SETTINGS | settings).items()]

    penalty = chosen(**{"train.iterations": ITERATIONS, "train.conditioning_every": ITERATIONS})
    first = [PENALTY, str(folder / "images"), str(folder / "two-penalty"), *penalty]
    second = arguments(folder, HINGE, "two-hinge", **RECIPE, **{"train.iterations": 1_000_000})
    (folder / "in_float64.py").write_text(IN_FLOAT64)
    process = start_two(folder, "two", str(folder / "in_float64.py"), *first, "then", *second)
    try:
        run_one(folder, PENALTY, "one-penalty", penalty)
        run_one(folder, HINGE, "one-hinge", chosen(**RECIPE, **{"train.iterations": ITERATIONS}))
        until = time.monotonic() + PATIENCE
        while len(train_lines(folder / "two-hinge")) <= ITERATIONS and process.poll() is None:
            assert time.monotonic() < until, said(folder, "two")
            time.sleep(0.1)
        assert process.poll() is None, said(folder, "two")
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
    return folder


@pytest.fixture(scope="module")
def penalty(two):
    return two / "one-penalty", two / "two-penalty"


@pytest.fixture(scope="module")
def hinge(two):
    return two / "one-hinge", two / "two-hinge"


def test_losses_of_a_hinge_gan_follow_those_of_one_process(hinge):
    (names, one), (_, two) = map(losses_of, hinge)
    assert names == ["loss/discriminator", "loss/generator", "loss/lecam"]
    torch.testing.assert_close(two, one, rtol=1e-9, atol=0)


def test_losses_with_a_gradient_penalty_follow_those_of_one_process(penalty):
    (names, one), (_, two) = map(losses_of, penalty)
    assert names == ["loss/discriminator", "loss/generator", "loss/gradient_penalty"]
    torch.testing.assert_close(two[:, :2], one[:, :2], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(two[:, 2], one[:, 2], rtol=1e-9, atol=0)


@pytest.mark.parametrize("kind", ["hinge", "penalty"])
def test_weights_and_moments_follow_those_of_one_process(request, kind):
    one, two = map(weights_of, request.getfixturevalue(kind))
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-7, atol=1e-9, msg=lambda text, n=name: f"{n}: {text}")


def test_conditioning_is_measured_by_the_first_process_alone(penalty):
    (one,), (two,) = ([v for v in Run(run).lines() if v["kind"] == "conditioning"] for run in penalty)
    assert one.keys() == two.keys()
    assert {k: v for k, v in two.items() if k != "kind"} == pytest.approx(
        {k: v for k, v in one.items() if k != "kind"}, rel=1e-6
    )


def test_only_the_first_process_writes(folder, hinge):
    _, two = hinge
    assert len(list(two.glob("events.out.tfevents.*"))) == 1
    iterations = [line["iteration"] for line in train_lines(two)]
    assert iterations == list(range(1, len(iterations) + 1))
    events = [line for line in Run(two).lines() if line["kind"] == "event"]
    assert [event["what"] for event in events] == ["started", "stopped"]
    assert events[0]["processes"] == 2
    _, (first, second) = said(folder, "two")
    assert "discriminator" in first  # progress
    assert second == ""


def test_sigterm_ends_all_processes_with_a_checkpoint_of_the_last_iteration(folder, hinge):
    _, two = hinge
    found, last = read_newest(two / "checkpoints"), train_lines(two)[-1]["iteration"]
    assert found.damaged == ()
    assert found.facts["iteration"] == last
    sentence = f"stopped at iteration {last}; continue with: wcgan train --resume --out {two}\n"
    assert said(folder, "two")[0] == [f"{sentence}report: {two / 'report.html'}\n", ""]


def test_a_run_of_two_processes_goes_on_in_one(folder, hinge, tmp_path):
    shutil.copytree(hinge[1], tmp_path / "run")
    run = Run(tmp_path / "run")
    config, before = run.config(), read_newest(run.checkpoints).facts["iteration"]
    config = replace(config, train=replace(config.train, iterations=before + 2))
    with float64():
        assert wcgan.train.train(config, data.load(folder / "images"), run).iteration == before + 2
    assert [line["iteration"] for line in train_lines(run.folder)] == list(range(1, before + 3))


UNEQUAL = "wcgan: train.batch=5 cannot be shared equally by 2 processes: set it to a multiple of 2\n"


def test_a_batch_that_cannot_be_shared_equally_is_one_sentence(folder, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")  # as torchrun does; it is said before the processes meet
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(sys, "argv", ["wcgan", *arguments(folder, HINGE, "odd", **{"train.batch": 5})])
    with pytest.raises(SystemExit) as ending:
        main()
    assert ending.value.code == 2
    assert capsys.readouterr().err == UNEQUAL


@pytest.mark.slow
def test_under_torchrun_too_it_is_that_sentence_alone(folder):
    command = ["-m", "wcgan", *arguments(folder, HINGE, "odd", **{"train.batch": 5})]
    assert start_two(folder, "odd", *command).wait(PATIENCE) == 1
    errors = said(folder, "odd")[1]
    assert UNEQUAL in errors
    assert set(errors) <= {UNEQUAL, ""}  # torchrun ends the other, before or after it has said the same


# What crosses the network, against the formula in docs/scaling.md


@pytest.fixture
def lonely_group(tmp_path, monkeypatch):
    """A process group of one that passes for two: every sum over processes is called, and returns at once."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    monkeypatch.setattr(dist, "get_world_size", lambda group=None: 2)
    yield
    dist.destroy_process_group()


@cache
def traffic_in_the_document():
    """The function that docs/scaling.md defines."""
    namespace: dict[str, object] = {}
    path = Path(__file__).parents[2] / "docs" / "scaling.md"
    block = next(code for _, code in python_blocks(path) if "def traffic" in code)
    exec(compile(block, str(path), "exec"), namespace)
    return namespace["traffic"]


@pytest.mark.parametrize(
    ("preset", "normalization", "widths"),
    [
        ("cifar10/WC SN + ResNet", "WC", (16, 12, 8)),
        pytest.param("cifar10/WC SN + ResNet", "BN", (16, 12, 8), marks=pytest.mark.slow),
        ("cifar10/WC GP + ResNet", "WC", (8, 8, 8)),
        ("cifar10/WC SN + DCGAN", "WC", (16, 12, 8)),
        ("cifar10/cWC SN + Proj. Discr.", "cWC", (16, 12, 8)),
        pytest.param("cifar10/cWC GP + ACGAN", "cBN", (8, 8, 8), marks=pytest.mark.slow),
    ],
)
def test_an_iteration_sends_what_the_document_says(lonely_group, monkeypatch, preset, normalization, widths):
    config = find_preset(preset)
    config = replace(
        config,
        generator=replace(config.generator, widths=widths, normalization=normalization),
        discriminator=replace(config.discriminator, widths=(8,) * 4),
        train=replace(config.train, batch=4, generator_batch=4, critic_steps=2),
    )
    sent, send = [], dist.all_reduce

    def count(values, *args, **kwargs):
        sent.append(values.nbytes)
        return send(values, *args, **kwargs)

    monkeypatch.setattr(dist, "all_reduce", count)
    cpu, images = torch.device("cpu"), torch.zeros(8, 3, 32, 32, dtype=torch.uint8)
    labels, classes = (torch.arange(8), 10) if config.conditional else (None, None)
    inputs = GanBatches(images, labels, classes, config.generator.noise, config.train, cpu, Rank(0, 2)).draw(0)
    train_iteration(build_players(config, cpu, sync=True), inputs, config, torch.float32, Rank(0, 2))
    assert (len(sent), sum(sent)) == traffic_in_the_document()(config)
