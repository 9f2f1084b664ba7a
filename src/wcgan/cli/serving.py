"""Commands to show a generator to others."""

from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from wcgan.cli.app import app, out, say
from wcgan.core.terminal import cells

study = typer.Typer(help="A preference study: which of two looks more realistic?", no_args_is_help=True)
app.add_typer(study, name="study")

StudyFolder = Annotated[Path, typer.Argument(help="The folder of a study.")]
Votes = Annotated[
    str | None,
    typer.Option(
        "--database", envvar="WCGAN_STUDY_DATABASE", show_envvar=True, help="A PostgreSQL URL; SQLite without."
    ),
]


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or the name of a shipped generator.")],
    form: Annotated[str, typer.Option("--format", help="onnx, torch-export, aoti, safetensors or hub.")],
    folder: Annotated[Path, typer.Option("--out", help="A new folder.")],
    checkpoint: Annotated[str, typer.Option(help="last, best or an iteration.")] = "last",
    label: Annotated[int | None, typer.Option(help="Keep this class alone.")] = None,
) -> None:
    """Write a trained generator for others to load, and check what was written."""
    from wcgan.core.terminal import progress_bars
    from wcgan.export import export_run, facts_to_lines
    from wcgan.runs.sampler import find_run

    with progress_bars() as progress:
        facts = export_run(find_run(run), form, folder, checkpoint, label, progress)
    for line in (f"{form}: {folder}", *facts_to_lines(facts)):
        say(line)


@app.command()
def demo(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Folders of runs, or names of shipped generators; else all of those.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at.")] = 7860,
    checkpoint: Annotated[str, typer.Option(help="last, best or an iteration.")] = "last",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    export: Annotated[Path | None, typer.Option(help="Serve nothing: write an app folder for a model hub.")] = None,
) -> None:
    """A playground in the browser: sample, fix z, interpolate, compare, look inside."""
    from wcgan.web.demo import export_app, launch, load_runs

    samplers = load_runs(runs or (), checkpoint, device)
    if export is not None:
        say(f"app: {export_app(runs or (), export, checkpoint)}")
        return
    page = launch(samplers, host, port)
    say(f"playground: {page.local_url} (stop it with Ctrl+C)")
    page.block_thread()


@study.command("create")
def study_create(
    a: Annotated[Path, typer.Argument(help="A run, a shipped generator, or a folder with a sub-folder per class.")],
    b: Annotated[Path, typer.Argument(help="Another; the report gives the preference for this one.")],
    folder: Annotated[Path, typer.Option("--out", help="The study's folder.")],
    classes: Annotated[
        int | None, typer.Option(help="A pair each; 50 by default, or all where there are fewer.")
    ] = None,
    images: Annotated[int, typer.Option(help="In each set.")] = 16,
    checks: Annotated[int, typer.Option(help="Attention checks; at least 2.")] = 4,
    seed: Annotated[int, typer.Option(help="The same seed draws the same classes and images.")] = 0,
    resolution: Annotated[int | None, typer.Option(help="The side to bring all images to.")] = None,
    checkpoint: Annotated[str, typer.Option(help="Of runs: last, best or an iteration.")] = "last",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    consent: Annotated[Path | None, typer.Option(help="A text file: what a participant agrees to.")] = None,
    most: Annotated[int, typer.Option("--most-participants", help="Nobody can join after so many.")] = 1000,
) -> None:
    """Draw paired image sets from two runs or two folders."""
    from wcgan.runs.sampler import find_run
    from wcgan.web.study import create_study

    a, b = find_run(a), find_run(b)
    words = {} if consent is None else {"consent": consent.read_text(encoding="utf-8")}
    made = create_study(
        a, b, folder, classes, images, checks, seed, resolution, checkpoint, device, most_participants=most, **words
    )
    say(f"{len(made.pairs) - checks} pairs and {checks} attention checks: {folder}")
    say(f"hand it out with: wcgan study serve {folder}")


@study.command("serve")
def study_serve(
    folder: StudyFolder,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any that is free.")] = 8000,
    participants: Annotated[int | None, typer.Option(help="Make so many links, in place of one for all.")] = None,
    database: Votes = None,
) -> None:
    """Show the pairs to participants; the links are printed."""
    from wcgan.web.study.server import serve_study

    serve_study(folder, host, port, database, participants, say)


@study.command("report")
def study_report(
    folder: StudyFolder,
    target: Annotated[Path | None, typer.Option("--out", help="A folder for the page and the JSON.")] = None,
    most_failed: Annotated[int, typer.Option(help="Checks that one may fail and still be counted.")] = 0,
    database: Votes = None,
) -> None:
    """Preference, agreement and tests, in a table, a page and a JSON."""
    from wcgan.web.study import write_study_report

    rows, page, values = write_study_report(folder, target, database, most_failed)
    table = Table(show_header=False, box=SIMPLE_HEAD, show_edge=False)
    for row in rows:
        table.add_row(*cells(row))
    out.print(table)
    for file in (page, values):
        say(f"report: {file}")
