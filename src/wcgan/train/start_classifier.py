"""From the config of a classifier to finished runs, one per seed, and to its predictions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from wcgan import data
from wcgan.core.device import find_device, find_hardware
from wcgan.core.processes import Rank, is_first_process, process_count
from wcgan.core.terminal import counted
from wcgan.data import Dataset
from wcgan.evaluate.image_sets import absolute_paths, hold_out
from wcgan.nets import ResidualClassifier, build_classifier
from wcgan.nets.classifier import SMALLEST_SIDE, Pixels
from wcgan.runs.checkpoint import check_config, find_checkpoint, iteration_of, read_newest, tensors_to_network
from wcgan.runs.config import ClassifyConfig, change
from wcgan.runs.folder import Run, is_begun, new_run, seed_folders
from wcgan.train.classifier import build_learner, train_classifiers
from wcgan.train.learner import tensors_to_learner
from wcgan.train.loop import Outcome, check_images, check_stop_at
from wcgan.train.start import (
    Changes,
    check_new,
    check_place,
    check_resolution,
    find_changes,
    outline_if_named,
    processes_to_plan,
    write_changes,
)


def start_classifiers(
    config: ClassifyConfig,
    folder: Path,
    seeds: int | None = None,
    resume: bool = False,
    stop_at: int | None = None,
    accept_config: bool = False,
) -> Outcome:
    """Trains new runs, in folders that must be new or empty; with `resume`, continues those that exist.

    Args:
        config: of every run.
        folder: of the run; with `seeds`, it holds `seed-0`, `seed-1` and so on.
        seeds: 3 for the seeds 0, 1 and 2, side by side; None for the config's own.
        resume: whether to go on with what is there.
        stop_at: an iteration to end at before the last.
        accept_config: whether to go on although `config.yaml` was changed since the newest checkpoint.
    """
    check_stop_at(stop_at)
    return _train_all(_prepare_seeds(config, folder, seeds, resume, accept_config), stop_at)


def go_on_with_classifiers(
    folder: Path,
    stop_at: int | None = None,
    accept_config: bool = False,
    data: str | None = None,
    strict: bool = False,
    settings: Sequence[str] = (),
) -> Outcome:
    """Resumes a run, or the seeds in a folder, with their own configs; the arguments are those of `go_on`."""
    check_stop_at(stop_at)
    return _train_all(_prepare_to_go_on(folder, accept_config, data, strict, settings), stop_at)


# Before anything is written


@dataclass(frozen=True)
class _Ready:
    """Trainings that may begin, of configs that differ in nothing but their seed: checked, and nothing is written."""

    configs: Sequence[ClassifyConfig]
    runs: Sequence[Run]
    owns: Sequence[ClassifyConfig | None]
    """The config of each run that goes on; None for a new one."""
    changes: Sequence[Changes]
    """What the config changes in each run that goes on."""
    training: Dataset
    test: Dataset
    missing: str | None
    """How to get the data if it is not here; for a dry run alone."""


def _prepare_seeds(
    config: ClassifyConfig, folder: Path, seeds: int | None, resume: bool, accept_config: bool, dry: bool = False
) -> _Ready:
    """Checks all that `start_classifiers` needs."""
    folders = seeds_to_folders(config, folder, seeds)
    there = set()
    if is_first_process():  # the others take the folders as they will be
        there = {own for own in folders.values() if resume and is_begun(own)}
        if not there:
            check_new(folder)
        for own in folders.values():
            if own not in there:
                check_new(own)
    return _prepare({own: _seeded(config, seed) for seed, own in folders.items()}, there, accept_config, dry)


def _prepare_to_go_on(
    folder: Path, accept_config: bool, data: str | None, strict: bool, settings: Sequence[str], dry: bool = False
) -> _Ready:
    """Checks all that `go_on_with_classifiers` needs."""
    before = {own: Run(own).config(ClassifyConfig) for own in folder_to_runs(folder)}
    if len({_seeded(config, 0) for config in before.values()}) > 1:
        raise ValueError(f"the runs in {folder} differ in more than their seed: resume each by itself")
    configs = {own: change(config, data, strict, settings) for own, config in before.items()}
    return _prepare(configs, set(configs), accept_config, dry)


def _prepare(configs: dict[Path, ClassifyConfig], there: set[Path], accept_config: bool, dry: bool) -> _Ready:
    """Checks trainings by the folders of their runs, of which some are there. In a dry run, data may be missing."""
    config = next(iter(configs.values()))
    find_hardware(config.train)  # a GPU that is not there is said before anything is read or written
    Rank(count=process_count()).check_share("train.batch", config.train.batch)
    runs = [Run(own) for own in configs]
    owns = [run.config(ClassifyConfig) if run.folder in there else None for run in runs]
    for run, own in zip(runs, owns, strict=True):
        if own is not None:
            check_resolution(run, own, config)
            check_place(run, config.data.name)
    missing = None
    try:
        training, test = load_splits(config)
    except FileNotFoundError as error:
        if not dry:
            raise
        training, test = (outline_if_named(config.data, split, error) for split in ("train", "test"))
        missing = str(error)
    fitted, changes = [], []
    for run, own, each in zip(runs, owns, configs.values(), strict=True):
        found = None if own is None else read_newest(run.checkpoints)
        if missing is None:
            check_images(found, training, run)
        fitted.append(fit_classifier(each, training))
        goes_on = own is not None and is_first_process()
        changes.append(find_changes(run, own, found, fitted[-1], accept_config) if goes_on else {})
    return _Ready(fitted, runs, owns, changes, training, test, missing)


def check_seeds(config: ClassifyConfig, seeds: int | None) -> None:
    """Raises a ValueError for fewer than one seed, or if the config names a seed itself."""
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
    """The folder itself if it is a run, else the runs of the seeds in it."""
    return [folder] if (folder / "config.yaml").exists() else seed_folders(folder) or [folder]


def dry_run_classifiers(
    config: ClassifyConfig,
    folder: Path,
    seeds: int | None = None,
    resume: bool = False,
    stop_at: int | None = None,
    accept_config: bool = False,
) -> dict[str, str]:
    """Describes what `start_classifiers` would do, and refuses the same; writes nothing."""
    check_stop_at(stop_at)
    return _ready_to_plan(_prepare_seeds(config, folder, seeds, resume, accept_config, dry=True))


def dry_run_to_go_on(
    folder: Path,
    stop_at: int | None = None,
    accept_config: bool = False,
    data: str | None = None,
    strict: bool = False,
    settings: Sequence[str] = (),
) -> dict[str, str]:
    """Describes what `go_on_with_classifiers` would do, and refuses the same; writes nothing."""
    check_stop_at(stop_at)
    return _ready_to_plan(_prepare_to_go_on(folder, accept_config, data, strict, settings, dry=True))


def _ready_to_plan(ready: _Ready) -> dict[str, str]:
    """What would run, by the names of its parts; `missing` is as for `dry_run`."""
    config, training, test = ready.configs[0], ready.training, ready.test
    hardware, network, settings = find_hardware(config.train), config.classifier, config.train
    newest = [read_newest(run.checkpoints) for run in ready.runs]
    for found, each in zip(newest, ready.configs, strict=True):
        if found is not None and ready.missing is None:
            tensors_to_learner(found, build_learner(each, training.images, torch.device("cpu")))
    reached = [iteration_of(found) for found in newest]
    done = "; nothing is left to train" if min(reached) >= settings.iterations else ""
    going_on = f"go on from iteration {', '.join(dict.fromkeys(map(str, reached)))}{done}"
    weights = sum(p.numel() for p in build_classifier(network).parameters())
    layers = "the first layer" if network.where == "first" else "all layers"
    shape, passes = "x".join(map(str, training.images.shape[1:])), settings.iterations * settings.batch / len(training)
    state = 4 * weights * 2 * settings.keep_checkpoints * len(ready.runs) / 1e6  # and momentum, float32, in MB
    return {
        "data": f"{training.name}: {counted(len(training), 'image')} of {shape} to learn from, "
        f"{len(test):,} to test with, {counted(len(training.classes), 'class')}",
        **({} if ready.missing is None else {"missing": ready.missing}),
        "classifier": f"ResNet-{network.depth}, {network.normalization} in {layers}, {weights:,} parameters",
        "training": f"{counted(settings.iterations, 'iteration')} of {counted(settings.batch, 'image')}, "
        f"{passes:.1f} passes over the data",
        "learning rate": f"{settings.learning_rate:g}"
        + "".join(f", a tenth of that from iteration {drop} on" for drop in settings.drops),
        "seeds": ", ".join(str(each.train.seed) for each in ready.configs),
        **({"weights": going_on} if any(reached) else {}),
        "disk": f"{state:.0f} MB of checkpoints",
        **processes_to_plan(),
        **hardware.describe(),
    }


def _seeded(config: ClassifyConfig, seed: int) -> ClassifyConfig:
    return replace(config, train=replace(config.train, seed=seed))


def _train_all(ready: _Ready, stop_at: int | None) -> Outcome:
    """Trains the runs that have a checkpoint side by side, then the new ones: beside a new run, they would restart.

    Finished ones have nothing left to do.
    """
    configs, runs = ready.configs, ready.runs
    if is_first_process():
        for config, run, own, changes in zip(configs, runs, ready.owns, ready.changes, strict=True):
            if own is None:
                new_run(run.folder, config)
            else:
                write_changes(run, own, config, changes)
    last, reached = configs[0].train.iterations, [iteration_of(read_newest(run.checkpoints)) for run in runs]
    begun = [place for place, iteration in enumerate(reached) if 0 < iteration < last]
    fresh = [place for place, iteration in enumerate(reached) if iteration == 0]
    outcome = Outcome(last, first_process=is_first_process(), trained=False)
    for places in (begun, fresh):
        if places and outcome.stopped_by is None:
            chosen = [configs[place] for place in places], ready.training, ready.test, [runs[place] for place in places]
            outcome = train_classifiers(*chosen, stop_at)
    return outcome


def load_splits(config: ClassifyConfig) -> tuple[Dataset, Dataset]:
    """The training and the test split; of a folder that has none, every tenth image is the test split."""
    chosen = config.data
    load = partial(data.load, chosen.name, folder=chosen.folder, resolution=chosen.resolution, strict=chosen.strict)
    training = load("train")
    if "test" not in data.splits(chosen.name):
        return hold_out(training, test=False), hold_out(training, test=True)
    test = load("test", channels=training.images.shape[1])
    if test.classes != training.classes:
        raise ValueError(
            f"{chosen.name} has other classes in its test split than in its training split: give both the same "
            f"sub-folders"
        )
    return training, test


def fit_classifier(config: ClassifyConfig, training: Dataset) -> ClassifyConfig:
    """The config with the network's sizes taken from the data, and with absolute paths.

    Raises:
        ValueError: for images without classes, with one class only, or too small.
    """
    if training.labels is None or len(training.classes) < 2:
        raise ValueError(
            f"a classifier needs several classes; {training.name} has {len(training.classes) or 'none'}: "
            f"give each class a sub-folder"
        )
    _, channels, *sides = training.images.shape
    if min(sides) < SMALLEST_SIDE:
        raise ValueError(
            f"the images of {training.name} are {sides[0]}x{sides[1]}; a classifier needs {SMALLEST_SIDE} pixels each "
            f"way: --resolution SIZE enlarges them"
        )
    network = replace(config.classifier, channels=channels, classes=len(training.classes))
    return replace(config, data=absolute_paths(config.data), classifier=network)


class Predictor:
    """A classifier in evaluation mode: from uint8 images to the probabilities of classes.

    Args:
        pixels: readies the images.
        network: the classifier.
        class_names: in the order of its outputs.
        iteration: how long it was trained.
    """

    def __init__(
        self, pixels: Pixels, network: ResidualClassifier, class_names: Sequence[str] = (), iteration: int | None = None
    ) -> None:
        self.pixels, self.network = pixels, network
        self.class_names, self.iteration = tuple(class_names), iteration

    @torch.no_grad()
    def probabilities(self, images: Tensor, batch: int = 1000) -> Tensor:
        """`(N, C, H, W)` uint8 to the probability of each class `(N, classes)`, on the CPU."""
        if images.dtype != torch.uint8 or images.dim() != 4:
            raise ValueError(f"images must be uint8 pixels (N, C, H, W), got {images.dtype} {tuple(images.shape)}")
        device = self.pixels.mean.device
        return torch.cat([self.network(self.pixels(some.to(device))).softmax(1).cpu() for some in images.split(batch)])


def load_classifier(path: str | Path, checkpoint: str = "last", device: str = "auto") -> Predictor:
    """The classifier of a run.

    Args:
        path: the folder of a run of `wcgan classify`.
        checkpoint: `"last"`, `"best"` (by the error on the test split) or the number of an iteration.
        device: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:N"`.
    """
    run = Run(Path(path))
    config, found = run.config(ClassifyConfig), find_checkpoint(run, checkpoint)
    check_config(found, config, "classifier")
    pixels, network = Pixels(config.classifier.channels), build_classifier(config.classifier)
    tensors_to_network(found, "pixels", pixels)
    tensors_to_network(found, "classifier", network)
    for part in (pixels, network):
        part.requires_grad_(False).eval().to(find_device(device))
    return Predictor(pixels, network, found.facts.get("classes", ()), found.facts.get("iteration"))
