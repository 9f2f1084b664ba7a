"""Commands to train, and to draw from what was trained."""

from pathlib import Path
from typing import Annotated

import typer

from wcgan.cli.app import RunFolder, Settings, app, say, say_end


@app.command()
def train(
    preset: Annotated[str | None, typer.Argument(help="What to train; see `wcgan presets`.")] = None,
    data: Annotated[str | None, typer.Option(help="A data set's name, or a folder of images.")] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="The run's folder.")] = None,
    settings: Settings = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, if it is there.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="A broken image is fatal.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run; write nothing.")] = False,
    evaluate_every: Annotated[int | None, typer.Option(help="Iterations between evaluations; 0 for the last.")] = None,
    stop_at: Annotated[int | None, typer.Option(help="Stop at this iteration, to be gone on with.")] = None,
) -> None:
    """Train a GAN. With no preset: the embedded digits."""
    from wcgan import experiments
    from wcgan.report import write_report
    from wcgan.train import Run

    chosen = preset or experiments.DEFAULT
    folder = folder or Path("runs") / experiments.preset_to_folder(chosen)
    if evaluate_every is not None:
        settings = [*(settings or []), f"train.evaluate_every={evaluate_every}"]
    own = resume and preset is None and data is None and not settings and not strict
    config = Run(folder).config() if own else experiments.configure(chosen, data, strict, settings or [])
    if dry_run:
        for name, value in experiments.dry_run(config).items():
            say(f"{name:14} {value}")
        return
    outcome = experiments.go_on(folder, stop_at) if own else experiments.start(config, folder, resume, stop_at)
    if say_end("train", outcome, config.train.iterations, folder):
        say(f"report: {write_report([folder], folder / 'report.html')}")


@app.command()
def sample(
    run: RunFolder = None,
    count: Annotated[int | None, typer.Option("-n", "--count", help="How many images; 64 by default.")] = None,
    classes: Annotated[str | None, typer.Option(help="Classes that take turns, such as 3,7.")] = None,
    grid: Annotated[str | None, typer.Option(help="A class a row: fixed-z (one noise a column) or class-rows.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same images.")] = 0,
    truncation: Annotated[float, typer.Option(help="Scales the noise.")] = 1.0,
    checkpoint: Annotated[str, typer.Option(help="last, best or an iteration.")] = "last",
    file: Annotated[Path | None, typer.Option("--out", help="A PNG for a grid, or a folder for single images.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Draw images from a trained generator."""
    from wcgan.experiments.grids import write_grid
    from wcgan.train import load_generator
    from wcgan.train.folders import free_name
    from wcgan.train.images import write_images
    from wcgan.train.shipped import find_run, shipped

    source = shipped() if run is None else find_run(run)
    place = source if source == run else Path()  # nothing is written among the shipped generators
    try:
        wanted = None if classes is None else [int(c) for c in classes.split(",")]
    except ValueError:
        raise ValueError(f"--classes takes numbers such as 3,7; got {classes!r}") from None
    if grid is not None:
        if count is not None:
            raise ValueError(f"--grid has ten images a row: leave out -n {count}")
        target = file or free_name(place / f"{grid}-{seed}.png")
        say(f"{grid}: {write_grid(source, grid, target, wanted, checkpoint, seed, truncation, device)}")
        return
    number = 64 if count is None else count
    images = load_generator(source, checkpoint, device).sample(number, wanted, seed, truncation)
    target = file or free_name(place / f"sample-{seed}.png")
    write_images(images, target)
    say(f"{number} images: {target}")


@app.command()
def presets(
    text: Annotated[str, typer.Argument(help="List only those with this in their name or their table's.")] = "",
) -> None:
    """List what can be trained by name, with what it costs and what the paper reports."""
    from wcgan.experiments.listing import presets_to_lines

    for line in presets_to_lines(text):
        say(line)


@app.command()
def datasets(
    folder: Annotated[Path | None, typer.Option(help="Where the data sets lie.")] = None,
    download: Annotated[str | None, typer.Option(help="Bring this one from its official address.")] = None,
) -> None:
    """List the data sets: what is there, what is missing and how to get it."""
    from wcgan import data

    if download is not None:
        say(f"{download}: {data.download(download, folder)}")
        return
    for status in data.describe(folder):
        say(f"{status.name:14} {'here   ' if status.present else 'missing'}  {status.what}")
        if not status.present:
            say(f"{'':14} {status.how_to_get}")
