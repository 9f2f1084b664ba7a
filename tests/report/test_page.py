"""One page on runs: what it shows, and what it shows of runs with pieces missing."""

import base64
import re

import pytest
from tests.report.cases import ACCURACY, FID, IS, config, evaluations, event, training, write_run
from tests.report.reader import read_page, rows, section

from wcgan.report import write_report


@pytest.fixture
def report(tmp_path):
    """Writes a report on runs -> the page as a reader sees it."""

    def write(*runs):
        return read_page(write_report(list(runs), tmp_path / "report.html"))

    return write


@pytest.fixture
def pair(tmp_path):
    """A run of cWC and one of cBN that does worse."""
    worse = [event(0, "started"), *training(), *evaluations(scale=1.8), event(1000, "finished")]
    return write_run(tmp_path / "digits-cWC"), write_run(tmp_path / "digits-cBN", config("cBN"), worse)


def charts_over(page, what):
    return [chart for part in page.all("div", f"over-{what}") for chart in part.all("svg", "chart")]


def test_the_table_has_a_row_per_run_with_its_last_scores(report, pair):
    first, second = rows(report(*pair))
    assert first == {
        "Run": "digits-cWC",
        "Variant": "cWC",
        "Iterations": "1,000",
        "Real images": "320,000",
        "Time": "2 min 3 s",
        FID: "1.904",
        IS: "8.690 \u00b1 0.21",
        ACCURACY: "96.9%",
        "Protocol": "A",
    }
    assert (second["Run"], second["Variant"], second[FID]) == ("digits-cBN", "cBN", "3.428")


def test_the_table_names_datasets_where_the_runs_have_several(report, pair, tmp_path):
    other = write_run(tmp_path / "mnist-cWC", config("cWC", dataset="mnist"))
    assert [row["Dataset"] for row in rows(report(pair[0], other))] == ["digits", "mnist"]


def test_no_score_loses_the_name_of_its_features(report, pair):
    text = report(*pair).text
    assert FID in text
    assert set(re.findall(r"[\w ]*\b(?:FID|IS)\b(?!\()", text)) == {" not comparable with published FID and IS"}


def test_the_protocol_is_said_in_words_once(report, pair):
    text = report(*pair).text
    assert text.count("Protocol A.") == 1
    assert "Protocol B." not in text
    assert "small classifier in place of Inception: not comparable with published FID and IS" in text
    assert (
        "trained on 1,438 images of digits train; its accuracy on digits test is 98.3% (weights 8cb768829f48)" in text
    )
    assert "all 359 of digits test" in text
    assert "Generated images: 1,000, uniform over the classes." in text


def test_the_best_score_of_a_protocol_is_marked(report, pair):
    marked = report(*pair).all("td", "best")
    assert [cell.text for cell in marked] == ["1.904", "8.690 \u00b1 0.21", "96.9%"]


def test_scores_of_different_protocols_are_set_apart_and_none_is_best(report, tmp_path, pair):
    other = write_run(tmp_path / "other", records=[*training(), *evaluations(generated=50)])
    page = report(pair[0], other)
    assert [row["Protocol"] for row in rows(page)] == ["A", "B"]
    assert "Scores under different protocols are not comparable." in page.text
    assert page.all("td", "best") == []


def test_runs_that_differ_in_the_seed_share_a_protocol(report, tmp_path):
    runs = [write_run(tmp_path / f"seed{s}", records=evaluations(seed=s, std={IS: 0.1 * s})) for s in (1, 2)]
    page = report(*runs)
    assert [row["Protocol"] for row in rows(page)] == ["A", "A"]
    assert "Seeds 1, 2." in page.text


def test_only_the_settings_that_differ_are_compared(report, pair):
    differences = rows(report(*pair), "differences")
    assert differences == [{"Setting": "generator.normalization", "Values": "cWC: digits-cWCcBN: digits-cBN"}]


def test_the_name_of_a_preset_is_no_setting(report, tmp_path):
    presets = [config() | {"preset": name} for name in ("cifar10/cWC", "cifar10/cWC SN + Proj. Discr.")]
    runs = [write_run(tmp_path / name, each) for name, each in zip("ab", presets, strict=True)]
    assert section(report(*runs), "Config differences") == "The configs are the same."


def test_runs_with_one_value_of_a_setting_share_a_line(report, tmp_path):
    runs = [
        write_run(tmp_path / name, config(variant, batch=size))
        for name, variant, size in (("a", "WC", 32), ("b", "BN", 32), ("c", "W-only", 64))
    ]
    (cell,) = (row for row in report(*runs).all("table", "differences")[0].all("tr") if "train.batch" in row.text)
    assert [line.text for line in cell.all("li")] == ["32: a, b", "64: c"]


def test_runs_with_one_config_are_said_to_have_it(report, tmp_path):
    runs = [write_run(tmp_path / name) for name in "ab"]
    assert section(report(*runs), "Config differences") == "The configs are the same."


def test_there_is_a_curve_per_run_in_a_chart_per_score_and_loss(report, pair):
    charts = charts_over(report(*pair), "iterations")
    assert [len(chart.all("path", "line")) for chart in charts] == [2] * 5
    titles = [chart.all("title")[0].text.partition(" over iterations")[0] for chart in charts]
    assert titles == [FID, IS, ACCURACY, "Discriminator loss", "Generator loss"]
    assert "digits-cWC ends at 1.904; digits-cBN ends at 3.428" in charts[0].all("title")[0].text


def test_every_curve_is_drawn_over_time_too_at_the_seconds_of_its_iterations(report, pair):
    charts = charts_over(report(*pair), "time")
    assert [len(chart.all("path", "line")) for chart in charts] == [2] * 5
    assert {chart.all("text", "label")[0].text for chart in charts} == {"minutes of training"}  # 1,000 take 123 s
    titles = [chart.all("title")[0].text for chart in charts]
    assert titles[0] == f"{FID} over minutes of training. digits-cWC ends at 1.904; digits-cBN ends at 3.428"


def test_every_chart_of_several_runs_has_a_legend(report, pair):
    legends = report(*pair).all("ul", "legend")
    assert [[item.text for item in legend.all("li")] for legend in legends] == [["digits-cWC", "digits-cBN"]] * 5


def test_the_last_grid_of_each_run_is_in_the_page_itself(report, pair):
    images = report(*pair).all("img")
    assert len(images) == 2
    for run, image in zip(pair, images, strict=True):
        header, _, data = (image.attributes["src"] or "").partition(",")
        assert header == "data:image/png;base64"
        assert base64.b64decode(data) == (run / "samples" / "0001000.png").read_bytes()
        assert run.name in (image.attributes["alt"] or "")


def test_rows_of_a_grid_are_classes_only_where_the_generator_knows_them(report, tmp_path):
    runs = [write_run(tmp_path / variant, config(variant)) for variant in ("cWC", "WC")]
    captions = [caption.text for caption in report(*runs).all("figcaption")]
    own = "Picture from training, since there is no checkpoint"
    assert captions == [
        f"cWC, iteration 1,000: one class per row, one noise vector per column. {own}",
        f"WC, iteration 1,000: independent noise. {own}",
    ]


def test_the_config_is_shown_as_it_is_written(report, pair):
    configs = [pre.text for pre in report(*pair).all("pre")]
    assert configs == [(run / "config.yaml").read_text() for run in pair]


def test_the_title_names_variants_and_dataset(report, pair, tmp_path):
    assert report(*pair).all("h1")[0].text == "cWC and cBN on digits"
    assert report(pair[0]).all("title")[0].text == "cWC on digits"
    many = [write_run(tmp_path / v, config(v)) for v in ("BN", "WC", "DBN", "cBN", "cWC", "cWC_sa")]
    assert report(*many).all("h1")[0].text == "6 runs on digits"


def test_runs_of_the_same_name_are_told_apart_by_their_parents(report, tmp_path):
    runs = [write_run(tmp_path / parent / "run") for parent in "ab"]
    assert [row["Run"] for row in rows(report(*runs))] == ["a/run", "b/run"]


def test_a_run_that_is_still_going_says_how_far_it_is(report, tmp_path):
    run = write_run(tmp_path / "run", records=[event(0, "started"), *training(430), *evaluations(400)], samples=(400,))
    (row,) = rows(report(run))
    assert row["Iterations"] == "430of 1,000, unfinished"
    assert row["Protocol"] == "Aat iteration 400"


@pytest.mark.parametrize("what", ["stopped", "diverged"])
def test_a_run_that_ended_early_says_why(report, tmp_path, what):
    run = write_run(tmp_path / "run", records=[*training(430), event(430, what, signal=15)])
    page = report(run)
    assert rows(page)[0]["Iterations"] == f"430of 1,000, {what}"
    assert f"{what} at iteration 430, 2026-01-01 00:00:00 UTC; signal 15" in page.text


def test_a_run_that_has_only_begun_gives_a_page_that_says_what_is_missing(report, tmp_path):
    page = report(write_run(tmp_path / "run", records=[event(0, "started")], samples=()))
    (row,) = rows(page)
    assert row["Protocol"] == "none yet"
    assert section(page, "Scores") == "No run has been evaluated yet."
    assert section(page, "Losses") == "No losses have been logged yet."
    assert "No samples yet." in section(page, "Samples")


def test_a_run_without_metrics_has_not_started(report, tmp_path):
    page = report(write_run(tmp_path / "run", records=[], samples=()))
    assert rows(page)[0]["Iterations"] == "0of 1,000, not started"


def test_a_run_without_evaluations_stands_beside_one_with_them(report, tmp_path, pair):
    bare = write_run(tmp_path / "bare", records=training())
    page = report(pair[0], bare)
    assert rows(page)[1][FID] == "\u2013"
    assert [len(chart.all("path", "line")) for chart in charts_over(page, "iterations")] == [1, 1, 1, 2, 2]


def test_a_run_without_a_config_is_shown_by_its_name(report, tmp_path):
    page = report(write_run(tmp_path / "nameless", settings={}))
    assert page.all("h1")[0].text == "nameless"
    assert "The run has no config.yaml." in page.text


def test_an_unconditional_run_has_a_dash_for_its_accuracy(report, tmp_path, pair):
    scores = [{**record, ACCURACY: None} for record in evaluations(labels=None)]
    page = report(pair[0], write_run(tmp_path / "WC", config("WC"), scores))
    assert rows(page)[1][ACCURACY] == "\u2013"


def test_scores_without_a_protocol_are_shown_with_that_said(report, tmp_path):
    scores = [{k: v for k, v in record.items() if k != "protocol"} for record in evaluations()]
    page = report(write_run(tmp_path / "run", records=scores))
    assert "The run does not record how its scores were measured." in page.text
    assert rows(page)[0][IS] == "8.690"


def test_a_protocol_that_is_not_known_is_shown_key_by_key(report, tmp_path):
    scores = [
        {"kind": "evaluation", "iteration": 10, "FID": 17.16, "protocol": {"features": "inception", "real": 10000}}
    ]
    page = report(write_run(tmp_path / "run", records=scores))
    assert "features: inception. real: 10000." in page.text
    assert rows(page)[0]["FID"] == "17.16"


def test_two_protocols_of_one_iteration_are_two_rows(report, tmp_path):
    by = {
        name: [{"kind": "evaluation", "iteration": 1000, "FID": value, "protocol": {"name": name}}]
        for name, value in (("paper-5k", 20.25), ("paper-10k", 17.25))
    }
    page = report(write_run(tmp_path / "run", records=[*training(), *by["paper-5k"], *by["paper-10k"]]))
    first, second = rows(page)
    assert [(row["Run"], row["FID"], row["Protocol"]) for row in (first, second)] == [
        ("run", "20.25", "A"),
        ("run", "17.25", "B"),
    ]
    assert (first["Variant"], second["Variant"]) == ("cWC", "")  # what is the same is said once


def test_the_generators_conditioning_is_drawn_where_it_was_measured(report, tmp_path):
    measured = [
        {"kind": "conditioning", "iteration": i, "condition/median": 50.0 + i, "condition/z": None} for i in (100, 200)
    ]
    page = report(write_run(tmp_path / "run", records=[*training(), *measured]))
    charts = charts_over(page, "iterations")
    assert charts[-1].all("title")[0].text.startswith("Condition: median over iterations. run ends at 250")
    assert "Condition: z" not in page.text
