"""From the folders of runs to one page that needs nothing else."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wcgan._version import __version__
from wcgan.core.files import write_atomically
from wcgan.core.images import grid, write_png
from wcgan.report.charts import swatch
from wcgan.report.curves import groups_to_curves
from wcgan.report.html import SHEET, Markup, document, join, tag
from wcgan.report.numbers import counted, number
from wcgan.report.paper_comparison import Results
from wcgan.report.read import Picture, RunRecord, read_picture, read_runs
from wcgan.report.sections import (
    differences_to_section,
    groups_to_means,
    groups_to_seeds,
    results_to_section,
    run_to_details,
    runs_to_section,
)
from wcgan.report.seed_groups import Group, runs_to_groups
from wcgan.runs.sampler import load_generator
from wcgan.train.journal import GRID_COLUMNS

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


SEED = 0
_WANTED_WIDTH = 560  # of a grid, in pixels, that small ones are enlarged to


@dataclass(frozen=True)
class Sample:
    """A grid, and where it comes from."""

    picture: Picture | None
    noise: tuple[int, bool] | None = None
    """The length of the noise it was drawn from, and whether it is one a column; None for the run's own picture."""
    why_own: str = ""
    """Why it is the run's own picture."""


def draw(run: RunRecord) -> Sample:
    """A grid from the last checkpoint, the noise of `SEED` and the first classes; else the run's own last picture."""
    if not any((run.folder / "checkpoints").glob("*.json")):
        return Sample(run.picture, why_own="there is no checkpoint to draw from")
    try:
        sampler = load_generator(run.folder)
        images = sampler.rows(GRID_COLUMNS, seed=SEED)
    except (ValueError, OSError) as error:
        reason = str(error).replace(str(run.folder), run.name)
        return Sample(run.picture, why_own=f"its checkpoint cannot be drawn from: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{sampler.iteration:07d}.png"
        write_png(grid(images, GRID_COLUMNS), file)
        return Sample(read_picture(file), (sampler.config.noise, sampler.conditional))


def runs_to_samples(runs: Sequence[RunRecord], styles: Sequence[int]) -> Markup:
    """The section: one run's own picture as it is; of several, each drawn from the same noise. None of classifiers."""
    drawing = [(run, style) for run, style in zip(runs, styles, strict=True) if not run.classifies]
    if not drawing:
        return Markup()
    runs, styles = zip(*drawing, strict=True)
    samples = [draw(run) for run in runs] if len(runs) > 1 else [Sample(run.picture) for run in runs]
    figures = [_figure(*each) for each in zip(runs, styles, samples, strict=True)]
    return join([tag("h2", "Samples"), _note(samples), tag("div", *figures, class_="samples")])


def _note(samples: Sequence[Sample]) -> Markup:
    """What the grids that were drawn anew share."""
    kinds = {sample.noise for sample in samples if sample.noise is not None}
    if not kinds:
        return Markup()
    same = f"Drawn anew from the last checkpoints, with the same noise (seed {SEED}) and the same classes."
    lengths = " or ".join(number(length) for length in sorted({length for length, _ in kinds}))
    differs = (
        f"Drawn anew from the last checkpoints, with noise of seed {SEED} and the same classes. It has {lengths} "
        "numbers, and is the same only in grids with equally many, and with one class a row or without classes alike."
    )
    return tag("p", same if len(kinds) == 1 else differs, class_="note soft")


def _figure(run: RunRecord, style: int, sample: Sample) -> Markup:
    heading = tag("h3", swatch(style), run.name)
    picture = sample.picture
    if picture is None:
        return tag("figure", heading, tag("p", "No samples yet.", class_="empty"))
    scale = max(1, _WANTED_WIDTH // max(1, picture.width))
    rows = "one class a row, one noise a column" if run.conditional else "each from its own noise"
    image = tag(
        "img",
        src="data:image/png;base64," + base64.b64encode(picture.png).decode("ascii"),
        alt=f"Samples of {run.name} after {picture.iteration} iterations: {rows}",
        width=picture.width * scale,
        height=picture.height * scale,
        class_="small" if scale > 1 else None,
    )
    source = f". The run's own picture: {sample.why_own}" if sample.why_own else ""
    caption = f"{run.variant or run.name}, iteration {number(picture.iteration)}: {rows}{source}"
    return tag("figure", heading, image, tag("figcaption", caption))
