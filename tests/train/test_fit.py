"""`wcgan.fit`: the training of the command line, with parts of your own."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.train.cases import different, last_tensors, tiny_config, tiny_data, tiny_run
from tests.train.test_start import TINY, photos  # noqa: F401
from torch import nn
from torch.nn.functional import softplus

import wcgan
from wcgan import data
from wcgan.paper import configure
from wcgan.runs.folder import Run
from wcgan.train import Callback, Custom, load_own_generator, train

SETTINGS = {
    "generator.widths": [4, 4],
    "generator.noise": 6,
    "discriminator.widths": [4, 4, 4],
    "train.iterations": 4,
    "train.batch": 4,
    "train.generator_batch": 4,
    "train.log_every": 1,
    "train.sample_every": 2,
    "train.checkpoint_every": 2,
    "train.device": "cpu",
}


def tensors(count=12, classes=2, side=8):
    images = torch.randint(0, 256, (count, 3, side, side), generator=torch.Generator().manual_seed(0))
    return data.from_tensors(images.to(torch.uint8), torch.arange(count) % classes, ["cat", "dog"][:classes])


def fit(folder, *arguments, **options):
    settings = {**SETTINGS, **options.pop("settings", {})}
    return wcgan.fit("digits/cWC", *(arguments or [tensors()]), out=folder, settings=settings, **options)


class Notes(Callback):
    """Remembers every call."""

    def __init__(self):
        self.calls = []

    def on_start(self, training):
        super().on_start(training)
        self.calls.append(("start", training.iteration))

    def on_metrics(self, iteration, values):
        self.calls.append(("metrics", iteration, *values))

    def on_images(self, iteration, grid):
        self.calls.append(("images", iteration, grid.dtype, grid.dim()))

    def on_checkpoint(self, iteration, path):
        self.calls.append(("checkpoint", iteration, path.exists(), path.name))

    def on_end(self):
        self.calls.append(("end",))

    def named(self, name):
        return [call[1:] for call in self.calls if call[0] == name]


# The same training as on the command line


def test_it_ends_with_the_bits_of_the_command_line(photos, tmp_path, command):  # noqa: F811
    generator = fit(tmp_path / "one", photos)
    settings = [f"--set={name}={json.dumps(value)}" for name, value in SETTINGS.items()]
    code, *_ = command("train", "digits/cWC", "--data", photos, "--out", tmp_path / "other", *settings)
    assert code == 0
    assert different(last_tensors(Run(tmp_path / "one")), last_tensors(Run(tmp_path / "other"))) == []
    assert generator.class_names == ("cat", "dog")
    assert generator.iteration == 4
    assert (tmp_path / "one" / "report.html").exists()


def test_tensors_in_memory_are_trained_on(tmp_path):
    generator = fit(tmp_path / "run")
    assert generator.sample(4, classes=1).shape == (4, 3, 8, 8)
    assert Run(tmp_path / "run").config().data.name == "tensors"


def test_a_config_or_its_file_takes_the_place_of_a_preset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = configure("digits/cWC", settings=[*TINY, "train.iterations=1"])
    assert wcgan.fit(replace(config, preset=None), tensors()).iteration == 1
    assert Path("runs/tensors/config.yaml").exists()
    again = wcgan.fit(Path("runs/tensors/config.yaml"), tensors(), settings={"train.iterations": 2}, out="again")
    assert again.iteration == 2


def test_images_in_memory_decide_the_networks_of_the_preset_folder(tmp_path):
    settings = {"train.iterations": 1, "train.batch": 2, "train.generator_batch": 2, "train.critic_steps": 1}
    wcgan.fit(None, tensors(side=16), tmp_path / "run", settings=settings | {"train.device": "cpu"})
    config = Run(tmp_path / "run").config()
    assert (config.preset, config.generator.resolution, config.generator.normalization) == ("folder", 16, "cWC")


def test_a_run_starts_with_the_weights_of_another(tmp_path):
    fit(tmp_path / "old")
    fit(tmp_path / "new", origin=tmp_path / "old", settings={"train.learning_rate": 0.0})
    old, new = last_tensors(Run(tmp_path / "old")), last_tensors(Run(tmp_path / "new"))
    assert torch.equal(new["generator.conv.weight"], old["generator.conv.weight"])
    with pytest.raises(ValueError, match="origin is for the package's networks"):
        fit(tmp_path / "own", origin=tmp_path / "old", **own_networks())


def test_a_config_that_was_changed_is_accepted_if_asked_for(tmp_path):
    fit(tmp_path / "run", stop_at=2)
    file = tmp_path / "run" / "config.yaml"
    file.write_text(file.read_text().replace("beta2: 0.9", "beta2: 0.8"))
    with pytest.raises(ValueError, match="go on with them by accept_config=True"):
        wcgan.fit(data=tensors(), out=tmp_path / "run", resume=True)
    assert wcgan.fit(data=tensors(), out=tmp_path / "run", resume=True, accept_config=True).iteration == 4


def test_settings_are_a_mapping_and_may_have_paths(tmp_path):
    with pytest.raises(TypeError, match=r"settings must be a mapping, such as .*, got \['train.batch=2'\]"):
        wcgan.fit("digits/cWC", out=tmp_path / "run", settings=["train.batch=2"])
    fit(tmp_path / "run", settings={"data.reference": tmp_path})
    assert Run(tmp_path / "run").config().data.reference == str(tmp_path)


def test_settings_may_be_numbers_of_numpy(tmp_path):
    values = {"train.seed": np.int64(3), "train.beta1": np.float32(0.5)}
    fit(tmp_path / "run", settings=values)
    config = Run(tmp_path / "run").config()
    assert (config.train.seed, config.train.beta1) == (3, 0.5)


def test_resuming_gives_the_bits_of_never_stopping(tmp_path):
    fit(tmp_path / "whole")
    fit(tmp_path / "parts", stop_at=2)
    wcgan.fit(data=tensors(), out=tmp_path / "parts", resume=True)
    assert different(last_tensors(Run(tmp_path / "whole")), last_tensors(Run(tmp_path / "parts"))) == []


@pytest.mark.parametrize("name", ["images", "labels"])
def test_arrays_are_no_tensors(name):
    given = {"images": torch.zeros(4, 3, 8, 8, dtype=torch.uint8), "labels": torch.arange(4)}
    with pytest.raises(TypeError, match=f"^{name} must be a tensor, got ndarray$"):
        data.from_tensors(**given | {name: given[name].numpy()})


# Callbacks


def test_callbacks_are_called_with_metrics_images_and_checkpoints(tmp_path):
    notes = Notes()
    fit(tmp_path / "run", callbacks=[notes])
    assert notes.calls[0] == ("start", 0)
    assert notes.calls[-1] == ("end",)
    losses = [call for call in notes.named("metrics") if "loss/generator" in call]
    assert [iteration for iteration, *_ in losses] == [1, 2, 3, 4]
    assert {"loss/discriminator", "learning_rate", "seconds"} <= set(losses[0])
    assert notes.named("images") == [(2, torch.uint8, 3), (4, torch.uint8, 3)]
    expected = [(2, True, "0000002.safetensors"), (4, True, "0000004.safetensors")]
    assert notes.named("checkpoint") == expected


def test_callbacks_see_scores_and_the_best_checkpoint(tmp_path):
    notes = Notes()
    config = tiny_config(iterations=2)
    run = tiny_run(tmp_path / "run", config)
    scores = {"FID(classifier)": 3.0, "protocol": {"name": "paper-10k"}}
    train(config, tiny_data(), run, lambda sampler: scores, custom=Custom([notes]))
    assert (2, "FID(classifier)") in notes.named("metrics")
    assert (2, True, "best.safetensors") in notes.named("checkpoint")


def test_a_callback_changes_no_bit_of_a_training(tmp_path):
    fit(tmp_path / "one")

    class Draws(Callback):
        def on_metrics(self, iteration, values):
            torch.manual_seed(iteration)
            assert self.training.sampler.sample(2, classes=0).shape == (2, 3, 8, 8)

    fit(tmp_path / "other", callbacks=[Draws()])
    assert different(last_tensors(Run(tmp_path / "one")), last_tensors(Run(tmp_path / "other"))) == []


def test_a_callback_can_end_a_training_early_and_it_can_go_on(tmp_path):
    class EarlyStop(Callback):
        def on_metrics(self, iteration, values):
            if iteration == 1:
                self.training.stop()

    assert fit(tmp_path / "run", callbacks=[EarlyStop()]).iteration == 2
    assert [line["what"] for line in Run(tmp_path / "run").lines() if line["kind"] == "event"][-1] == "stopped"
    assert fit(tmp_path / "run", resume=True).iteration == 4


def test_an_error_in_a_callback_ends_the_training_and_all_callbacks(tmp_path):
    class Broken(Callback):
        def on_metrics(self, iteration, values):
            if iteration == 3:
                raise RuntimeError("mine")

    notes = Notes()
    with pytest.raises(RuntimeError, match=r"^mine$"):
        fit(tmp_path / "run", callbacks=[Broken(), notes])
    assert notes.calls[-1] == ("end",)
    assert fit(tmp_path / "run", resume=True).iteration == 4


def test_an_interrupted_training_writes_a_checkpoint_and_a_report_and_says_so(tmp_path):
    class Interrupt(Callback):
        def on_metrics(self, iteration, values):
            if iteration == 1:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match=r"stopped at iteration \d by signal 2"):
        fit(tmp_path / "run", callbacks=[Interrupt()])
    assert list((tmp_path / "run" / "checkpoints").glob("*.safetensors"))
    assert (tmp_path / "run" / "report.html").exists()


# Losses and networks of your own


def test_your_own_loss_is_the_one_that_is_trained_with(tmp_path):
    def discriminator(real, fake):
        return softplus(-real).mean() + softplus(fake).mean() + 100

    notes = Values()
    fit(tmp_path / "run", loss=(discriminator, lambda fake: softplus(-fake).mean()), callbacks=[notes])
    assert all(values["loss/discriminator"] > 100 for values in notes.values)


@pytest.mark.parametrize("player", [0, 1])
def test_a_loss_of_yours_that_is_no_scalar_is_refused(tmp_path, player):
    losses = [lambda real, fake: softplus(fake - real).mean(), lambda fake: softplus(-fake).mean()]
    losses[player] = [lambda real, fake: softplus(fake - real), lambda fake: softplus(-fake)][player]
    with pytest.raises(ValueError, match=r"a loss must be a scalar, such as a mean over the batch, got shape \(\d+,\)"):
        fit(tmp_path / "run", loss=losses)


class Values(Callback):
    def __init__(self):
        self.values = []

    def on_metrics(self, iteration, values):
        self.values.append(values)


class MyGenerator(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        self.dense = nn.Linear(6, 4 * 4 * 4)
        self.norm = wcgan.ConditionalWhiteningColoring2d(4, classes)
        self.conv = nn.ConvTranspose2d(4, 3, 2, stride=2)

    def forward(self, z, labels):
        return torch.tanh(self.conv(self.norm(self.dense(z).view(len(z), 4, 4, 4), labels).relu()))


class MyDiscriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(3 * 8 * 8, 1)

    def forward(self, images, labels):
        return self.dense(images.flatten(1)) * (labels[:, None] + 1)


def own_networks():
    torch.manual_seed(0)
    return {"generator": MyGenerator(), "discriminator": MyDiscriminator()}


@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_your_own_networks_are_trained_resumed_and_loaded(tmp_path, ema):
    settings = {"train.ema": ema}
    networks = own_networks()
    before = networks["generator"].conv.weight.clone()
    sampler = fit(tmp_path / "whole", **networks, settings=settings)
    assert not torch.equal(networks["generator"].conv.weight, before)
    fit(tmp_path / "parts", **own_networks(), settings=settings, stop_at=2)
    again = fit(tmp_path / "parts", **own_networks(), settings=settings, resume=True)
    assert torch.equal(again.sample(4), sampler.sample(4))
    for run in (tmp_path / "whole", str(tmp_path / "whole")):
        assert torch.equal(load_own_generator(run, MyGenerator()).sample(4), sampler.sample(4))


def test_a_class_in_place_of_your_own_generator_is_refused_when_it_is_loaded(tmp_path):
    with pytest.raises(TypeError, match=r"generator must be a torch\.nn\.Module, got the class MyGenerator"):
        load_own_generator(tmp_path / "run", MyGenerator)


def test_what_you_froze_in_your_own_network_stays_as_it_is(tmp_path):
    networks = own_networks()
    layer = networks["discriminator"].dense
    layer.bias.requires_grad_(False)
    before = layer.bias.clone(), layer.weight.clone()
    fit(tmp_path / "run", **networks)
    assert torch.equal(layer.bias, before[0])
    assert not torch.equal(layer.weight, before[1])
    assert (layer.bias.requires_grad, layer.weight.requires_grad) == (False, True)


def test_a_run_with_your_own_networks_is_not_taken_for_one_of_the_package(tmp_path):
    fit(tmp_path / "run", **own_networks())
    with pytest.raises(ValueError, match=r"a network of your own, .*wcgan\.train\.load_own_generator"):
        wcgan.load(tmp_path / "run")


def test_images_of_another_size_and_several_scores_are_refused(tmp_path):
    class Large(MyGenerator):
        def forward(self, z, labels):
            return super().forward(z, labels).repeat(1, 1, 2, 2)

    with pytest.raises(ValueError, match=r"must return images \(4, 3, 8, 8\), got shape \(4, 3, 16, 16\)"):
        fit(tmp_path / "large", generator=Large())
    with pytest.raises(ValueError, match="must return one score per image"):
        fit(tmp_path / "many", discriminator=nn.Conv2d(3, 1, 1), settings={"discriminator.head": "plain"})


# Tensors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(4, 3, 8, 8),), r"uint8 pixels .*, got torch\.float32"),
        ((torch.zeros(4, 2, 8, 8, dtype=torch.uint8),), "1 or 3 channels"),
        ((torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.arange(3)), "labels must be 4 integers"),
        ((torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.arange(4), ["a", "b"]), "0 to 1, got 0 to 3"),
        ((torch.zeros(4, 3, 8, 8, dtype=torch.uint8), None, ["a"]), "classes need labels"),
    ],
)
def test_tensors_that_are_no_images_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        data.from_tensors(*arguments)


def test_the_fingerprint_of_tensors_is_that_of_the_same_images_elsewhere():
    digits = data.load("digits")
    assert data.from_tensors(digits.images, digits.labels, digits.classes).fingerprint == digits.fingerprint


# Several processes

SCRIPT = """
import sys
import torch
import wcgan
from tests.train.test_fit import SETTINGS, tensors
from wcgan.train import Callback


class EarlyStop(Callback):
    def on_checkpoint(self, iteration, path):
        print("called", flush=True)
        self.training.stop()


generator = wcgan.fit("digits/cWC", tensors(), sys.argv[1], settings=SETTINGS, callbacks=[EarlyStop()])
print("end", generator.iteration, generator.sample(4).long().sum().item(), flush=True)
"""


@pytest.mark.slow
def test_two_processes_train_together_and_the_callback_of_the_first_ends_both(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launch, str(tmp_path / "script.py"), str(tmp_path / "run")]
    root = Path(__file__).parent.parent.parent
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith(("called", "end"))]
    assert said.count("called") == 2  # by one process, for the checkpoint that it sees and for the last
    (one, other) = (line for line in said if line.startswith("end"))
    assert one == other
    assert one.startswith("end 3 ")


def test_the_preset_for_pictures_looks_at_them(photos, tmp_path):  # noqa: F811
    wcgan.fit("folder", photos, tmp_path / "run", settings={**SETTINGS, "generator.widths": [4], "train.iterations": 1})
    config = Run(tmp_path / "run").config()
    assert (config.preset, config.generator.resolution, config.classes) == ("folder", 8, 2)
