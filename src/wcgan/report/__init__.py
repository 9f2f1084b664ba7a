"""Runs to one self-contained page: tables, curves, grids of samples."""

from wcgan.report.comparison import score_names, score_to_text
from wcgan.report.page import write_report
from wcgan.report.reading import read_runs

__all__ = ["read_runs", "score_names", "score_to_text", "write_report"]
