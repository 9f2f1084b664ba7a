"""The pages of a study: those a participant sees, which never tell the two sides apart, and the report on the votes."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

from wcgan import __version__
from wcgan.core.terminal import counted
from wcgan.report.html import SHEET, Markup, cell, document, folded, head, join, table, tag
from wcgan.report.numbers import percent
from wcgan.report.page import write_whole
from wcgan.web.study.analysis import RESAMPLES, Analysis, Binomial, Interval, votes_to_analysis
from wcgan.web.study.config import Study, check_count, read_study
from wcgan.web.study.store import Database, Store, sqlite_file

_LARGE = 512  # pixels; pictures of this size or more are scaled smoothly


def consent_page(study: Study, action: str) -> str:
    """The consent text, and a button to agree."""
    paragraphs = [tag("p", part.strip()) for part in re.split(r"\n\s*\n", study.consent) if part.strip()]
    length = f"{len(study.pairs)} pairs of sets, with {counted(study.images, 'image')} per set"
    return _served(
        study.title,
        tag("h1", study.title),
        *paragraphs,
        tag("p", f"There are {length}.", class_="soft"),
        tag("form", tag("button", "I agree, begin", class_="go"), method="post", action=action),
    )


def pair_page(study: Study, action: str, number: int, pictures: tuple[str, str], side: int) -> str:
    """A pair of image sets to choose from.

    Args:
        study: the study.
        action: the address that the choice is sent to.
        number: the place of the pair in the participant's order, from 1.
        pictures: the addresses of the two pictures, in the order shown.
        side: the width of a picture in pixels.
    """
    total = len(study.pairs)
    buttons = [
        tag(
            "button",
            tag("img", src=picture, alt=f"Image set {place}", class_="large" if side >= _LARGE else None),
            tag("span", f"Set {place} ", tag("span", tag("kbd", key), " or ", tag("kbd", place), class_="keys soft")),
            name="choice",
            value=place,
            class_="choice",
        )
        for place, picture, key in zip((1, 2), pictures, "\u2190\u2192", strict=True)
    ]
    return _served(
        f"{number} of {total} \u2013 {study.title}",
        tag("progress", max=total, value=number - 1, aria_label="Progress"),
        tag("p", f"Pair {number} of {total}", class_="soft note"),
        tag("h1", study.question),
        tag(
            "form",
            tag("input", type="hidden", name="number", value=number),
            tag("div", *buttons, class_="pair"),
            method="post",
            action=action,
        ),
        tag("p", "To continue later, come back to this address. It is yours alone.", class_="soft note"),
    )


def end_page(study: Study) -> str:
    """The last page: thanks."""
    total = len(study.pairs)
    return _served(
        study.title,
        tag("progress", max=total, value=total, aria_label="Progress"),
        tag("h1", "Thank you!"),
        tag("p", f"All {total} choices are stored. You can close this page."),
    )


def message_page(title: str, sentence: str) -> str:
    """A page that says what is wrong."""
    return _served(title, tag("h1", title), tag("p", sentence))


def _served(title: str, *parts: object) -> str:
    links = '<link rel="icon" href="data:,"><link rel="stylesheet" href="/style.css">'
    head = Markup(f'{links}<script src="/keys.js" defer></script>')
    return document(title, head, tag("body", *parts, class_="page"))


STUDY_SHEET = SHEET + Markup(
    """
.page { max-width: 1000px; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; margin: 1rem 0; }
.choice { display: flex; flex-direction: column; align-items: center; gap: .6rem; padding: .8rem; font: inherit;
  color: inherit; background: var(--panel); border: 2px solid var(--line); border-radius: 10px; cursor: pointer;
  touch-action: manipulation; min-width: 0; }
.choice:hover { border-color: var(--c0); }
.choice:focus-visible, .go:focus-visible { outline: 3px solid var(--c0); outline-offset: 2px; }
.choice img { display: block; width: 100%; height: 58vh; object-fit: contain; image-rendering: pixelated; }
.choice img.large { image-rendering: auto; }
.go { font: inherit; font-weight: 600; padding: .8rem 1.6rem; margin: 1rem 0; color: var(--paper);
  background: var(--c0); border: 0; border-radius: 8px; cursor: pointer; min-height: 48px; }
kbd { font: .85rem ui-monospace, monospace; border: 1px solid var(--line); border-radius: 4px; padding: 0 .35rem;
  background: var(--paper); }
progress { width: 100%; height: .7rem; accent-color: var(--c0); }
.share { display: block; width: 100%; min-width: 8rem; height: 1.1rem; }
.share .all { fill: var(--line); } .share .part { fill: var(--c0); } .share .half { stroke: var(--ink); }
@media (max-width: 700px) {
  .pair { grid-template-columns: 1fr; gap: .7rem; margin: .6rem 0; }
  .choice { padding: .5rem; gap: .3rem; }
  .choice img { height: 28vh; }
  .page h1 { font-size: 1.25rem; }
  .keys { display: none; }
}
"""
)

# A form is sent once, however often a button is pressed; keys press the buttons.
KEYS = """"use strict";
const places = { "1": 0, "ArrowLeft": 0, "2": 1, "ArrowRight": 1 };
for (const form of document.forms) {
  let sent = false;
  form.addEventListener("submit", event => { if (sent) event.preventDefault(); sent = true; });
}
document.addEventListener("keydown", event => {
  if (event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
  const choice = document.querySelectorAll("button.choice")[places[event.key]];
  if (choice) { event.preventDefault(); choice.click(); }
});
"""


_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
Rows = list[tuple[str, str]]


def write_study_report(
    folder: Path, out: Path | None = None, database: str | None = None, most_failed: int = 0
) -> tuple[Rows, Path, Path]:
    """Analyses the votes and writes `report.html`, a self-contained page, and `report.json`.

    Args:
        folder: the folder of the study.
        out: the folder to write to; None for the folder of the study.
        database: the URL of a PostgreSQL database; None for `votes.sqlite` in the folder of the study.
        most_failed: attention checks that a participant may fail and still be counted.

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
        analysis = votes_to_analysis(study, store.participants(), store.votes(), most_failed)
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
        (f"Preference for {study.b}, averaged over participants", percent(analysis.preference, 2)),
        ("95% interval, if other people judged these classes", _interval(analysis.over_participants)),
        ("95% interval, if other people judged other classes", _interval(analysis.over_both)),
        ("Agreement between participants (Cronbach's alpha)", _agreement(analysis)),
        (f"Classes in which most chose {study.b}", _test(analysis.by_class, len(analysis.labels))),
        (f"Participants who mostly chose {study.b}", _test(analysis.by_participant, len(analysis.people))),
        ("Participants counted", f"{len(analysis.people)} of {analysis.joined}"),
        ("Not counted: did not finish", str(analysis.unfinished)),
        ("Not counted: failed the attention checks", str(analysis.failed)),
    ]


def analysis_to_page(study: Study, analysis: Analysis) -> str:
    """The HTML page."""
    title = f"{study.a} or {study.b}: which looks more realistic?"
    counts = ((len(analysis.people), "participant"), (len(analysis.labels), "class"), (study.images, "image"))
    what = f"{', '.join(counted(*each) for each in counts)} per set"
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
            cell(study.b, percent(share, 0), "number"),
        )
        for share, label in order
    ]
    heads = tag("tr", *(head(name) for name in ("Class", f"Share of participants for {study.b}")), head("", "number"))
    return join([tag("h2", "Classes"), table([heads], rows, "results classes")])


def _bar(share: float) -> Markup:
    return tag(
        "svg",
        tag("title", percent(share, 0)),
        tag("rect", width=100, height=10, class_="all"),
        tag("rect", width=f"{100 * share:.1f}", height=10, class_="part"),
        tag("path", d="M50 0V10", class_="half", vector_effect="non-scaling-stroke"),
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        class_="share",
    )


def _people(study: Study, analysis: Analysis) -> Markup:
    names = ("Participant", f"For {study.b}", "Checks failed", "Chose the first set", "Seconds per pair")
    rows = []
    for number, person in enumerate(analysis.people, 1):
        values = (percent(person.preference, 0), str(person.checks_failed), percent(person.first_chosen, 0))
        cells = zip(names[1:], (*values, f"{person.seconds_per_pair:.1f}"), strict=True)
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


def _interval(interval: Interval) -> str:
    return f"{percent(interval.low, 2)} to {percent(interval.high, 2)}"


def _agreement(analysis: Analysis) -> str:
    if analysis.alpha is None:
        return analysis.grade
    rounded = round(analysis.alpha, 2)
    if rounded <= 0:
        return f"{rounded + 0.0:.2f} (no agreement)"  # + 0.0 turns -0.0 into 0.0
    return f"{rounded:.2f} ({analysis.grade})"


def _test(test: Binomial, there: int) -> str:
    p = "p < 0.0001" if test.p < 1e-4 else f"p = {test.p:.4f}"
    ties = f", {there - test.of} tied" if test.of < there else ""
    return f"{test.for_b} of {test.of}{ties} ({p})"
