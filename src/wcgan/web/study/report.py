"""The report on a study: an HTML page, a JSON file, and rows for the terminal."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from wcgan._version import __version__
from wcgan.report.html import Markup, cell, document, folded, head, join, table, tag
from wcgan.report.numbers import counted
from wcgan.report.page import write_whole
from wcgan.web.study.analysis import RESAMPLES, Analysis, Binomial, Interval, votes_to_analysis
from wcgan.web.study.config import Study, check_count, read_study
from wcgan.web.study.pages import STUDY_SHEET
from wcgan.web.study.store import Database, Store, sqlite_file

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
Rows = list[tuple[str, str]]


def write_study_report(
    folder: Path, out: Path | None = None, database: str | None = None, most_failed: int = 0, seed: int = 0
) -> tuple[Rows, Path, Path]:
    """Analyses the votes and writes `report.html`, a self-contained page, and `report.json`.

    Args:
        folder: the folder of the study.
        out: the folder to write to; None for the folder of the study.
        database: the URL of a PostgreSQL database; None for `votes.sqlite` in the folder of the study.
        most_failed: attention checks that a participant may fail and still be counted.
        seed: seed of the bootstrap.

    Returns:
        The rows for the terminal, and the two files.

    Raises:
        ValueError: for a folder without a study, or a study without participants to count.
    """
    study = read_study(folder)
    check_count("most_failed", most_failed, 0, len(study.checks))
    if database is None and not Path(sqlite_file(folder)).is_file():
        raise ValueError(f"{folder} has no votes yet: collect them with `wcgan study serve {folder}`")
    store = Store(Database(database or sqlite_file(folder)), study.key)
    try:
        analysis = votes_to_analysis(study, store.participants(), store.votes(), most_failed, seed)
    finally:
        store.database.close()
    target = out or folder
    page = write_whole(target / "report.html", analysis_to_page(study, analysis))
    values = {"a": study.a, "b": study.b, "images": study.images, "checks": len(study.checks), **_values(analysis)}
    return (
        analysis_to_rows(study, analysis),
        page,
        write_whole(target / "report.json", json.dumps(values, indent=2) + "\n"),
    )


def analysis_to_rows(study: Study, analysis: Analysis) -> Rows:
    """The results, one per row."""
    return [
        (f"Preference for {study.b}, averaged over participants", _percent(analysis.preference)),
        ("95% interval, if other people judged these classes", _interval(analysis.over_participants)),
        ("95% interval, if other people judged other classes", _interval(analysis.over_both)),
        ("Agreement between participants (Cronbach's alpha)", _agreement(analysis)),
        (f"Classes in which most chose {study.b}", _test(analysis.by_class)),
        (f"Participants who mostly chose {study.b}", _test(analysis.by_participant)),
        ("Participants counted", f"{len(analysis.people)} of {analysis.joined}"),
        ("Not counted: did not finish", str(analysis.unfinished)),
        ("Not counted: failed the attention checks", str(analysis.failed)),
    ]


def analysis_to_page(study: Study, analysis: Analysis) -> str:
    """The HTML page."""
    title = f"{study.a} or {study.b}: which looks more realistic?"
    what = (
        f"{counted(len(analysis.people), 'participant')}, {len(analysis.labels)} classes, {study.images} images per set"
    )
    policy = tag("meta", http_equiv="Content-Security-Policy", content=_POLICY)
    facts = [
        tag("tr", tag("th", name, scope="row"), cell("", value)) for name, value in analysis_to_rows(study, analysis)
    ]
    body = tag(
        "body",
        tag("h1", title),
        tag("p", f"{what}, wcgan {__version__}", class_="soft"),
        table([], facts, "facts"),
        _classes(study, analysis),
        _people(study, analysis),
        tag("p", _method(study), class_="soft note"),
        class_="page",
    )
    return document(title, join([policy, tag("style", STUDY_SHEET)]), body)


def _classes(study: Study, analysis: Analysis) -> Markup:
    """A bar per class, the strongest preference for b first."""
    order = sorted(zip(analysis.classes, analysis.labels, strict=True), key=lambda pair: (-pair[0], pair[1]))
    rows = [
        tag(
            "tr",
            tag("th", label, scope="row"),
            tag("td", _bar(share), data_label=""),
            cell(study.b, _percent(share, 0), "number"),
        )
        for share, label in order
    ]
    heads = tag("tr", *(head(name) for name in ("Class", f"Share of participants for {study.b}")), head("", "number"))
    return join([tag("h2", "Classes"), table([heads], rows, "results classes")])


def _bar(share: float) -> Markup:
    return tag(
        "svg",
        tag("title", _percent(share, 0)),
        tag("rect", width=100, height=10, class_="all"),
        tag("rect", width=f"{100 * share:.1f}", height=10, class_="part"),
        tag("path", d="M50 0V10", class_="half", vector_effect="non-scaling-stroke"),
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        class_="share",
    )


def _people(study: Study, analysis: Analysis) -> Markup:
    names = ("Participant", f"For {study.b}", "Checks failed", "Chose the first set", "Minutes")
    rows = []
    for number, person in enumerate(analysis.people, 1):
        values = (_percent(person.preference, 0), str(person.checks_failed), _percent(person.first_chosen, 0))
        cells = zip(names[1:], (*values, f"{person.minutes:.1f}"), strict=True)
        rows.append(tag("tr", tag("th", number, scope="row"), *(cell(name, value, "number") for name, value in cells)))
    heads = tag("tr", head(names[0]), *(head(name, "number") for name in names[1:]))
    return join([tag("h2", "Participants"), folded(table([heads], rows, "results"), len(rows), "participants")])


def _method(study: Study) -> str:
    return (
        f"The preference is the share of classes in which a participant chose {study.b}, averaged over participants "
        "(the paper's user-averaged class-based preference). The intervals contain the preference in 95% of "
        f"{RESAMPLES:,} bootstrap samples. Cronbach's alpha takes participants as items and classes as cases. The "
        "p-values are those of exact two-sided binomial tests against one half, without ties. There were "
        f"{len(study.checks)} attention checks."
    )


def _values(analysis: Analysis) -> dict[str, object]:
    """The analysis for the JSON file, with the share of each class by its name."""
    values = asdict(analysis)
    return values | {"classes": dict(zip(values.pop("labels"), analysis.classes, strict=True))}


def _percent(share: float, digits: int = 2) -> str:
    return f"{100 * share:.{digits}f}%"


def _interval(interval: Interval) -> str:
    return f"{_percent(interval.low)} to {_percent(interval.high)}"


def _agreement(analysis: Analysis) -> str:
    if analysis.alpha is None:
        return analysis.grade
    rounded = round(analysis.alpha, 2)
    if rounded <= 0:
        return f"{rounded + 0.0:.2f} (no agreement)"  # + 0.0 turns -0.0 into 0.0
    return f"{rounded:.2f} ({analysis.grade})"


def _test(test: Binomial) -> str:
    p = "p < 0.0001" if test.p < 1e-4 else f"p = {test.p:.4f}"
    return f"{test.for_b} of {test.of} ({p})"
