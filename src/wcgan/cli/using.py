"""Commands that use a trained generator: draw images, show it in the browser, export it."""

from pathlib import Path
from typing import Annotated

import typer

from wcgan.cli import USE, CheckpointName, Command, Device, app, find_source, say


@app.command(cls=Command, rich_help_panel=USE)
def sample(
    run: Annotated[
        Path | None, typer.Argument(help="Run, or shipped generator.", show_default="the shipped CIFAR-10 generator")
    ] = None,
    count: Annotated[int | None, typer.Option("-n", "--count", help="Number of images (default: 64).")] = None,
    classes: Annotated[str | None, typer.Option(help="Classes to draw in turn, such as 3,7.")] = None,
    grid: Annotated[
        str | None, typer.Option(help="One class per row: fixed-z (one noise per column) or class-rows.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the noise: the same seed draws the same images.")] = 0,
    truncation: Annotated[float, typer.Option(help="Factor on the noise; below 1, images vary less.")] = 1.0,
    checkpoint: CheckpointName = "last",
    file: Annotated[Path | None, typer.Option("--out", help="PNG file for a grid, or folder for one PNG each.")] = None,
    device: Device = "auto",
) -> None:
    """Draw images from a trained generator."""
    from wcgan.core.files import free_name
    from wcgan.core.images import write_images
    from wcgan.reproduce.measurements import write_grid
    from wcgan.runs.sampler import load_generator

    source = find_source(run)
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


@app.command(cls=Command, rich_help_panel=USE)
def demo(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Runs, or shipped generators.", show_default="all shipped generators")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 7860,
    checkpoint: CheckpointName = "last",
    device: Device = "auto",
    export: Annotated[Path | None, typer.Option(help="Write an app folder for a model hub instead of serving.")] = None,
) -> None:
    """Open a playground in the browser: sample, interpolate, compare, look inside a layer."""
    from wcgan.web.demo import export_app, launch, load_runs

    samplers = load_runs(runs or (), checkpoint, device)
    if export is not None:
        say(f"app: {export_app(runs or (), export, checkpoint)}")
        return
    page = launch(samplers, host, port)
    say(f"playground: {page.local_url} (stop it with Ctrl+C)")
    page.block_thread()


@app.command(cls=Command, rich_help_panel=USE)
def export(
    run: Annotated[Path, typer.Argument(help="Run, or shipped generator.")],
    form: Annotated[str, typer.Option("--format", help="Format: onnx, torch-export, aoti, safetensors or hub.")],
    folder: Annotated[Path, typer.Option("--out", help="New folder to write to.")],
    checkpoint: CheckpointName = "last",
    label: Annotated[int | None, typer.Option(help="Keep only this class.")] = None,
) -> None:
    """Export a trained generator for other software, and check the result."""
    from wcgan.core.terminal import progress_bars
    from wcgan.export import export_run, facts_to_lines

    with progress_bars() as progress:
        facts = export_run(find_source(run), form, folder, checkpoint, label, progress)
    for line in (f"{form}: {folder}", *facts_to_lines(facts)):
        say(line)
