"""The paper's preference study: paired image sets, pages to vote on them, and the analysis of the votes."""

from wcgan.web.study.config import Pair, Study, read_study
from wcgan.web.study.create import create_study
from wcgan.web.study.report import write_study_report

__all__ = ["Pair", "Study", "create_study", "read_study", "write_study_report"]
