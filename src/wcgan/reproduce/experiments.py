"""The tables of runs that `wcgan reproduce` can make: the paper's, and a few of our own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from wcgan.core.terminal import nearest
from wcgan.norm import VARIANTS
from wcgan.paper.tables import TABLES, Row, Table, all_names, figures_of

_STABILITY = ("WC", "WzcaC", "WzcaC-decomposition")
_CONVERGENCE = ("GP + ResNet", "WC GP + ResNet", "SN + ResNet", "WC SN + ResNet")
EXPERIMENTS: dict[str, Table] = {
    **TABLES,
    "convergence": Table(
        "fig.cifar-convergence",
        "IS and FID 10k every 1,000 iterations",
        tuple(Row(f"cifar10/{name}") for name in _CONVERGENCE),
        number=2,
        evaluate_every=1000,
    ),
    "stability": Table(
        "fig:zca-vs-cholesky",
        "Cholesky against ZCA with either gradient",
        tuple(Row(f"cifar10/{name}") for name in _STABILITY),
        number=4,
        evaluate_every=1000,
        seeds=3,
    ),
    "conditioning": Table(
        "",
        "The Jacobian with BN, WC and its ablation",
        (Row("cifar10/SN + ResNet"), *TABLES["ablation-WC"].rows),
        conditioning_every=1000,
    ),
    "filters": Table(
        "",
        "cWC with 256 filters in G and 128 in D",
        tuple(
            Row(f"cifar10/{name}", figures_of(f"cifar10/{name}"))
            for name in ("SN + Proj. Discr.", "cWC SN + Proj. Discr. wide", "cWC SN + Proj. Discr.")
        ),
    ),
    "digits-stability": Table(
        "",
        "Stability, as figure 4, on the digits",
        tuple(Row(f"digits/{name}") for name in _STABILITY),
        evaluate_every=100,
        seeds=3,
    ),
    "digits": Table(
        "",
        "Every variant on the embedded digits",
        tuple(Row(f"digits/{name}") for name in VARIANTS),
        evaluate_every=0,
    ),
}


def find_table(name: str) -> str:
    """The key in `EXPERIMENTS` for a key or a place in the paper; case does not matter.

    Example:
        >>> find_table("table3"), find_table("Figure 2"), find_table("digits")
        ('ablation-WC', 'convergence', 'digits')
    """
    names = {key.lower(): key for key in EXPERIMENTS}
    names |= {table.place.lower().replace(" ", ""): key for key, table in EXPERIMENTS.items() if table.place}
    found = names.get(name.lower().replace(" ", ""))
    if found is None:
        raise ValueError(
            f"unknown table {name!r}; `wcgan reproduce --list` names them; the nearest are {nearest(name, names)}"
        )
    return found


def choose_rows(key: str, wanted: Sequence[str] = ()) -> tuple[Row, ...]:
    """Some rows of a table, chosen by preset, by the part of its name after the slash, or by dataset.

    Args:
        key: a key of `EXPERIMENTS`.
        wanted: names, each of which may be several with commas between them; none for all rows.

    Raises:
        ValueError: for a name that matches no row.
    """
    names = {part.strip() for text in wanted for part in text.split(",") if part.strip()}
    rows = [(row, _row_names(row)) for row in EXPERIMENTS[key].rows]
    known = sorted({name for _, own in rows for name in own})
    for name in sorted(names):
        if name not in known:
            raise ValueError(f"{key} has no row {name!r}; the nearest are {nearest(name, known)}")
    return tuple(row for row, own in rows if not names or own & names)


def _row_names(row: Row) -> set[str]:
    presets = all_names(row.preset)
    return {row.dataset, *presets, *(name.partition("/")[2] for name in presets)}


def with_rows(table: Table, presets: Collection[str]) -> Table:
    """A table with only the rows of these presets; quoted rows are kept only in a whole table."""
    rows = tuple(row for row in table.rows if row.preset in presets)
    return table if len(rows) == len(table.rows) else replace(table, rows=rows, quoted=())
