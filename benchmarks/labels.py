"""Table and curves of four runs: the paper's row c-std-C, with and without the authors' labels and embedding.

    python benchmarks/labels.py [--results results]

Reads the runs in the results folder, and writes `labels/table.md`, `.csv`, `.tex`, `.svg` and `.html` there.
"""

import argparse
from pathlib import Path

from wcgan.paper.tables import Row, Table, figures_of
from wcgan.report import write_table

RUNS = {
    "neither": "labels/c-std-C-neither",
    "embedding only": "labels/c-std-C-embedding-only",
    "labels only": "labels/c-std-C-labels-only",
    "both": "ablation-cWC/cifar10-c-std-C/seed-0",
}
FIGURES = figures_of("cifar10/c-std-C")
TABLE = Table("", "c-std-C with the authors' labels and embedding", tuple(Row(name, FIGURES) for name in RUNS))


def write_labels(results: Path) -> dict[str, Path]:
    """The files of the table, by suffix."""
    return write_table(TABLE, {name: [results / run] for name, run in RUNS.items()}, results / "labels")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    print(write_labels(parser.parse_args(arguments).results)["svg"])


if __name__ == "__main__":
    main()
