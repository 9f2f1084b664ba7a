"""The command line: what it prints, and one sentence with exit code 2 for what a user can mend."""

import errno
import inspect
import logging
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.cases import save
from tests.end_to_end.cases import training, write_photos

import wcgan
from wcgan import cli
from wcgan.paper.presets import PRESETS
from wcgan.paper.tables import ALIASES
from wcgan.runs.folder import Run


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder of its own to stand in, with cache and data folders beside what a command may write."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("WCGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WCGAN_DATA", str(tmp_path / "data"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path / "here"
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of three iterations on three classes of 8 x 8 colour images."""
    from wcgan.paper.presets import configure
    from wcgan.train.start import start

    folder = tmp_path_factory.mktemp("trained")
    arguments = training(write_photos(folder / "photos"), folder / "run", iterations=3)
    settings = [arguments[i + 1] for i, argument in enumerate(arguments) if argument == "--set"]
    start(configure("digits/cWC", str(folder / "photos"), settings=settings), folder / "run")
    return folder / "run"


def everything(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in Path(folder).rglob("*")}


def assert_refused(result, *parts):
    code, out, err = result
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    assert err.startswith("wcgan: ")
    assert err.count("\n") == 1
    assert [part for part in parts if part not in err] == []


# Commands that end well


def test_presets_lists_every_preset_and_writes_nothing(command, place):
    code, out, _ = command("presets")
    assert code == 0
    other = {name: alias for alias, name in ALIASES.items()}  # a table's row may have the shorter name
    assert [name for name in PRESETS if name not in out and other.get(name, name) not in out] == []
    assert "450,000" in out
    assert list(place.iterdir()) == []


def test_datasets_says_what_is_here_and_how_to_get_the_rest(command, place):
    code, out, _ = command("datasets")
    assert code == 0
    state = {line.split()[0]: line.split()[1] for line in out.splitlines() if not line.startswith(" ")}
    assert state["digits"] == "here"
    assert state["mnist"] == state["imagenet"] == "missing"
    assert str(place.parent / "data" / "mnist") in out
    assert list(place.iterdir()) == []


def test_a_dry_run_says_what_would_run_and_writes_nothing(command, place):
    code, out, _ = command("train", "--dry-run", "--set", "train.iterations=60", "--set", "train.device=cpu")
    assert code == 0
    assert "1438 images of 1x16x16, 10 classes" in out
    assert "60 iterations" in out
    assert list(place.parent.rglob("*")) == [place]


def test_a_dry_run_of_a_run_to_resume_trains_nothing(command, trained):
    before = everything(trained)
    code, out, _ = command("train", "--resume", "--dry-run", "--out", trained)
    assert code == 0
    assert "3 iterations" in out
    assert everything(trained) == before


def test_training_on_a_folder_of_images_leaves_a_run_to_sample_from(command, place):
    photos = write_photos(place.parent / "photos", side=16)
    sizes = ("--set", "generator.widths=[6, 6]", "--set", "discriminator.resolution=16")
    code, out, err = command(*training(photos, place / "run", iterations=4, sample_every=2), *sizes)
    assert (code, "Traceback" in err) == (0, False)
    assert f"finished at iteration 4: {place}/run" in out
    names = {path.name for path in (place / "run").iterdir() if "tfevents" not in path.name}
    assert names == {"config.yaml", "metrics.jsonl", "samples", "checkpoints", "report.html"}
    assert [path for path in (place / "run").iterdir() if "tfevents" in path.name]

    code, out, _ = command("sample", place / "run", "-n", 6, "--classes", "2,0", "--seed", 5, "--out", "drawn")
    assert (code, out.strip()) == (0, "6 images: drawn")
    files = sorted((place / "drawn").iterdir())
    expected = wcgan.load(place / "run").sample(6, classes=[2, 0], seed=5)
    drawn = [np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1) for path in files]
    assert np.array_equal(np.stack(drawn), expected.numpy())


def test_resuming_goes_on_with_a_runs_own_config(command, place):
    photos = write_photos(place.parent / "photos")
    assert command(*training(photos, "run", iterations=3))[0] == 0
    config = place / "run" / "config.yaml"
    config.write_text(config.read_text().replace("iterations: 3", "iterations: 5").replace("beta2: 0.9", "beta2: 0.8"))
    assert_refused(command("train", "--resume", "--out", "run"), "(train.beta2 is 0.8, not 0.9)", "--accept-config")
    code, out, _ = command("train", "--resume", "--out", "run", "--accept-config")
    assert code == 0
    assert "finished at iteration 5: run" in out
    lines = [line["iteration"] for line in Run(place / "run").lines() if line["kind"] == "train"]
    assert lines == [1, 2, 3, 4, 5]


def test_pictures_get_their_own_preset_and_a_run_of_their_name(command, place):
    photos = write_photos(place / "photos", side=16)
    sizes = ("--set", "generator.widths=[4, 4]", "--set", "discriminator.widths=[4, 4]", "--set", "train.batch=4")
    plain = ("--iterations", 1, "--seed", 5, "--device", "cpu", "--deterministic")
    code, out, err = command("train", "--data", "photos", *plain, *sizes)
    assert (code, "finished at iteration 1: runs/photos" in out) == (0, True)
    assert "training on CPU" in err
    config = Run(place / "runs" / "photos").config()
    assert (config.preset, config.data.name) == ("folder", str(photos))
    train = config.train
    assert (train.iterations, train.seed, train.device, train.deterministic) == (1, 5, "cpu", True)


def test_a_finished_run_is_extended_and_a_refusal_names_its_own_config(command, place):
    photos = write_photos(place.parent / "photos")
    assert command(*training(photos, "run", iterations=2))[0] == 0
    refused = command("train", "--resume", "--out", "run", "--iterations", 3, "--set", "train.learning_rate=0.01")
    assert_refused(refused, "(train.learning_rate is 0.0002, not 0.01): a resumed run may change its length")
    code, out, err = command("train", "--resume", "--out", "run", "--set", "train.iterations=3")
    assert (code, "finished at iteration 3: run" in out) == (0, True)
    assert "run: train.iterations is now 3 (was 2); the learning rate falls to 0 at iteration 3\n" in err


def test_a_run_starts_from_the_config_and_the_weights_of_another(command, trained, place):
    photos = trained.parent / "photos"
    shared = ("--data", photos, "--iterations", 1, "--seed", 8)
    code, out, _ = command("train", "--from", trained, *shared, "--out", "run", "--dry-run")
    assert (code, "start as those of run, iteration 3\n" in out) == (0, True)
    code, _, err = command("train", "--config", trained / "config.yaml", "--from", trained, *shared, "--out", "run")
    assert code == 0
    assert "starting with the weights of run, iteration 3\n" in err
    config, other = Run(place / "run").config(), Run(trained).config()
    assert config.generator == other.generator
    assert (config.train.iterations, config.train.seed, config.origin) == (1, 8, str(trained))
    refused = command("train", "digits/cWC", "--config", trained / "config.yaml")
    assert_refused(refused, "either the preset digits/cWC or --config")


def test_inceptions_weights_are_an_option_of_training(command, place):
    refused = command("train", "--inception-weights", "nowhere.pth", "--device", "cpu")
    assert_refused(refused, "no Inception weights in nowhere.pth")
    assert list(place.iterdir()) == []


def test_warnings_of_other_libraries_are_not_shown_and_ours_are(monkeypatch):
    monkeypatch.setattr(sys, "warnoptions", [])
    for name in ("torch._inductor", "torch._dynamo", "torch._functorch"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.WARNING)
    with warnings.catch_warnings(record=True) as shown:
        cli.quiet_libraries()
        for module in ("torch.nn", "wcgan.kernels.cholesky", "wcgan.train.gan"):
            warnings.warn_explicit(f"from {module}", UserWarning, "file.py", 1, module)
    assert [str(warning.message) for warning in shown] == ["from wcgan.kernels.cholesky"]
    assert not logging.getLogger("torch._inductor").isEnabledFor(logging.WARNING)


def test_a_run_stops_where_it_is_told_and_goes_on_to_its_end(command, place):
    photos = write_photos(place.parent / "photos")
    code, out, _ = command(*training(photos, "run", iterations=4), "--stop-at", 2)
    assert code == 0
    assert "stopped at iteration 2; continue with: wcgan train --resume --out run" in out
    assert "finished" not in out
    _, out, _ = command("train", "--resume", "--out", "run", "--stop-at", 1)
    assert "already at iteration 2; continue with: wcgan train --resume --out run" in out
    code, out, _ = command("train", "--resume", "--out", "run")
    assert (code, "finished at iteration 4: run" in out) == (0, True)


def test_resuming_a_finished_run_ends_well(command, trained):
    code, out, _ = command("train", "--resume", "--out", trained)
    assert (code, f"already finished at iteration 3: {trained} (--iterations extends it)\n" in out) == (0, True)


def test_a_grid_has_a_class_a_row(command, trained):
    code, out, _ = command("sample", trained, "--grid", "class-rows", "--classes", "2,0", "--seed", 9)
    assert (code, out.strip()) == (0, f"class-rows: {trained}/class-rows-9.png")
    with Image.open(trained / "class-rows-9.png") as picture:
        assert picture.size == (8 * (10 * 10 + 2), 8 * (2 * 10 + 2))
    assert "row 1: class 2" in (trained / "class-rows-9.png.txt").read_text()


def test_a_sample_is_one_picture_beside_the_run_unless_said_otherwise(command, trained):
    code, out, _ = command("sample", trained, "-n", 4, "--seed", 9)
    assert (code, out.strip()) == (0, f"4 images: {trained}/sample-9.png")
    with Image.open(trained / "sample-9.png") as picture:
        assert picture.size == (2 * 10 + 2, 2 * 10 + 2)


@pytest.mark.parametrize(("kind", "options"), [("sample", ["-n", 4]), ("fixed-z", ["--grid", "fixed-z"])])
def test_a_picture_that_nobody_named_is_written_over_none(command, trained, kind, options):
    said = []
    for truncation in (1.0, 0.5, 0.0):
        before = everything(trained)
        code, out, _ = command("sample", trained, *options, "--seed", 7, "--truncation", truncation)
        assert code == 0
        said.append(out.strip().partition(": ")[2])
        assert {path: everything(trained)[path] for path in before} == before
    assert said == [f"{trained}/{kind}-7{more}.png" for more in ("", "-2", "-3")]
    assert len({Path(name).read_bytes() for name in said}) == 3


@pytest.mark.parametrize("options", [["-n", 4], ["--grid", "fixed-z"]], ids=["sample", "grid"])
def test_a_picture_under_a_name_that_was_asked_for_is_replaced(command, trained, place, options):
    pictures = set()
    for truncation in (1.0, 0.5):
        code, out, _ = command("sample", trained, *options, "--truncation", truncation, "--out", "mine.png")
        assert (code, out.strip().partition(": ")[2]) == (0, "mine.png")
        pictures.add((place / "mine.png").read_bytes())
    assert len(pictures) == 2
    assert {path.name for path in place.iterdir()} <= {"mine.png", "mine.png.txt"}


def test_runs_are_compared_on_one_page(command, trained, place):
    code, out, _ = command("compare", trained, trained, "--out", "page.html")
    assert code == 0
    assert out.splitlines()[-1] == "report: page.html"
    assert "<html" in (place / "page.html").read_text()


@pytest.fixture
def digits_run(place, digits_cache, monkeypatch):
    """A run of two iterations on the digits."""
    monkeypatch.setenv("WCGAN_CACHE", str(digits_cache))
    from wcgan.paper.presets import configure
    from wcgan.train.start import start

    settings = ["train.iterations=2", "train.batch=4", "train.generator_batch=4", "train.evaluate_images=10"]
    start(configure("digits/cWC", settings=[*settings, "train.device=cpu"]), place / "run")
    return place / "run"


def test_a_run_is_scored_with_its_protocol_beside_every_figure(command, digits_run):
    arguments = ("--features", "classifier", "--images", 50, "--metrics", "IS, fid", "--seed", 3, "--device", "cpu")
    code, out, err = command("evaluate", digits_run, *arguments)
    assert (code, "Traceback" in err) == (0, False)
    table = [line for line in out.splitlines() if line.startswith("\u2502")]
    assert [line.split()[1] for line in table] == ["FID(classifier)", "IS(classifier)", "accuracy(classifier)"]
    assert "protocol: paper-10k, 50 generated against 359, 10 sets of 5\n" in out
    assert f"torch {torch.__version__}" in out
    assert "its accuracy on digits test is " in out
    line = Run(digits_run).lines()[-1]
    assert (line["kind"], line["iteration"], line["protocol"]["seed"]) == ("evaluation", 2, 3)
    assert "IS(classifier)" in command("compare", digits_run)[1]
    assert f"report: {digits_run}/report.html\n" in out
    assert "50 generated against 359" in (digits_run / "report.html").read_text()


def test_figures_go_where_they_are_sent(command, place):
    arguments = ("--features", "classifier", "--metrics", "fid", "--device", "cpu", "--out", "figures")
    assert command("evaluate", "digits:train", "--data", "digits:test", *arguments)[0] == 0
    (line,) = Run(place / "figures").lines()
    assert line["protocol"]["name"] == "all, 1,438 generated against 359"


def test_evaluations_on_the_way_are_an_option_of_training(command, place):
    assert command("train", "--evaluate-every", 7, "--dry-run", "--set", "train.device=cpu")[0] == 0
    assert_refused(command("train", "--evaluate-every", -1), "train.evaluate_every must be at least 0, got -1")
    assert list(place.iterdir()) == []


# What a user can mend


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["nowhere"], ["nowhere is neither a run, nor a checkpoint, nor a folder of images, nor a dataset"]),
        (["photos"], ["what should photos be compared with", "--data"]),
        (["empty", "--data", "photos"], ["empty holds no images"]),
        (["photos", "--data", "larger"], ["8x8 RGB and those of larger 16x16 RGB", "--resolution"]),
        (["photos", "--data", "photos", "--metrics", "psnr"], ["takes some of is, fid, kid, pr, got psnr"]),
        (["photos", "--data", "photos", "--protocol", "paper-5k"], ["needs 10,000 real images and there are 12"]),
        (["photos", "--data", "photos", "--inception-weights", "other.pth"], ["weights of another network"]),
        (["photos", "--data", "photos", "--inception-weights", "none"], ["no Inception weights in none"]),
    ],
    ids=lambda value: " ".join(value[-2:]) if len(value) > 1 else "",
)
def test_what_cannot_be_scored(command, place, arguments, parts):
    write_photos(place / "photos")
    write_photos(place / "larger", side=16)
    (place / "empty").mkdir()
    torch.save({"weight": torch.zeros(1)}, place / "other.pth")
    before = everything(place)
    if "--inception-weights" not in arguments:
        arguments = [*arguments, "--features", "classifier"]
    assert_refused(command("evaluate", *arguments), *parts)
    assert everything(place) == before


def test_an_unknown_preset(command, place):
    assert_refused(command("train", "digits/CW"), "unknown preset 'digits/CW'", "`wcgan presets` lists them")
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("train.iterations", ["section.field=value"]),
        ("train.iteration=3", ["unknown field train.iteration: did you mean train.iterations?"]),
        ("train.iterations=0", ["train.iterations must be at least 1, got 0"]),
        ("train.loss=[", ["train.loss=[", "not YAML"]),
        ("train.device=cuda:99", ["there is no GPU cuda:99 on this machine", "auto or cpu"]),
        ("train.device=tpu", ["the device must be auto, cpu, cuda or cuda:N, got 'tpu'"]),
    ],
)
def test_a_setting_that_cannot_be(command, place, setting, parts):
    assert_refused(command("train", "--set", setting), *parts)
    assert list(place.iterdir()) == []


def test_a_dataset_that_is_not_there(command, place):
    assert_refused(command("train", "mnist/WC"), "mnist is not in", str(place.parent / "data"))
    assert_refused(command("train", "--data", "nowhere"), "nowhere is neither a folder nor a dataset", "digits, mnist")
    assert list(place.iterdir()) == []


def images_of(folder, *shapes, classes=2):
    for number, (height, width) in enumerate(shapes):
        image = np.random.default_rng(number).integers(0, 256, (3, height, width), np.uint8)
        name = f"class {number % classes}" if classes else "."
        save(folder / name / f"{number}.png", image)
    return folder


@pytest.mark.parametrize(
    ("shapes", "classes", "parts"),
    [
        ([(30, 30)] * 4, 2, ["images of 30x30 do not fit", "--resolution SIZE"]),
        ([(16, 32)] * 4, 2, ["the images are 16x32; square ones are needed"]),
        ([(16, 16), (16, 18)], 2, ["several sizes, 16x16 (", "18x16 ("]),
        ([(16, 16)] * 4, 1, ["needs several classes; photos has 1", "sub-folder"]),
        ([(16, 16)] * 4, 0, ["needs several classes; photos has none", "unconditional preset"]),
    ],
    ids=["size", "not square", "mixed sizes", "one class", "no classes"],
)
def test_images_that_do_not_fit(command, place, shapes, classes, parts):
    photos = images_of(place.parent / "photos", *shapes, classes=classes)
    assert_refused(command("train", "digits/cWC", "--data", photos, "--out", "run", "--device", "cpu"), *parts)
    assert list(place.iterdir()) == []


def test_a_folder_without_images(command, place):
    (place.parent / "photos").mkdir()
    assert_refused(command("train", "--data", place.parent / "photos"), "holds no images")
    assert list(place.iterdir()) == []


def test_a_broken_image_where_none_is_allowed(command, place):
    photos = images_of(place.parent / "photos", *[(8, 8)] * 4)
    (photos / "class 0" / "broken.png").write_bytes(b"not an image")
    assert_refused(command("train", "--data", photos, "--strict"), "cannot be read", "broken.png")
    assert list(place.iterdir()) == []


def test_a_run_folder_that_exists(command, trained):
    before = everything(trained)
    result = command(*training(trained.parent / "photos", trained, iterations=3))
    assert_refused(result, f"{trained} exists already: name another folder (--out), or resume the run (--resume)")
    assert_refused(command("train", "--dry-run", "--out", trained), f"{trained} exists already: ")
    assert everything(trained) == before


def test_resuming_with_another_config(command, trained):
    before = everything(trained)
    result = command(*training(trained.parent / "photos", trained, iterations=3), "--resume", "--seed", 1)
    assert_refused(result, "was begun with another config (train.seed is 0, not 1)", "begin a new run")
    assert everything(trained) == before


@pytest.mark.parametrize("arguments", [("train", "--resume", "--out"), ("sample",), ("compare",)], ids=lambda a: a[0])
def test_what_is_not_a_run(command, place, arguments):
    assert_refused(command(*arguments, place / "nowhere"), "nowhere")
    (place / "empty").mkdir()
    assert_refused(command(*arguments, place / "empty"), "empty")
    assert [path.name for path in place.iterdir()] == ["empty"]


@pytest.mark.parametrize("out", ["file/run", "/proc/nowhere/run"])
def test_a_run_folder_that_cannot_be_made(command, place, out):
    (place / "file").write_text("mine")
    photos = write_photos(place.parent / "photos")
    assert_refused(command(*training(photos, out)), out.partition("/run")[0], "cannot be used")
    assert everything(place) == {place / "file": b"mine"}


def test_a_page_that_finds_no_space_leaves_the_one_before(command, trained, place, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (place / "page.html").write_text("mine")
    monkeypatch.setattr(os, "fsync", full)
    code, _, err = command("compare", trained, "--out", "page.html")
    assert (code, err) == (2, "wcgan: page.html cannot be used: no space left on device\n")
    assert everything(place) == {place / "page.html": b"mine"}


def test_a_batch_too_large_for_memory(command, place, monkeypatch):
    from wcgan.train import gan

    def fail(*arguments, **options):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(gan, "train_iteration", fail)
    code, out, err = command(*training(write_photos(place.parent / "photos"), "run"))
    result = code, out, err.removeprefix("training on CPU, 1 thread\n")
    assert_refused(result, "train.batch=4 and train.generator_batch=4 do not fit into the memory", "lower them")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--classes", "three"], ["there is no class 'three'; this generator has "]),
        (["--classes", ""], ["name at least one class of 0 to 2"]),
        (["--classes", "0,3"], ["class 3 is out of range: this generator has classes 0 to 2"]),
        (["-n", "0"], ["count must be at least 1, got 0"]),
        (["--checkpoint", "7"], ["has no checkpoint 7", "it has 0000003"]),
        (["--grid", "fixed-z", "--checkpoint", "7"], ["has no checkpoint 7", "it has 0000003"]),
        (["--grid", "columns"], ["--grid takes fixed-z or class-rows, got 'columns'"]),
        (["--grid", "fixed-z", "-n", "0"], ["--grid has ten images per row: leave out -n 0"]),
        (["--grid", "fixed-z", "--out", "drawn"], ["a grid is one picture: name a .png file, not drawn"]),
        (["--device", "cuda:99"], ["there is no GPU cuda:99"]),
        (["--out", "."], ["exists already: name another folder"]),
        (["--out", "drawn.jpg"], ["drawn.jpg is neither a .png file, for a grid, nor a folder"]),
        (["--out", "file/drawn.png"], ["file", "cannot be used"]),
    ],
    ids=lambda value: value[0] if value[0].startswith("-") else "",
)
def test_samples_that_cannot_be_drawn(command, trained, place, arguments, parts):
    (place / "file").write_text("mine")
    before = everything(trained)
    assert_refused(command("sample", trained, *arguments), *parts)
    assert everything(trained) == before
    assert everything(place) == {place / "file": b"mine"}


def test_classes_of_a_generator_without_any(command, place):
    photos = images_of(place.parent / "photos", *[(8, 8)] * 4, classes=0)
    plain = ("--set", "generator.normalization=WC", "--set", "discriminator.head=plain")
    assert command(*training(photos, "run", iterations=2), *plain)[0] == 0
    assert_refused(command("sample", "run", "--classes", "1"), "this generator (WC) has no classes")
    assert_refused(command("sample", "run", "--grid", "fixed-z"), "run has no classes (its generator has WC)")


def test_a_bug_is_not_hidden(monkeypatch):
    from wcgan.paper import presets

    def fail(*arguments):
        raise RuntimeError("a bug")

    monkeypatch.setattr(sys, "argv", ["wcgan", "train"])
    monkeypatch.setattr(presets, "configure", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main()


def test_the_version_is_printed(command):
    assert command("--version") == (0, f"wcgan {wcgan.__version__}\n", "")


# Animations


@pytest.mark.parametrize(
    ("options", "file", "ends"),
    [
        (["--classes", "NAME0,2", "--seed", "3"], "film.gif", ((3, 3), (0, 2))),
        (["--classes", "1", "--seed", "3"], "film.webp", ((3, 4), 1)),
        (["--last-seed", "7", "--truncation", "0.5"], None, ((0, 7), None)),
    ],
)
def test_an_interpolation_is_an_animation_there_and_back(command, trained, place, options, file, ends):
    generator = wcgan.load(trained)
    options = [option.replace("NAME0", generator.class_names[0]) for option in options]
    target = place / file if file else trained / "interpolate-0.gif"
    arguments = ("interpolate", trained, *options, "-n", 2, "--frames", 3, *(("--out", file) if file else ()))
    assert command(*arguments) == (0, f"3 frames: {file or target}\n", "")
    with Image.open(target) as film:
        assert (film.format.lower(), film.n_frames, film.info["loop"]) == (target.suffix[1:], 4, 0)
        film.seek(2)
        picture = film.convert("RGB")
    last = generator.interpolate(3, 2, *ends, truncation=0.5 if ends[1] is None else 1.0)[-1]
    side = 2 * 2 + 2 * 8 + 2
    assert picture.width % side == 0
    found = np.asarray(picture.resize((side, 8 + 4), Image.Resampling.NEAREST))
    exact = 0 if target.suffix == ".webp" else 40  # a GIF has 256 colours
    assert np.abs(found[2:10, 2:10].astype(int) - last[0].permute(1, 2, 0).numpy()).max() <= exact
    target.unlink()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "film.mp4"], "an animation is a .gif or a .webp file, not film.mp4"),
        (["--classes", "0,1,2"], "an interpolation takes one or two classes, got 3"),
        (["--frames", "1"], "frames must be at least 2, got 1"),
    ],
)
def test_an_animation_that_cannot_be_made(command, trained, place, arguments, said):
    before = everything(trained)
    assert_refused(command("interpolate", trained, "-n", "1", "--frames", "2", *arguments), said)
    assert (everything(trained), everything(place)) == (before, {})


# Help


def commands(group, *before):
    """Every command below a group, with the words that are typed before its options."""
    for name, found in group.commands.items():
        yield (*before, name), found
        if hasattr(found, "commands"):
            yield from commands(found, *before, name)


def test_help_explains_every_option_of_every_command(command):
    from typer.main import get_command

    found = dict(commands(get_command(cli.app)))
    assert ("study", "create") in found
    for name, each in found.items():
        unexplained = [option.name for option in each.params if not (option.help or "").endswith((".", ")"))]
        assert unexplained == [], name
        assert [option.name for option in each.params if "[" in (option.help or "")] == []  # it would be left out
        code, out, _ = command(*name, "--help")
        assert code == 0
        assert "<bool>" not in out
        assert "<list[" not in out


def test_help_lists_the_commands_in_groups(command):
    code, out, _ = command("--help")
    assert code == 0
    places = [out.index(f"\u2500 {title} ") for title in (cli.TRAIN, cli.USE, cli.MEASURE)]
    panels = (out[begin:end].splitlines()[1:] for begin, end in zip(places, [*places[1:], None], strict=True))
    names = [
        [line.split()[1] for line in panel if line.startswith("\u2502 ") and line[2].isalpha()] for panel in panels
    ]
    assert [" ".join(found) for found in names] == [
        "train classify tune presets datasets",
        "models sample interpolate demo export",
        "evaluate compare reproduce study",
    ]


def test_one_word_stands_for_one_option_in_all_commands(command):
    from typer.main import get_command

    words = {}
    for name, each in commands(get_command(cli.app)):
        for option in each.params:
            if option.param_type_name == "option" and option.name != "help" and not hasattr(each, "commands"):
                annotation = get_args(inspect.signature(each.callback).parameters[option.name].annotation)[0]
                kinds = {str if kind is Path else kind for kind in get_args(annotation) or [annotation]} - {type(None)}
                words.setdefault(max(option.opts, key=len), {})[name] = frozenset(kinds)
    assert {word: kinds for word, kinds in words.items() if len(set(kinds.values())) > 1} == {}
    assert [names for names in ("--dataset", "--reference", "--count", "--label") if names in words] == []


@pytest.mark.parametrize(("shell", "file"), [("bash", ".bash_completions/wcgan.sh"), ("zsh", ".zfunc/_wcgan")])
def test_completion_is_installed_for_the_users_shell(place, shell, file):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    code = "import sys; sys.argv[0] = 'wcgan'; from wcgan.cli import main; main()"
    environment = os.environ | {"HOME": str(place), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    arguments = [sys.executable, "-c", code]
    done = subprocess.run(
        [*arguments, "--install-completion", shell], env=environment, capture_output=True, text=True, check=True
    )
    assert f"{shell} completion installed" in done.stdout
    assert "_WCGAN_COMPLETE" in (place / file).read_text()


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("wcgan inter", ["interpolate"]),
        ("wcgan sample digits", ["digits-cWC_sa"]),
        ("wcgan train digits/cWC_", ["digits/cWC_sa", "digits/cWC_sa-cls-only"]),
        ("wcgan sample --trunc", ["--truncation"]),
        ("wcgan reproduce table1", ["table1", "table10", "table11", "table12", "table13"]),
        ("wcgan reproduce ablation-W", ["ablation-WC"]),
        ("wcgan export --format tor", ["torch-export"]),
    ],
)
def test_what_is_typed_is_completed(monkeypatch, capsys, typed, words):
    monkeypatch.setenv("_WCGAN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    monkeypatch.setattr(sys, "argv", ["wcgan"])
    with pytest.raises(SystemExit):
        cli.main()
    assert sorted(capsys.readouterr().out.split()) == words
