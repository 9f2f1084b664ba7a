"""A small table, runs for its rows, and readers of the files that are written of it."""

import csv

from tests.report.cases import config, event, training, write_run
from tests.report.reader import read_page

from wcgan.paper.tables import Row, Table

TABLE = Table(
    "tab.some",
    "Ablation",
    (
        Row("digits/cWC", {"IS": (8.2, 0.08), "FID 10k": (17.2, None)}),
        Row("digits/cBN_sa", {"IS": (8.62, None), "FID 5k": (20.1, None)}),
        Row("digits/none", {"IS": (8.97, 0.11)}),
    ),
)
DASH = "\u2013"


def finished(folder, seed, *scores, last=1000, **started):
    records = [event(0, "started", device="NVIDIA H200", processes=1, **started), *training(last), *scores]
    return write_run(folder, config(iterations=last, seed=seed), [*records, event(last, "finished")], samples=(last,))


def markdown(file):
    """The table of a Markdown file: head -> text, a dictionary per row."""
    lines = [line for line in file.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.replace("\\|", "\0").strip("|").split("|")] for line in lines]
    assert len({len(line) for line in cells}) == 1
    return [dict(zip(cells[0], line, strict=True)) for line in cells[2:]]


def lines(file):
    with file.open(newline="") as opened:
        return {(line["row"], line["measure"]): line for line in csv.DictReader(opened)}


def rows_of(file):
    """The figures of a page's table, by the labels that its cells carry."""
    (table,) = read_page(file).all("table", "results")
    return [
        {cell.attributes["data-label"]: cell.text for cell in row.all("td")} for row in table.all("tbody")[0].all("tr")
    ]
