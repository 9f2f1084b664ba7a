"""A table of the paper with our figures, in five formats."""

from dataclasses import replace
from itertools import combinations

import pytest
from tests.report.cases import FID, IS, config, evaluations, published, write_run
from tests.report.latex import read_latex
from tests.report.reader import read_page, rows
from tests.report.tables import DASH, TABLE, finished, lines, markdown, rows_of

from wcgan.paper.tables import TABLES, Quote, Row, Table
from wcgan.report.formats import scores_to_rows
from wcgan.report.paper_comparison import QUOTED, RULE

NASTY = 'a\\b{c}$d&e#f%g_h^i~j|k<l>m"n`o*p[q]\n\\\\[r\t\u2212s'


def test_five_files_are_written_and_nothing_else(write, two_seeds, tmp_path):
    files = write({"digits/cWC": two_seeds})
    assert {kind: path.name for kind, path in files.items()} == {
        kind: f"table.{kind}" for kind in ("md", "csv", "tex", "html", "svg")
    }
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(path.name for path in files.values())


def test_a_row_has_the_papers_figure_our_best_the_difference_and_our_last(write, two_seeds):
    first = markdown(write({"digits/cWC": two_seeds})["md"])[0]
    assert first == {
        "Row": "digits/cWC",
        "IS paper": "8.20 \u00b1 0.08",
        "IS best": "8.500 \u00b1 0.14 at 1,000",
        "IS difference": "+0.30",
        "IS last": "8.500 \u00b1 0.14",
        "FID 5k paper": DASH,
        "FID 5k best": DASH,
        "FID 5k difference": DASH,
        "FID 5k last": DASH,
        "FID 10k paper": "17.2",
        "FID 10k best": "18.50 \u00b1 0.71 at 1,000",
        "FID 10k difference": "+1.30",
        "FID 10k last": "18.50 \u00b1 0.71",
        "Seeds": "2",
        "Iterations": "1,000",
        "Protocol": "A",
        "Time": "2 min 3 s",
        "Hardware": "NVIDIA H200",
        "Commit": "1a2b3c",
    }


def test_a_row_without_runs_has_the_papers_figures_and_dashes(write, two_seeds):
    files = write({"digits/cWC": two_seeds, "digits/none": []})
    last = markdown(files["md"])[2]
    assert {name for name, text in last.items() if text != DASH} == {"Row", "IS paper"}
    assert lines(files["csv"])["digits/none", "IS"]["status"] == "no run"
    assert rows_of(files["html"])[2]["IS, last"] == DASH


def test_a_table_without_any_run_is_the_papers(write):
    files = write({})
    assert [row["IS paper"] for row in markdown(files["md"])] == ["8.20 \u00b1 0.08", "8.62", "8.97 \u00b1 0.11"]
    assert [heading.text for heading in read_page(files["html"]).all("h2")] == []


def test_csv_holds_plain_numbers(write, two_seeds):
    found = lines(write({"digits/cWC": two_seeds}, scale=0.5)["csv"])
    line = found["digits/cWC", "FID 10k"]
    numbers = {name: float(line[name]) for name in ("paper", "ours", "ours_std", "difference", "seconds", "scale")}
    assert numbers == pytest.approx(
        {"paper": 17.2, "ours": 18.5, "ours_std": 0.5**0.5, "difference": 1.3, "seconds": 123.0, "scale": 0.5}
    )
    assert (line["ours_std_over"], line["seeds"], line["runs"], line["iteration"]) == ("seeds", "2", "2", "1000")
    assert (line["protocol"], line["checkpoint"], line["paper_std"]) == ("paper-10k", "last", "")
    assert len(found) == 9


def test_one_seed_keeps_the_deviation_over_its_sets_and_says_so(write, two_seeds):
    files = write({"digits/cWC": two_seeds[:1]})
    assert markdown(files["md"])[0]["IS last"] == "8.400 \u00b1 0.11 (sets)"
    assert lines(files["csv"])["digits/cWC", "IS"]["ours_std_over"] == "sets"
    assert lines(files["csv"])["digits/cWC", "FID 10k"]["ours_std"] == ""


def test_figures_of_another_protocol_are_never_beside_the_papers(write, tmp_path):
    other = "paper-10k, 2,000 generated against 10,000, 10 sets of 200"
    run = finished(tmp_path / "run", 0, published(1000, other, IS=8.4, FID=18.0))
    row = markdown(write({"digits/cWC": [run]})["md"])[0]
    assert (row["IS last"], row["IS difference"], row["FID 10k last"]) == (DASH, DASH, DASH)
    assert row["FID, paper-10k, 2,000 generated against 10,000"] == "18"
    assert row["IS, paper-10k, 10 sets of 200"].startswith("8.400")
    assert not any(head.startswith(("FID, ", "IS, ")) and head.endswith(" paper") for head in row)


def test_fid_is_the_papers_whatever_the_sets_of_is(write, tmp_path):
    run = finished(tmp_path / "run", 0, published(1000, "paper-10k, 10 sets of 1,000", IS=8.4, FID=18.0))
    row = markdown(write({"digits/cWC": [run]})["md"])[0]
    assert (row["FID 10k last"], row["FID 10k difference"]) == ("18", "+0.80")
    assert row["IS last"] == DASH
    assert row["IS, paper-10k, 10 sets of 1,000"].startswith("8.400")


def test_where_the_papers_protocol_was_measured_trainings_own_figures_are_left_out(write, tmp_path):
    own = published(1000, "paper-10k, 10 sets of 1,000", IS=8.4, FID=18.0)
    run = finished(tmp_path / "run", 0, own, published(1000, IS=8.5, FID=17.5))
    row = markdown(write({"digits/cWC": [run]})["md"])[0]
    assert (row["FID 10k last"], row["FID 10k difference"]) == ("17.50", "+0.30")
    assert not any("sets of 1,000" in head for head in row)


def test_each_measure_is_taken_from_its_own_protocol(write, tmp_path):
    run = finished(tmp_path / "run", 0, published(1000, "paper-5k", FID=20.5), published(1000, IS=8.5, FID=17.5))
    row = markdown(write({"digits/cBN_sa": [run]})["md"])[1]
    assert (row["FID 5k last"], row["FID 10k last"], row["Protocol"]) == ("20.50", "17.50", "A, B")
    assert (row["FID 5k difference"], row["FID 10k difference"]) == ("+0.40", DASH)


def test_the_classifiers_figures_have_columns_without_the_papers(write, tmp_path):
    run = finished(tmp_path / "run", 0, *evaluations())
    files = write({"digits/cWC": [run]})
    row = markdown(files["md"])[0]
    assert (row[FID], row[IS]) == ("1.904", "8.690 \u00b1 0.21 (sets)")
    assert (row["IS last"], row["FID 10k last"]) == (DASH, DASH)
    line = lines(files["csv"])["digits/cWC", FID]
    assert (line["paper"], line["difference"]) == ("", "")


def test_machines_and_commits_of_all_seeds_are_named(write, tmp_path):
    runs = [finished(tmp_path / commit, s, commit=commit) for s, commit in enumerate(("aaa", "bbb"))]
    assert markdown(write({"digits/cWC": runs})["md"])[0]["Commit"] == "aaa; bbb"


def test_a_run_that_names_no_commit_has_a_dash(write, tmp_path):
    assert markdown(write({"digits/cWC": [finished(tmp_path / "run", 0)]})["md"])[0]["Commit"] == DASH


def test_every_file_says_the_scale_the_notes_and_the_rule(write, two_seeds):
    notes = ["Narrower than the paper's."]
    files = write({"digits/cWC": two_seeds}, scale=0.1, notes=notes)
    for kind in ("md", "csv", "tex", "html"):
        text = read_page(files[kind]).text if kind == "html" else files[kind].read_text()
        assert "Schedules shortened to 0.1 of the paper's." in text
        assert notes[0] in text
        assert (",last," if kind == "csv" else RULE) in text


def test_a_full_schedule_is_not_said_to_be_shortened(write, two_seeds):
    files = write({"digits/cWC": two_seeds})
    assert not any("shortened" in files[kind].read_text() for kind in ("md", "csv", "tex", "html"))


def test_the_papers_earlier_figures_stand_beside_ours_of_the_same_iteration(write, tmp_path):
    table = Table("t", "Large", (Row("digits/cWC", {"IS": (29.7, 0.61)}, {400: (17.5, None)}),))
    run = finished(tmp_path / "run", 0, published(200, IS=18.0), published(1000, IS=30.0))
    row = markdown(write({"digits/cWC": [run]}, table, scale=0.5)["md"])[0]
    assert (row["IS at 200 paper"], row["IS at 200 ours"]) == ("17.5", "18 \u00b1 0.11 (sets)")
    assert (row["IS at 200 difference"], row["IS difference"]) == ("+0.50", "+0.30")


def test_precision_that_one_seed_lacks_does_not_part_their_fid(write, tmp_path):
    with_more = {**published(1000, FID=19.0), "precision": 0.6}
    with_more["protocol"] = {**with_more["protocol"], "neighbours": 3}
    runs = [finished(tmp_path / "s0", 0, published(1000, FID=18.0)), finished(tmp_path / "s1", 1, with_more)]
    files = write({"digits/cWC": runs})
    assert markdown(files["md"])[0]["FID 10k last"] == "18.50 \u00b1 0.71"
    assert "Precision and recall use 3 nearest neighbours" in files["md"].read_text()


def test_latex_is_balanced_and_has_as_many_cells_as_columns(write, two_seeds):
    figures, facts = read_latex(write({"digits/cWC": two_seeds}, scale=0.1)["tex"].read_text())
    assert (len(figures.rows), len(facts.rows)) == (5, 2)  # only rows with runs took something
    assert figures.rows[0] == ["Row", *["IS"] * 4, *["FID 5k"] * 4, *["FID 10k"] * 4]
    assert figures.rows[2][:4] == ["digits/cWC", r"8.20 $\pm$ 0.08", r"8.500 $\pm$ 0.14 at 1,000", "+0.30"]
    assert figures.rows[3][0] == r"digits/cBN\_sa"
    assert facts.rows[1][1:5] == ["2", "1,000", "A", "2 min 3 s"]


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_table_of_the_paper_can_be_written(write, table):
    files = write({}, table)
    names = [name.replace("\\", "") for row in markdown(files["md"]) if not (name := row["Row"]).endswith("(quoted)")]
    assert names == [row.preset for row in table.rows]
    count = len(table.rows) + len(table.quoted)
    assert len(read_latex(files["tex"].read_text())[0].rows) == count + 2
    assert len(rows_of(files["html"])) == count


def test_a_quoted_row_stands_where_the_paper_has_it_in_every_file(write, two_seeds):
    quotes = (Quote("ALI", {"IS": (5.34, 0.05)}, before="digits/cBN_sa"),)
    files = write({"digits/cWC": two_seeds}, replace(TABLE, quoted=quotes))
    rows = markdown(files["md"])
    assert [row["Row"].replace("\\", "") for row in rows[:3]] == ["digits/cWC", "ALI (quoted)", "digits/cBN_sa"]
    assert {name: text for name, text in rows[1].items() if text != DASH} == {
        "Row": "ALI (quoted)",
        "IS paper": "5.34 \u00b1 0.05",
    }
    line = lines(files["csv"])["ALI", "IS"]
    assert (line["paper"], line["best"], line["status"]) == ("5.34", "", "quoted")
    assert read_latex(files["tex"].read_text())[0].rows[3][:2] == ["ALI (quoted)", r"5.34 $\pm$ 0.05"]
    assert rows_of(files["html"])[1]["IS, paper"] == "5.34 \u00b1 0.05"
    assert QUOTED in files["md"].read_text()
    assert QUOTED not in write({"digits/cWC": two_seeds})["md"].read_text()


@pytest.mark.parametrize("start", ["[", "*", "\\", " "])
def test_text_from_outside_breaks_no_format(write, tmp_path, start):
    run = finished(tmp_path / "run", 0, published(1000, NASTY, **{"FID": 1.0, f"{NASTY}(x)": 2.0}), commit=NASTY)
    name = start + NASTY
    table = Table("t", NASTY, (Row(name, {"FID 10k": (17.2, None)}),))
    files = write({name: [run]}, table, notes=[NASTY])
    (row,) = markdown(files["md"])
    assert row["FID 10k paper"] == "17.2"
    figures, facts = read_latex(files["tex"].read_text())
    assert len(figures.rows) == 3
    assert len(facts.rows) == 2
    assert lines(files["csv"])[name, "FID 10k"]["commit"] == NASTY
    page = read_page(files["html"])
    assert page.all("h1")[0].text == NASTY
    assert page.all("script") == []


def test_the_page_of_a_table_has_the_curves_grids_and_configs_of_its_runs(write, two_seeds, tmp_path):
    other = write_run(tmp_path / "other", config("cBN"))
    page = read_page(write({"digits/cWC": two_seeds, "digits/cBN_sa": [other]})["html"])
    assert len(page.all("img")) == 2  # the first seed of each row
    assert len(page.all("pre")) == 3
    assert all(len(chart.all("path", "band")) == 1 for chart in page.all("svg", "chart")[-4:])  # losses of two seeds
    assert {item.text for legend in page.all("ul", "legend") for item in legend.all("li")} == {
        "digits/cWC",
        "digits/cBN_sa",
    }


def test_no_section_of_the_page_repeats_the_tables_figures(write, two_seeds, tmp_path):
    other = write_run(tmp_path / "other", config("cBN"))
    page = read_page(write({"digits/cWC": two_seeds[:1], "digits/cBN_sa": [other]})["html"])
    headings = ["Run details", "Config differences", "Curves", "Scores", "Losses", "Samples", "Configs"]
    assert [heading.text for heading in page.all("h2")] == headings
    heads = [{head.text for head in table.all("thead")[0].all("th")} for table in page.all("table")]
    assert all(one & other <= {"Row"} for one, other in combinations(heads, 2))
    page = read_page(write({"digits/cWC": two_seeds, "digits/cBN_sa": [other]})["html"])
    assert [heading.text for heading in page.all("h2")] == [headings[0], "Per seed", *headings[1:]]
    assert [(row["Run"], row["FID"]) for row in rows(page, "seeds")][:2] == [
        ("digits/cWC, seed 0", "18"),
        ("digits/cWC, seed 1", "19"),
    ]


def test_letters_of_protocols_are_said_once(write, tmp_path):
    own = published(1000, "paper-10k, 10 sets of 1,000", IS=8.4, FID=18.0)
    run = finished(tmp_path / "run", 0, own, published(1000, IS=8.5, FID=17.5))
    page = read_page(write({"digits/cWC": [run]})["html"])
    assert rows(page, "facts")[0]["Protocol"] == "B"
    assert "Protocol B: paper-10k. FID" in page.text
    assert page.text.count("Protocol B") == 1


def test_a_score_of_an_unusual_generator_says_so_in_its_protocols_name_and_in_a_sentence():
    protocol = {"name": "all", "generator": "not averaged", "statistics": "of batches of 64", "generated": 8}
    _, _, (name, facts, _) = scores_to_rows({"FID": 12.5, "protocol": protocol})
    assert name == "protocol: all, generator not averaged, statistics of batches of 64"
    assert facts == (
        "Generated images: 8. Generated images are from the generator itself, not from its moving average. "
        "Generated images are normalised by statistics of batches of 64."
    )


def test_a_scale_outside_0_to_1_is_refused(write, tmp_path):
    for scale in (0, -1.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="scale must be more than 0 and at most 1"):
            write({}, scale=scale)
    assert not (tmp_path / "out").exists()


def test_a_preset_that_is_no_row_is_refused(write, two_seeds):
    with pytest.raises(ValueError, match=r"'digits/WC' is not a row of 'Ablation'; its rows are digits/cWC, "):
        write({"digits/WC": two_seeds})


def test_a_folder_that_is_no_run_is_refused_before_anything_is_written(write, tmp_path):
    with pytest.raises(ValueError, match="nowhere is not a folder"):
        write({"digits/cWC": [tmp_path / "nowhere"]})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("table", "caption"), [(TABLE, "Ablation"), (TABLES["ablation-WC"], "Ablation of WC (the paper's table 3)")]
)
def test_latex_numbers_the_table_itself(write, table, caption):
    assert rf"\caption{{{caption}}}" in write({}, table)["tex"].read_text()


@pytest.mark.parametrize(("split", "words"), [("test", "A"), ("unlabeled", "A, against unlabeled images")])
def test_a_row_says_which_real_images_it_was_measured_against(write, tmp_path, split, words):
    score = published(1000, FID=18.0)
    score["protocol"]["reference"] = {"dataset": "tiny-imagenet", "split": split, "images": 10_000, "of": 10_000}
    files = write({"digits/cWC": [finished(tmp_path / "run", 0, score)]})
    assert markdown(files["md"])[0]["Protocol"] == words
    assert f"Real images: all 10,000 of tiny-imagenet {split}." in files["md"].read_text()
