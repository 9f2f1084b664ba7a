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
    folder = folder or Path("runs") / chosen.replace("/", "-").replace(" ", "")
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
    count: Annotated[int, typer.Option("-n", "--count", help="How many images.")] = 64,
    classes: Annotated[str | None, typer.Option(help="Classes that take turns, such as 3,7.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same images.")] = 0,
    truncation: Annotated[float, typer.Option(help="Scales the noise.")] = 1.0,
    checkpoint: Annotated[str, typer.Option(help="last, best or an iteration.")] = "last",
    file: Annotated[Path | None, typer.Option("--out", help="A PNG for a grid, or a folder for single images.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Draw images from a trained generator."""
    from wcgan.train import load_generator
    from wcgan.train.images import write_images

    try:
        wanted = None if classes is None else [int(c) for c in classes.split(",")]
    except ValueError:
        raise ValueError(f"--classes takes numbers such as 3,7; got {classes!r}") from None
    images = load_generator(run, checkpoint, device).sample(count, wanted, seed, truncation)
    target = file or run / f"sample-{seed}.png"
    write_images(images, target)
    _say(f"{count} images: {target}")


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
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    page: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("compare.html"),
) -> None:
    """One page on several runs, side by side, and their last scores in a table."""
    from wcgan.report import read_runs, score_names, score_to_text, write_report

    records = read_runs(runs)
    scores = score_names(records)
    columns = [Column(name, overflow="fold") for name in ("run", "variant", "iterations")]
    columns += [Column(name, no_wrap=True) for name in scores]
    table = Table(*columns, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for record in records:
        figures = [score_to_text(record, name) for name in scores]
        table.add_row(record.name, record.variant, str(record.iteration), *figures)
    out.print(table)
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
