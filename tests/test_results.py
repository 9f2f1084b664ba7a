"""The committed results: tables and pages say what the committed runs say."""

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.benchmarks.scripts import load_script
from tests.test_documents import anchors, without_code

from wcgan.evaluate.protocol import is_unusual
from wcgan.reproduce.command import rebuild
from wcgan.reproduce.experiments import EXPERIMENTS

RESULTS = Path(__file__).parents[1] / "results"
TABLES = [key for key in EXPERIMENTS if (RESULTS / key).is_dir()]
PAGES = sorted(page for page in RESULTS.rglob("*.md") if page.name != "table.md")
MEASURED = sorted(RESULTS.glob("performance/h200*.json"))
# The page with pictures inside is large, and `wcgan reproduce --from results` makes it.
COMMITTED = ("md", "csv", "tex", "svg")
CURVE = re.compile(r"^\| FID 10k after \|(.+)\|\n\|[-:| ]+\|\n((?:\|.+\|\n)+)", re.MULTILINE)


def is_usual_paper_10k(protocol) -> bool:
    return protocol["name"].startswith("paper-10k") and not is_unusual(protocol)


def name(page: Path) -> str:
    return str(page.relative_to(RESULTS))


def compare(made: Path, kept: Path) -> None:
    for form in COMMITTED:
        a, b = made / f"table.{form}", kept / f"table.{form}"
        assert a.read_text() == b.read_text(), f"run `wcgan reproduce --from results`: {b} is out of date"


@pytest.fixture
def copy(tmp_path):
    """The results without their tables."""
    shutil.copytree(RESULTS, tmp_path / "results", ignore=shutil.ignore_patterns("table.*"))
    return tmp_path / "results"


def test_there_are_some():
    assert TABLES


@pytest.mark.parametrize("key", TABLES)
def test_a_committed_table_is_that_of_its_runs(key, copy):
    rebuild(copy, key)
    compare(copy / key, RESULTS / key)


def test_the_table_of_labels_is_that_of_its_runs(copy):
    load_script("labels").write_labels(copy)
    compare(copy / "labels", RESULTS / "labels")


@pytest.mark.parametrize("key", [*TABLES, "labels"])
def test_a_table_has_a_page_that_shows_its_curves(key):
    assert "](table.svg)" in (RESULTS / key / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_curves_on_a_page_are_those_of_the_runs_it_links_to(page):
    for header, body in CURVE.findall(page.read_text(encoding="utf-8")):
        iterations = [int(cell.replace(",", "")) for cell in header.split("|")]
        for row in body.splitlines():
            label, *cells = (cell.strip() for cell in row.strip("|").split("|"))
            link = re.search(r"\]\((.+)\)", label)
            if link is None:
                assert "authors' log" in label, f"{label} links to no run"
                continue
            lines = (page.parent / link[1] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            found = [line for line in map(json.loads, lines) if line["kind"] == "evaluation"]
            by_paper = [line for line in found if is_usual_paper_10k(line["protocol"])]
            fid = {line["iteration"]: f"{line['FID']:.1f}" for line in by_paper}
            assert cells == [fid.get(iteration, "") for iteration in iterations], label


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_a_page_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        file, _, anchor = target.partition("#")
        place = page.parent / file if file else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), target


def test_the_newest_times_are_all_of_one_commit():
    report = json.loads((RESULTS / "performance/h200.json").read_text(encoding="utf-8"))
    assert set(report["measured_at"].values()) == {report["commit"]}
    assert "skipped" not in report


@pytest.mark.parametrize("path", MEASURED, ids=name)
def test_committed_times_can_be_printed_as_a_table(path, capsys):
    report = json.loads(path.read_text(encoding="utf-8"))
    load_script("_gpu.table").print_table(report)
    assert capsys.readouterr().out.startswith(f"NVIDIA H200; commit {report['commit']}")
