"""A score in a table, and what a row has of it: the paper's figure, our best, our last, and the difference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from wcgan.experiments.paper import Figure
from wcgan.report.comparison import Score, figure_to_text, is_lower_better
from wcgan.report.figures import number
from wcgan.report.pieces import DASH
from wcgan.report.seeds import Measured


@dataclass(frozen=True)
class Column:
    """A score in a table."""

    label: str
    score: Score
    paper: Mapping[str, Figure] = field(default_factory=dict)
    """Preset -> the paper's figure; empty for a score that the paper does not have."""
    iteration: int | None = None
    """Where it is measured, in place of the best and the last checkpoint."""
    aside: bool = False
    """Whether it stands with what the rows took, since the paper has other scores: its last figure is enough there."""

    @property
    def compared(self) -> str:
        """Which of our figures the paper's is compared with: its GANs are reported at their best.

        Of classifiers it does not say so, and the best test error would be one that was chosen on the test images.
        """
        return "last" if self.score.name == "error" else "best"

    @property
    def names(self) -> tuple[str, ...]:
        """What stands below the label; empty for a single figure."""
        if self.iteration is not None:
            return ("paper", "ours", "difference") if self.paper else ()
        if self.aside or is_lower_better(self.score.name) is None:
            return ()
        other = "last" if self.compared == "best" else "best"
        return ("paper", self.compared, "difference", other) if self.paper else (self.compared, other)


@dataclass(frozen=True)
class Entry:
    """A row's score: the paper's and ours."""

    column: Column
    paper: Figure | None
    ours: Measured | None
    """At the end, or where the column is measured."""
    best: Measured | None = None
    """On the way; None for a column that is measured at one iteration."""

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's; none for a run that was stopped early."""
        single = self.column.iteration is not None
        ours = self.best if self.column.compared == "best" and not single else self.ours
        if self.paper is None or ours is None or (ours.stopped and not single):
            return None
        return ours.mean - self.paper[0]

    @property
    def cells(self) -> list[str]:
        """A text for each of the column's names, or the single figure."""
        texts = {
            "paper": paper_to_text(self.paper, self.column.score.name),
            "ours": self.ours.text if self.ours else DASH,
            "best": f"{self.best.text} {self.best.where}" if self.best else DASH,
            "last": _last_to_text(self.ours) if self.ours else DASH,
            "difference": difference_to_text(self.difference),
        }
        return [texts[name] for name in self.column.names or ("ours",)]


def paper_to_text(figure: Figure | None, name: str = "") -> str:
    """A figure of the paper, of the score that has this name.

    Example:
        >>> paper_to_text((8.2, 0.08)), paper_to_text((17.2, None)), paper_to_text((7.0, None), "error")
        ('8.20 ± 0.08', '17.2', '7.00%')
    """
    if figure is None:
        return DASH
    mean, deviation = figure
    if name == "error":
        return figure_to_text(name, mean, deviation)
    return str(mean) if deviation is None else f"{mean:.2f} \u00b1 {deviation:.2f}"


def difference_to_text(difference: float | None) -> str:
    """A difference, always with its sign.

    Example:
        >>> difference_to_text(0.04), difference_to_text(-1.5), difference_to_text(None)
        ('+0.04', '−1.50', '–')
    """
    if difference is None or not math.isfinite(difference):
        return number(difference)
    return f"{difference:+.2f}".replace("-", "\u2212")


def _last_to_text(measured: Measured) -> str:
    """The figure, and where it is from if that is not the end of the run."""
    planned = max((run.planned or 0 for run in measured.runs), default=0)
    early = any(run.status != "finished" for run in measured.runs)
    return f"{measured.text} {measured.where} of {number(planned)}" if early and planned else measured.text
