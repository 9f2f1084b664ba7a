"""Commands that train, and that list what can be trained and on what."""

from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from wcgan.cli import TRAIN, Command, InceptionWeights, Settings, app, complete_preset, say
from wcgan.core.options import SETTINGS
from wcgan.core.terminal import INCOMPLETE

if TYPE_CHECKING:
    from wcgan.train.loop import Outcome

Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue what is in --out; with a preset or --data, start it if nothing is there."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at a broken image instead of skipping it.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would run; train and write nothing.")]
StopAt = Annotated[int | None, typer.Option("--stop-at", help="Stop at this iteration; --resume continues.")]
Seed = Annotated[int | None, typer.Option(help="Seed of weights, data order and noise (train.seed).")]
Iterations = Annotated[int | None, typer.Option(help="Length of the training (train.iterations).")]
Resolution = Annotated[int | None, typer.Option(help="Crop and resize the images to this side (data.resolution).")]
TrainDevice = Annotated[
    str | None, typer.Option("--device", help="Where to compute: auto, cpu, cuda or cuda:N.", show_default="auto")
]
Deterministic = Annotated[
    bool,
    typer.Option("--deterministic", help="Same seed, same bits on a GPU too, but slower (train.deterministic)."),
]
AcceptConfig = Annotated[
    bool, typer.Option("--accept-config", help="Resume although config.yaml was changed since the last checkpoint.")
]


@app.command(cls=Command, rich_help_panel=TRAIN)
def train(
    preset: Annotated[
        str | None, typer.Argument(help="What to train: a name from `wcgan presets`.", autocompletion=complete_preset)
    ] = None,
    data: Annotated[str | None, typer.Option(help="Dataset name, or a folder of images.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run.", show_default="runs/DATA, or runs/PRESET")
    ] = None,
    resolution: Resolution = None,
    iterations: Iterations = None,
    seed: Seed = None,
    device: TrainDevice = None,
    deterministic: Deterministic = False,
    settings: Settings = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", help="A config.yaml to start from, instead of a preset.")
    ] = None,
    origin: Annotated[
        Path | None, typer.Option("--from", help="Start with the weights of this run or shipped generator.")
    ] = None,
    resume: Resume = False,
    strict: Strict = False,
    dry_run: DryRun = False,
    evaluate_every: Annotated[
        int | None, typer.Option(help="Iterations between evaluations; 0 evaluates at the end only.")
    ] = None,
    weights: InceptionWeights = None,
    stop_at: StopAt = None,
    accept_config: AcceptConfig = False,
) -> None:
    """Train a GAN. Without preset and data: on the digits that come with the package."""
    from wcgan import train as training
    from wcgan.paper.presets import default_folder, find_config
    from wcgan.report import write_report
    from wcgan.runs.config import change
    from wcgan.runs.folder import Run, is_begun

    settings = _plain_settings(settings, resolution, iterations, seed, device, deterministic, evaluate_every)
    chosen = partial(find_config, preset, config_file, origin, data, strict, settings)
    config = None
    if folder is None:
        config = chosen()
        folder = default_folder(preset, config, data)
    goes_on = resume and preset is None and config_file is None
    if goes_on and (is_begun(folder) or not (data or origin)):
        config = change(Run(folder).config(), data, strict, settings)
    config = config or chosen()
    if dry_run:
        _print_plan(training.dry_run(config, folder, resume, stop_at, accept_config, origin, weights))
    outcome = training.start(config, folder, resume, stop_at, accept_config, origin, weights)
    weights_again = "" if weights is None else f" --inception-weights {quote(str(weights))}"
    _print_outcome("train", outcome, config.train.iterations, folder, weights_again)
    if outcome.first_process:
        say(f"report: {write_report([folder], folder / 'report.html')}")
    _exit_if_stopped(outcome)


@app.command(cls=Command, rich_help_panel=TRAIN)
def classify(
    preset: Annotated[str | None, typer.Argument(help="What to train: a name from `wcgan presets ResNet-`.")] = None,
    data: Annotated[str | None, typer.Option(help="Dataset name, or a folder with a sub-folder per class.")] = None,
    depth: Annotated[int | None, typer.Option(help="Depth of the ResNet: 20, 32, 44, 56, 110, or any 6n + 2.")] = None,
    norm: Annotated[str | None, typer.Option(help="Normalisation: BN, WC, DBN, IterNorm or another.")] = None,
    where: Annotated[str | None, typer.Option(help="Layers that get the normalisation: first or all.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds: 3 trains with seeds 0, 1 and 2.")] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder of the run, or of its seeds.")] = None,
    resolution: Resolution = None,
    iterations: Iterations = None,
    seed: Seed = None,
    device: TrainDevice = None,
    deterministic: Deterministic = False,
    settings: Settings = None,
    resume: Resume = False,
    strict: Strict = False,
    dry_run: DryRun = False,
    stop_at: StopAt = None,
    accept_config: AcceptConfig = False,
) -> None:
    """Train a ResNet classifier. Without preset and data: on the digits that come with the package."""
    from wcgan import train as training
    from wcgan.paper import presets
    from wcgan.paper.classifier_presets import classifier_to_name
    from wcgan.report import read_runs, runs_to_error, write_report
    from wcgan.runs.config import ClassifyConfig, change
    from wcgan.runs.folder import Run
    from wcgan.train.start_classifier import folder_to_runs

    settings = _plain_settings(settings, resolution, iterations, seed, device, deterministic)
    own = None
    if resume and folder is not None and not any((preset, depth, norm, where, seeds)):
        first = Run(folder_to_runs(folder)[0])
        own = folder if (first.folder / "config.yaml").is_file() or not data else None
    if own is not None:
        config = change(first.config(ClassifyConfig), data, strict, settings)
    else:
        config = presets.configure_classifier(preset, data, depth, norm, where, strict, settings)
    folder = folder or Path("runs") / presets.preset_to_folder(classifier_to_name(config))
    if dry_run and own is not None:
        _print_plan(training.dry_run_to_go_on(own, stop_at, accept_config, data, strict, settings))
    if dry_run:
        _print_plan(training.dry_run_classifiers(config, folder, seeds, resume, stop_at, accept_config))
    if own is not None:
        outcome = training.go_on_with_classifiers(own, stop_at, accept_config, data, strict, settings)
    else:
        outcome = training.start_classifiers(config, folder, seeds, resume, stop_at, accept_config)
    _print_outcome("classify", outcome, config.train.iterations, folder)
    if outcome.first_process:
        runs = folder_to_runs(folder)
        say(f"report: {write_report(runs, folder / 'report.html')}")
        say(runs_to_error(read_runs(runs)))
    _exit_if_stopped(outcome)


@app.command(cls=Command, rich_help_panel=TRAIN)
def tune(
    preset: Annotated[
        str, typer.Argument(help="What to train: a name from `wcgan presets`.", autocompletion=complete_preset)
    ],
    search: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING=RANGE", help="What to search: train.beta2=0.9..0.999, or a YAML list. Repeatable."
        ),
    ] = None,
    trials: Annotated[int, typer.Option(help="Number of trials.")] = 20,
    rungs: Annotated[int, typer.Option(help="Evaluations of a trial; after each it may be stopped early.")] = 4,
    data: Annotated[str | None, typer.Option(help="Dataset name, or a folder of images.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder of the search.", show_default="runs/PRESET-tune")
    ] = None,
    settings: Settings = None,
    resume: Resume = False,
) -> None:
    """Search a few settings of a preset by FID. Trials that fall behind are stopped early."""
    from wcgan.paper import presets
    from wcgan.reproduce import tune as tuning

    folder = folder or Path("runs") / f"{presets.preset_to_folder(preset)}-tune"
    found, stopped_by = tuning.tune(
        lambda chosen: presets.configure(preset, data, settings=[*(settings or []), *chosen]),
        [tuning.text_to_search(text) for text in search or ()],
        folder,
        trials,
        rungs,
        resume,
        say,
    )
    if stopped_by is not None:
        say("interrupted; continue with the same command and --resume")
        raise typer.Exit(128 + stopped_by)
    for trial in found:
        say(tuning.trial_to_line(trial))
    if (command := tuning.trials_to_command(preset, found, data, settings or ())) is not None:
        say(f"best: {command}")


def _plain_settings(
    settings: list[str] | None,
    resolution: int | None,
    iterations: int | None,
    seed: int | None,
    device: str | None,
    deterministic: bool,
    evaluate_every: int | None = None,
) -> list[str]:
    """`--set` after the plain options for single settings, each as `section.field=value`."""
    plain = {
        "resolution": resolution,
        "iterations": iterations,
        "seed": seed,
        "device": device,
        "deterministic": "true" if deterministic else None,
        "evaluate-every": evaluate_every,
    }
    given = [f"{SETTINGS[option]}={value}" for option, value in plain.items() if value is not None]
    return [*given, *(settings or [])]


def _print_plan(plan: dict[str, str]) -> NoReturn:
    """Prints what would run, once for all processes, then exits: with 1 if the data is missing."""
    from wcgan.core.processes import is_first_process

    for name, value in plan.items() if is_first_process() else ():
        say(f"{name:14} {value}")
    raise typer.Exit(INCOMPLETE if "missing" in plan else 0)


def _print_outcome(command: str, outcome: "Outcome", planned: int, folder: Path, more: str = "") -> None:
    """Prints how a training ended, in the first process."""
    if not outcome.first_process:
        return
    if outcome.iteration < planned:
        again = f"wcgan {command} --resume --out {quote(str(folder))}{more}"
        say(f"{'stopped' if outcome.trained else 'already'} at iteration {outcome.iteration}; continue with: {again}")
    elif outcome.trained:
        say(f"finished at iteration {outcome.iteration}: {folder}")
    else:
        say(f"already finished at iteration {outcome.iteration}: {folder} (--iterations extends it)")


def _exit_if_stopped(outcome: "Outcome") -> None:
    """Exits with 128 + N after signal N."""
    if outcome.stopped_by is not None:
        raise typer.Exit(128 + outcome.stopped_by)


@app.command(cls=Command, rich_help_panel=TRAIN)
def presets(
    text: Annotated[str, typer.Argument(help="List only presets with this in their name or in their table's.")] = "",
) -> None:
    """List what can be trained by name, with its cost and the paper's scores."""
    from wcgan.paper.listing import presets_to_lines

    for line in presets_to_lines(text):
        say(line)


@app.command(cls=Command, rich_help_panel=TRAIN)
def datasets(
    folder: Annotated[
        Path | None, typer.Option(help="Folder of the datasets.", show_default="$WCGAN_DATA, else ~/.cache/wcgan/data")
    ] = None,
    download: Annotated[str | None, typer.Option(help="Download this dataset from its official address.")] = None,
) -> None:
    """List the datasets: which are here, which are missing and how to get them."""
    from wcgan import data

    if download is not None:
        say(f"{download}: {data.download(download, folder)}")
        return
    for status in data.describe(folder):
        say(f"{status.name:14} {'here   ' if status.present else 'missing'}  {status.what}")
        if not status.present:
            say(f"{'':14} {status.how_to_get}")
