"""From the config of a classifier to finished runs, one for each seed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from wcgan.classify import ClassifyConfig, fit_classifier, load_splits, train_classifiers
from wcgan.data import Dataset
from wcgan.nets import build_classifier
from wcgan.train.checkpoint import iteration_of, read_newest
from wcgan.train.folders import require_new
from wcgan.train.hardware import find_hardware
from wcgan.train.loop import Outcome, check_stop_at
from wcgan.train.parallel import Rank, is_first_process, process_count
from wcgan.train.run import Run, new_run, resumed_run


def start_classifiers(
    config: ClassifyConfig,
    folder: Path,
    seeds: int | None = None,
    resume: bool = False,
    stop_at: int | None = None,
) -> Outcome:
    """Begins runs in folders that must not exist, or be empty; with `resume`, goes on with those that are there.

    Args:
        config: of every run.
        folder: of the run; with `seeds`, it holds `seed-0`, `seed-1` and so on.
        seeds: 3 for the seeds 0, 1 and 2, side by side; None for the config's own.
        resume: whether to go on with what is there.
        stop_at: an iteration to end at before the last.
    """
    check_stop_at(stop_at)
    find_hardware(config.train)  # a GPU that is not there is said before anything is read or written
    Rank(count=process_count()).check_share("train.batch", config.train.batch)
    folders = seeds_to_folders(config, folder, seeds)
    training, test = load_splits(config)
    config = fit_classifier(config, training)
    configs = [_seeded(config, seed) for seed in folders]
    if is_first_process():
        _open_runs(folder, dict(zip(folders.values(), configs, strict=True)), resume)
    return _train_all(configs, training, test, [Run(own) for own in folders.values()], stop_at)


def go_on_with_classifiers(folder: Path, stop_at: int | None = None) -> Outcome:
    """Resumes a run, or the seeds in a folder, with their own configs."""
    runs = [Run(own) for own in folder_to_runs(folder)]
    configs = [run.config(ClassifyConfig) for run in runs]
    if len({_seeded(config, 0) for config in configs}) > 1:
        raise ValueError(f"the runs in {folder} differ in more than their seed: resume each by itself")
    training, test = load_splits(configs[0])
    return _train_all(configs, training, test, runs, stop_at)


def check_seeds(config: ClassifyConfig, seeds: int | None) -> None:
    """Raises a ValueError for a number of seeds that cannot be, or beside a seed of the config's own."""
    if seeds is not None and seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    if seeds is not None and config.train.seed:
        raise ValueError(f"train.seed={config.train.seed} is not for --seeds: --seeds 3 trains the seeds 0, 1 and 2")


def seeds_to_folders(config: ClassifyConfig, folder: Path, seeds: int | None) -> dict[int, Path]:
    """Seed -> the folder of its run."""
    check_seeds(config, seeds)
    if seeds is None:
        return {config.train.seed: folder}
    if (folder / "config.yaml").exists():
        raise ValueError(f"{folder} is the folder of one run: name another with --out for several seeds")
    return {seed: folder / f"seed-{seed}" for seed in range(seeds)}


def folder_to_runs(folder: Path) -> list[Path]:
    """The folder of a run, or those of the seeds that it holds."""
    numbers = {own: own.name.removeprefix("seed-") for own in folder.glob("seed-*") if own.is_dir()}
    seeds = {int(number): own for own, number in numbers.items() if number.isdigit()}
    if (folder / "config.yaml").exists() or not seeds:
        return [folder]
    return [seeds[seed] for seed in sorted(seeds)]


def dry_run_classifiers(config: ClassifyConfig, seeds: int | None = None) -> dict[str, str]:
    """What `start_classifiers` would do, without doing it: nothing is written."""
    check_seeds(config, seeds)
    training, test = load_splits(config)
    config = fit_classifier(config, training)
    hardware, network, settings = find_hardware(config.train), config.classifier, config.train
    weights = sum(p.numel() for p in build_classifier(network).parameters())
    layers = "the first layer" if network.where == "first" else "all layers"
    shape, passes = "x".join(map(str, training.images.shape[1:])), settings.iterations * settings.batch / len(training)
    state = 4 * weights * 2 * settings.keep_checkpoints * (seeds or 1) / 1e6  # and momentum, float32, in MB
    return {
        "data": f"{training.name}: {len(training)} images of {shape} to learn from, {len(test)} to test with, "
        f"{len(training.classes)} classes",
        "classifier": f"ResNet-{network.depth}, {network.normalization} in {layers}, {weights:,} parameters",
        "training": f"{settings.iterations} iterations of {settings.batch} images, {passes:.1f} passes over the data",
        "learning rate": f"{settings.learning_rate:g}"
        + "".join(f", a tenth of that from iteration {drop} on" for drop in settings.drops),
        "seeds": str(settings.seed) if seeds is None else ", ".join(map(str, range(seeds))),
        "disk": f"{state:.0f} MB of checkpoints",
        **hardware.describe(),
    }


def _open_runs(folder: Path, runs: dict[Path, ClassifyConfig], resume: bool) -> None:
    """Makes the folders that are not there, after a look at all of them; `folder` is that of the run, or holds them."""
    advice = "name another with --out, or go on with --resume"
    there = {own for own in runs if resume and own.is_dir() and any(own.iterdir())}
    if not there:
        require_new(folder, advice)
    for own, config in runs.items():
        if own in there:
            resumed_run(own, config, ClassifyConfig)
        else:
            require_new(own, advice)
    for own in runs.keys() - there:
        new_run(own, runs[own])


def _seeded(config: ClassifyConfig, seed: int) -> ClassifyConfig:
    return replace(config, train=replace(config.train, seed=seed))


def _train_all(
    configs: Sequence[ClassifyConfig], training: Dataset, test: Dataset, runs: Sequence[Run], stop_at: int | None
) -> Outcome:
    """Those that were begun side by side, then those that were not: side by side with a new one, they would begin anew.

    Finished ones have nothing left to do.
    """
    last, reached = configs[0].train.iterations, [iteration_of(read_newest(run.checkpoints)) for run in runs]
    begun = [place for place, iteration in enumerate(reached) if 0 < iteration < last]
    fresh = [place for place, iteration in enumerate(reached) if iteration == 0]
    outcome = Outcome(last, first_process=is_first_process())
    for places in (begun, fresh):
        if places and outcome.stopped_by is None:
            chosen = [configs[place] for place in places], training, test, [runs[place] for place in places]
            outcome = train_classifiers(*chosen, stop_at)
    return outcome
