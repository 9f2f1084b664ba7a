"""`wcgan train`: what it prints and leaves, and one sentence for what a user can mend."""

import pytest
import torch
from tests.cli.cases import assert_refused, everything, images_of
from tests.end_to_end.cases import training, write_photos

from wcgan.runs.folder import Run


def test_a_dry_run_says_what_would_run_and_writes_nothing(command, place):
    code, out, _ = command("train", "--dry-run", "--set", "train.iterations=60", "--set", "train.device=cpu")
    assert code == 0
    assert "1,438 images of 1x16x16, 10 classes" in out
    assert "60 iterations" in out
    assert list(place.parent.rglob("*")) == [place]


@pytest.mark.parametrize("arguments", [["train", "cifar10/WC"], ["classify", "--data", "cifar10"]])
def test_a_dry_run_without_the_data_set_says_what_would_run_and_how_to_get_the_data(command, place, arguments):
    code, out, err = command(*arguments, "--dry-run", "--set", "train.device=cpu")
    assert (code, err) == (1, "")
    assert "50,000 images of 3x32x32" in out
    assert "missing        cifar10 is not in " in out
    assert "wcgan datasets --download cifar10" in out
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("name", ["train", "classify"])
def test_a_dry_run_of_several_processes_is_printed_once_and_gives_their_number(command, place, monkeypatch, name):
    printed = []
    for rank in range(2):
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("RANK", str(rank))
        code, out, err = command(name, "--dry-run", "--set", "train.device=cpu")
        assert (code, err) == (0, "")
        printed.append(out)
    assert "processes      2, each with 1/2 of every batch" in printed[0]
    assert printed[1] == ""


def test_a_dry_run_of_a_run_to_resume_trains_nothing(command, trained):
    before = everything(trained)
    code, out, _ = command("train", "--resume", "--dry-run", "--out", trained)
    assert code == 0
    assert "3 iterations" in out
    assert everything(trained) == before


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


def test_a_run_in_place_of_a_preset_is_continued_by_another_command(command, trained, place):
    (place / "my run").symlink_to(trained)
    said = "my run is no preset but a run: `wcgan train --resume --out 'my run'` continues it"
    for options in ((), ("--resume",)):
        assert_refused(command("train", "my run", *options), said)


def test_evaluations_on_the_way_are_an_option_of_training(command, place):
    assert command("train", "--evaluate-every", 7, "--dry-run", "--set", "train.device=cpu")[0] == 0
    assert_refused(command("train", "--evaluate-every", -1), "train.evaluate_every must be at least 0, got -1")
    assert list(place.iterdir()) == []


def test_an_unknown_preset(command, place):
    (place / "photos").mkdir()
    assert_refused(command("train", "photos"), "photos is no preset but a folder: give it with --data")
    assert_refused(command("train", "cifar10"), "cifar10 is no preset but a dataset: give it with --data")
    assert_refused(command("train", "digits/CW"), "unknown preset 'digits/CW'", "`wcgan presets` lists them")
    assert [path.name for path in place.iterdir()] == ["photos"]


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
    assert_refused(result, "was begun with another config (train.seed is 0, not 1)", f"(--from {trained} starts")
    assert everything(trained) == before


@pytest.mark.parametrize("arguments", [("train", "--resume", "--out"), ("sample",), ("compare",)], ids=lambda a: a[0])
def test_what_is_not_a_run(command, place, arguments):
    assert_refused(command(*arguments, place / "nowhere"), "nowhere")
    (place / "empty").mkdir()
    assert_refused(command(*arguments, place / "empty"), "empty")
    assert [path.name for path in place.iterdir()] == ["empty"]


@pytest.mark.parametrize("options", [("--iterations", 1), ("--strict",)], ids=lambda options: options[0])
@pytest.mark.parametrize("name", ["train", "classify"])
def test_a_run_to_extend_that_is_not_there_is_not_begun_with_other_images(command, place, name, options):
    refused = command(name, "--resume", "--out", "typo", *options, "--set", "train.device=cpu")
    assert_refused(refused, "typo is not there; name the folder of a run")
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("out", ["file/run", "/proc/nowhere/run"])
def test_a_run_folder_that_cannot_be_made(command, place, out):
    (place / "file").write_text("mine")
    photos = write_photos(place.parent / "photos")
    assert_refused(command(*training(photos, out)), out.partition("/run")[0], "cannot be used")
    assert everything(place) == {place / "file": b"mine"}


def test_a_batch_too_large_for_memory(command, place, monkeypatch):
    from wcgan.train import gan

    def fail(*arguments, **options):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(gan, "train_iteration", fail)
    code, out, err = command(*training(write_photos(place.parent / "photos"), "run"))
    result = code, out, err.removeprefix("training on CPU, 1 thread\n")
    assert_refused(result, "train.batch=4 and train.generator_batch=4 do not fit into the memory", "lower them")
