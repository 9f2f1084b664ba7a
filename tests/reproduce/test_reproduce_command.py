"""`wcgan reproduce`: what it prints, and what it refuses in one sentence."""

from functools import partial

import pytest
from tests.reproduce.cases import tiny

from wcgan.paper.listing import architectures_to_lines
from wcgan.reproduce.measurements import tables_to_lines

pytestmark = pytest.mark.usefixtures("shared_cache")


@pytest.fixture
def command(command, monkeypatch, tmp_path):
    """`wcgan reproduce ...` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return partial(command, "reproduce")


def test_the_list_is_printed_line_by_line(command, tmp_path):
    code, out, err = command("--list")
    assert (code, err) == (0, "")
    assert out.splitlines() == tables_to_lines()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name a table"),
        (["table14"], "unknown table 'table14'"),
        (["table3", "--rows", "cWC"], "ablation-WC has no row 'cWC'"),
        (["digits", "--scale", "2"], "--scale must be more than 0 and at most 1, got 2.0"),
        (["digits", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["digits", "--set", "train.seed=1"], "train.seed is not for --set here"),
        (["digits", "--gpus-per-run", "3"], "--gpus-per-run must be more than 0 and at most 1, got 3.0"),
        (["--from", "nowhere"], "nowhere is not there"),
        (["grids"], "reproduce holds no run with a checkpoint"),
        (["grids", "--set", "train.batch=2"], "leave out --set train.batch=2"),
        (["figure5"], "reproduce holds no checkpoint for 2 of 2 panels"),
        (["table11"], "reproduce/user-study holds no report of a study"),
        (["table9", "--set", "train.batch=2"], "leave out --set train.batch=2"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_leaves_nothing(arguments, sentence, command, tmp_path):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("wcgan: ")
    assert err.count("\n") == 1
    assert sentence in err
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_made_pictured_and_rebuilt(command, pictures, tmp_path):
    sets = [part for setting in tiny(4, pictures=pictures) for part in ("--set", setting)]
    code, out, _ = command("digits", "--rows", "cBN", "--scale", "0.5", *sets)
    folder = tmp_path / "reproduce-x0.5" / "digits"
    assert code == 0
    kinds = ("md", "csv", "tex", "html", "svg")
    assert out.splitlines() == [f"{kind}: reproduce-x0.5/digits/table.{kind}" for kind in kinds]
    for kind in ("md", "csv", "tex", "html"):
        assert "0.5" in (folder / f"table.{kind}").read_text(encoding="utf-8")
    assert command("grids", "--scale", "0.5")[0] == 0
    assert (folder.parent / "grids" / "digits" / "digits-cBN" / "class-rows.png").is_file()
    (folder / "table.html").unlink()
    code, out, _ = command("--from", "reproduce-x0.5")
    assert (code, out) == (0, "digits: reproduce-x0.5/digits/table.html\n")
    assert "0.5" in (folder / "table.html").read_text(encoding="utf-8")


def test_a_row_that_is_missing_is_exit_code_one(command):
    code, out, _ = command("mnist", "--rows", "mnist/BN")
    assert code == 1
    assert out.startswith("mnist/BN, seed 0: mnist is not in ")


def test_a_dry_run_says_what_each_row_takes_and_writes_nothing(command, tmp_path):
    code, out, _ = command("mnist", "--dry-run", "--rows", "mnist")
    assert code == 1  # the data is not there
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("mnist/")] == [
        [f"mnist/{name}", "5,000"] for name in ("BN", "WC", "cBN", "cWC")
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_rows_that_can_be_trained_succeeds(command, tmp_path):
    sets = [part for setting in tiny(4) for part in ("--set", setting)]
    assert command("digits", "--dry-run", "--rows", "BN", *sets)[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_the_overhead_times_nothing_and_writes_nothing(command, tmp_path, monkeypatch):
    monkeypatch.setattr("wcgan.reproduce.overhead.measure", None)  # a call would fail
    code, out, _ = command("overhead", "--dry-run")
    assert code == 0
    assert out.startswith("would time iterations with BN, WC, WzcaC, cBN, cWC, cWC_sa, and whitening by Cholesky")
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_architectures_is_printed_and_nothing_is_written(command, tmp_path):
    code, out, _ = command("table12")
    assert (code, out.splitlines()) == (0, architectures_to_lines(12))
    assert list(tmp_path.iterdir()) == []
