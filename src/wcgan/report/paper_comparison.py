"""A table of the paper with our results beside it: columns, rows, and the notes below."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wcgan.core.terminal import duration
from wcgan.evaluate.protocol import PROTOCOLS
from wcgan.paper.tables import MEASURES, Figure, Quote, Table
from wcgan.report.numbers import DASH, difference_to_text, is_number, number, paper_to_text
from wcgan.report.read import RunRecord, protocol_key
from wcgan.report.scores import (
    Score,
    evaluations_to_protocols,
    is_lower_better,
    last_evaluations,
    runs_to_scores,
    score_to_label,
)
from wcgan.report.seed_groups import Group, Measured, measure, measure_best
from wcgan.runs.status import RunStatus

FACTS = ("Seeds", "Iterations", "Protocol", "Time", "Hardware", "Commit")
EPOCH = "s / epoch"
CLASSIFIER_FACTS = (*FACTS[:4], EPOCH, *FACTS[4:])  # after the time
RULE = "Best is the best evaluation of a run; last is its last checkpoint."
DIFFERENCE = {
    "best": "Difference is our best minus the paper's figure, also the best of its run; both under one protocol.",
    "last": "Difference is our last minus the paper's figure; both under one protocol.",
}
QUOTED = "Quoted rows are figures from other articles or from the paper's text; nothing is trained for them."
MOST_ENDS = 3  # columns for rows that end early; the last ones, if there are more
SPREAD = (
    "Our \u00b1 is the sample standard deviation over seeds or, where marked (sets), over the sets of images of one "
    "seed. Time is the mean time per seed."
)


@dataclass(frozen=True)
class Column:
    """A score in a table."""

    label: str
    score: Score
    paper: Mapping[str, Figure] = field(default_factory=dict)
    """Preset -> the paper's figure; empty if the paper does not have this score."""
    iteration: int | None = None
    """A fixed iteration to report, in place of the best and the last checkpoint."""
    aside: bool = False
    """Whether the column is in the second table, with its last figure only, since the paper has other scores."""

    @property
    def compared(self) -> str:
        """Which of our figures is compared with the paper's.

        The paper reports GANs at their best. It does not say so for classifiers, and a best test error would be
        selected on the test images.
        """
        return "last" if self.score.name == "error" else "best"

    @property
    def names(self) -> tuple[str, ...]:
        """Subheads below the label; empty for a single figure."""
        if self.iteration is not None:
            return ("paper", "ours", "difference") if self.paper else ()
        if self.aside or is_lower_better(self.score.name) is None:
            return ()
        other = "last" if self.compared == "best" else "best"
        return ("paper", self.compared, "difference", other) if self.paper else (self.compared, other)


@dataclass(frozen=True)
class Entry:
    """A score of a row: the paper's and ours."""

    column: Column
    paper: Figure | None
    ours: Measured | None
    """At the end, or at the iteration of the column."""
    best: Measured | None = None
    """Best evaluation of each run; None for a column with a fixed iteration."""

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's; None for a run that was stopped early."""
        single = self.column.iteration is not None
        ours = self.best if self.column.compared == "best" and not single else self.ours
        if self.paper is None or ours is None or (ours.stopped and not single):
            return None
        return ours.mean - self.paper[0]

    @property
    def cells(self) -> list[str]:
        """A text for each subhead of the column, or the single figure."""
        texts = {
            "paper": paper_to_text(self.paper, self.column.score.name),
            "ours": self.ours.text if self.ours else DASH,
            "best": f"{self.best.text} {self.best.where}" if self.best else DASH,
            "last": _last_to_text(self.ours) if self.ours else DASH,
            "difference": difference_to_text(self.difference),
        }
        return [texts[name] for name in self.column.names or ("ours",)]


def _last_to_text(measured: Measured) -> str:
    """The figure, with its iteration if that is not the end of the run."""
    planned = max((run.planned or 0 for run in measured.runs), default=0)
    early = any(run.status is not RunStatus.FINISHED for run in measured.runs)
    return f"{measured.text} {measured.where} of {number(planned)}" if early and planned else measured.text


@dataclass(frozen=True)
class TableRow:
    """A row: its runs, one per seed, and an entry per column."""

    preset: str
    runs: tuple[RunRecord, ...]
    entries: tuple[Entry, ...]
    facts: dict[str, str]
    """Name in `FACTS` or `CLASSIFIER_FACTS` -> what the runs took, in words."""
    remarks: tuple[str, ...] = ()
    """Caveats about the figures."""
    quoted: bool = False
    """Whether the figures come from another article, with nothing to train."""


@dataclass(frozen=True)
class Results:
    """A table with its notes."""

    place: str
    """The table's place in the paper, such as "Table 3"; empty if it is not in the paper."""
    name: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    scale: float
    protocols: tuple[str, ...]
    """How the figures were measured."""
    notes: tuple[str, ...]
    """The scale if it is not 1, and other notes on all rows."""

    @property
    def title(self) -> str:
        """Place and name."""
        return f"{self.place}: {self.name}" if self.place else self.name

    @property
    def groups(self) -> list[Group]:
        """The runs of each row, except quoted rows; the order sets the colours."""
        return [Group(row.preset, row.runs) for row in self.rows if not row.quoted]

    @property
    def facts(self) -> tuple[str, ...]:
        """Names of the facts of all rows."""
        return tuple(self.rows[0].facts)

    @property
    def sentences(self) -> list[str]:
        """All notes below the table."""
        remarks = [f"{row.preset}: {remark}" for row in self.rows for remark in row.remarks]
        difference = [DIFFERENCE[kind] for kind in dict.fromkeys(c.compared for c in self.columns if c.paper)]
        quoted = [QUOTED] if any(row.quoted for row in self.rows) else []
        return [*self.notes, RULE, *difference, *quoted, SPREAD, *self.protocols, *remarks]


def runs_to_results(
    table: Table, runs: Mapping[str, Sequence[RunRecord]], scale: float, notes: Sequence[str]
) -> Results:
    """A table of the paper with the figures of runs beside it; `runs` maps presets to their runs."""
    of_rows = [tuple(runs.get(row.preset, ())) for row in table.rows]
    columns = table_to_columns(table, of_rows, scale)
    measured = [[measure(own, column.score, column.iteration) for column in columns] for own in of_rows]
    shown = [record for row in measured for cell in row if cell for record in cell.evaluations]
    # In the order of the runs, so that a page on the same runs has the same letters.
    last = [record for own in of_rows for run in own for record in last_evaluations(run)]
    protocols = evaluations_to_protocols([*last, *shown])
    used = {protocol_key(record) for record in shown}
    names = CLASSIFIER_FACTS if table.classifiers else FACTS
    rows: list[TableRow] = []
    for row, own, cells in zip(table.rows, of_rows, measured, strict=True):
        entries = tuple(
            Entry(c, c.paper.get(row.preset), cell, measure_best(own, c.score) if c.iteration is None else None)
            for c, cell in zip(columns, cells, strict=True)
        )
        keys = {protocol_key(cell.evaluations[0]) for cell in cells if cell}
        letters = ", ".join(each.letter for key, each in protocols.items() if key in keys)
        rows += [_quoted_row(quote, columns, names) for quote in table.quoted if quote.before == row.preset]
        rows.append(TableRow(row.preset, own, entries, _facts(own, cells, letters, names), _remarks(own, entries)))
    # The paper gives no schedule for its classifiers: their presets use that of He et al.
    whose = "the paper's" if any(row.figures for row in table.rows) and not table.classifiers else "the presets'"
    shortened = [] if scale == 1 else [f"Schedules shortened to {scale:g} of {whose}."]
    return Results(
        place=table.place,
        name=table.title,
        columns=columns,
        rows=tuple(rows),
        scale=scale,
        protocols=tuple(f"Protocol {each.letter}: {each.sentence}" for key, each in protocols.items() if key in used),
        notes=(*shortened, *notes),
    )


def table_to_columns(table: Table, runs: Sequence[Sequence[RunRecord]], scale: float = 1.0) -> tuple[Column, ...]:
    """Columns for the paper's figures, in the order of `MEASURES`; for the same scores at iterations where rows of
    different lengths can be compared; and for other scores."""
    own_names = {Score(*measured): name for name, measured in MEASURES.items()}
    columns = []
    for score, name in own_names.items():
        earlier = sorted({at for row in table.rows for at in row.earlier}) if name == "IS" else []
        for at in earlier:
            paper = {row.preset: row.earlier[at] for row in table.rows if at in row.earlier}
            short = max(1, round(at * scale))
            columns.append(Column(f"{name} at {number(short)}", score, paper, short))
        paper = {row.preset: row.figures[name] for row in table.rows if name in row.figures}
        if paper:
            columns.append(Column(name, score, paper))
    columns += _where_rows_end(columns, runs)
    known = {column.score for column in columns}
    found = [score for score in runs_to_scores([run for own in runs for run in own]) if score not in known]
    has = {score: {place for place, own in enumerate(runs) if measure(own, score)} for score in [*known, *found]}
    extra: list[Score] = []
    for score in found:
        # Evaluations during training use fewer images: a published protocol replaces them.
        published = [other for other in has if other.name == score.name and other.protocol in PROTOCOLS]
        if has[score] and (score in published or not has[score] <= set().union(*(has[other] for other in published))):
            extra.append(score)
    aside = bool(columns)
    return (*columns, *(Column(own_names.get(s) or label_of(s, extra), s, aside=aside) for s in extra))


def _where_rows_end(columns: Sequence[Column], runs: Sequence[Sequence[RunRecord]]) -> list[Column]:
    """Columns where one row ends and another continues: at the last iteration until then that several rows share."""
    evaluated = [{each["iteration"] for run in own for each in run.evaluations} for own in runs]
    ends = sorted({max(own) for own in evaluated if own})
    there = {(column.score, column.iteration) for column in columns}
    found = []
    for column in (each for each in columns if each.iteration is None):

        def is_shared(iteration: int, score: Score = column.score) -> bool:
            return sum(measure(own, score, iteration) is not None for own in runs) > 1

        shared = sorted(filter(is_shared, set().union(*evaluated)))
        last = {max(before) for end in ends[:-1] if (before := [i for i in shared if i <= end])}
        places = [i for i in sorted(last)[-MOST_ENDS:] if (column.score, i) not in there]
        found += [Column(f"{column.label} at {number(i)}", column.score, iteration=i) for i in places]
    return found


def label_of(score: Score, scores: Sequence[Score]) -> str:
    """Label of a score that the paper does not have; scores by Inception always name their protocol."""
    return score_to_label(score, scores) if "(" in score.name else score_to_label(score, [score, score])


def _quoted_row(quote: Quote, columns: Sequence[Column], names: Sequence[str]) -> TableRow:
    entries = tuple(Entry(c, quote.figures.get(c.label) if c.paper else None, None) for c in columns)
    return TableRow(quote.name, (), entries, dict.fromkeys(names, DASH), quoted=True)


def _facts(
    runs: Sequence[RunRecord], cells: Sequence[Measured | None], letters: str, names: Sequence[str]
) -> dict[str, str]:
    counts = [len(cell.evaluations) for cell in cells if cell]
    splits = dict.fromkeys(split for cell in cells if cell for split in _reference_splits(cell))
    unusual = [split for split in splits if split != "test"]
    letters += f", against {' and '.join(unusual)} images" if letters and unusual else ""
    used = min(counts, default=len(runs))
    times = [run.seconds for run in runs if is_number(run.seconds)]
    words = {
        "Seeds": number(used) if used == len(runs) else f"{used} of {len(runs)}",
        "Iterations": "; ".join(dict.fromkeys(map(progress_to_text, runs))),
        "Protocol": letters,
        "Time": duration(sum(times) / len(times)) if times else "",
        EPOCH: _seconds_per_epoch(runs),
        "Hardware": "; ".join(dict.fromkeys(name for run in runs for name in run.machines)),
        "Commit": "; ".join(dict.fromkeys(commit for run in runs for commit in run.commits)),
    }
    return {name: (words[name] if runs else "") or DASH for name in names}


def _reference_splits(measured: Measured) -> list[str]:
    """Splits of the real images; none for a score without real images."""
    if measured.score.name.startswith("IS"):
        return []
    references = [evaluation.get("protocol", {}).get("reference") for evaluation in measured.evaluations]
    return [str(reference.get("split")) for reference in references if isinstance(reference, dict)]


def _seconds_per_epoch(runs: Sequence[RunRecord]) -> str:
    """Median time of one pass over the training images, without evaluations."""
    found = [seconds for run in runs for seconds in run.epochs]
    return number(statistics.median(found), 3) if found else DASH


def progress_to_text(run: RunRecord) -> str:
    """How far a run got; unless it finished, of how many iterations, and its status."""
    if run.status is RunStatus.FINISHED:
        return number(run.iteration)
    planned = f" of {number(run.planned)}" if run.planned is not None else ""
    return f"{number(run.iteration)}{planned}, {run.status}"


def _remarks(runs: Sequence[RunRecord], entries: Sequence[Entry]) -> tuple[str, ...]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        if entry.ours is None:
            continue
        remarks = list(entry.ours.left_out)
        missing = len(runs) - len(entry.ours.evaluations) - len(remarks)
        if missing:
            remarks.append(f"{missing} of {len(runs)} seeds without a figure")
        for remark in remarks:
            found.setdefault(remark, []).append(entry.column.label)
    every = [entry.column.label for entry in entries if entry.ours]
    return tuple(f"{remark}." if of == every else f"{', '.join(of)}: {remark}." for remark, of in found.items())
