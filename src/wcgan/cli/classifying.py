"""The command to train classifiers."""

from pathlib import Path
from typing import Annotated

import typer

from wcgan.cli.app import Settings, app, say, say_end


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
) -> None:
    """Train a ResNet to classify. With neither preset nor data set: the embedded digits."""
    from wcgan import experiments
    from wcgan.classify import ClassifyConfig
    from wcgan.report import read_runs, runs_to_error, write_report
    from wcgan.train import Run

    chosen = (preset, dataset, depth, norm, where, seeds, settings, strict)
    own = folder if resume and not any(chosen) else None
    if own is not None:
        config = Run(experiments.folder_to_runs(own)[0]).config(ClassifyConfig)
    else:
        config = experiments.configure_classifier(preset, dataset, depth, norm, where, strict, settings or ())
    if dry_run:
        for name, value in experiments.dry_run_classifiers(config, seeds).items():
            say(f"{name:14} {value}")
        return
    folder = folder or Path("runs") / experiments.preset_to_folder(experiments.classifier_to_name(config))
    if own is not None:
        outcome = experiments.go_on_with_classifiers(own, stop_at)
    else:
        outcome = experiments.start_classifiers(config, folder, seeds, resume, stop_at)
    if say_end("classify", outcome, config.train.iterations, folder):
        runs = experiments.folder_to_runs(folder)
        say(f"report: {write_report(runs, folder / 'report.html')}")
        say(runs_to_error(read_runs(runs)))
