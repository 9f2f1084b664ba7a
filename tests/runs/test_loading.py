"""A trained generator from wherever it is: no training data, no pickled code, and a sentence where it cannot be."""

import hashlib
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import torch
from tests.train.cases import tiny_config, tiny_data, tiny_run

import wcgan
from wcgan.runs.checkpoint import CheckpointError, read_checkpoint, section, write_checkpoint
from wcgan.runs.folder import Run
from wcgan.runs.sampler import Sampler, load_generator
from wcgan.train.gan import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run with an average of the generator and checkpoints at 4 and 6."""
    config = tiny_config(ema=0.5, keep_checkpoints=2)
    run = tiny_run(tmp_path_factory.mktemp("trained") / "run", config)
    train(config, tiny_data(), run, lambda sampler: {"FID(classifier)": 1.0})
    return run


def weights(sampler):
    return sampler.network.state_dict()


def test_a_run_gives_a_sampler_at_rest(trained):
    generator = wcgan.load(trained.folder)
    assert isinstance(generator, Sampler)
    assert generator.class_names == ("a", "b", "c")
    assert not generator.network.training
    assert not any(parameter.requires_grad for parameter in generator.network.parameters())


def test_loaded_twice_it_draws_the_same_images(trained):
    one, other = wcgan.load(trained.folder), wcgan.load(str(trained.folder))
    assert torch.equal(one.sample(9, classes=1, seed=3), other.sample(9, classes=1, seed=3))


def test_the_average_is_what_is_loaded(trained):
    from wcgan.runs.checkpoint import read_newest

    kept = section(read_newest(trained.checkpoints).tensors, "average")
    assert all(torch.equal(value, kept[name]) for name, value in weights(load_generator(trained.folder)).items())


def test_an_iteration_can_be_chosen(trained):
    last, sixth, fourth = (load_generator(trained.folder, which) for which in ("last", "6", "4"))
    assert torch.equal(last.sample(4), sixth.sample(4))
    assert not torch.equal(weights(last)["conv.weight"], weights(fourth)["conv.weight"])


def test_the_best_can_be_chosen(trained):
    assert torch.equal(load_generator(trained.folder, "best").sample(4), load_generator(trained.folder).sample(4))


def test_nothing_is_unpickled(trained, monkeypatch):
    def fail(*arguments, **options):
        raise AssertionError("pickle was used")

    monkeypatch.setattr(torch, "load", fail)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, fail)
    assert load_generator(trained.folder).sample(2).shape == (2, 1, 8, 8)


def test_loading_needs_no_training_data(trained, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "cache").mkdir()
    environment = {
        **os.environ,
        "WCGAN_DATA": str(tmp_path / "data"),
        "WCGAN_CACHE": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }
    code = (
        f"import sys, wcgan; images = wcgan.load({str(trained.folder)!r}).sample(3, classes=2, seed=1); "
        "print(tuple(images.shape), int(images.sum()), 'sklearn' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    expected = int(wcgan.load(trained.folder).sample(3, classes=2, seed=1).sum())
    assert result.stdout.strip() == f"(3, 1, 8, 8) {expected} False"
    assert list((tmp_path / "data").iterdir()) == list((tmp_path / "cache").iterdir()) == []


# What cannot be loaded


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ValueError, match="nowhere is not there; name the folder of a run"):
        wcgan.load(tmp_path / "nowhere")


def test_a_folder_that_is_no_run_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"is not the folder of a run: it has no config\.yaml"):
        wcgan.load(tmp_path)


def test_a_run_without_a_checkpoint_is_said(tmp_path):
    run = tiny_run(tmp_path / "run", tiny_config())
    with pytest.raises(CheckpointError, match="has no checkpoint yet: train it first"):
        wcgan.load(run.folder)
    with pytest.raises(CheckpointError, match=r"has no checkpoint best \(best\.json is missing\); it has none"):
        wcgan.load(run.folder, "best")


def test_a_device_may_be_one_of_pytorch(trained):
    assert next(wcgan.load(trained.folder, device=torch.device("cpu")).network.parameters()).device.type == "cpu"


def test_a_checkpoint_may_be_a_number(trained):
    assert wcgan.load(trained.folder, 4).iteration == wcgan.load(trained.folder, "4").iteration == 4


@pytest.mark.parametrize("given", [3, None, Sampler], ids=str)
def test_what_is_neither_a_name_nor_a_path_is_refused(given):
    with pytest.raises(TypeError, match=f"^source must be a name or a path, got {re.escape(repr(given))}$"):
        wcgan.load(given)


@pytest.mark.parametrize("which", ["5", "worst", "../0000006", "²", "9" * 5000, "a\0b", ""])
def test_a_checkpoint_that_is_not_there_is_said_with_those_that_are(trained, which):
    with pytest.raises(
        CheckpointError, match=rf"has no checkpoint {re.escape(which)} .*; it has 0000004, 0000006, best"
    ):
        wcgan.load(trained.folder, which)


def test_a_damaged_last_checkpoint_is_said_with_the_one_to_take_instead(trained, tmp_path):
    copy = Run(shutil.copytree(trained.folder, tmp_path / "copy"))
    (copy.checkpoints / "0000006.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"0000006\.safetensors: .* with --checkpoint 4 ") as failure:
        load_generator(copy.folder)
    assert 'checkpoint="4"' in str(failure.value)
    assert torch.equal(load_generator(copy.folder, "4").sample(4), load_generator(trained.folder, "4").sample(4))


def test_weights_that_do_not_fit_the_config_are_said(trained, tmp_path):
    copy = shutil.copytree(trained.folder, tmp_path / "copy")
    text = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(text.replace("noise: 6", "noise: 7"))
    with pytest.raises(CheckpointError, match=r"not the config that 0000006.* \(generator\.noise is 7, not 6\): put "):
        wcgan.load(copy)
    (file := copy / "checkpoints" / "0000006.json").write_text("{}")  # as one that does not know its config
    found = read_checkpoint(trained.checkpoints / "0000006")
    facts = {key: value for key, value in found.facts.items() if key not in ("config", "bytes", "sha256")}
    write_checkpoint(file.parent, "0000006", found.tensors, facts)
    with pytest.raises(CheckpointError, match=r"does not fit the run's config\.yaml"):
        wcgan.load(copy)


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "meta", "cuda:x"])
def test_a_device_that_is_not_there_is_said(trained, device):
    with pytest.raises(ValueError, match=r"no GPU cuda:99|the device must be auto, cpu, cuda or cuda:N, got"):
        wcgan.load(trained.folder, device=device)


@pytest.mark.parametrize("name", ["0000004.safetensors", "0000004.json"])
def test_a_checkpoint_is_loaded_by_its_file(trained, name):
    generator = wcgan.load(trained.checkpoints / name, device="cpu")
    assert generator.iteration == 4
    assert torch.equal(generator.sample(3), load_generator(trained.folder, "4").sample(3))


def test_a_shipped_generator_is_loaded_by_its_name_unless_there_is_a_folder_of_that_name(
    trained, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert wcgan.load("digits-cWC_sa", device="cpu").config.normalization == "cWC_sa"
    shutil.copytree(trained.folder, "digits-cWC_sa")
    assert wcgan.load("digits-cWC_sa", device="cpu").config.normalization == "cWC"


@pytest.mark.parametrize("form", ["safetensors", "hub"])
def test_an_exported_folder_draws_what_the_run_does(trained, tmp_path, form):
    if form == "hub":
        pytest.importorskip("huggingface_hub")
    from wcgan.export import export_run

    export_run(trained.folder, form, tmp_path / "out")
    generator = wcgan.load(tmp_path / "out", device="cpu")
    assert generator.class_names == ("a", "b", "c")
    assert torch.equal(generator.sample(5, "b", seed=2), load_generator(trained.folder).sample(5, 1, seed=2))
    assert torch.equal(wcgan.load(tmp_path / "out" / "model.safetensors", device="cpu").sample(3), generator.sample(3))


def test_what_cannot_be_loaded_is_said_in_one_sentence(trained, tmp_path):
    (tmp_path / "onnx").mkdir()
    for name in ("export.json", "generator.onnx"):
        (tmp_path / "onnx" / name).touch()
    (tmp_path / "a.safetensors").touch()
    cases = {
        tmp_path / "onnx": "there is no config.json; generator.onnx is for other software",
        tmp_path / "a.safetensors": "is no checkpoint of a run: those are in RUN/checkpoints",
        tmp_path / "missing": "is not there; name the folder of a run, or a shipped generator: cifar10-best",
        tmp_path: "is not the folder of a run: it has no config.yaml",
    }
    for source, said in cases.items():
        with pytest.raises(ValueError, match=re.escape(said)):
            wcgan.load(source)
    with pytest.raises(ValueError, match=r"is a checkpoint already: leave out checkpoint=6"):
        wcgan.load(trained.checkpoints / "0000004.json", checkpoint="6")


class Hub(BaseHTTPRequestHandler):
    """The part of a model hub that a download needs, for one model whose files are in `folder`."""

    folder, revision = None, "a" * 40

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        found = re.fullmatch(r"/me/mine/resolve/[^/]+/([\w.]+)", self.path)
        known = self.path.startswith("/api/models/me/mine")
        content = json.dumps({"id": "me/mine", "sha": self.revision}).encode() if known else b""
        if found and (self.folder / found[1]).is_file():
            known, content = True, (self.folder / found[1]).read_bytes()
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", self.revision)
        if not known:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *arguments):
        pass


def test_a_generator_on_a_hub_is_loaded_by_its_name_and_then_from_the_cache(trained, tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub").constants
    from wcgan.export import export_run

    export_run(trained.folder, "safetensors", tmp_path / "out")
    hub = ThreadingHTTPServer(("127.0.0.1", 0), type("OneModel", (Hub,), {"folder": tmp_path / "out"}))
    address, before = f"http://127.0.0.1:{hub.server_port}", constants.ENDPOINT  # as if $HF_ENDPOINT had been set
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(before, address)
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.chdir(tmp_path)
    Thread(target=hub.serve_forever, daemon=True).start()
    try:
        generator = wcgan.load("me/mine", device="cpu")
        with pytest.raises(ValueError, match=r"^me/other is not there; .* As a model on a hub: .* \(.*404"):
            wcgan.load("me/other")
    finally:
        hub.shutdown()
        hub.server_close()
    assert generator.class_names == ("a", "b", "c")
    expected = load_generator(trained.folder).sample(4, 2, seed=1)
    assert torch.equal(generator.sample(4, "c", seed=1), expected)
    assert torch.equal(wcgan.load("me/mine", device="cpu").sample(4, "c", seed=1), expected)  # the hub is gone
