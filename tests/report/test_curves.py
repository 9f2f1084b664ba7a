"""Curves over seeds on a page, and the SVG file of a table."""

import math
import xml.etree.ElementTree as ET

import pytest
from tests.report.cases import config, event, published, training, write_run
from tests.report.reader import read_page

from wcgan.paper.tables import Row, Table
from wcgan.report import read_runs, write_report, write_table
from wcgan.report.charts import HEIGHT
from wcgan.report.curves import NO_SCORES, curves_to_series, times_of

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "</style><script>alert(1)</script><&\"'\x00\ufffe\uffff"
TABLE = Table("t", "Curves", (Row("a/BN", {"FID 10k": (20.0, None)}), Row("a/none", {}), Row("a/WC", {})))


def series(*curves, place=lambda number, iteration: iteration):
    return curves_to_series("label", 0, curves, place)


def test_a_line_is_the_mean_and_a_band_the_span_of_all_seeds():
    found = series({10: 1.0, 20: 4.0}, {10: 3.0, 20: 2.0}, {10: 5.0, 20: 3.0})
    assert found.points == ((10, 3.0), (20, 3.0))
    assert (found.low, found.high, found.thin) == (((10, 1.0), (20, 2.0)), ((10, 5.0), (20, 4.0)), ())


def test_one_seed_has_no_band():
    found = series({10: 1.0, 20: 4.0})
    assert (found.points, found.low, found.high, found.thin) == (((10, 1.0), (20, 4.0)), (), (), ())


def test_a_band_is_only_where_all_seeds_have_values_and_longer_ones_go_on_alone():
    found = series({10: 1.0, 20: 2.0, 30: 3.0, 40: 4.0}, {10: 3.0, 15: 9.0, 20: 4.0})
    assert [x for x, _ in found.points] == [x for x, _ in found.low] == [10, 20]
    assert found.thin == (((20, 2.0), (30, 3.0), (40, 4.0)),)


@pytest.mark.parametrize("other", [{}, {15: 1.0}])
def test_seeds_that_share_no_iteration_are_drawn_singly(other):
    found = series({10: 1.0, 20: 2.0}, other)
    assert (found.points, found.low) == ((), ())
    assert found.thin == tuple(tuple(curve.items()) for curve in ({10: 1.0, 20: 2.0}, other) if curve)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_seed_that_is_not_finite_breaks_line_and_band(value):
    found = series({10: 1.0, 20: 2.0}, {10: value, 20: 4.0})
    for edge in (found.points, found.low, found.high):
        assert math.isnan(edge[0][1])
        assert math.isfinite(edge[1][1])


def test_over_time_a_mean_stands_at_the_mean_time():
    times = ({10: 1.0, 20: 2.0}, {10: 3.0, 20: 6.0})
    found = series({10: 1.0, 20: 2.0}, {10: 1.0, 20: 2.0}, place=lambda number, iteration: times[number][iteration])
    assert [x for x, _ in found.points] == [2.0, 4.0]


def test_the_time_between_two_lines_is_between_theirs_and_none_is_known_after_the_last(tmp_path):
    (run,) = read_runs([write_run(tmp_path / "run", records=training(100))])
    assert times_of(run, [5, 10, 45, 100, 110]) == pytest.approx({5: 0.615, 10: 1.23, 45: 5.535, 100: 12.3})


def test_a_page_on_seeds_has_a_line_and_a_band_per_config(tmp_path):
    runs = [
        write_run(tmp_path / v / str(s), config(v, seed=s), training(500, slope=1 + s), samples=())
        for v in ("cWC", "cBN")
        for s in (0, 1)
    ]
    page = read_page(write_report(runs, tmp_path / "page.html"))
    for chart in page.all("svg", "chart"):
        assert (len(chart.all("path", "line")), len(chart.all("path", "band"))) == (2, 2)
    assert "Its band spans their lowest to highest value" in page.text


def test_one_evaluation_is_a_number_and_several_are_a_chart(tmp_path):
    def run(name, *iterations, variant):
        scores = [published(at, FID=at / 10) for at in iterations]
        return write_run(tmp_path / name, config(variant), [*training(1000), *scores, event(1000, "finished")], ())

    once = [run("wc", 1000, variant="WC"), run("bn", 1000, variant="BN")]
    page = read_page(write_report(once, tmp_path / "once.html"))
    assert [item.text for item in page.all("ul", "numbers")[0].all("li")] == ["wc: 100 at 1,000", "bn: 100 at 1,000"]
    assert len(page.all("svg", "chart")) == 4  # those of losses, over iterations and over time
    several = [run("wc2", 500, 1000, variant="WC"), once[1]]
    page = read_page(write_report(several, tmp_path / "several.html"))
    assert page.all("ul", "numbers") == []
    assert len(page.all("svg", "chart")) == 6


def test_a_run_that_was_scored_once_is_shown_beside_the_curve_of_another_protocol(tmp_path):
    def run(name, *scores, variant):
        return write_run(tmp_path / name, config(variant), [*training(1000), *scores, event(1000, "finished")], ())

    curve = [published(500, FID=50.0), published(1000, FID=40.0)]
    several = run("wc", *curve, published(1000, "paper-5k", FID=45.0, precision=0.625), variant="WC")
    once = run("bn", published(1000, "all", FID=30.0), variant="BN")
    page = read_page(write_report([several, once], tmp_path / "both.html"))
    lists = [[item.text for item in each.all("li")] for each in page.all("ul", "numbers")]
    assert sorted(lists) == [["bn: 30 at 1,000"], ["wc: 0.6250 at 1,000"]]  # precision has no curve at all
    assert "FID, paper-10k" in page.text
    assert "FID, all" in page.text
    assert "45 at 1,000" not in page.text  # of the run with a curve


def run(folder, *values, seed=0, name="FID"):
    """One that was evaluated every hundred iterations."""
    scores = [published(100 * (place + 1), **{name: value}) for place, value in enumerate(values)]
    records = [event(0, "started"), *training(100 * len(values)), *scores]
    return write_run(folder, config(seed=seed), [*records, event(100 * len(values), "finished")])


@pytest.fixture
def draw(tmp_path):
    """Writes a table -> the root of its figure."""
    return lambda runs, table=TABLE: ET.parse(write_table(table, runs, tmp_path / "out")["svg"]).getroot()


def curves(root):
    """Label -> the points of its line, in pixels."""
    return {
        group.find(f"{SVG}title").text: [
            (float(dot.get("cx")), float(dot.get("cy"))) for dot in group.iter(f"{SVG}circle")
        ]
        for group in root.iter(f"{SVG}g")
    }


def words(root):
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


def test_each_row_with_runs_has_a_curve_and_an_entry_in_the_legend(draw, tmp_path):
    root = draw({"a/BN": [run(tmp_path / "bn", 50.0, 40.0, 30.0)], "a/WC": [run(tmp_path / "wc", 60.0, 20.0)]})
    drawn = curves(root)
    assert [label for label in drawn if label in words(root)] == ["a/BN", "a/WC"]
    (x1, y1), (x2, y2), (x3, y3) = drawn["a/BN"]
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.11)  # as far apart as the iterations
    assert y2 - y1 == pytest.approx(y3 - y2, abs=0.11)
    assert drawn["a/WC"][0][1] < y1 < y3 < drawn["a/WC"][1][1]  # downwards on the page is lower
    assert "a/none" not in words(root)


def test_the_papers_score_is_drawn_alone_under_its_name(draw, tmp_path):
    scores = [{**published(at, FID=30.0), "FID(classifier)": 1.0} for at in (100, 200)]
    folder = write_run(tmp_path / "both", config(), [event(0, "started"), *training(200), *scores])
    assert [text for text in words(draw({"a/BN": [folder]})) if "better" in text] == ["\u2193 lower is better"]


def test_accuracies_and_errors_are_drawn_in_percent(draw, tmp_path):
    for name, values in {"accuracy(classifier)": (0.5, 0.75), "error": (50.0, 25.0)}.items():
        root = draw({"a/BN": [run(tmp_path / name / "bn", *values, name=name)]})
        (note,) = (word for word in words(root) if "is better" in word)
        assert note.endswith("is better (%)")
        assert "50" in words(root)  # on the axis
        page = read_page(write_report([tmp_path / name / "bn"], tmp_path / "page.html"))
        assert any(heading.text.endswith("is better (%)") for heading in page.all("h3"))


def test_where_none_of_the_papers_was_measured_all_are_drawn(draw, tmp_path):
    folder = run(tmp_path / "own", 3.0, 2.0, name="FID(classifier)")
    assert any(text.startswith("FID(classifier)") for text in words(draw({"a/BN": [folder]})))


def test_scores_that_are_not_finite_are_not_drawn(draw, tmp_path):
    root = draw({"a/BN": [run(tmp_path / "bn", math.nan, math.inf)]})
    assert "No finite value to draw." in words(root)
    assert curves(root) == {}


def test_a_long_name_has_room(draw, tmp_path):
    name = "a/" + "W" * 80
    root = draw({name: [run(tmp_path / "bn", 50.0, 40.0)]}, Table("t", "Long", (Row(name, {"FID 10k": (20.0, None)}),)))
    assert float(root.get("width")) > 80 * 8


def test_colours_are_written_out_for_light_and_for_dark_paper(draw):
    (style,) = draw({}).iter(f"{SVG}style")
    assert "var(" not in style.text
    assert style.text.count(".paper { fill: #fff; }") == style.text.count(".paper { fill: #14171b; }") == 1


def test_one_evaluation_is_a_number(draw, tmp_path):
    root = draw({"a/BN": [run(tmp_path / "bn", 50.0)], "a/WC": [run(tmp_path / "wc", 40.0)]})
    numbers = [text for text in words(root) if text.startswith("a/")]
    assert numbers == ["a/BN: 50 at 100", "a/WC: 40 at 100"]  # and no legend, since each has its name
    assert curves(root) == {}
    assert float(root.get("height")) < HEIGHT


def test_a_table_without_evaluations_says_so(draw):
    assert words(draw({})) == [NO_SCORES]


def test_it_is_a_picture_of_its_own_that_loads_and_runs_nothing(draw, tmp_path):
    table = Table("t", NASTY, (Row(f"a/{NASTY}", {"FID 10k": (20.0, None)}),))
    root = draw({f"a/{NASTY}": [run(tmp_path / "bn", 50.0, 40.0)]}, table)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        *("svg", "title", "style", "rect", "text", "tspan", "path", "circle", "g")
    }
    assert not [name for element in root.iter() for name in element.attrib if "href" in name or name.startswith("on")]
    (style,) = root.iter(f"{SVG}style")
    assert "url(" not in style.text
    width, height = (float(root.get(side)) for side in ("width", "height"))
    placed = [(float(text.get("x")), float(text.get("y"))) for text in root.findall(f"{SVG}text")]
    assert all(0 < x < width and 0 < y < height for x, y in placed)
