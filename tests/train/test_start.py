"""From a config to a finished run: data, fitting, training, evaluation."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.data.cases import random_images, save
from tests.train.cases import different, last_tensors

from wcgan import data
from wcgan.paper.presets import configure
from wcgan.runs.folder import Run
from wcgan.train.start import dry_run, go_on, load_data, start

TINY = [
    "generator.widths=[4, 4]",
    "generator.noise=6",
    "discriminator.widths=[4, 4, 4]",
    "train.iterations=3",
    "train.batch=4",
    "train.generator_batch=4",
    "train.log_every=1",
    "train.sample_every=0",
    "train.checkpoint_every=2",
    "train.evaluate_images=20",
    "train.device=cpu",
]


@pytest.fixture
def photos(tmp_path):
    """A folder of 8 x 8 colour images of two classes."""
    for number, image in enumerate(random_images(8, 3, 8)):
        save(tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}.png", image)
    return tmp_path / "photos"


def configured(source, *settings, name="digits/cWC"):
    return configure(name, str(source), settings=[*TINY, *settings])


def evaluations(folder):
    return [line for line in Run(folder).lines() if line["kind"] == "evaluation"]


def test_a_run_begins_in_its_folder_with_the_config_that_fits_the_data(photos, tmp_path):
    outcome = start(configured(photos), tmp_path / "run")
    assert outcome.iteration == 3
    config = Run(tmp_path / "run").config()
    assert (config.generator.resolution, config.generator.channels, config.generator.classes) == (8, 3, 2)
    assert config.data.name == str(photos)
    assert config.preset == "digits/cWC"


def test_a_run_goes_on_with_a_config_that_was_changed_only_where_that_is_accepted(photos, tmp_path):
    folder = tmp_path / "run"
    start(configured(photos, "train.iterations=2"), folder)
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(
        text.replace("beta1: 0.0", "beta1: 0.5").replace("iterations: 2", "iterations: 5")
    )
    message = r"trained with \(train\.beta1 is 0\.5, not 0\.0\): put these settings back, or .* --accept-config$"
    with pytest.raises(ValueError, match=message):
        go_on(folder)
    with pytest.raises(ValueError, match=message):
        start(configured(photos, "train.iterations=5", "train.beta1=0.5"), folder, resume=True)
    assert go_on(folder, accept_config=True).iteration == 5
    assert go_on(folder).iteration == 5  # the last checkpoint knows the new one


def test_resuming_with_the_same_config_finishes_and_with_another_is_refused(photos, tmp_path):
    folder = tmp_path / "run"
    start(configured(photos), folder)
    assert start(configured(photos), folder, resume=True).iteration == 3
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"was begun with another config \(train\.seed is 0, not 1\)"):
        start(configured(photos, "train.seed=1"), folder, resume=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("there", [False, True], ids=["missing", "empty"])
def test_resuming_where_nothing_is_begins(there, photos, tmp_path):
    folder = tmp_path / "run"
    if there:
        folder.mkdir()
    assert start(configured(photos), folder, resume=True).iteration == 3


def test_a_gpu_that_is_not_there_is_said_before_anything_is_read_or_written(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "load", None)
    with pytest.raises(ValueError, match="there is no GPU cuda:99"):
        start(configured("nowhere", "train.device=cuda:99"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_resolution_that_the_networks_cannot_have_is_refused_before_the_images_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "load", None)
    with pytest.raises(ValueError, match="images of 1000x1000 do not fit the networks"):
        start(configured("digits", "data.resolution=1000"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_batch_that_the_processes_cannot_share_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"train\.batch=5 cannot be shared equally by 2 processes"):
        start(configure("digits/cWC", settings=["train.batch=5"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_without_classes_trains_on_images_without_labels(photos, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    for path in photos.rglob("*.png"):
        path.rename(flat / path.name)
    config = configured(flat, "generator.normalization=WC", "discriminator.head=plain")
    assert start(config, tmp_path / "run").iteration == 3
    assert Run(tmp_path / "run").config().classes is None


def test_two_runs_of_a_config_end_with_the_same_bits(photos, tmp_path):
    for name in ("one", "other"):
        start(configured(photos), tmp_path / name)
    assert different(last_tensors(Run(tmp_path / "one")), last_tensors(Run(tmp_path / "other"))) == []


def test_stl10_trains_on_its_unlabeled_images(monkeypatch):
    asked = []
    monkeypatch.setattr(data, "load", lambda name, split, *rest, **options: asked.append((name, split)))
    config = configure("stl10/WC SN + ResNet")
    load_data(config)
    load_data(replace(config, data=replace(config.data, name="cifar10")))
    assert asked == [("stl10", "unlabeled"), ("cifar10", "train")]


def test_a_dry_run_says_what_would_run_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = dry_run(configured("digits"), tmp_path / "run")
    assert said["data"] == "digits: 1,438 images of 1x16x16, 10 classes"
    assert said["training"].startswith("hinge, 3 iterations of 1 + 1 updates, ")
    assert "cWC" in said["generator"]
    assert "projection" in said["discriminator"]
    assert said["device"].startswith("CPU")
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("preset", "images"),
    [
        ("cifar10/WC SN + ResNet", "cifar10: 50,000 images of 3x32x32, 10 classes"),
        ("cifar100/cWC_sa SN + Proj. Discr.", "cifar100: 50,000 images of 3x32x32, 100 classes"),
        ("stl10/WC SN + ResNet", "stl10: 100,000 images of 3x48x48, no classes"),
        ("mnist/cWC", "mnist: 60,000 images of 1x28x28, 10 classes"),
    ],
)
def test_a_dry_run_without_the_data_set_takes_its_published_size(preset, images, tmp_path):
    said = dry_run(configure(preset, settings=["train.device=cpu"]), tmp_path / "run")
    assert said["data"] == images
    assert said["missing"].startswith(f"{preset.partition('/')[0]} is not in ")
    assert "passes over the data" in said["training"]


def test_a_dry_run_refuses_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is neither a folder nor a dataset"):
        dry_run(configured("nowhere"), tmp_path / "run")


def test_the_disk_space_of_a_dry_run_is_that_of_its_checkpoints(tmp_path):
    settings = ("generator.widths=[64, 64]", "train.ema=0.9", "train.iterations=1", "train.keep_checkpoints=100")
    said = dry_run(configured("digits", *settings), tmp_path / "run")["disk"]
    start(configured("digits", *settings), tmp_path / "run")
    (written,) = Run(tmp_path / "run").checkpoints.glob("0*.safetensors")
    assert int(said.split()[0]) == pytest.approx(100 * written.stat().st_size / 1e6, rel=0.02)


def test_another_process_than_the_first_takes_no_look_at_a_folder_that_the_first_may_be_making(
    photos, tmp_path, monkeypatch
):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".config.yaml.0123abcd.tmp").write_text("data: {")
    (folder / "events").touch()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    trained = []
    monkeypatch.setattr(sys.modules["wcgan.train.start"], "train", lambda *arguments: trained.append(arguments))
    start(configured(photos), folder, resume=True)
    ((config, _, run, *_),) = trained
    assert (config.classes, run.folder) == (2, folder)
