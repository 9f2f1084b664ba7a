"""Turn runs into tables and self-contained pages with scores, curves and samples."""

from wcgan.report.formats import runs_to_error, runs_to_rows, scores_to_rows
from wcgan.report.page import write_report, write_table
from wcgan.report.read import read_runs

__all__ = [
    "read_runs",
    "runs_to_error",
    "runs_to_rows",
    "scores_to_rows",
    "write_report",
    "write_table",
]
