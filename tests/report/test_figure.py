"""The curves of a table as a picture on its own."""

import math
import xml.etree.ElementTree as ET

import pytest
from tests.report.cases import config, event, published, training, write_run

from wcgan.paper.tables import Row, Table
from wcgan.report import write_table
from wcgan.report.charts import HEIGHT
from wcgan.report.curves import NONE

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "</style><script>alert(1)</script><&\"'\x00\ufffe\uffff"
TABLE = Table("t", "Curves", (Row("a/BN", {"FID 10k": (20.0, None)}), Row("a/none", {}), Row("a/WC", {})))


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
    assert words(draw({})) == [NONE]


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
