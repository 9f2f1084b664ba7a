"""From the folders of runs to one page that needs nothing else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from wcgan._version import __version__
from wcgan.data.writing import write_atomically
from wcgan.report.curves import groups_to_curves
from wcgan.report.figures import counted
from wcgan.report.html import Markup, document, join, tag
from wcgan.report.over_seeds import groups_to_means, groups_to_seeds
from wcgan.report.reading import RunRecord, read_runs
from wcgan.report.rows import Results
from wcgan.report.samples import runs_to_samples
from wcgan.report.sections import differences_to_section, results_to_section, run_to_details, runs_to_section
from wcgan.report.seeds import Group, runs_to_groups
from wcgan.report.style import SHEET

# Nothing may be fetched, whatever a run's files say.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def write_report(runs: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Path:
    """Write one self-contained page on some runs: scores side by side, curves, samples, configs.

    Runs that differ in nothing but the seed are one group: mean and span of its curves, and a test of how it differs
    from other groups. Nothing in the page is fetched from elsewhere, and nothing in it runs. What a run does not have
    yet is left out and said to be missing.

    Args:
        runs: the folders of the runs.
        out: the file to write; one that exists is replaced, in one step.

    Returns:
        The file.

    Raises:
        ValueError: for no run, a folder that is not a run's, or an `out` that is a folder.
    """
    file = Path(out)
    if file.is_dir():
        raise ValueError(f"{file} is a folder: name the page to write, such as {file / 'report.html'}")
    return write_whole(file, runs_to_page(read_runs([Path(run) for run in runs])))


def write_whole(file: Path, content: str) -> Path:
    """All of the content under that name, in one step, or nothing new; folders are made for it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, content.encode(errors="replace"))  # a folder's name may not be UTF-8
    return file


def runs_to_page(runs: Sequence[RunRecord]) -> str:
    """The page on some runs."""
    groups = runs_to_groups(runs)
    styles = [style for style, group in enumerate(groups) for _ in group.runs]
    ordered = [run for group in groups for run in group.runs]
    what = counted(len(runs), "run")
    sections = (runs_to_section, groups_to_means, differences_to_section, groups_to_curves)
    parts = [section(groups) for section in sections]
    return _document(_title(runs), what, [*parts, runs_to_samples(ordered, styles), _configs(ordered)])


def results_to_page(results: Results) -> str:
    """The page on a table: the table, and below it the page on its runs."""
    groups = results.groups
    present = [(style, group) for style, group in enumerate(groups) if group.runs]
    runs = [run for group in groups for run in group.runs]
    parts = [results_to_section(results)]
    if runs:
        samples = runs_to_samples([_furthest(group) for _, group in present], [style for style, _ in present])
        # The table has the figures of every row, so that sections on runs and on means would say them again.
        sections = (groups_to_seeds, differences_to_section, groups_to_curves)
        parts += [*(section(groups) for section in sections), samples, _configs(runs)]
    return _document(results.title, f"{counted(len(results.rows), 'row')}, {counted(len(runs), 'run')}", parts)


def _document(title: str, what: str, parts: Sequence[Markup]) -> str:
    head = join([tag("meta", http_equiv="Content-Security-Policy", content=_POLICY), tag("style", SHEET)])
    about = tag("p", f"{what}, wcgan {__version__}", class_="soft")
    return document(title, head, tag("body", tag("h1", title), about, *parts))


def _configs(runs: Sequence[RunRecord]) -> Markup:
    return join([tag("h2", "Configs"), *(run_to_details(run, opened=len(runs) == 1) for run in runs)])


def _furthest(group: Group) -> RunRecord:
    """The run that was evaluated last of all, as its group's figures are of it; or the first of several."""
    return max(group.runs, key=lambda run: (max((e["iteration"] for e in run.evaluations), default=0), run.iteration))


def _title(runs: Sequence[RunRecord]) -> str:
    variants = list(dict.fromkeys(run.variant or run.name for run in runs))
    datasets = list(dict.fromkeys(run.dataset for run in runs if run.dataset))
    what = variants[0] if len(variants) == 1 else f"{', '.join(variants[:-1])} and {variants[-1]}"
    if len(variants) > 5:
        what = f"{len(runs)} runs"
    return f"{what} on {', '.join(datasets)}" if datasets else what
