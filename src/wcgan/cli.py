"""The command line: parses and calls."""

import sys
from pathlib import Path
from typing import Annotated, NoReturn

try:
    import typer
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table
except ImportError:
    sys.exit("the command line needs more packages than the layers do: pip install 'wcgan[train]'")

app = typer.Typer(
    help="Whitening and coloring GANs.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
out = Console()
BAD_INPUT = 2

Settings = Annotated[list[str] | None, typer.Option("--set", help="section.field=value; may be given several times.")]
RunFolder = Annotated[Path, typer.Argument(help="The folder of a run.")]


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
            _say(f"{name:14} {value}")
        return
    outcome = experiments.go_on(folder, stop_at) if own else experiments.start(config, folder, resume, stop_at)
    finished = outcome.iteration >= config.train.iterations
    if outcome.first_process and not finished:
        _say(f"stopped at iteration {outcome.iteration}; go on with: wcgan train --resume --out {folder}")
    if outcome.stopped_by is not None:
        raise typer.Exit(128 + outcome.stopped_by)
    if outcome.first_process:
        if finished:
            _say(f"finished at iteration {outcome.iteration}: {folder}")
        _say(f"report: {write_report([folder], folder / 'report.html')}")


@app.command()
def sample(
    run: RunFolder,
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
    from wcgan.train.images import write_images

    try:
        wanted = None if classes is None else [int(c) for c in classes.split(",")]
    except ValueError:
        raise ValueError(f"--classes takes numbers such as 3,7; got {classes!r}") from None
    if grid is not None:
        if count is not None:
            raise ValueError(f"--grid has ten images a row: leave out -n {count}")
        target = file or run / f"{grid}-{seed}.png"
        _say(f"{grid}: {write_grid(run, grid, target, wanted, checkpoint, seed, truncation, device)}")
        return
    number = 64 if count is None else count
    images = load_generator(run, checkpoint, device).sample(number, wanted, seed, truncation)
    target = file or run / f"sample-{seed}.png"
    write_images(images, target)
    _say(f"{number} images: {target}")


@app.command()
def evaluate(
    target: Annotated[str, typer.Argument(help="A run, a checkpoint of one, a folder of images, or name:split.")],
    reference: Annotated[str | None, typer.Option(help="Real images: name:split, or a folder.")] = None,
    protocol: Annotated[str | None, typer.Option(help="paper-5k, paper-10k, 50k-train or all.")] = None,
    metrics: Annotated[str | None, typer.Option(help="Some of is,fid,kid; by default those that can be had.")] = None,
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
    """IS, FID and KID of a run or of any images, with the protocol beside every figure."""
    from wcgan import experiments
    from wcgan.report import scores_to_rows
    from wcgan.train import Run

    config = experiments.EvaluationConfig(
        reference=reference,
        protocol=protocol,
        metrics=None if metrics is None else tuple(_words(metrics.lower())),
        features=tuple(_words(features)),
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
    with experiments.progress_bars() as progress:
        measured = experiments.evaluate(target, config, progress)
    if not measured.first_process:
        return
    heads, rows, (protocol, *facts) = scores_to_rows(measured.scores)
    table = Table(*(Column(name, overflow="fold") for name in heads))
    for row in rows:
        table.add_row(*row)
    _say(protocol)
    out.print(table)
    for line in (*facts, *measured.notes):
        _say(line)
    run = measured.run if folder is None else Run(folder)
    if run is not None:
        run.folder.mkdir(parents=True, exist_ok=True)
        run.record("evaluation", measured.iteration, **measured.scores)
        _say(f"written to {run.metrics}")


@app.command()
def presets(
    text: Annotated[str, typer.Argument(help="List only those with this in their name or their table's.")] = "",
) -> None:
    """List what can be trained by name, with what it costs and what the paper reports."""
    from wcgan.experiments.listing import presets_to_lines

    for line in presets_to_lines(text):
        _say(line)


@app.command()
def datasets(
    folder: Annotated[Path | None, typer.Option(help="Where the data sets lie.")] = None,
    download: Annotated[str | None, typer.Option(help="Bring this one from its official address.")] = None,
) -> None:
    """List the data sets: what is there, what is missing and how to get it."""
    from wcgan import data

    if download is not None:
        _say(f"{download}: {data.download(download, folder)}")
        return
    for status in data.describe(folder):
        _say(f"{status.name:14} {'here   ' if status.present else 'missing'}  {status.what}")
        if not status.present:
            _say(f"{'':14} {status.how_to_get}")


@app.command()
def reproduce(
    table: Annotated[str | None, typer.Argument(help="A table's name or its place in the paper: table3.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="Name the tables, one a line.")] = False,
    rows: Annotated[list[str] | None, typer.Option(help="Only these: preset, its last part, or a data set.")] = None,
    seeds: Annotated[int | None, typer.Option(help="3 for the seeds 0, 1 and 2.")] = None,
    scale: Annotated[float, typer.Option(help="Shorten every schedule by this factor.")] = 1.0,
    settings: Settings = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Holds a folder for each table.")] = None,
    ray: Annotated[str | None, typer.Option(help="Run on Ray: local, or a cluster's address.")] = None,
    gpus_per_run: Annotated[float | None, typer.Option(help="Of each run on Ray: a share of a GPU.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, from a short burst.")] = False,
    source: Annotated[Path | None, typer.Option("--from", help="Train nothing: write from the runs in here.")] = None,
) -> None:
    """Make a table of the paper, ours beside the paper's: run what is missing, skip what is done."""
    from wcgan import experiments
    from wcgan.experiments.listing import tables_to_lines
    from wcgan.report.estimates import estimates_to_lines
    from wcgan.report.tables import write_table

    if listing:
        for line in tables_to_lines():
            _say(line)
        return
    if source is not None:
        for key, page in experiments.rebuild(source, table, write_table).items():
            _say(f"{key}: {page}")
        return
    if table is None:
        raise ValueError("name a table: `wcgan reproduce --list` lists them")
    if table in experiments.MEASUREMENTS:
        make = experiments.MEASUREMENTS[table].make
        _say(f"{table}: {make(folder or experiments.default_folder(scale), settings or (), _say)}")
        return
    plan = experiments.plan_table(table, rows or (), seeds, scale, settings or (), folder)
    if dry_run:
        with experiments.progress_bars() as progress:
            estimates = experiments.estimate(plan, progress)
        for line in estimates_to_lines(*estimates):
            _say(line)
        return
    result = experiments.reproduce(plan, write_table, ray, gpus_per_run)
    for line in (*result.problems, *(f"{kind}: {path}" for kind, path in result.files.items())):
        _say(line)
    if result.stopped_by is not None:
        _say("stopped; the same command goes on")
    raise typer.Exit(result.exit_code)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    page: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("compare.html"),
) -> None:
    """One page on several runs, side by side, and their last scores in a table."""
    from wcgan.report import read_runs, runs_to_rows, write_report

    heads, rows, protocols = runs_to_rows(read_runs(runs))
    columns = [Column(name, overflow="fold", no_wrap="(" in name) for name in heads]
    table = Table(*columns, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for row in rows:
        table.add_row(*row)
    out.print(table)
    for line in protocols:
        _say(line)
    _say(f"report: {write_report(runs, page)}")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _say(text: str, console: Console = out) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:  # from the system: a path, and what is wrong with it
        return f"{error.filename or 'a file'} cannot be used: {error.strerror.lower()}"
    return str(error)


def main() -> NoReturn:
    """Runs a command; what a user can mend is one sentence and exit code 2."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        if isinstance(error, ImportError) and "wcgan[" not in str(error):  # not a missing extra: a bug
            raise
        _say(f"wcgan: {_sentence(error)}", Console(stderr=True))
        sys.exit(BAD_INPUT)
    sys.exit(0)
