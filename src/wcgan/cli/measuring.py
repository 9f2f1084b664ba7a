"""Commands that measure and compare: scores, the paper's tables, a preference study."""

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Column, Table
from rich.text import Text

from wcgan.cli import (
    MEASURE,
    CheckpointName,
    Command,
    Device,
    Group,
    InceptionWeights,
    Settings,
    app,
    complete_table,
    find_source,
    out,
    say,
    split_words,
)
from wcgan.core.terminal import INCOMPLETE, cells, counted, printable


@app.command(cls=Command, rich_help_panel=MEASURE)
def evaluate(
    target: Annotated[
        str, typer.Argument(help="Run, checkpoint, shipped generator, folder of images, or dataset:split.")
    ],
    reference: Annotated[
        str | None,
        typer.Option("--data", help="Real images: dataset:split, or a folder.", show_default="the run's data"),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="How many images of which split: paper-5k, paper-10k, 50k-train or all.",
            show_default="what fits the number of images",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Some of is,fid,kid,pr, where pr is precision and recall.", show_default="all that are possible"
        ),
    ] = None,
    features: Annotated[
        str, typer.Option(help="Feature space: inception, classifier, or both with a comma.")
    ] = "inception",
    weights: InceptionWeights = None,
    images: Annotated[
        int | None, typer.Option("-n", "--images", help="Number of images to score.", show_default="the protocol's")
    ] = None,
    kid_subset_size: Annotated[int, typer.Option(help="Number of images in a subset for KID.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed for labels, noise and KID's subsets.")] = 0,
    checkpoint: CheckpointName = "last",
    no_average: Annotated[
        bool, typer.Option("--no-average", help="Score the generator itself, not its moving average.")
    ] = False,
    batch_statistics: Annotated[
        int | None,
        typer.Option(
            help="Normalise generated images by the statistics of batches of this size, a power of 2 up to 256.",
            show_default="running statistics",
        ),
    ] = None,
    resolution: Annotated[int | None, typer.Option(help="Resize the images of both folders to this side.")] = None,
    channels: Annotated[
        int | None, typer.Option(help="Convert the images of both folders: 1 for grey, 3 for colour.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a broken image instead of skipping it.")] = False,
    batch: Annotated[int | None, typer.Option(help="Number of images per pass through the network.")] = None,
    device: Device = "auto",
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder whose metrics.jsonl gets the scores.", show_default="the run")
    ] = None,
) -> None:
    """Score a run or any images: IS, FID, KID, precision, recall, each with its protocol."""
    from wcgan.core.files import require_writable
    from wcgan.core.terminal import progress_bars
    from wcgan.evaluate import command
    from wcgan.report import scores_to_rows, write_report
    from wcgan.runs.folder import Run

    config = command.EvaluationConfig(
        reference=reference,
        protocol=protocol,
        metrics=None if metrics is None else tuple(split_words(metrics.lower())),
        features=tuple(split_words(features)),
        inception_weights=weights,
        images=images,
        kid_subset_size=kid_subset_size,
        seed=seed,
        checkpoint=checkpoint,
        average=not no_average,
        batch_statistics=batch_statistics,
        resolution=resolution,
        channels=channels,
        strict=strict,
        batch=batch,
        device=device,
    )
    run = command.target_to_run(target) if folder is None else Run(folder)
    if run is not None:
        require_writable(run.metrics, "--out FOLDER writes the scores to another folder")
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
    if run is not None:
        run.folder.mkdir(parents=True, exist_ok=True)
        run.record("evaluation", measured.iteration, **measured.scores)
        say(f"written to {run.metrics}")
        if (run.folder / "config.yaml").is_file():
            say(f"report: {write_report([run.folder], run.folder / 'report.html')}")


@app.command(cls=Command, rich_help_panel=MEASURE)
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or of several seeds of one.")],
    page: Annotated[Path, typer.Option("--out", help="HTML page to write.")] = Path("compare.html"),
) -> None:
    """Compare runs: a table of their last scores, and one HTML page."""
    from wcgan.core.files import is_named_like_a_file
    from wcgan.report import write_report
    from wcgan.train.start_classifier import folder_to_runs

    if is_named_like_a_file(page) and page.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the page is HTML: name a .html file, not {page}")
    runs = [run for folder in runs for run in folder_to_runs(folder)]
    _print_scores(runs)
    say(f"report: {write_report(runs, page)}")


def _print_scores(runs: list[Path]) -> None:
    """Prints a table of the last scores of runs, in parts as wide as the terminal, and the protocols."""
    from wcgan.core.terminal import split_columns
    from wcgan.report import read_runs, runs_to_rows

    heads, rows, protocols = runs_to_rows(read_runs(runs))
    for place, (some_heads, some_rows) in enumerate(split_columns(heads, rows, out.width)):
        if place:
            out.print()
        columns = [Column(Text(printable(name).replace("(", "\n(")), no_wrap=True) for name in some_heads]
        columns[0] = Column(columns[0].header, overflow="fold")
        table = Table(*columns, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
        for row in some_rows:
            table.add_row(*cells(row))
        out.print(table)
    for line in protocols:
        say(line)


@app.command(cls=Command, rich_help_panel=MEASURE)
def reproduce(
    table: Annotated[
        str | None,
        typer.Argument(help="Name of a table, or its place in the paper: table3.", autocompletion=complete_table),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the tables and exit.")] = False,
    rows: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only rows of this preset or dataset. Repeatable.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds: 3 runs seeds 0, 1 and 2.")] = None,
    scale: Annotated[float, typer.Option(help="Factor on the length of every training, such as 0.1.")] = 1.0,
    settings: Settings = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder that gets a sub-folder per table.")] = None,
    ray: Annotated[str | None, typer.Option(help="Run on Ray: local, or the address of a cluster.")] = None,
    gpus_per_run: Annotated[float | None, typer.Option(help="GPUs for each run on Ray; may be a fraction.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would run; train and write nothing.")] = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Estimate hours and disk from a few steps per row.")
    ] = False,
    source: Annotated[
        Path | None, typer.Option("--from", help="Train nothing: write the tables of the runs in this folder, into it.")
    ] = None,
) -> None:
    """Reproduce a table of the paper: train what is missing, compare with the paper's scores."""
    from wcgan.core.terminal import progress_bars
    from wcgan.reproduce import command, plan
    from wcgan.reproduce.estimate_cost import estimate_cost, estimates_to_lines
    from wcgan.reproduce.measurements import find_measurement, tables_to_lines
    from wcgan.runs.folder import is_begun

    if listing:
        for line in tables_to_lines():
            say(line)
        return
    if source is not None and folder is not None:
        raise ValueError(f"--from {source} is also where the tables are written: leave out --out")
    if table is not None and (measurement := find_measurement(table)) is not None:
        where = source or folder or plan.default_folder(scale)
        measurement.make(where, settings or (), dry_run or estimate, say)
        return
    if source is not None:
        options = {"seeds": seeds, "set": settings, "ray": ray, "gpus-per-run": gpus_per_run}
        options |= {"scale": scale != 1, "dry-run": dry_run, "estimate": estimate}
        if unused := [f"--{name}" for name, given in options.items() if given]:
            raise ValueError(f"--from writes the tables of the runs there are: leave out {', '.join(unused)}")
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
        raise typer.Exit(INCOMPLETE if any(row.missing for row in previews) else 0)
    result = command.reproduce(planned, ray, gpus_per_run)
    for line in result.problems:
        say(line)
    if begun := [run.folder for run in planned.runs if is_begun(run.folder)]:
        _print_scores(begun)
    for kind, path in result.files.items():
        say(f"{kind}: {path}")
    if result.stopped_by is not None:
        say("stopped; the same command continues")
    raise typer.Exit(result.exit_code)


study = typer.Typer(
    cls=Group, help="Run a preference study: which of two generators looks more realistic?", no_args_is_help=True
)
app.add_typer(study, name="study", rich_help_panel=MEASURE)

StudyFolder = Annotated[Path, typer.Argument(help="Folder of a study.")]
Votes = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar="WCGAN_STUDY_DATABASE",
        show_envvar=True,
        help="URL of a PostgreSQL database.",
        show_default="SQLite in the study's folder",
    ),
]


@study.command("create", cls=Command)
def study_create(
    a: Annotated[Path, typer.Argument(help="Generator, as for `wcgan sample`, or folder with a sub-folder per class.")],
    b: Annotated[Path, typer.Argument(help="The other one; the report gives the preference for it.")],
    folder: Annotated[Path, typer.Option("--out", help="New folder for the study.")],
    pairs: Annotated[
        int | None, typer.Option(help="Number of pairs, each of its own class.", show_default="50, or all classes")
    ] = None,
    images: Annotated[int, typer.Option("-n", "--images", help="Number of images in a set.")] = 16,
    checks: Annotated[int, typer.Option(help="Number of attention checks; at least 2.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed: the same seed draws the same classes and images.")] = 0,
    resolution: Annotated[int | None, typer.Option(help="Crop and resize all images to this side.")] = None,
    checkpoint: CheckpointName = "last",
    device: Device = "auto",
    consent: Annotated[Path | None, typer.Option(help="Text file with what participants agree to.")] = None,
    most: Annotated[int, typer.Option("--most-participants", help="Number of people who can join.")] = 1000,
) -> None:
    """Draw pairs of image sets from two runs or two folders."""
    from wcgan.core.reading import read_text
    from wcgan.web.study import create_study

    text = {} if consent is None else {"consent": read_text(consent)}
    made = create_study(
        find_source(a),
        find_source(b),
        folder,
        pairs,
        images,
        checks,
        seed,
        resolution,
        checkpoint,
        device,
        most_participants=most,
        **text,
    )
    say(f"{counted(len(made.pairs) - checks, 'pair')} and {counted(checks, 'attention check')}: {folder}")
    say(f"next: wcgan study serve {folder}")


@study.command("serve", cls=Command)
def study_serve(
    folder: StudyFolder,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free one.")] = 8000,
    participants: Annotated[
        int | None, typer.Option(help="Print this many personal links instead of one for all.")
    ] = None,
    database: Votes = None,
) -> None:
    """Serve a study to participants, and print the links to send them."""
    from wcgan.web.study.server import serve_study

    serve_study(folder, host, port, database, participants, say)


@study.command("report", cls=Command)
def study_report(
    folder: StudyFolder,
    target: Annotated[
        Path | None, typer.Option("--out", help="Folder for report.html and report.json.", show_default="the study's")
    ] = None,
    most_failed: Annotated[int, typer.Option(help="Attention checks that a participant may fail and still count.")] = 0,
    database: Votes = None,
) -> None:
    """Analyse the votes: preference, agreement between participants, tests."""
    from wcgan.web.study import write_study_report

    rows, page, values = write_study_report(folder, target, database, most_failed)
    table = Table(show_header=False, box=SIMPLE_HEAD, show_edge=False)
    for row in rows:
        table.add_row(*cells(row))
    out.print(table)
    for file in (page, values):
        say(f"report: {file}")
