"""Write what runs did to files: one self-contained page, or a table of the paper in five formats."""

from __future__ import annotations

import base64
import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from wcgan import __version__
from wcgan.core.files import write_atomically
from wcgan.core.images import grid, image_to_png, pixels_to_image
from wcgan.core.terminal import counted
from wcgan.paper.tables import Table
from wcgan.report.charts import swatch
from wcgan.report.curves import groups_to_curves, results_to_figure
from wcgan.report.formats import results_to_csv, results_to_latex, results_to_markdown
from wcgan.report.html import SHEET, document, join, tag
from wcgan.report.numbers import number
from wcgan.report.paper_comparison import Results, runs_to_results
from wcgan.report.read import Picture, RunRecord, read_runs
from wcgan.report.sections import (
    differences_to_section,
    groups_to_means,
    groups_to_seeds,
    order_to_section,
    results_to_section,
    run_to_details,
    runs_to_section,
)
from wcgan.report.seed_groups import Group, runs_to_groups
from wcgan.runs.sampler import load_generator
from wcgan.train.journal import GRID_COLUMNS

SEED = 0
"""Seed of the noise that grids of several runs share."""
# The page loads nothing, whatever is in the files of a run.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_WANTED_WIDTH = 560  # pixels, to which small grids are enlarged


def write_report(runs: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Path:
    """Write one self-contained page on some runs: scores side by side, curves, samples, configs.

    Runs that differ only in the seed form a group, with the mean and span of its curves, and a significance test
    against other groups. The page loads nothing and runs no code. Parts that a run does not have yet are reported as
    missing.

    Args:
        runs: folders of the runs.
        out: file to write; an existing one is replaced atomically.

    Returns:
        The file.

    Raises:
        ValueError: for no runs, a folder without a run, or an `out` that is a folder.
    """
    file = Path(out)
    if file.is_dir():
        raise ValueError(f"{file} is a folder: name the page to write, such as {file / 'report.html'}")
    return write_whole(file, runs_to_page(read_runs([Path(run) for run in runs])))


def write_table(
    table: Table,
    runs: Mapping[str, Sequence[str | os.PathLike[str]]],
    folder: str | os.PathLike[str],
    scale: float = 1.0,
    notes: Sequence[str] = (),
) -> dict[str, Path]:
    """Write a table of the paper with our figures beside it, as `table.md`, `.csv`, `.tex` and `.html`; `table.svg` has
    its curves.

    Each score has the paper's figure, our best evaluation with its iteration, the difference, and our last checkpoint,
    under the protocol of the paper's figure; each of ours is the mean over the seeds that got furthest. The difference
    compares best with best; a run that was stopped early has none. Each row also has its seeds, iterations, protocol,
    time, hardware and commit. Scores that the paper does not have get columns of their own, and rows without runs have
    dashes.

    Args:
        table: from `wcgan.paper.tables.TABLES`.
        runs: preset of a row -> folders of its seeds, in any state.
        folder: where to write; existing files are replaced atomically.
        scale: factor by which the schedules were shortened; every file states it.
        notes: further sentences on all rows.

    Returns:
        md, csv, tex, html and svg -> the file.

    Raises:
        ValueError: for a preset that is not in the table, a folder without a run, or a scale outside (0, 1].
    """
    if not 0 < scale <= 1:
        raise ValueError(f"scale must be more than 0 and at most 1, got {scale}")
    presets = [row.preset for row in table.rows]
    unknown = [preset for preset in runs if preset not in presets]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is not a row of {table.title!r}; its rows are {', '.join(presets)}")
    records = {preset: _read_seeds(preset, [Path(run) for run in own]) for preset, own in runs.items() if own}
    results = runs_to_results(table, records, scale, notes)
    texts = {
        "md": results_to_markdown(results),
        "csv": results_to_csv(results),
        "tex": results_to_latex(results),
        "html": results_to_page(results),
        "svg": results_to_figure(results),
    }
    return {suffix: write_whole(Path(folder) / f"table.{suffix}", text) for suffix, text in texts.items()}


def write_whole(file: Path, content: str) -> Path:
    """Write a text file atomically, and its folders if needed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, content.encode(errors="replace"))  # the name of a folder may not be UTF-8
    return file


def _read_seeds(preset: str, folders: list[Path]) -> list[RunRecord]:
    """The runs of a row, named by preset and seed."""
    return [dataclasses.replace(run, name=f"{preset}, seed\u00a0{run.seed}") for run in read_runs(folders)]


def runs_to_page(runs: Sequence[RunRecord]) -> str:
    """A page on some runs."""
    groups = runs_to_groups(runs)
    styles = [style for style, group in enumerate(groups) for _ in group.runs]
    ordered = [run for group in groups for run in group.runs]
    what = counted(len(runs), "run")
    sections = (runs_to_section, groups_to_means, differences_to_section, groups_to_curves)
    parts = [section(groups) for section in sections]
    return _document(_title(runs), what, [*parts, runs_to_samples(ordered, styles), _configs(ordered)])


def results_to_page(results: Results) -> str:
    """A page on a table, with sections on its runs below."""
    groups = results.groups
    present = [(style, group) for style, group in enumerate(groups) if group.runs]
    runs = [run for group in groups for run in group.runs]
    parts = [results_to_section(results), order_to_section(results)]
    if runs:
        samples = runs_to_samples([_furthest(group) for _, group in present], [style for style, _ in present])
        # The table has the figures of every row: sections on runs and on means would repeat them.
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
    """The run with the latest evaluation, which the figures of its group include."""
    return max(group.runs, key=lambda run: (max((e["iteration"] for e in run.evaluations), default=0), run.iteration))


def _title(runs: Sequence[RunRecord]) -> str:
    variants = list(dict.fromkeys(run.variant or run.name for run in runs))
    datasets = list(dict.fromkeys(run.dataset for run in runs if run.dataset))
    what = variants[0] if len(variants) == 1 else f"{', '.join(variants[:-1])} and {variants[-1]}"
    if len(variants) > 5:
        what = f"{len(runs)} runs"
    return f"{what} on {', '.join(datasets)}" if datasets else what


@dataclass(frozen=True)
class Sample:
    """A grid of samples, and how it was made."""

    picture: Picture | None
    noise: tuple[int, bool] | None = None
    """Size of the noise vectors, and whether each column shares one; None for a picture that the run wrote."""
    why_own: str = ""
    """Why the picture that the run wrote is shown."""


def run_to_sample(run: RunRecord) -> Sample:
    """A grid drawn from the last checkpoint with the noise of `SEED`; else the last picture that the run wrote."""
    if not any((run.folder / "checkpoints").glob("*.json")):
        return Sample(run.picture, why_own="there is no checkpoint")
    try:
        sampler = load_generator(run.folder)
        images = sampler.rows(GRID_COLUMNS, seed=SEED)
    except (ValueError, OSError) as error:
        reason = str(error).replace(str(run.folder), run.name)
        return Sample(run.picture, why_own=f"its checkpoint cannot be used: {reason}")
    picture = pixels_to_image(grid(images, GRID_COLUMNS))
    drawn = Picture(sampler.iteration or 0, image_to_png(picture), *picture.size)
    return Sample(drawn, (sampler.config.noise, sampler.conditional))


def runs_to_samples(runs: Sequence[RunRecord], styles: Sequence[int]) -> Markup:
    """The samples of one run as it wrote them, of several drawn anew from the same noise; classifiers have none."""
    drawing = [(run, style) for run, style in zip(runs, styles, strict=True) if not run.classifies]
    if not drawing:
        return Markup()
    runs, styles = zip(*drawing, strict=True)
    samples = [run_to_sample(run) for run in runs] if len(runs) > 1 else [Sample(run.picture) for run in runs]
    figures = [_figure(*each) for each in zip(runs, styles, samples, strict=True)]
    return join([tag("h2", "Samples"), _note(samples), tag("div", *figures, class_="samples")])


def _note(samples: Sequence[Sample]) -> Markup:
    """What the grids drawn anew have in common."""
    kinds = {sample.noise for sample in samples if sample.noise is not None}
    if not kinds:
        return Markup()
    same = f"Drawn from the last checkpoints with the same noise (seed {SEED}) and the same classes."
    lengths = " or ".join(number(length) for length in sorted({length for length, _ in kinds}))
    differs = (
        f"Drawn from the last checkpoints with seed {SEED} and the same classes. The noise has {lengths} dimensions; "
        "grids share it only if they have equally many, and are both conditional or both unconditional."
    )
    return tag("p", same if len(kinds) == 1 else differs, class_="note soft")


def _figure(run: RunRecord, style: int, sample: Sample) -> Markup:
    heading = tag("h3", swatch(style), run.name)
    picture = sample.picture
    if picture is None:
        return tag("figure", heading, tag("p", "No samples yet.", class_="empty"))
    scale = max(1, _WANTED_WIDTH // max(1, picture.width))
    rows = "one class per row, one noise vector per column" if run.conditional else "independent noise"
    image = tag(
        "img",
        src="data:image/png;base64," + base64.b64encode(picture.png).decode("ascii"),
        alt=f"Samples from {run.name} after {counted(picture.iteration, 'iteration')}: {rows}",
        width=picture.width * scale,
        height=picture.height * scale,
        class_="small" if scale > 1 else None,
    )
    names = tag("ol", *(tag("li", name, title=name) for name in run.row_names), class_="rows") if run.row_names else ""
    source = f". Picture from training, since {sample.why_own}" if sample.why_own else ""
    caption = f"{run.variant or run.name}, iteration {number(picture.iteration)}: {rows}{source}"
    return tag("figure", heading, tag("div", names, image, class_="grid-and-rows"), tag("figcaption", caption))
