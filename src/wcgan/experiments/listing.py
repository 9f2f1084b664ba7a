"""Presets and tables as lines of text: what each costs, and what the paper reports for it."""

from __future__ import annotations

from wcgan.experiments.measurements import MEASUREMENTS
from wcgan.experiments.paper import TABLES, Figure, figures_of
from wcgan.experiments.presets import PRESETS, preset
from wcgan.experiments.tables import EXPERIMENTS

_HEAD = f"{'preset':33}iterations images  {'IS':>10}  FID 5k  FID 10k"
_FOOT = "images: real ones that the discriminator is shown; IS and FID: the paper's"


def presets_to_lines(text: str = "") -> list[str]:
    """A line of at most 80 characters for each preset, under the tables of the paper that have it.

    Args:
        text: lists only presets that have it in their name or in that of their table; case does not matter.

    Raises:
        ValueError: where there is none.
    """
    in_tables = {row.preset for table in TABLES.values() for row in table.rows}
    groups = {"In no table of results": [name for name in PRESETS if name not in in_tables]}
    groups |= {f"{table.title} ({key})": [row.preset for row in table.rows] for key, table in TABLES.items()}
    lines = [_HEAD]
    for title, names in groups.items():
        found = names if text.lower() in title.lower() else [name for name in names if text.lower() in name.lower()]
        if found:
            lines += ["", title, *map(_preset_to_line, found)]
    if len(lines) == 1:
        raise ValueError(f"no preset has {text!r} in its name or its table's; `wcgan presets` lists them all")
    return [*lines, "", _FOOT]


def tables_to_lines() -> list[str]:
    """A line for each table, figure or measurement that can be made: its name, its place in the paper, what it is.

    Example:
        >>> tables_to_lines()[2]
        'ablation-WC       table3    Ablation of WC, 6 rows'
    """
    tables = {
        key: (table.place.lower().replace(" ", ""), f"{table.title}, {len(table.rows)} rows")
        for key, table in EXPERIMENTS.items()
    }
    others = {key: ("", measurement.title) for key, measurement in MEASUREMENTS.items()}
    return [f"{key:18}{place:10}{title}" for key, (place, title) in (tables | others).items()]


def _preset_to_line(name: str) -> str:
    train, figures = preset(name).train, figures_of(name)
    images = count_to_text(train.iterations * train.critic_steps * train.batch)
    score = _score_to_text(figures.get("IS"))
    near, far = (str(figures[column][0]) if column in figures else "-" for column in ("FID 5k", "FID 10k"))
    return f"{name:35} {train.iterations:7,}  {images:>5}  {score:>10}  {near:>6}  {far:>7}"


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
