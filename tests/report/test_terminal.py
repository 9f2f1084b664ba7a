"""Runs as the terminal shows them."""

import sys

import pytest
from tests.report.cases import config, evaluations, published, training, write_run

from wcgan import cli
from wcgan.core.terminal import split_columns
from wcgan.report import read_runs, runs_to_rows


def test_runs_of_one_protocol_have_a_row_each_and_no_protocol(tmp_path):
    runs = [write_run(tmp_path / v, config(v), [*training(), published(1000, FID=17.25)]) for v in ("WC", "BN")]
    heads, rows, protocols = runs_to_rows(read_runs(runs))
    assert heads == ("run", "variant", "iterations", "FID")
    assert rows == [("WC", "WC", "1000", "17.25"), ("BN", "BN", "1000", "17.25")]
    assert protocols == []


def test_a_run_has_a_row_for_each_protocol_of_its_last_evaluations(tmp_path):
    by_two = [published(500, FID=30.5), published(1000, FID=17.25, IS=8.5), published(1000, "paper-5k", FID=20.25)]
    runs = [write_run(tmp_path / "two", records=by_two), write_run(tmp_path / "none", records=training())]
    heads, rows, protocols = runs_to_rows(read_runs(runs))
    assert heads == ("run", "variant", "iterations", "protocol", "FID", "IS")
    assert rows == [
        ("two", "cWC", "1000", "A", "17.25", "8.500 \u00b1 0.11"),
        ("two", "cWC", "1000", "B", "20.25", "\u2013"),
        ("none", "cWC", "1000", "", "\u2013", "\u2013"),
    ]
    assert [protocol.partition(".")[0] for protocol in protocols] == ["protocol A: paper-10k", "protocol B: paper-5k"]


def test_a_table_that_fits_is_one_and_a_wide_one_is_split_with_the_runs_in_each_part():
    heads, rows = ("run", "variant", "FID", "IS"), [("a-run", "cWC", "17.25", "8.500"), ("b", "BN", "1", "2")]
    assert split_columns(heads, rows, 80) == [(heads, rows)]
    assert split_columns(heads, rows, 21) == [  # 5, 7, 5 and 5 letters, and two spaces after each
        (("run", "variant"), [("a-run", "cWC"), ("b", "BN")]),
        (("run", "FID", "IS"), [("a-run", "17.25", "8.500"), ("b", "1", "2")]),
    ]


@pytest.mark.parametrize("name", ["cifar10-cWC_sa-cls-only", "a-name-of-more-than-half-of-the-terminals-width"])
def test_compare_is_readable_at_80_columns(tmp_path, monkeypatch, capsys, name):
    scores = [{**record, "FID": 17.25, "IS": 8.5, "KID": 0.0123, "precision": 0.61} for record in evaluations()]
    runs = [write_run(tmp_path / f"{name}-s{s}", config("cWC_sa-cls-only", seed=s), scores, ()) for s in (0, 1)]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["wcgan", "compare", *map(str, runs), "--out", str(tmp_path / "page.html")])
    with pytest.raises(SystemExit):
        cli.main()
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if not line.startswith("report: ")]
    assert max(map(len, lines)) <= 80
    words = {word for line in lines for word in line.split()}
    assert {"variant", "iterations", "FID", "KID", "precision", "cWC_sa-cls-only", "17.25", "8.690", "0.21"} <= words
    assert name in "".join(lines)
