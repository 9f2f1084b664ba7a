"""From a config to a finished run: data, networks that fit it, training, evaluation."""

from pathlib import Path

from wcgan import data
from wcgan.experiments.evaluator import evaluator_for
from wcgan.experiments.sets import training_split
from wcgan.nets import build_discriminator, build_generator
from wcgan.train.config import Config
from wcgan.train.fitting import fit_config
from wcgan.train.gan import check_shares, train
from wcgan.train.hardware import find_hardware
from wcgan.train.loop import Outcome, check_stop_at
from wcgan.train.parallel import Rank, is_first_process, process_count
from wcgan.train.run import Run, new_run, resumed_run


def start(config: Config, folder: Path, resume: bool = False, stop_at: int | None = None) -> Outcome:
    """Begins a run in a folder that must not exist, or be empty; with `resume`, goes on with one that is there."""
    check_stop_at(stop_at)
    find_hardware(config.train)  # a GPU that is not there is said before anything is read or written
    dataset = load_data(config)
    config = fit_config(config, dataset)
    check_shares(config, Rank(count=process_count()))
    evaluator = evaluator_for(config, dataset)
    if resume and folder.is_dir() and any(folder.iterdir()):
        run, config = resumed_run(folder, config)
    else:
        run = new_run(folder, config) if is_first_process() else Run(folder)
    return train(config, dataset, run, evaluator, stop_at)


def go_on(folder: Path, stop_at: int | None = None) -> Outcome:
    """Resumes a run with its own config."""
    run, config = resumed_run(folder)
    dataset = load_data(config)
    return train(config, dataset, run, evaluator_for(config, dataset), stop_at)


def load_data(config: Config) -> data.Dataset:
    """The training images; STL-10 trains on its unlabeled ones, as in the paper."""
    chosen = config.data
    split = training_split(chosen.name)
    return data.load(chosen.name, split, chosen.folder, resolution=chosen.resolution, strict=chosen.strict)


def dry_run(config: Config) -> dict[str, str]:
    """What `start` would do, without doing it: nothing is written."""
    dataset = load_data(config)
    config = fit_config(config, dataset)
    hardware = find_hardware(config.train)
    millions = [
        sum(p.numel() for p in network.parameters()) / 1e6
        for network in (build_generator(config.generator), build_discriminator(config.discriminator))
    ]
    settings = config.train
    images = settings.iterations * settings.critic_steps * settings.batch
    state = 4 * sum(millions) * 3  # weights and Adam's two moments, float32, in MB
    return {
        "data": f"{dataset.name}: {len(dataset)} images of {'x'.join(map(str, dataset.images.shape[1:]))}, "
        f"{len(dataset.classes) or 'no'} classes",
        "generator": f"{config.generator.kind}, {config.generator.normalization}, {millions[0]:.2f} M parameters",
        "discriminator": f"{config.discriminator.kind}, {config.discriminator.head}, {millions[1]:.2f} M parameters",
        "training": f"{settings.loss}, {settings.iterations} iterations of {settings.critic_steps} + 1 updates, "
        f"{images / len(dataset):.1f} passes over the data",
        "disk": f"{state * settings.keep_checkpoints:.0f} MB of checkpoints",
        **hardware.describe(),
    }
