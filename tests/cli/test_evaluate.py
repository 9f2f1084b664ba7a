"""`wcgan evaluate` and `compare`: scores with their protocol, pages, and what cannot be scored."""

import errno
import os

import pytest
import torch
from tests.cli.cases import assert_refused, everything
from tests.end_to_end.cases import write_photos

from wcgan.runs.folder import Run


def test_runs_are_compared_on_one_page(command, trained, place):
    code, out, _ = command("compare", trained, trained, "--out", "page.html")
    assert code == 0
    assert out.splitlines()[-1] == "report: page.html"
    assert "<html" in (place / "page.html").read_text()
    assert_refused(
        command("compare", trained, "--out", "page.txt"), "the page is HTML: name a .html file, not page.txt"
    )


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


def test_scores_with_batch_statistics_say_so_on_the_terminal_and_on_the_page(command, digits_run):
    arguments = ("--features", "classifier", "--images", 20, "--metrics", "fid", "--device", "cpu")
    assert command("evaluate", digits_run, *arguments)[0] == 0
    code, out, _ = command("evaluate", digits_run, *arguments, "--batch-statistics", 32)
    said = "Generated images are normalised by statistics of batches of 32."
    assert code == 0
    assert said in out
    assert Run(digits_run).lines()[-1]["protocol"]["statistics"] == "of batches of 32"
    page = (digits_run / "report.html").read_text()
    assert page.count(said) == 1
    assert "statistics of batches of 32" in page.replace(said, "")  # the name of its score


def test_figures_go_where_they_are_sent(command, place, digits_cache, monkeypatch):
    monkeypatch.setenv("WCGAN_CACHE", str(digits_cache))
    arguments = ("--features", "classifier", "--metrics", "fid", "--device", "cpu", "--out", "figures")
    assert command("evaluate", "digits:train", "--data", "digits:test", *arguments)[0] == 0
    (line,) = Run(place / "figures").lines()
    assert line["protocol"]["name"] == "all, 1,438 generated against 359"


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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every folder")
def test_a_run_in_a_folder_that_cannot_be_written_says_where_scores_can_go(command, digits_run):
    digits_run.chmod(0o555)
    advice = f"{digits_run / 'metrics.jsonl'} cannot be written: --out FOLDER writes the scores to another folder"
    code, _, err = command("evaluate", digits_run, "--features", "classifier")
    assert (code, err.splitlines()[-1]) == (2, f"wcgan: {advice}")
    arguments = ("--features", "classifier", "--images", 20, "--metrics", "fid", "--device", "cpu", "--out", "scores")
    assert command("evaluate", digits_run, *arguments)[0] == 0


def test_a_page_that_finds_no_space_leaves_the_one_before(command, trained, place, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (place / "page.html").write_text("mine")
    monkeypatch.setattr(os, "fsync", full)
    code, _, err = command("compare", trained, "--out", "page.html")
    assert (code, err) == (2, "wcgan: page.html cannot be used: no space left on device\n")
    assert everything(place) == {place / "page.html": b"mine"}
