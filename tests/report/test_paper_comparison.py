"""Rows and seeds of different lengths: which figure counts, and where rows are compared."""

import pytest
from tests.report.cases import config, event, published, training, write_run
from tests.report.latex import read_latex
from tests.report.reader import read_page
from tests.report.tables import DASH, finished, lines, markdown, rows_of

from wcgan.paper.tables import Row, Table


def test_a_row_has_its_best_on_the_way_with_the_iteration_and_its_last(write, tmp_path):
    scores = [published(400, FID=30.0), published(500, FID=16.0), published(1000, FID=18.0)]
    files = write({"digits/cWC": [finished(tmp_path / "run", 0, *scores)]})
    row = markdown(files["md"])[0]
    assert (row["FID 10k best"], row["FID 10k last"]) == ("16 at 500", "18")
    line = lines(files["csv"])["digits/cWC", "FID 10k"]
    assert (line["best"], line["best_iteration"], line["ours"], line["iteration"]) == ("16.0", "500", "18.0", "1000")
    page = rows_of(files["html"])[0]
    assert (page["FID 10k, best"], page["FID 10k, last"]) == ("16 at 500", "18")
    figures = read_latex(files["tex"].read_text())[0].rows
    assert [figures[1][-3:], figures[2][-3:]] == [["best", "difference", "last"], ["16 at 500", "$-$1.20", "18"]]


def test_a_difference_is_taken_best_against_best(write, tmp_path):
    scores = [published(500, IS=8.9, FID=16.0), published(1000, IS=8.1, FID=18.0)]
    row = markdown(write({"digits/cWC": [finished(tmp_path / "run", 0, *scores)]})["md"])[0]
    assert (row["FID 10k difference"], row["IS difference"]) == ("\u22121.20", "+0.70")  # 17.2 and 8.2 are the paper's


def test_the_best_is_found_whatever_the_sets_of_is_at_the_end(write, tmp_path):
    own = published(500, "paper-10k, 10 sets of 1,000", IS=9.5, FID=16.0)
    own["protocol"] |= {"splits": 10, "scored_by_IS": 10_000}
    last = published(1000, IS=8.1, FID=18.0)
    last["protocol"] |= {"splits": 10, "scored_by_IS": 50_000}
    row = markdown(write({"digits/cWC": [finished(tmp_path / "run", 0, own, last)]})["md"])[0]
    assert row["FID 10k best"] == "16 at 500"
    assert row["IS best"] == "8.100 \u00b1 0.11 (sets) at 1,000"  # that of other sets is another score


def test_the_best_is_never_of_another_network_or_other_real_images(write, tmp_path):
    other = published(500, FID=3.0)
    other["protocol"]["reference"] = {"dataset": "digits", "split": "train", "images": 10_000}
    row = markdown(write({"digits/cWC": [finished(tmp_path / "run", 0, other, published(1000, FID=18.0))]})["md"])[0]
    assert row["FID 10k best"] == "18 at 1,000"


def test_an_iteration_that_was_scored_again_has_its_later_score_only(write, tmp_path):
    again, better = (published(500, FID=value, KID=0.004) for value in (16.5, 15.0))
    again["protocol"]["kid_subset_size"] = better["protocol"]["kid_subset_size"] = 1000
    better["protocol"]["reference"] = {"split": "train", "images": 10_000}
    scores = [published(500, FID=16.0), again, better, published(1000, FID=18.0)]
    row = markdown(write({"digits/cWC": [finished(tmp_path / "run", 0, *scores)]})["md"])[0]
    assert row["FID 10k best"] == "16.50 at 500"


@pytest.mark.parametrize("fact", [{"statistics": "of batches of 64"}, {"generator": "not averaged"}])
def test_a_generator_that_was_used_unusually_is_not_compared_with_the_paper(write, tmp_path, fact):
    unusual = published(1000, IS=9.9, FID=3.0)
    unusual["protocol"] |= fact
    both = finished(tmp_path / "both", 0, published(1000, IS=8.1, FID=18.0), unusual)
    row = markdown(write({"digits/cWC": [both]})["md"])[0]
    assert (row["FID 10k best"], row["FID 10k last"]) == ("18 at 1,000", "18")
    assert row["IS best"].startswith("8.1")
    alone = finished(tmp_path / "alone", 0, unusual)
    row = markdown(write({"digits/cWC": [alone]})["md"])[0]
    assert (row["FID 10k best"], row["FID 10k difference"], row["IS best"]) == (DASH, DASH, DASH)


def test_the_best_of_several_seeds_is_the_mean_of_their_own(write, tmp_path):
    bests = {0: (400, 15.0), 1: (600, 17.0)}
    runs = [
        finished(tmp_path / f"s{s}", s, published(at, FID=best), published(1000, FID=20.0))
        for s, (at, best) in bests.items()
    ]
    files = write({"digits/cWC": runs})
    assert markdown(files["md"])[0]["FID 10k best"] == "16 \u00b1 1.4 at 400 to 600"
    assert lines(files["csv"])["digits/cWC", "FID 10k"]["best_iteration"] == "400 to 600"


def test_a_value_that_is_not_finite_is_never_the_best(write, tmp_path):
    run = finished(tmp_path / "run", 0, published(500, IS=float("inf"), FID=18.0), published(1000, IS=8.0, FID=19.0))
    row = markdown(write({"digits/cWC": [run]})["md"])[0]
    assert row["IS best"].startswith("8 ")


def test_a_finished_run_without_a_last_figure_has_a_best_alone(write, tmp_path):
    early = finished(tmp_path / "early", 0, published(500, FID=3.0))
    row = markdown(write({"digits/cWC": [early]})["md"])[0]
    assert (row["FID 10k best"], row["FID 10k last"]) == ("3 at 500", DASH)


def test_a_score_that_the_paper_does_not_have_carries_both_figures_where_it_stands_alone(write, tmp_path):
    table = Table("", "Own", (Row("digits/cWC"),))
    run = finished(tmp_path / "run", 0, published(500, FID=16.0), published(1000, FID=18.0))
    row = markdown(write({"digits/cWC": [run]}, table)["md"])[0]
    assert (row["FID 10k best"], row["FID 10k last"]) == ("16 at 500", "18")


def test_seeds_that_are_not_as_far_are_not_averaged_and_the_row_says_so(write, two_seeds, tmp_path):
    third = write_run(tmp_path / "s2", config(seed=2), [*training(400), published(400, FID=90.0)], samples=())
    files = write({"digits/cWC": [*two_seeds, third]})
    row = markdown(files["md"])[0]
    assert (row["FID 10k last"], row["Seeds"]) == ("18.50 \u00b1 0.71", "2 of 3")
    assert row["Iterations"] == "1,000; 400 of 1,000, unfinished"
    remark = "FID 10k: seed 2 is at iteration 400, not 1,000."
    for kind in ("md", "tex", "csv", "html"):
        text = files[kind].read_text() if kind != "html" else read_page(files[kind]).text
        assert remark in text


@pytest.mark.parametrize(("what", "difference"), [("diverged", "+12.80"), ("stopped", DASH)])
def test_a_run_that_ended_early_says_so_in_its_cell_and_one_that_was_stopped_has_no_difference(
    write, tmp_path, what, difference
):
    records = [*training(430), published(400, FID=30.0), event(430, what)]
    files = write({"digits/cWC": [write_run(tmp_path / "run", records=records, samples=())]})
    row = markdown(files["md"])[0]
    assert (row["Iterations"], row["FID 10k last"]) == (f"430 of 1,000, {what}", "30 at 400 of 1,000")
    assert (row["FID 10k best"], row["FID 10k difference"]) == ("30 at 400", difference)
    line = lines(files["csv"])["digits/cWC", "FID 10k"]
    assert (line["status"], line["difference"] == "") == (what, difference == DASH)
    page = rows_of(files["html"])[0]
    assert (page["FID 10k, last"], page["FID 10k, difference"]) == ("30 at 400 of 1,000", difference)
    assert "digits/cWC:" not in files["md"].read_text()  # no remark below the table


def test_a_run_without_an_evaluation_shows_how_far_it_is(write, tmp_path):
    row = markdown(write({"digits/cWC": [write_run(tmp_path / "run", records=training(430))]})["md"])[0]
    assert (row["IS last"], row["Seeds"], row["Iterations"]) == (DASH, "1", "430 of 1,000, unfinished")


def test_rows_are_also_compared_where_one_ends_and_others_have_been(write, two_seeds, tmp_path):
    scores = [published(at, IS=5.0, FID=30.0 - at / 100) for at in (400, 600, 800, 900, 1000)]
    shortest = finished(tmp_path / "shortest", 0, *scores[:1], last=400)
    short = finished(tmp_path / "short", 0, *scores[:2], last=600)
    long = [
        finished(tmp_path / f"long{seed}", seed, *scores[:until], last=last)
        for seed, until, last in ((0, 4, 900), (1, 5, 1000))
    ]
    unseen = write_run(tmp_path / "unseen", config(), training(100))
    table = Table("t", "Lengths", tuple(Row(f"digits/{name}", {"FID 10k": (17.2, None)}) for name in "abcd"))
    files = write({"digits/a": [shortest], "digits/b": [short], "digits/c": long, "digits/d": [unseen]}, table)
    rows = markdown(files["md"])
    assert [row["FID 10k last"] for row in rows] == ["26", "24", "20", DASH]
    assert [row["FID 10k at 400"] for row in rows] == ["26", "26", "26 \u00b1 0", DASH]
    assert [row["FID 10k at 600"] for row in rows] == [DASH, "24", "24 \u00b1 0", DASH]
    assert "FID 10k at 900" not in rows[0]  # one row alone has been there
    assert lines(files["csv"])["digits/c", "FID 10k at 600"]["ours"] == "24.0"
    assert [row["FID 10k at 400"] for row in rows_of(files["html"])][:2] == ["26", "26"]
    assert not any(" at " in name for name in markdown(write({"digits/cWC": two_seeds})["md"])[0])


def test_a_row_that_ends_between_evaluations_is_compared_at_the_one_before(write, tmp_path):
    short = finished(tmp_path / "short", 0, *(published(at, FID=at / 10) for at in (400, 600, 650)), last=650)
    long = finished(tmp_path / "long", 0, *(published(at, FID=at / 10) for at in (400, 600, 800)), last=800)
    rows = markdown(write({"digits/cWC": [short], "digits/cBN_sa": [long]})["md"])
    assert [row["FID 10k at 600"] for row in rows] == ["60", "60", DASH]
    assert [name for name in rows[0] if " at " in name] == ["FID 10k at 600"]


def test_where_a_seed_ends_and_its_row_goes_on_nothing_is_compared(write, tmp_path):
    scores = [published(at, FID=30.0) for at in (600, 800)]
    seeds = [
        finished(tmp_path / f"s{s}", s, *scores[:until], last=last) for s, until, last in ((0, 1, 600), (1, 2, 800))
    ]
    other = finished(tmp_path / "other", 0, *scores, last=800)
    rows = markdown(write({"digits/cWC": seeds, "digits/cBN_sa": [other]})["md"])
    assert not [name for name in rows[0] if " at " in name]


def test_of_many_lengths_the_last_are_compared(write, tmp_path):
    table = Table("t", "Many", tuple(Row(f"digits/{n}", {"FID 10k": (17.2, None)}) for n in range(9)))
    runs = {
        f"digits/{n}": [
            finished(tmp_path / str(n), 0, *(published(100 * i, FID=9.0) for i in range(1, n + 2)), last=100 * (n + 1))
        ]
        for n in range(9)
    }
    rows = markdown(write(runs, table)["md"])
    assert [name for name in rows[0] if " at " in name] == [f"FID 10k at {at}" for at in (600, 700, 800)]


def test_the_page_shows_samples_of_the_seed_that_got_furthest(write, tmp_path):
    runs = [
        finished(tmp_path / f"s{seed}", seed, published(last, FID=20.0), last=last)
        for seed, last in ((0, 600), (1, 900))
    ]
    page = read_page(write({"digits/cWC": runs})["html"])
    assert ["iteration 900" in caption.text for caption in page.all("figcaption")] == [True]


def test_further_training_without_an_evaluation_does_not_make_a_seed_the_furthest(write, tmp_path):
    runs = [finished(tmp_path / "s0", 0, published(600, FID=20.0), last=600)]
    runs += [finished(tmp_path / "s1", 1, published(400, FID=20.0), last=700)]
    page = read_page(write({"digits/cWC": runs})["html"])
    assert ["iteration 600" in caption.text for caption in page.all("figcaption")] == [True]
