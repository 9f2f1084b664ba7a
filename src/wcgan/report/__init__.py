"""Runs to tables and to one self-contained page: figures, curves, grids of samples."""

from wcgan.report.page import write_report
from wcgan.report.read import read_runs
from wcgan.report.terminal import runs_to_error, runs_to_rows, scores_to_rows
from wcgan.report.write_table import write_table

__all__ = ["read_runs", "runs_to_error", "runs_to_rows", "scores_to_rows", "write_report", "write_table"]
