"""Commands to measure and to compare."""

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from rich.text import Text

from wcgan.cli.app import Settings, app, out, say, words
from wcgan.core.terminal import cells, printable


@app.command()
def evaluate(
    target: Annotated[
        str, typer.Argument(help="A run, a checkpoint, a shipped generator, a folder of images, or name:split.")
    ],
    reference: Annotated[str | None, typer.Option(help="Real images: name:split, or a folder.")] = None,
    protocol: Annotated[str | None, typer.Option(help="paper-5k, paper-10k, 50k-train or all.")] = None,
    metrics: Annotated[str | None, typer.Option(help="Of is,fid,kid,pr; by default all that can be had.")] = None,
    features: Annotated[str, typer.Option(help="inception, classifier or both, with a comma.")] = "inception",
    weights: Annotated[Path | None, typer.Option("--inception-weights", help="A file of Inception's weights.")] = None,
    images: Annotated[int | None, typer.Option(help="Images to score, in place of the protocol's number.")] = None,
    kid_subset_size: Annotated[int, typer.Option(help="Images in each of KID's subsets.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of labels, noise and KID's subsets.")] = 0,
    checkpoint: Annotated[str, typer.Option(help="Of a run: last, best or an iteration.")] = "last",
    resolution: Annotated[int | None, typer.Option(help="Of folders: the side to bring both to.")] = None,
    channels: Annotated[int | None, typer.Option(help="Of folders: 1 or 3, to bring both to.")] = None,
    batch: Annotated[int | None, typer.Option(help="Images through the network at once.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    folder: Annotated[Path | None, typer.Option("--out", help="Whose metrics.jsonl gets the figures.")] = None,
) -> None:
    """IS, FID, KID, precision and recall of a run or any images, with the protocol beside every figure."""
    from wcgan.core.terminal import progress_bars
    from wcgan.evaluate import command
    from wcgan.report import scores_to_rows
    from wcgan.runs.folder import Run

    config = command.EvaluationConfig(
        reference=reference,
        protocol=protocol,
        metrics=None if metrics is None else tuple(words(metrics.lower())),
        features=tuple(words(features)),
        inception_weights=weights,
        images=images,
        kid_subset_size=kid_subset_size,
        seed=seed,
        checkpoint=checkpoint,
        resolution=resolution,
        channels=channels,
        batch=batch,
        device=device,
    )
    with progress_bars() as progress:
        measured = command.evaluate(target, config, progress)
    if not measured.first_process:
        return
    heads, rows, (protocol, *facts) = scores_to_rows(measured.scores)
    table = Table(*(Column(name, overflow="fold") for name in cells(heads)))
    for row in rows:
        table.add_row(*cells(row))
    say(protocol)
    out.print(table)
    for line in (*facts, *measured.notes):
        say(line)
    run = measured.run if folder is None else Run(folder)
    if run is not None:
        run.folder.mkdir(parents=True, exist_ok=True)
        run.record("evaluation", measured.iteration, **measured.scores)
        say(f"written to {run.metrics}")


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or of several seeds.")],
    page: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("compare.html"),
) -> None:
    """One page on several runs, side by side, and their last scores in a table."""
    from wcgan.report import read_runs, runs_to_rows, write_report
    from wcgan.train.start_classifier import folder_to_runs

    runs = [run for folder in runs for run in folder_to_runs(folder)]
    heads, rows, protocols = runs_to_rows(read_runs(runs))
    columns = [
        Column(Text(printable(name).replace("(", "\n(")), overflow="fold", no_wrap="(" in name) for name in heads
    ]
    table = Table(*columns, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*cells(row))
    out.print(table)
    for line in protocols:
        say(line)
    say(f"report: {write_report(runs, page)}")


@app.command()
def reproduce(
    table: Annotated[str | None, typer.Argument(help="A table's name or its place in the paper: table3.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the tables, one per line.")] = False,
    rows: Annotated[list[str] | None, typer.Option(help="Only these: preset, its last part, or a data set.")] = None,
    seeds: Annotated[int | None, typer.Option(help="3 for the seeds 0, 1 and 2.")] = None,
    scale: Annotated[float, typer.Option(help="Shorten every schedule by this factor.")] = 1.0,
    settings: Settings = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Holds a folder for each table.")] = None,
    ray: Annotated[str | None, typer.Option(help="Run on Ray: local, or a cluster's address.")] = None,
    gpus_per_run: Annotated[float | None, typer.Option(help="Of each run on Ray: a share of a GPU.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would run; train and write nothing.")] = False,
    estimate: Annotated[bool, typer.Option("--estimate", help="Time a few steps per row: hours and disk.")] = False,
    source: Annotated[Path | None, typer.Option("--from", help="Train nothing: write from the runs in here.")] = None,
) -> None:
    """Make a table of the paper, ours beside the paper's: run what is missing, skip what is done."""
    from wcgan.core.terminal import progress_bars
    from wcgan.reproduce import command, plan
    from wcgan.reproduce.estimate_cost import estimate_cost, estimates_to_lines
    from wcgan.reproduce.measurements import find_measurement, tables_to_lines

    if listing:
        for line in tables_to_lines():
            say(line)
        return
    if table is not None and (measurement := find_measurement(table)) is not None:
        where = source or folder or plan.default_folder(scale)
        measurement.make(where, settings or (), dry_run or estimate, say)
        return
    if source is not None:
        for key, page in command.rebuild(source, table, rows or ()).items():
            say(f"{key}: {page}")
        return
    if table is None:
        raise ValueError("name a table: `wcgan reproduce --list` lists them")
    planned = plan.plan_table(table, rows or (), seeds, scale, settings or (), folder)
    if dry_run or estimate:
        previews = command.preview(planned)
        lines = command.preview_to_lines(previews)
        if estimate:
            with progress_bars() as progress:
                lines = estimates_to_lines(*estimate_cost(planned, progress))
        for line in lines:
            say(line)
        raise typer.Exit(command.INCOMPLETE if any(row.missing for row in previews) else 0)
    result = command.reproduce(planned, ray, gpus_per_run)
    for line in (*result.problems, *(f"{kind}: {path}" for kind, path in result.files.items())):
        say(line)
    if result.stopped_by is not None:
        say("stopped; the same command goes on")
    raise typer.Exit(result.exit_code)
