"""Tables as Markdown, CSV and LaTeX: of any rows, and of results beside the paper's. Scores as rows for a terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wcgan.core.terminal import Row, counted, duration, rows_to_markdown
from wcgan.evaluate.protocol import UNUSUAL
from wcgan.paper.tables import MEASURES
from wcgan.report.numbers import DASH, is_number, number
from wcgan.report.order import EXPLAINED, pairs_to_rows, pairs_to_sentence, results_to_pairs
from wcgan.report.order import HEADS as ORDER_HEADS
from wcgan.report.paper_comparison import Entry, Results, TableRow
from wcgan.report.read import Record, RunRecord, protocol_key
from wcgan.report.scores import (
    Score,
    evaluation_to_text,
    evaluations_to_protocols,
    last_evaluations,
    plain,
    protocol_to_sentence,
    runs_to_scores,
    set_size,
)
from wcgan.report.seed_groups import measure

Head = tuple[str, tuple[str, ...]]
"""Head of a column, and its subheads."""

CSV_HEADS = (
    *("table", "row", "measure", "score", "protocol", "paper", "paper_std", "best", "best_std", "best_iteration"),
    *("ours", "ours_std", "ours_std_over", "checkpoint", "difference", "seeds", "runs", "iteration"),
    *("planned_iterations", "status", "seconds", "hardware", "commit", "scale", "notes"),
)
SCORE_HEADS = ("score", "value", "images", "seed")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~#])")
_SPACES = re.compile(r"[\s\x00-\x1f\x7f]+")
_LATEX = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": r"\textasciigrave{}",
    # At the start of a row, LaTeX would read these as options of the row before.
    "[": "{[}",
    "*": "{*}",
    "\u00b1": r"$\pm$",
    "\u2212": "$-$",
    "\u2013": "--",
    "\u221e": r"$\infty$",
    "\u00d7": r"$\times$",
}


def rows_to_csv(heads: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Rows as CSV, with an empty field for None.

    Example:
        >>> rows_to_csv(("run", "FID"), [{"run": "WC, 2", "FID": None}])
        'run,FID\\n"WC, 2",\\n'
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, heads, lineterminator="\n")
    writer.writeheader()
    # Python 3.10 cannot write a NUL
    writer.writerows({k: v.replace("\0", "") if isinstance(v, str) else v for k, v in row.items()} for row in rows)
    return text.getvalue()


def results_to_heads(results: Results) -> list[Head]:
    """The heads of all columns, with their subheads."""
    scores: list[Head] = [(column.label, column.names) for column in results.columns]
    return [("Row", ()), *scores, *((name, ()) for name in results.facts)]


def row_to_cells(row: TableRow) -> list[str]:
    """The cells of a row as text, one per head or subhead."""
    name = f"{row.preset} (quoted)" if row.quoted else row.preset
    return [name, *(text for entry in row.entries for text in entry.cells), *row.facts.values()]


@dataclass(frozen=True)
class Part:
    """Some columns of a table, as text."""

    heads: list[Head]
    rows: list[list[str]]
    """One cell per head or subhead; the first is the name of the row."""


def results_to_parts(results: Results) -> tuple[Part, Part]:
    """Split a table that would be too wide: figures beside the paper's, then other scores and what the runs took.

    If the paper has no figures, the first part has all scores. The second part has only rows with runs.
    """
    heads, cells = results_to_heads(results), [row_to_cells(row) for row in results.rows]
    ran = [row for row, source in zip(cells, results.rows, strict=True) if source.runs]
    beside = sum(bool(column.paper) or column.iteration is not None for column in results.columns)
    last = 1 + (beside or len(results.columns))
    width = sum(len(names) or 1 for _, names in heads[:last])
    return (
        Part(heads[:last], [row[:width] for row in cells]),
        Part([heads[0], *heads[last:]], [[row[0], *row[width:]] for row in ran]),
    )


def results_to_markdown(results: Results) -> str:
    """A heading, the table and its notes."""
    heads = [f"{label} {name}".strip() for label, names in results_to_heads(results) for name in (names or ("",))]
    right = [to_markdown(head) for head in heads if head not in ("Row", "Protocol", "Hardware", "Commit")]
    rows = [[*map(to_markdown, row_to_cells(row))] for row in results.rows]
    table = rows_to_markdown([*map(to_markdown, heads)], rows, right)
    notes = [f"- {to_markdown(sentence)}" for sentence in results.sentences]
    return "\n".join([f"# {to_markdown(results.title)}", "", *table, "", *notes, "", *_order_to_markdown(results)])


def _order_to_markdown(results: Results) -> list[str]:
    pairs = results_to_pairs(results)
    if not pairs:
        return []
    rows = [[*map(to_markdown, row)] for row in pairs_to_rows(pairs)]
    sentences = (pairs_to_sentence(pairs), EXPLAINED)
    table = rows_to_markdown(ORDER_HEADS, rows, ORDER_HEADS[2:])
    return ["## Order of rows", "", *map(to_markdown, sentences), "", *table, ""]


def results_to_csv(results: Results) -> str:
    """A line per row and measure, with plain numbers."""
    return rows_to_csv(
        CSV_HEADS, (_entry_to_fields(results, row, entry) for row in results.rows for entry in row.entries)
    )


def results_to_latex(results: Results) -> str:
    """Two full-width `booktabs` tables, the figures and what the runs took, with the notes below."""
    figures, facts = results_to_parts(results)
    caption = f"{results.name} (the paper's {results.place.lower()})" if results.place else results.name
    lines = [
        r"% Needs \usepackage{booktabs}.",
        r"\begin{table*}",
        r"\centering",
        rf"\caption{{{to_latex(caption)}}}",
        r"\scriptsize",
        r"\setlength{\tabcolsep}{3pt}",
        *_tabular(figures),
        *([r"\par\medskip", *_tabular(facts)] if facts.rows else []),
        r"\begin{flushleft}",
        *(to_latex(sentence) + r" \par" for sentence in results.sentences),
        r"\end{flushleft}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _tabular(part: Part) -> list[str]:
    top: list[str] = []
    below: list[str] = []
    rules: list[str] = []
    for label, names in part.heads:
        first, width = len(below) + 1, len(names)
        below += list(names) or [""]
        top.append(rf"\multicolumn{{{width}}}{{c}}{{{to_latex(label)}}}" if names else to_latex(label))
        rules += [rf"\cmidrule(lr){{{first}-{first + width - 1}}}"] if names else []
    return [
        rf"\begin{{tabular}}{{l{'r' * (len(below) - 1)}}}",
        r"\toprule",
        " & ".join(top) + r" \\",
        *(["".join(rules), " & ".join(below) + r" \\"] if rules else []),
        r"\midrule",
        *(" & ".join(map(to_latex, row)) + r" \\" for row in part.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def to_markdown(text: str) -> str:
    """Escape text for Markdown, on one line.

    Example:
        >>> to_markdown("cWC_sa | <b>")
        'cWC\\\\_sa \\\\| \\\\<b\\\\>'
    """
    return _MARKDOWN.sub(r"\\\1", _SPACES.sub(" ", text)).strip()


def to_latex(text: str) -> str:
    """Escape text for LaTeX, on one line.

    Example:
        >>> to_latex("cWC_sa: 50% ± 1")
        'cWC\\\\_sa: 50\\\\% $\\\\pm$ 1'
    """
    return "".join(_LATEX.get(sign, sign) for sign in _SPACES.sub(" ", text).strip())


def _entry_to_fields(results: Results, row: TableRow, entry: Entry) -> dict[str, object]:
    column, paper, ours, best = entry.column, entry.paper or (None, None), entry.ours, entry.best
    times = [run.seconds for run in row.runs if is_number(run.seconds)]
    return {
        "table": results.title,
        "row": row.preset,
        "measure": column.label,
        "score": column.score.name,
        "protocol": column.score.protocol,
        "paper": paper[0],
        "paper_std": paper[1],
        "best": best.mean if best else None,
        "best_std": best.deviation if best else None,
        "best_iteration": best.where.removeprefix("at ").replace(",", "") if best else None,
        "ours": ours.mean if ours else None,
        "ours_std": ours.deviation if ours else None,
        "ours_std_over": ours.deviation_over if ours else None,
        "difference": entry.difference,
        "seeds": len(ours.evaluations) if ours else 0,
        "runs": len(row.runs),
        "iteration": ours.iteration if ours else None,
        "planned_iterations": "; ".join(dict.fromkeys(str(run.planned) for run in row.runs if run.planned is not None)),
        "status": "; ".join(dict.fromkeys(run.status for run in row.runs)) or ("quoted" if row.quoted else "no run"),
        "seconds": round(sum(times) / len(times), 3) if times else None,
        "hardware": row.facts["Hardware"].strip(DASH),
        "commit": row.facts["Commit"].strip(DASH),
        "checkpoint": "last" if column.iteration is None else column.iteration,
        "scale": results.scale,
        "notes": " ".join([*results.notes, *row.remarks]),
    }


# For the terminal


def scores_to_rows(scores: Record) -> tuple[Row, list[Row], list[str]]:
    """The heads and rows of a table of scores, and the sentences around it; the first names the protocol.

    Example:
        >>> protocol = {"name": "all", "reference": {"images": 9, "of": 9, "dataset": "cats", "split": "train"}}
        >>> scores_to_rows({"FID": 12.5, "protocol": protocol | {"generated": 8, "seed": 1}, "seconds": 3.2})[1]
        [('FID', '12.50', '8 against 9', '1')]
    """
    protocol = scores["protocol"]
    names = [name for name, value in scores.items() if is_number(value) and name != "seconds"]
    rows: list[Row] = [
        (name, evaluation_to_text(scores, name), _images(name, protocol), plain(protocol.get("seed"))) for name in names
    ]
    facts = {key: value for key, value in protocol.items() if key not in ("name", "std", "seed", "scored")}
    about = [plain(scores[key]) for key in ("device", "versions") if scores.get(key)]
    cost = ", ".join([duration(scores.get("seconds")), *about])
    name = ", ".join(
        [plain(protocol.get("name")), *(f"{key} {plain(protocol[key])}" for key in UNUSUAL if key in protocol)]
    )
    return SCORE_HEADS, rows, [f"protocol: {name}", protocol_to_sentence(facts, []), cost]


def runs_to_rows(runs: Sequence[RunRecord]) -> tuple[Row, list[Row], list[str]]:
    """The heads and rows of a table of runs; a sentence per protocol if there are several, and per problem.

    A run has a row for each protocol of its last evaluations, so that no row mixes protocols.
    """
    names = list(dict.fromkeys(score.name for score in runs_to_scores(runs)))
    protocols = evaluations_to_protocols(record for run in runs for record in last_evaluations(run))
    several = len(protocols) > 1
    rows: list[Row] = []
    for run in runs:
        for record in last_evaluations(run) or [{}]:
            letters = (protocols[protocol_key(record)].letter if record else "",) if several else ()
            figures = (evaluation_to_text(record, name) for name in names)
            rows.append((run.name, run.variant or "", str(run.iteration), *letters, *figures))
    heads = ("run", "variant", "iterations", *(("protocol",) if several else ()), *names)
    notes = [f"protocol {each.letter}: {each.sentence}" for each in protocols.values()] if several else []
    return heads, rows, [*notes, *(run.problem for run in runs if run.problem)]


def runs_to_error(runs: Sequence[RunRecord]) -> str:
    """A line with the last error of a classifier; for several seeds, the mean and the error of each."""
    measured = measure(runs, Score(*MEASURES["error"]))
    if measured is None:
        return "error: not measured yet"
    if len(runs) == 1:
        return f"error: {measured.text}"
    seeds = (f"seed {run.seed} {evaluation_to_text((last_evaluations(run) or [{}])[0], 'error')}" for run in runs)
    left_out = f"; {'; '.join(measured.left_out)}" if measured.left_out else ""
    return f"error: {measured.text} over {counted(len(measured.values), 'seed')} ({', '.join(seeds)}){left_out}"


def _images(name: str, protocol: Record) -> str:
    """How many images a score is computed from."""
    sets, scored, generated = (protocol.get(key) for key in ("splits", "scored_by_IS", "generated"))
    if name.startswith("IS"):
        return f"{number(sets)} x {number(set_size(sets, scored))}"
    if name.startswith("accuracy"):
        return number(max(filter(is_number, (generated, scored)), default=None))
    reference = protocol.get("reference")
    return f"{number(generated)} against {number(reference.get('images') if isinstance(reference, dict) else None)}"
