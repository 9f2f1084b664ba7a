"""Presets and tables as lines of text: what each costs, and what the paper reports for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from wcgan.experiments.classification import classifier_preset
from wcgan.experiments.classifiers import CLASSIFIERS
from wcgan.experiments.paper import TABLES, Figure, Table, figures_of
from wcgan.experiments.presets import PRESETS, preset
from wcgan.train.config import LoopConfig


def presets_to_lines(text: str = "") -> list[str]:
    """A line of at most 80 characters for each preset, under the tables of the paper that have it.

    Args:
        text: lists only presets that have it in their name or in that of their table; case does not matter.

    Raises:
        ValueError: where there is none.
    """
    lines = [*_section_to_lines(_GANS, text), *_section_to_lines(_CLASSIFIERS, text)]
    if not lines:
        raise ValueError(f"no preset has {text!r} in its name or its table's; `wcgan presets` lists them all")
    return lines[:-1]


@dataclass(frozen=True)
class _Section:
    """Presets of one kind."""

    names: Collection[str]
    tables: Mapping[str, Table]
    head: str
    foot: str
    to_line: Callable[[str], str]


def _section_to_lines(section: _Section, text: str) -> list[str]:
    """Head, presets by table, foot, and an empty line; nothing where no preset has the text."""
    in_tables = {row.preset for table in section.tables.values() for row in table.rows}
    groups = {"In no table of results": [name for name in section.names if name not in in_tables]}
    groups |= {f"{table.title} ({key})": [row.preset for row in table.rows] for key, table in section.tables.items()}
    lines: list[str] = []
    for title, names in groups.items():
        found = names if text.lower() in title.lower() else [name for name in names if text.lower() in name.lower()]
        if found:
            lines += ["", title, *map(section.to_line, found)]
    return [section.head, *lines, "", section.foot, ""] if lines else []


def _gan_to_line(name: str) -> str:
    train, figures = preset(name).train, figures_of(name)
    score = _score_to_text(figures.get("IS"))
    near, far = (str(figures[column][0]) if column in figures else "-" for column in ("FID 5k", "FID 10k"))
    return f"{_cost(name, train, train.critic_steps * train.batch)}  {score:>10}  {near:>6}  {far:>7}"


def _classifier_to_line(name: str) -> str:
    train = classifier_preset(name).train
    return f"{_cost(name, train, train.batch)}  {_score_to_text(figures_of(name).get('error')):>10}"


def _cost(name: str, train: LoopConfig, images: int) -> str:
    """A preset, its iterations and its images, of which each iteration takes some."""
    return f"{name:35} {train.iterations:7,} {count_to_text(train.iterations * images):>6}"


def count_to_text(count: int) -> str:
    """Exactly, in thousands or millions.

    Example:
        >>> [count_to_text(count) for count in (48_000, 9_920_000, 144_000_000)]
        ['48k', '9.92M', '144M']
    """
    return f"{count / 1e6:.15g}M" if count >= 1e6 else f"{count / 1e3:.15g}k"


def _score_to_text(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    mean, std = figure
    return f"{mean:.2f}" if std is None else f"{mean:.2f}±{std:.2f}"


_GANS = _Section(
    PRESETS,
    {key: table for key, table in TABLES.items() if not table.classifiers},
    f"{'preset':33}iterations images  {'IS':>10}  FID 5k  FID 10k",
    "images: real ones that the discriminator is shown; IS and FID: the paper's",
    _gan_to_line,
)
_CLASSIFIERS = _Section(
    CLASSIFIERS,
    {key: table for key, table in TABLES.items() if table.classifiers},
    f"{'classifier':33}iterations images  {'error':>10}",
    "images: those that the classifier is shown; error: the paper's, in percent",
    _classifier_to_line,
)
