"""Turn runs into tables and self-contained pages with scores, curves and samples."""

from wcgan.report.page import write_report, write_table
from wcgan.report.read import read_runs
from wcgan.report.terminal import runs_to_error, runs_to_rows, scores_to_rows, split_columns

__all__ = [
    "read_runs",
    "runs_to_error",
    "runs_to_rows",
    "scores_to_rows",
    "split_columns",
    "write_report",
    "write_table",
]
