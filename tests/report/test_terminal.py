"""Runs as the terminal shows them."""

from tests.report.cases import config, published, training, write_run

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
