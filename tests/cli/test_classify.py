"""`wcgan classify`: what it reaches, what it prints and leaves, and one sentence for what a user can mend."""

import pytest
import torch
from tests.cli.cases import assert_refused
from tests.data.cases import random_images, save
from tests.reproduce.cases import TINY_CLASSIFIER, everything, write_pictures
from tests.train.cases import different, last_tensors

from wcgan.data import load
from wcgan.runs.folder import Run
from wcgan.train.start_classifier import load_classifier

SETS = [part for setting in TINY_CLASSIFIER for part in ("--set", setting)]
CLASSIFIER = "run is the run of a classifier, and that of a GAN is needed here"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder of its own to stand in."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def pictures(tmp_path):
    return write_pictures(tmp_path / "pictures")


def error_of(folder):
    return next(line["error"] for line in reversed(Run(folder).lines()) if line["kind"] == "evaluation")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["WC", "DBN"])
def test_the_digits_are_told_apart_in_seconds(name, command, place):
    code, out, _ = command("classify", f"digits/ResNet-8 {name}", "--set", "train.device=cpu")
    folder = f"runs/digits-ResNet-8{name}"
    assert code == 0
    assert out.splitlines() == [
        f"finished at iteration 200: {folder}",
        f"report: {folder}/report.html",
        f"error: {error_of(place / folder):.2f}%",
    ]
    test = load("digits", "test")
    wrong = load_classifier(folder, device="cpu").probabilities(test.images).argmax(1) != test.labels
    assert 100 * wrong.double().mean().item() == pytest.approx(error_of(place / folder), abs=1e-9)
    assert error_of(place / folder) < 5


def test_a_run_leaves_its_config_its_metrics_its_checkpoints_and_a_report(command, pictures, place):
    assert command("classify", "--data", pictures, "--norm", "WC", "--out", "run", *SETS)[0] == 0
    names = {path.name for path in (place / "run").iterdir() if "tfevents" not in path.name}
    assert names == {"config.yaml", "metrics.jsonl", "checkpoints", "report.html"}
    assert [path for path in (place / "run").iterdir() if "tfevents" in path.name]


def test_seeds_lie_side_by_side_and_end_with_their_mean(command, pictures, place):
    code, out, _ = command("classify", "--data", pictures, "--seeds", 2, *SETS)
    folder = place / "runs" / "pictures-ResNet-8WC"
    assert code == 0
    first, second = (error_of(folder / f"seed-{seed}") for seed in (0, 1))
    deviation = torch.tensor([first, second]).std()
    mean = f"{(first + second) / 2:.2f}% \u00b1 {deviation:.2f}%"
    assert out.splitlines()[-1] == f"error: {mean} over 2 seeds (seed 0 {first:.2f}%, seed 1 {second:.2f}%)"
    folder = next(path.parent for path in place.rglob("seed-0"))
    code, out, _ = command("compare", folder)  # what the command said it had made
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if "ResNet-8" in line] == ["seed-0", "seed-1"]
    assert_refused(command("sample", folder), "holds the runs of several seeds: name one, such as")
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "seed-0", "seed-1"]


def test_stopped_and_resumed_by_the_command_every_bit_is_the_same(command, pictures, place):
    arguments = ("classify", "--data", pictures, *SETS)
    assert command(*arguments, "--out", "whole")[0] == 0
    code, out, _ = command(*arguments, "--out", "run", "--stop-at", 3)
    assert code == 0
    assert out.splitlines()[0] == "stopped at iteration 3; continue with: wcgan classify --resume --out run"
    code, out, _ = command("classify", "--resume", "--out", "run")
    assert (code, out.splitlines()[0]) == (0, "finished at iteration 6: run")
    assert different(last_tensors(Run(place / "run")), last_tensors(Run(place / "whole"))) == []
    assert error_of(place / "run") == error_of(place / "whole")


def test_resuming_a_finished_run_ends_well(command, pictures):
    assert command("classify", "--data", pictures, "--seeds", 2, "--out", "run", *SETS)[0] == 0
    code, out, _ = command("classify", "--resume", "--out", "run")
    assert (code, out.splitlines()[0]) == (0, "already finished at iteration 6: run (--iterations extends it)")
    assert_refused(command("classify", "--dry-run", "--out", "run"), "run exists already: ")
    code, out, _ = command("classify", "--dry-run", "--resume", "--out", "run")
    assert (code, "go on from iteration 6; nothing is left to train" in out) == (0, True)
    other = ("--set", "train.momentum=0.8")
    assert_refused(command("classify", "--dry-run", "--resume", "--out", "run", *other), "begun with another config")


def test_a_dry_run_writes_nothing(command, place):
    code, out, _ = command("classify", "--dry-run", "--norm", "DBN", "--where", "all", "--depth", 14, "--seeds", 2)
    assert code == 0
    assert "ResNet-14, DBN in all layers" in out
    assert "1,438 images of 1x16x16 to learn from, 359 to test with" in out
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--norm", "XX"], "normalization is 'XX'; it must be one of BN, "),
        (["--norm", "cWC"], "normalization is 'cWC'; it must be one of BN, "),
        (["--depth", "33"], "depth is 33; it must be 6n + 2"),
        (["--where", "some"], "where is 'some'; it must be one of first, all"),
        (["--data", "nowhere"], "nowhere is neither a folder nor a dataset"),
        (["--data", "cifar10"], "cifar10 is not in "),
        (["digits/ResNet-9 WC"], "unknown preset 'digits/ResNet-9 WC'"),
        (["digits/cWC"], "'digits/cWC' is a GAN's preset: wcgan train \"digits/cWC\""),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--seeds", "0", "--dry-run"], "--seeds must be at least 1, got 0"),
        (["--seeds", "2", "--set", "train.seed=1"], "train.seed=1 is not for --seeds"),
        (["--set", "train.batch=1"], "train.batch must be at least 2, got 1"),
        (["--set", "train.device=cuda:99"], "there is no GPU cuda:99"),
        (["--resume", "--out", "nowhere"], "nowhere is not there"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence_and_leaves_nothing(arguments, sentence, command, place):
    assert_refused(command("classify", *arguments), sentence)
    assert list(place.iterdir()) == []


def test_a_folder_without_classes_is_refused(command, place, tmp_path):
    for number, image in enumerate(random_images(30, 1, 8)):
        save(tmp_path / "photos" / f"{number}.png", image)
    assert_refused(command("classify", "--data", tmp_path / "photos", *SETS), "photos has none: give each class")
    assert list(place.iterdir()) == []


def test_what_is_there_stays_as_it_is(command, pictures, place):
    assert command("classify", "--data", pictures, "--out", "run", *SETS)[0] == 0
    before = everything(place)
    assert_refused(command("classify", "--data", pictures, "--out", "run", *SETS), "run exists already")
    other = command("classify", "--data", pictures, "--norm", "BN", "--out", "run", "--resume", *SETS)
    assert_refused(other, "run was begun with another config (classifier.normalization is WC, not BN")
    assert_refused(command("train", "--resume", "--out", "run"), CLASSIFIER)
    assert everything(place) == before


def test_a_classifiers_preset_names_its_command(command, place):
    sentence = 'is a classifier\'s preset: wcgan classify "cifar10/ResNet-32 WC"'
    assert_refused(command("train", "cifar10/ResNet-32 WC"), sentence)
    assert list(place.iterdir()) == []


def test_commands_on_generators_refuse_a_classifier(command, pictures, place):
    assert command("classify", "--data", pictures, "--out", "run", *SETS)[0] == 0
    before = everything(place)
    for arguments in (
        ("sample", "run"),
        ("sample", "run", "--grid", "class-rows"),
        ("evaluate", "run", "--features", "classifier"),
        ("export", "run", "--format", "safetensors", "--out", "served"),
    ):
        assert_refused(command(*arguments), CLASSIFIER)
    assert everything(place) == before


def test_the_playground_refuses_a_classifier(command, pictures):
    pytest.importorskip("gradio")
    assert command("classify", "--data", pictures, "--out", "run", *SETS)[0] == 0
    assert_refused(command("demo", "run"), CLASSIFIER)


def test_classifiers_are_compared_by_their_error(command, pictures, place):
    for name in ("BN", "WC"):
        assert command("classify", "--data", pictures, "--norm", name, "--out", name, *SETS)[0] == 0
    code, out, _ = command("compare", "BN", "WC")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["run", "variant", "iterations", "error"]
    assert ["WC", "ResNet-8", "WC", "6", f"{error_of(place / 'WC'):.2f}%"] in lines
