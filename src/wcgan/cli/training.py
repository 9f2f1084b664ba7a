"""Commands to train, and to draw from what was trained."""

from pathlib import Path
from typing import Annotated

import typer

from wcgan.cli.app import RunFolder, Settings, app, say, say_end

AcceptConfig = Annotated[
    bool, typer.Option("--accept-config", help="Resume although config.yaml was changed since the last checkpoint.")
]


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
    accept_config: AcceptConfig = False,
) -> None:
    """Train a GAN. With no preset: the embedded digits."""
    from wcgan import train as training
    from wcgan.paper import presets
    from wcgan.report import write_report
    from wcgan.runs.folder import Run

    chosen = preset or presets.DEFAULT
    folder = folder or Path("runs") / presets.preset_to_folder(chosen)
    if evaluate_every is not None:
        settings = [*(settings or []), f"train.evaluate_every={evaluate_every}"]
    own = resume and preset is None and data is None and not settings and not strict
    config = Run(folder).config() if own else presets.configure(chosen, data, strict, settings or [])
    if dry_run:
        for name, value in training.dry_run(config).items():
            say(f"{name:14} {value}")
        return
    if own:
        outcome = training.go_on(folder, stop_at, accept_config)
    else:
        outcome = training.start(config, folder, resume, stop_at, accept_config)
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
    from wcgan.core.files import free_name
    from wcgan.core.images import write_images
    from wcgan.reproduce.figures import write_grid
    from wcgan.runs.sampler import find_run, load_generator, shipped

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
    from wcgan.paper.listing import presets_to_lines

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


@app.command()
def classify(
    preset: Annotated[str | None, typer.Argument(help="What to train; see `wcgan presets ResNet-`.")] = None,
    dataset: Annotated[str | None, typer.Option(help="A data set's name, or a folder with one for each class.")] = None,
    depth: Annotated[int | None, typer.Option(help="Of the ResNet: 20, 32, 44, 56, 110, or any 6n + 2.")] = None,
    norm: Annotated[str | None, typer.Option(help="BN, WC, DBN, IterNorm or another without classes.")] = None,
    where: Annotated[str | None, typer.Option(help="first or all: the layers that have it.")] = None,
    seeds: Annotated[int | None, typer.Option(help="3 for the seeds 0, 1 and 2, side by side.")] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="The run's folder, or that of its seeds.")] = None,
    settings: Settings = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is in --out, if it is there.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="A broken image is fatal.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run; write nothing.")] = False,
    stop_at: Annotated[int | None, typer.Option(help="Stop at this iteration, to be gone on with.")] = None,
    accept_config: AcceptConfig = False,
) -> None:
    """Train a ResNet to classify. With neither preset nor data set: the embedded digits."""
    from wcgan import train as training
    from wcgan.paper import presets
    from wcgan.paper.classifier_presets import classifier_to_name
    from wcgan.report import read_runs, runs_to_error, write_report
    from wcgan.runs.config import ClassifyConfig
    from wcgan.runs.folder import Run
    from wcgan.train.start_classifier import folder_to_runs

    chosen = (preset, dataset, depth, norm, where, seeds, settings, strict)
    own = folder if resume and not any(chosen) else None
    if own is not None:
        config = Run(folder_to_runs(own)[0]).config(ClassifyConfig)
    else:
        config = presets.configure_classifier(preset, dataset, depth, norm, where, strict, settings or ())
    if dry_run:
        for name, value in training.dry_run_classifiers(config, seeds).items():
            say(f"{name:14} {value}")
        return
    folder = folder or Path("runs") / presets.preset_to_folder(classifier_to_name(config))
    if own is not None:
        outcome = training.go_on_with_classifiers(own, stop_at, accept_config)
    else:
        outcome = training.start_classifiers(config, folder, seeds, resume, stop_at, accept_config)
    if say_end("classify", outcome, config.train.iterations, folder):
        runs = folder_to_runs(folder)
        say(f"report: {write_report(runs, folder / 'report.html')}")
        say(runs_to_error(read_runs(runs)))
