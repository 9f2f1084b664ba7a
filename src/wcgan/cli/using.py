"""Commands that use a trained generator: draw images, show it in the browser, export it."""

from pathlib import Path
from typing import Annotated

import typer

from wcgan.cli import (
    USE,
    CheckpointName,
    Command,
    Device,
    app,
    complete_format,
    complete_source,
    find_source,
    say,
    split_words,
)
from wcgan.core.terminal import counted

SOURCES = "Run, checkpoint, exported folder, shipped generator, or OWNER/NAME on the Hugging Face hub."
Source = Annotated[
    Path | None,
    typer.Argument(help=SOURCES, show_default="the shipped CIFAR-10 generator", autocompletion=complete_source),
]
Seed = Annotated[int, typer.Option(help="Seed of the noise: the same seed draws the same images.")]
Truncation = Annotated[float, typer.Option(help="Factor on the noise; below 1, images vary less.")]


@app.command(cls=Command, rich_help_panel=USE)
def models() -> None:
    """List the generators that come with the package, with classes, size, FID and licence."""
    from wcgan.runs.pretrained import models_to_lines, shipped_models

    for line in models_to_lines(shipped_models()):
        say(line)


@app.command(cls=Command, rich_help_panel=USE)
def sample(
    source: Source = None,
    images: Annotated[
        int | None, typer.Option("-n", "--images", help="Number of images.", show_default="64; with --grid, 10 per row")
    ] = None,
    classes: Annotated[str | None, typer.Option(help="Classes to draw in turn, by name or number: cat,dog.")] = None,
    grid: Annotated[
        str | None, typer.Option(help="One class per row: fixed-z (one noise per column) or class-rows.")
    ] = None,
    seed: Seed = 0,
    truncation: Truncation = 1.0,
    checkpoint: CheckpointName = "last",
    file: Annotated[
        Path | None,
        typer.Option("--out", help="PNG file for a grid, or folder for one PNG each.", show_default="a new PNG file"),
    ] = None,
    device: Device = "auto",
) -> None:
    """Draw images from a trained generator."""
    from wcgan.core.images import check_images_target, write_images
    from wcgan.runs.grids import write_grid
    from wcgan.runs.sampler import load_generator

    found = find_source(source)
    wanted = None if classes is None else split_words(classes)
    if grid is not None:
        if images is not None:
            raise ValueError(f"--grid has ten images per row: leave out -n {images}")
        target = file or _new_file(found, source, f"{grid}-{seed}.png")
        say(f"{grid}: {write_grid(found, grid, target, wanted, checkpoint, seed, truncation, device)}")
        return
    number = 64 if images is None else images
    target = file or _new_file(found, source, f"sample-{seed}.png")
    check_images_target(target)
    drawn = load_generator(found, checkpoint, device).sample(number, wanted, seed, truncation)
    write_images(drawn, target)
    say(f"{counted(number, 'image')}: {target}")


@app.command(cls=Command, rich_help_panel=USE)
def interpolate(
    source: Source = None,
    classes: Annotated[
        str | None, typer.Option(help="Two classes to move between, by name or number: cat,dog; or one to keep.")
    ] = None,
    seed: Seed = 0,
    last_seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of the noise at the other end.", show_default="the same with two classes, else the next"
        ),
    ] = None,
    images: Annotated[int, typer.Option("-n", "--images", help="Number of images side by side.")] = 8,
    frames: Annotated[int, typer.Option(help="Number of steps from one end to the other.")] = 24,
    truncation: Truncation = 1.0,
    checkpoint: CheckpointName = "last",
    file: Annotated[
        Path | None, typer.Option("--out", help="Animation to write, .gif or .webp.", show_default="a new GIF")
    ] = None,
    device: Device = "auto",
) -> None:
    """Animate the way between two noise vectors, two classes, or both, as a GIF or WebP."""
    from wcgan.core.images import write_animation
    from wcgan.runs.sampler import load_generator

    found = find_source(source)
    ends = None if classes is None else split_words(classes)
    if last_seed is None:
        last_seed = seed if ends is not None and len(ends) == 2 else seed + 1
    target = file or _new_file(found, source, f"interpolate-{seed}.gif")
    generator = load_generator(found, checkpoint, device)
    write_animation(generator.interpolate(frames, images, (seed, last_seed), ends, truncation), target)
    say(f"{frames} frames: {target}")


def _new_file(found: Path, source: Path | None, name: str) -> Path:
    """A free name in the folder of a run; in the working directory for what is not the user's own run."""
    from wcgan.core.files import free_name

    return free_name((found if found == source and (found / "config.yaml").is_file() else Path()) / name)


@app.command(cls=Command, rich_help_panel=USE)
def demo(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(help=f"Generators, each a {SOURCES[0].lower()}{SOURCES[1:]}", show_default="all shipped ones"),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 7860,
    checkpoint: CheckpointName = "last",
    device: Device = "auto",
    export: Annotated[
        Path | None, typer.Option(help="Folder for a hub app to write, instead of serving. Takes runs only.")
    ] = None,
) -> None:
    """Open a playground in the browser: sample, interpolate, compare, look inside a layer."""
    from wcgan.web.demo import export_app, launch, load_runs

    samplers = load_runs(sources or (), checkpoint, device)
    if export is not None:
        say(f"app: {export_app(sources or (), export, checkpoint)}")
        return
    page = launch(samplers, host, port)
    say(f"playground, to open in a browser: {page.local_url} (stop with Ctrl+C)")
    page.block_thread()


@app.command(cls=Command, rich_help_panel=USE)
def export(
    run: Annotated[Path, typer.Argument(help="Run, or shipped generator.")],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            help="Format: onnx, torch-export, aoti, safetensors or hub.",
            autocompletion=complete_format,
        ),
    ],
    folder: Annotated[Path, typer.Option("--out", help="New folder to write to.")],
    checkpoint: CheckpointName = "last",
    only: Annotated[
        str | None, typer.Option("--classes", help="Keep only this class, by name or number; the file needs no labels.")
    ] = None,
) -> None:
    """Export a trained generator for other software, and check the result."""
    from wcgan.core.terminal import progress_bars
    from wcgan.export import export_run, facts_to_lines

    with progress_bars() as progress:
        facts = export_run(find_source(run), form, folder, checkpoint, only, progress)
    for line in (f"{form}: {folder}", *facts_to_lines(facts)):
        say(line)
