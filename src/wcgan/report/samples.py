"""Grids of samples side by side: from the same noise where there are checkpoints to draw from."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wcgan.report.charts import swatch
from wcgan.report.figures import number
from wcgan.report.html import Markup, join, tag
from wcgan.report.reading import Picture, RunRecord, read_picture
from wcgan.train.images import grid, write_png
from wcgan.train.journal import GRID_COLUMNS
from wcgan.train.loading import load_generator

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
