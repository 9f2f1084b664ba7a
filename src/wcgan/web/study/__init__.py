"""The paper's preference study: draw pairs of image sets, collect votes on them in the browser, analyse the votes."""

from wcgan.web.study.config import Pair, Study, read_study
from wcgan.web.study.create import create_study
from wcgan.web.study.pages import write_study_report

__all__ = ["Pair", "Study", "create_study", "read_study", "write_study_report"]
