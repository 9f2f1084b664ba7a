"""`wcgan demo` and `wcgan sample` without a run, and the folder for a model hub."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.web.demo.cases import write_run

from wcgan.core.images import grid
from wcgan.export import export_run
from wcgan.runs.pretrained import DEFAULT, shipped, shipped_generators
from wcgan.runs.sampler import load_generator
from wcgan.web.demo import export_app, load_runs
from wcgan.web.demo.app import requirements

DIGITS = "digits-cWC_sa"


@pytest.fixture
def command(command, monkeypatch, tmp_path):
    """`wcgan ...` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return command


def test_sample_without_a_run_draws_from_a_shipped_generator(command, tmp_path):
    code, out, _ = command("sample", "-n", 4, "--device", "cpu")
    assert (code, out) == (0, "4 images: sample-0.png\n")
    expected = grid(load_generator(shipped(), device="cpu").sample(4), 2)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "sample-0.png")), expected.permute(1, 2, 0))


def test_sample_draws_from_a_shipped_generator_by_its_name(command, tmp_path):
    code, out, _ = command("sample", DIGITS, "-n", 4, "--classes", 3, "--device", "cpu")
    assert (code, out) == (0, "4 images: sample-0.png\n")
    expected = grid(load_generator(shipped(DIGITS), device="cpu").sample(4, 3), 2)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "sample-0.png")), expected[0])


def test_classes_of_a_generator_that_has_none_are_refused_in_one_sentence(command, tmp_path):
    run = write_run(tmp_path / "run", "WC")
    code, out, err = command("sample", run, "--classes", 3, "--device", "cpu")
    assert (code, out) == (2, "")
    assert "has no classes" in err
    assert not list(tmp_path.rglob("*.png"))


def test_a_grid_of_a_shipped_generator_lies_where_the_command_was_given(command, tmp_path):
    code, _, _ = command("sample", DIGITS, "--grid", "fixed-z", "--device", "cpu")
    assert code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fixed-z-0.png", "fixed-z-0.png.txt"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere is not there; name the folder of a run"),
        (["--port", "70000"], "--port takes 1 to 65535, got 70000"),
        (["--device", "abacus"], "abacus"),
        (["--checkpoint", "9"], "has no checkpoint 9"),
    ],
)
def test_what_a_user_can_mend_is_one_sentence(command, arguments, said):
    code, out, err = command("demo", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("wcgan: ")
    assert said in err
    assert err.count("\n") == 1


def test_runs_are_known_by_their_folder_or_where_two_are_called_alike_by_their_path(tmp_path):
    runs = [write_run(tmp_path / parent / "run") for parent in ("a", "b")]
    other = write_run(tmp_path / "other")
    assert list(load_runs([*runs, other], device="cpu")) == [*map(str, runs), "other"]
    with pytest.raises(ValueError, match="is given twice"):
        load_runs([other, other], device="cpu")


def test_a_playground_without_runs_has_all_shipped_generators_and_cifar10_comes_first(tmp_path):
    assert list(load_runs(device="cpu")) == list(shipped_generators())
    assert shipped_generators()[0] == DEFAULT == "cifar10-best"
    assert list(load_runs([write_run(tmp_path / "run"), Path(DIGITS)], device="cpu")) == ["run", DIGITS]


# The folder for a model hub


@pytest.mark.slow
def test_the_exported_folder_runs_by_itself(command, tmp_path):
    run = write_run(tmp_path / "run")
    code, out, _ = command("demo", run, DIGITS, "--export", "hub", "--device", "cpu")
    assert (code, out) == (0, "app: hub\n")
    names = sorted(path.name for path in Path("hub").iterdir())
    assert names == ["README.md", "app.py", "generators", "requirements.txt", "wcgan"]
    assert not list(Path("hub/wcgan/generators").iterdir())
    # All but serving: the package beside `app.py` is taken, and loads the generators.
    program = "import wcgan; from wcgan.web.demo import *; from pathlib import Path; print(wcgan.__file__);"
    program += "print(*load_runs(sorted(Path('generators').iterdir()), device='cpu'))"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "hub")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd="hub", env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [str(tmp_path / "hub" / "wcgan" / "__init__.py"), f"{DIGITS} run"]
    compile(Path("hub/app.py").read_text(), "app.py", "exec")


def test_a_playground_takes_checkpoints_and_exported_folders_too(tmp_path):
    run = write_run(tmp_path / "run")
    export_run(run, "safetensors", tmp_path / "exported")
    (checkpoint,) = run.glob("checkpoints/*.safetensors")
    samplers = load_runs([checkpoint, tmp_path / "exported", Path(DIGITS)], device="cpu")
    assert list(samplers) == [f"run/{checkpoint.stem}", "exported", DIGITS]
    assert torch.equal(samplers["exported"].sample(4), samplers[f"run/{checkpoint.stem}"].sample(4))


def test_an_exported_generator_draws_what_the_run_does(command, tmp_path):
    run = write_run(tmp_path / "run")
    command("demo", run, "--export", "hub", "--device", "cpu")
    first, second = (load_generator(path, device="cpu").sample(8) for path in (run, tmp_path / "hub/generators/run"))
    assert (first.int() - second.int()).abs().float().mean() < 0.1  # half precision


def test_the_exported_folder_names_no_folder_of_this_machine(command, tmp_path):
    run = write_run(tmp_path / "run")
    config = (run / "config.yaml").read_text().replace("name: digits", f"name: {tmp_path}/photos")
    (run / "config.yaml").write_text(config)
    command("demo", run, "--export", "hub", "--device", "cpu")
    texts = [path.read_text() for path in Path("hub").rglob("*") if path.suffix in (".yaml", ".json", ".md", ".txt")]
    assert len(texts) >= 5
    assert not [text for text in texts if str(tmp_path) in text]
    assert "name: photos" in "".join(texts)


def test_an_export_writes_over_nothing(command, tmp_path):
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "mine").touch()
    code, _, err = command("demo", "--export", "hub", "--device", "cpu")
    assert code == 2
    assert "hub exists already: name another with --export" in err
    assert [path.name for path in (tmp_path / "hub").iterdir()] == ["mine"]


def test_an_export_that_fails_leaves_no_folder(tmp_path):
    whole, spoilt = write_run(tmp_path / "whole"), write_run(tmp_path / "spoilt")
    config = spoilt / "config.yaml"
    config.write_text(config.read_text().replace("cWC", "cBN"))  # another than the checkpoint's
    with pytest.raises(ValueError, match="put back the settings"):
        export_app([whole, spoilt], tmp_path / "hub")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spoilt", "whole"]


def test_the_exported_folder_asks_for_what_it_imports():
    names = {line.partition("=")[0].partition(">")[0] for line in requirements()}
    assert {"torch", "safetensors", "pillow", "pyyaml", "gradio"} <= names
    assert not names & {"pytest", "ray", "mkdocs"}
