"""Runs to one self-contained page: tables, curves, grids of samples."""

from wcgan.report.comparison import score_names, score_to_text
from wcgan.report.page import write_report
from wcgan.report.reading import read_runs
from wcgan.report.scores import scores_to_rows

__all__ = ["read_runs", "score_names", "score_to_text", "scores_to_rows", "write_report"]
