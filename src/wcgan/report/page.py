"""From the folders of runs to one page that needs nothing else."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wcgan._version import __version__
from wcgan.report.charts import Series, is_logarithmic, series_to_svg, swatch
from wcgan.report.comparison import (
    best_runs,
    config_differences,
    is_lower_better,
    last_evaluation,
    runs_to_protocols,
    score_names,
    score_to_text,
)
from wcgan.report.figures import duration, is_number, number
from wcgan.report.html import Markup, join, tag
from wcgan.report.reading import Record, RunRecord, read_runs
from wcgan.report.style import SHEET

# Nothing may be fetched, whatever a run's files say.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_DASH = "\u2013"
_WANTED_WIDTH = 560  # of a grid of samples, in pixels, that small ones are enlarged to


def write_report(runs: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Path:
    """Write one self-contained page on some runs: scores side by side, curves, samples, configs.

    Nothing in the page is fetched from elsewhere, and nothing in it runs. What a run does not have yet is left out and
    said to be missing.

    Args:
        runs: the folders of the runs.
        out: the file to write; one that exists is replaced, in one step.

    Returns:
        The file.

    Raises:
        ValueError: for no run, a folder that is not a run's, or an `out` that is a folder.
    """
    file = Path(out)
    if file.is_dir():
        raise ValueError(f"{file} is a folder: name the page to write, such as {file / 'report.html'}")
    page = runs_to_page(read_runs([Path(run) for run in runs]))
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("wb", dir=file.parent, prefix=f".{file.name}-", delete=False) as temporary:
        temporary.write(page.encode())
    os.chmod(temporary.name, 0o644)
    os.replace(temporary.name, file)
    return file


def runs_to_page(runs: list[RunRecord]) -> str:
    """The page's HTML."""
    title = _title(runs)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", SHEET),
    )
    body = tag(
        "body",
        tag("h1", title),
        tag("p", f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}, wcgan {__version__}", class_="soft"),
        tag("h2", "Runs"),
        _table(runs),
        _protocols(runs),
        _differences(runs),
        _scores(runs),
        _losses(runs),
        _samples(runs),
        tag("h2", "Configs"),
        *(_details(run, opened=len(runs) == 1) for run in runs),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _title(runs: list[RunRecord]) -> str:
    variants = list(dict.fromkeys(run.variant or run.name for run in runs))
    datasets = list(dict.fromkeys(run.dataset for run in runs if run.dataset))
    what = variants[0] if len(variants) == 1 else f"{', '.join(variants[:-1])} and {variants[-1]}"
    if len(variants) > 5:
        what = f"{len(runs)} runs"
    return f"{what} on {', '.join(datasets)}" if datasets else what


# The sections, in the order of the page ---------------------------------------------------------------------------


def _table(runs: list[RunRecord]) -> Markup:
    scores, protocols = score_names(runs), runs_to_protocols(runs)
    best = {name: best_runs(runs, name) for name in scores}
    heads = [("Run", ""), ("Variant", ""), ("Dataset", ""), ("Iterations", "number"), ("Real images", "number")]
    heads += [("Time", "number"), *((name, "number") for name in scores), ("Protocol", "")]
    rows = []
    for place, (run, protocol) in enumerate(zip(runs, protocols, strict=True)):
        last: Record = run.training[-1] if run.training else {}
        cells = [
            _cell("Variant", run.variant or _DASH),
            _cell("Dataset", run.dataset or _DASH),
            _cell("Iterations", number(run.iteration), "number", more=_progress(run)),
            _cell("Real images", number(last.get("images")), "number"),
            _cell("Time", duration(last.get("seconds")), "number"),
        ]
        for name in scores:
            kind = "number best" if place in best[name] else "number"
            cells.append(_cell(name, score_to_text(run, name), kind))
        behind = last_evaluation(run).get("iteration")
        late = f"at iteration {number(behind)}" if protocol and behind != run.iteration else ""
        cells.append(_cell("Protocol", protocol.letter if protocol else "none yet", more=late))
        rows.append(tag("tr", tag("th", swatch(place), run.name, scope="row"), *cells))
    header = tag("tr", *(_head(name, kind) for name, kind in heads))
    return tag("div", tag("table", tag("thead", header), tag("tbody", *rows), class_="runs stack"), class_="scroll")


def _protocols(runs: list[RunRecord]) -> Markup:
    protocols = {p.letter: p.sentence for p in runs_to_protocols(runs) if p is not None}
    notes = [tag("p", tag("b", f"Protocol {k}. "), v, class_="note") for k, v in protocols.items()]
    if len(protocols) > 1:
        notes.append(tag("p", "Scores of different protocols cannot be compared.", class_="note warn"))
    if any(best_runs(runs, name) for name in score_names(runs)):
        marked = "Marked: the best among runs of one protocol; \u2193 lower is better, \u2191 higher is better."
        notes.append(tag("p", marked, class_="note soft"))
    return join(notes)


def _differences(runs: list[RunRecord]) -> Markup:
    if len(runs) < 2:
        return Markup()
    rows = config_differences(runs)
    if not rows:
        return join([tag("h2", "What differs"), tag("p", "The configs are the same.", class_="empty")])
    names = [run.name for run in runs]
    head = tag("tr", tag("th", "Setting", scope="col"), *(tag("th", name, scope="col") for name in names))
    body = [tag("tr", tag("th", name, scope="row"), *map(_cell, names, values)) for name, values in rows]
    table = tag("table", tag("thead", head), tag("tbody", *body), class_="differences stack")
    return join([tag("h2", "What differs"), tag("div", table, class_="scroll", tabindex="0")])


def _scores(runs: list[RunRecord]) -> Markup:
    names = score_names(runs)
    if not names:
        return join([tag("h2", "Scores"), tag("p", "No run has been evaluated yet.", class_="empty")])
    charts = [_chart(name, runs, [run.evaluations for run in runs]) for name in names]
    return join([tag("h2", "Scores"), tag("div", *charts, class_="charts")])


def _losses(runs: list[RunRecord]) -> Markup:
    keys = dict.fromkeys(key for run in runs for record in run.training for key in record if key.startswith("loss/"))
    if not keys:
        return join([tag("h2", "Losses"), tag("p", "No iteration has been written down yet.", class_="empty")])
    charts = [_chart(key, runs, [run.training for run in runs]) for key in keys]
    return join([tag("h2", "Losses"), tag("div", *charts, class_="charts")])


def _chart(key: str, runs: list[RunRecord], records: list[tuple[Record, ...]]) -> Markup:
    series = [
        Series(run.name, place, tuple((r["iteration"], float(r[key])) for r in own if is_number(r.get(key))))
        for place, (run, own) in enumerate(zip(runs, records, strict=True))
    ]
    drawn = [s for s in series if s.points]
    title = f"{key.removeprefix('loss/').capitalize()} loss" if key.startswith("loss/") else key
    note = ", log scale" if is_logarithmic(drawn) else ""
    legend = tag("ul", *(tag("li", swatch(s.style), s.label) for s in drawn), class_="legend") if len(runs) > 1 else ""
    heading = tag("h3", title, _direction(key), tag("span", note, class_="soft direction") if note else "")
    return tag("figure", heading, series_to_svg(title, drawn), legend)


def _samples(runs: list[RunRecord]) -> Markup:
    return join([tag("h2", "Samples"), tag("div", *(_sample(n, run) for n, run in enumerate(runs)), class_="samples")])


def _sample(place: int, run: RunRecord) -> Markup:
    heading = tag("h3", swatch(place), run.name)
    picture = run.picture
    if picture is None:
        return tag("figure", heading, tag("p", "No samples yet.", class_="empty"))
    scale = max(1, _WANTED_WIDTH // max(1, picture.width))
    rows = "one class a row, one noise a column" if run.conditional else "each from its own noise"
    source = "data:image/png;base64," + base64.b64encode(picture.png).decode("ascii")
    image = tag(
        "img",
        src=source,
        alt=f"Samples of {run.name} after {picture.iteration} iterations: {rows}",
        width=picture.width * scale,
        height=picture.height * scale,
        class_="small" if scale > 1 else None,
    )
    caption = tag("figcaption", f"{run.variant or run.name}, iteration {number(picture.iteration)}: {rows}")
    return tag("figure", heading, image, caption)


def _details(run: RunRecord, opened: bool) -> Markup:
    parts: list[object] = [tag("summary", run.name, tag("span", f" {_DASH} {run.status}", class_="soft"))]
    if run.unreadable:
        lines = "line" if run.unreadable == 1 else "lines"
        parts.append(tag("p", f"{run.unreadable} {lines} of metrics.jsonl could not be read.", class_="note warn"))
    if run.events:
        parts.append(tag("ul", *(tag("li", _event(event)) for event in run.events), class_="events"))
    missing = tag("p", "The run has no config.yaml.", class_="empty")
    parts.append(tag("pre", run.config_text, tabindex="0") if run.config_text.strip() else missing)
    return tag("details", *parts, open="" if opened else None)


# Pieces of them ---------------------------------------------------------------------------------------------------


def _cell(label: str, value: str, kind: str | None = None, more: str = "") -> Markup:
    """A cell, with a second line if there is more to say, that carries its column's name for narrow screens."""
    return tag("td", tag("span", value, tag("small", more) if more else ""), data_label=label, class_=kind)


def _head(name: str, kind: str) -> Markup:
    """A column's name, which may break before its bracket."""
    word, bracket, rest = name.partition("(")
    breakable = join([word, tag("wbr") if bracket else "", bracket, rest])
    return tag("th", breakable, _arrow(name), scope="col", class_=kind or None)


def _arrow(name: str) -> str:
    """Which way a score improves, in one sign."""
    return {True: "\u00a0\u2193", False: "\u00a0\u2191", None: ""}[is_lower_better(name)]


def _direction(name: str) -> Markup:
    """Which way a score improves, in words."""
    words = {True: " lower is better", False: " higher is better", None: ""}[is_lower_better(name)]
    return tag("span", _arrow(name), words, class_="direction soft") if words else Markup()


def _progress(run: RunRecord) -> str:
    """How far it has still to go; nothing where it is finished."""
    if run.status == "finished":
        return ""
    return run.status if run.planned is None else f"of {number(run.planned)}, {run.status}"


def _event(event: Record) -> str:
    rest = {k: v for k, v in event.items() if k not in ("kind", "iteration", "what", "time") and v is not None}
    facts = "".join(f"; {key} {value}" for key, value in rest.items())
    when = str(event.get("time", "")).replace("T", " ").replace("+00:00", " UTC")
    return f"{event.get('what', 'event')} at iteration {number(event['iteration'])}, {when}{facts}".rstrip(", ")
