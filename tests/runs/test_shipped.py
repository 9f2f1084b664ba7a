"""The generators that come with the package."""

import json
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import wcgan
from wcgan.core.config import config_to_yaml
from wcgan.core.images import grid
from wcgan.export import run_to_shipped
from wcgan.paper.presets import find_config
from wcgan.runs.folder import Run
from wcgan.runs.pretrained import DEFAULT, find_source, shipped, shipped_generators
from wcgan.runs.sampler import load_generator

ROOT = Path(__file__).parent.parent.parent
DIGITS = "digits-cWC_sa"


def pixels(picture):
    """Of a grid, or of a file, as numbers that can be subtracted."""
    picture = Image.open(picture) if isinstance(picture, Path) else picture.permute(1, 2, 0).squeeze(2)
    return np.asarray(picture).astype(int)


def test_the_default_is_one_of_them():
    assert DEFAULT in shipped_generators()
    assert shipped() == shipped(DEFAULT)


def test_another_name_is_refused():
    with pytest.raises(ValueError, match=r"no generator 'x' comes with the package; there is .*digits-cWC_sa"):
        shipped("x")


def test_a_run_is_found_by_its_path_first_and_then_by_a_shipped_name(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert find_source(Path(DIGITS)) == shipped(DIGITS)
    with pytest.raises(
        ValueError, match=r"^runs/mine is not there; name the folder of a run, or .*cifar10-cWC, digits"
    ):
        find_source(Path("runs/mine"))
    Path(DIGITS).mkdir()
    assert find_source(Path(DIGITS)) == Path(DIGITS)


@pytest.mark.parametrize("name", shipped_generators())
def test_each_draws_the_picture_that_is_kept(name):
    sampler = load_generator(shipped(name), device="cpu")
    images = sampler.rows() if sampler.conditional else sampler.sample(20)
    kept = pixels(Path(__file__).parent / "shipped" / f"{name}.png")
    assert np.abs(pixels(grid(images, 10)) - kept).max() <= 1  # rounding of another machine


def test_the_readme_shows_what_sample_draws():
    readme = (ROOT / "README.md").read_text()
    assert "](docs/images/cifar10.png)" in readme
    assert "`wcgan sample --grid class-rows --out docs/images/cifar10.png`" in readme
    sampler, kept = load_generator(shipped(), device="cpu"), pixels(ROOT / "docs/images/cifar10.png")[::2, ::2]
    row = pixels(grid(sampler.from_noise(sampler.noise(100, 0)[:10], torch.zeros(10, dtype=torch.long)), 10))
    assert kept.shape == (10 * 34 + 2, 10 * 34 + 2, 3)
    assert np.abs(row - kept[:36]).max() <= 1


@pytest.mark.parametrize("name", shipped_generators())
def test_each_is_small_and_says_where_it_comes_from(name):
    assert max(path.stat().st_size for path in shipped(name).rglob("*") if path.is_file()) < 20_000_000
    origin = json.loads((shipped(name) / "origin.json").read_text())
    assert origin["command"].startswith("wcgan train ")
    assert all(re.fullmatch(r"[0-9a-f]{10}\+?", commit) for commit in origin["commit"].split("; "))
    assert origin["scores"]
    config = Run(shipped(name)).config()
    assert config.data.folder is None
    names = load_generator(shipped(name), device="cpu").class_names
    assert config.generator.classes in (None, len(names))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib is in Python 3.11 and later")
def test_all_their_files_are_part_of_the_package():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    package = Path(wcgan.__file__).parent
    patterns = project["tool"]["setuptools"]["package-data"]["wcgan"]
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    files = {path for path in (package / "generators").rglob("*") if path.is_file()}
    assert files
    assert files <= packed


def test_each_is_listed_with_what_a_user_wants_to_know(command):
    listed = {model.name: model for model in wcgan.models()}
    assert tuple(listed) == shipped_generators()
    cifar10 = listed[DEFAULT]
    assert (cifar10.dataset, cifar10.image, cifar10.normalization) == ("cifar10", (3, 32, 32), "cWC")
    assert (cifar10.classes[3], round(cifar10.fid, 1), cifar10.licence) == ("cat", 8.8, "MIT")
    assert cifar10.bytes == sum(path.stat().st_size for path in shipped().rglob("*.safetensors"))
    assert listed[DIGITS].fid is None
    code, out, _ = command("models")
    assert code == 0
    for model in listed.values():
        section = out.partition(f"{model.name}\n")[2].partition("made by")
        for fact in (model.dataset, ", ".join(model.classes), "FID", "MB", "licence  MIT"):
            assert fact in section[0]
        printed = " ".join(line.strip() for line in section[2].replace("\\\n", "\n").splitlines())
        assert printed.startswith(model.command)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("name", shipped_generators())
def test_its_command_gives_the_settings_and_the_iteration_it_was_trained_with(name):
    _, _, preset, *options = shlex.split(json.loads((shipped(name) / "origin.json").read_text())["command"])
    given = list(zip(options[::2], options[1::2], strict=True))
    stops = [("--stop-at", value) for flag, value in given if flag == "--stop-at"]
    (iteration,) = (int(file.stem) for file in (shipped(name) / "checkpoints").glob("*.json"))
    settings = [
        value if flag == "--set" else f"train.{flag[2:].replace('-', '_')}={value}"
        for flag, value in given
        if flag != "--stop-at"
    ]
    kept = Run(shipped(name)).config()
    assert stops == [("--stop-at", str(iteration))] * (iteration < kept.train.iterations)
    assert replace(find_config(preset, settings=settings), preset=kept.preset) == kept  # a preset may be renamed


def test_shipping_keeps_the_pictures_the_names_and_the_origin(tmp_path):
    again = run_to_shipped(shipped(DIGITS), tmp_path / "again", "another command")
    first, second = (load_generator(path, device="cpu") for path in (shipped(DIGITS), again))
    assert torch.equal(first.sample(8), second.sample(8))
    assert (first.class_names, first.iteration) == (second.class_names, second.iteration)
    assert (again / "origin.json").read_bytes() == (shipped(DIGITS) / "origin.json").read_bytes()


def test_the_origin_names_the_commit_of_every_part_of_a_run(tmp_path):
    run = Run(tmp_path / "run")
    shutil.copytree(shipped(DIGITS), run.folder)
    (run.folder / "origin.json").unlink()
    for what, commit in (("started", "a"), ("stopped", None), ("resumed", "a"), ("resumed", "b")):
        run.event(0, what, commit=commit, device="CPU")
    origin = json.loads((run_to_shipped(run.folder, tmp_path / "new", "wcgan train") / "origin.json").read_text())
    assert (origin["command"], origin["commit"], origin["device"], origin["torch"]) == (
        "wcgan train",
        "a; b",
        "CPU",
        None,
    )


def test_the_origin_has_the_scores_of_the_last_usual_evaluation(tmp_path):
    run = Run(tmp_path / "run")
    shutil.copytree(shipped(DIGITS), run.folder)
    (run.folder / "origin.json").unlink()
    iteration = load_generator(run.folder, device="cpu").iteration
    for fid, facts in ((3.0, {}), (2.0, {}), (1.0, {"statistics": "of batches of 64"})):
        run.record("evaluation", iteration, FID=fid, protocol={"name": "paper-10k", **facts})
    origin = json.loads((run_to_shipped(run.folder, tmp_path / "new", "wcgan train") / "origin.json").read_text())
    assert origin["scores"] == {"FID": 2.0}


def test_the_origin_has_scores_that_were_measured_one_by_one_and_their_protocols(tmp_path):
    run = Run(tmp_path / "run")
    shutil.copytree(shipped(DIGITS), run.folder)
    (run.folder / "origin.json").unlink()
    iteration = load_generator(run.folder, device="cpu").iteration
    run.record("evaluation", iteration, FID=2.0, IS=7.0, protocol={"name": "paper-10k"})
    run.record("evaluation", iteration, IS=8.0, protocol={"name": "paper-5k"})
    run.record("evaluation", iteration, **{"FID(classifier)": 3.0})
    origin = json.loads((run_to_shipped(run.folder, tmp_path / "new") / "origin.json").read_text())
    assert origin["scores"] == {"FID": 2.0, "IS": 8.0, "FID(classifier)": 3.0}
    assert origin["protocols"] == {"FID": "paper-10k", "IS": "paper-5k", "FID(classifier)": None}


@pytest.mark.parametrize(("schedule", "length"), [("linear", 9_999_999), ("constant", 1500)])
def test_at_a_constant_rate_the_length_shipped_is_the_one_trained(tmp_path, schedule, length):
    run = Run(tmp_path / "run")
    shutil.copytree(shipped(DIGITS), run.folder)
    config = run.config()
    longer = replace(config, train=replace(config.train, schedule=schedule, schedule_end=None, iterations=9_999_999))
    (run.folder / "config.yaml").write_text(config_to_yaml(longer))
    assert Run(run_to_shipped(run.folder, tmp_path / "new")).config().train.iterations == length


def test_shipping_writes_over_nothing(tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(ValueError, match="exists already"):
        run_to_shipped(shipped(DIGITS), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_published_config_keeps_how_the_images_were_used_and_drops_where_they_were():
    config = find_config("cifar10/best")
    used = replace(config, data=replace(config.data, name="/pictures/mine", folder="/data", held_out=True))
    published = used.without_paths().data
    assert (published.name, published.folder, published.flip, published.held_out) == ("mine", None, True, True)
