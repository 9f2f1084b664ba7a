"""Presets: a named config for every row of the paper's tables, and for the embedded digits."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from wcgan.core.config import override
from wcgan.core.processes import is_first_process
from wcgan.core.terminal import announce, nearest
from wcgan.data import Dataset, glance, names
from wcgan.evaluate.image_sets import training_split
from wcgan.nets import DiscriminatorConfig, GeneratorConfig
from wcgan.norm import VARIANTS
from wcgan.paper.classifier_presets import CLASSIFIERS, classifier_to_name, dataset_to_classifier
from wcgan.paper.printed import ARCHITECTURES
from wcgan.paper.recipe import BEST, MANY_CLASSES, best_folder
from wcgan.paper.tables import ALIASES, TABLES, canonical_name
from wcgan.runs.config import ClassifyConfig, Config, DataConfig, TrainConfig, change, read_config
from wcgan.runs.folder import Run
from wcgan.runs.pretrained import find_source

DEFAULT = "digits/cWC"


def as_the_authors(config: Config) -> Config:
    """A config with the choices of the authors' code on which the paper is silent; all concern conditional networks.

    Generated images take the labels of the real images in the batch, the projection's embedding starts small, and soft
    assignment has unit rows of A and no class bias.
    """
    generator, discriminator, train = config.generator, config.discriminator, config.train
    if VARIANTS[generator.normalization].soft:
        generator = replace(generator, options={"normalize_assignment": True, "class_bias": False})
    if discriminator.head == "projection":
        discriminator = replace(discriminator, embedding_init="uniform")
    if config.conditional:
        train = replace(train, generated_labels="real")
    return replace(config, generator=generator, discriminator=discriminator, train=train)


def digits(normalization: str) -> Config:
    """The embedded digits: a hinge GAN small enough for two CPU cores, with projection if it is conditional."""
    conditional = VARIANTS[normalization].conditional
    head, classes = ("projection", 10) if conditional else ("plain", None)
    config = Config(
        DataConfig(name="digits"),
        GeneratorConfig(
            widths=(24, 24),
            noise=32,
            channels=1,
            normalization=normalization,
            classes=classes,
        ),
        DiscriminatorConfig(widths=(24, 24, 24), head=head, channels=1, classes=classes, resolution=16),
        TrainConfig(
            iterations=1500,
            critic_steps=1,
            batch=32,
            generator_batch=32,
            learning_rate=1e-3,
            ema=0.98,
            sample_every=250,
            checkpoint_every=250,
            evaluate_images=2000,
        ),
    )
    return as_the_authors(config)


def folder(resolution: int = 32, classes: int | None = 2) -> Config:
    """Anyone's pictures: the paper's spectrally normalised ResNets, as wide and deep as the resolution asks for.

    Args:
        resolution: side of the images.
        classes: with two or more the networks are conditional; more than 30 share a dictionary of colorings.
    """
    from wcgan.train.start import blocks_for

    base, doublings = blocks_for(resolution)
    sides = [base * 2 ** (block + 1) for block in range(doublings)]  # of the images after each block
    head, normalization = "plain", "WC"
    if classes is not None and classes > 1:
        head, normalization = "projection", "cWC" if classes <= MANY_CLASSES else "cWC_sa"
    else:
        classes = None
    config = Config(
        DataConfig(name="folder"),
        GeneratorConfig(
            base=base,
            widths=tuple(128 if side < 64 else 64 if side < 128 else 32 for side in sides),
            normalization=normalization,
            classes=classes,
        ),
        DiscriminatorConfig(
            widths=(128,) * (doublings + 1) if resolution < 64 else (64, 128, *(256,) * (doublings - 1)),
            downsample=max(1, doublings - 1),
            head=head,
            classes=classes,
            resolution=resolution,
        ),
        TrainConfig(
            iterations=20_000,
            critic_steps=2,
            generator_batch=64,
            ema=0.999,
            sample_every=250,
            checkpoint_every=250,
            evaluate_images=2_000,
        ),
    )
    return as_the_authors(config)


SIDES = (32, 64, 128)
BY_DATA: dict[str, Callable[[int, int | None], Config]] = {
    "folder": folder,
    "folder/best": best_folder,
    "folder/best BN": partial(best_folder, whitened=False),
}
"""Presets for anyone's pictures, given their resolution and number of classes."""


# How the paper trains each framework, which is part of a row's name.
_FRAMEWORKS: dict[str, TrainConfig] = {
    "GP": TrainConfig(loss="wasserstein", gradient_penalty=10.0, iterations=100_000),
    "DCGAN": TrainConfig(iterations=100_000, critic_steps=1, generator_batch=64),
    "SN": TrainConfig(),
}
# What a row changes in its framework's training; rows that share its networks inherit it.
_CHANGES: dict[str, dict[str, Any]] = {
    "mnist/WC": {"iterations": 5_000, "schedule": "constant"},
    "mnist/cWC": {"iterations": 5_000, "schedule": "constant"},
    "fashion-mnist/WC": {"iterations": 20_000},
    "fashion-mnist/cWC": {"iterations": 20_000},
    "stl10/WC SN + ResNet": {"iterations": 100_000},
    "stl10/WC SN + DCGAN": {"iterations": 200_000},
    "tiny-imagenet/cWC SN + Proj. Discr.": {"iterations": 100_000},
    "imagenet/SN + Proj. Discr.": {"iterations": 450_000},
    "imagenet/cWC_sa SN + Proj. Discr.": {"iterations": 450_000, "learning_rate": 5e-4},
}
# The authors' only script for this row drops the learning rate at 30,000; the state of the art stops soon after.
_DROPS: dict[str, dict[str, Any]] = {
    "cifar10/cWC SN + Proj. Discr.": {"drop_at": 30_000},
    "cifar10/cWC SN + Proj. Discr. drop": {"iterations": 31_000, "schedule_end": 50_000, "drop_at": 30_000},
}


def _wide_generator(classes: int) -> tuple[GeneratorConfig, DiscriminatorConfig]:
    """SN + Proj. Discr. as published: 256 filters in G and 128 in D, where the paper has 128 and 256."""
    return (
        GeneratorConfig(widths=(256,) * 3, normalization="cBN", classes=classes),
        DiscriminatorConfig(widths=(128,) * 4, head="projection", classes=classes),
    )


_NETWORKS: dict[str, tuple[GeneratorConfig, DiscriminatorConfig]] = {
    **ARCHITECTURES,
    # Rows that are missing from the paper's tables of architectures.
    "stl10/WC GP + ResNet": (
        replace(ARCHITECTURES["cifar10/WC GP + ResNet"][0], base=6),
        replace(ARCHITECTURES["cifar10/WC GP + ResNet"][1], resolution=48),
    ),
    "cifar10/SN + Proj. Discr.": _wide_generator(10),
    "cifar100/SN + Proj. Discr.": _wide_generator(100),
    "imagenet/SN + Proj. Discr.": (
        GeneratorConfig(widths=(1024, 512, 256, 128, 64), normalization="cBN", classes=1000),
        ARCHITECTURES["imagenet/cWC_sa SN + Proj. Discr."][1],
    ),
}
_CIFAR = ("cifar10", "cifar100")
_WC_ABLATION = ("W-only", "WC-diag", "C-only", "std-C", "WzcaC")
_CWC_ABLATION = ("cBN", "c-std-C", "c-std-C_sa", "cWC-cls-only", "cWC_sa-cls-only", "cWC-diag")
# Row -> the row whose networks and training it shares, and its own generator's normalisation.
_VARIATIONS: dict[str, tuple[str, str]] = {
    **{
        f"{data}/{row}": (f"{data}/WC {row}", "BN")
        for data in ("cifar10", "stl10")
        for row in ("GP + ResNet", "SN + DCGAN", "SN + ResNet")
    },
    **{f"{data}/GP + ACGAN": (f"{data}/cWC GP + ACGAN", "cBN") for data in _CIFAR},
    **{
        f"{data}/cWC_sa {row}": (f"{data}/cWC {row}", "cWC_sa")
        for data in _CIFAR
        for row in ("GP + ACGAN", "SN + Proj. Discr.")
    },
    "cifar10/cWC SN + Proj. Discr. drop": ("cifar10/cWC SN + Proj. Discr.", "cWC"),
    # The number of filters of SN + Proj. Discr. as published: the appendix reports cWC to be on par with it.
    **{f"{data}/cWC SN + Proj. Discr. wide": (f"{data}/SN + Proj. Discr.", "cWC") for data in _CIFAR},
    **{f"cifar10/{name}": ("cifar10/WC SN + ResNet", name) for name in _WC_ABLATION},
    **{f"{data}/{name}": (f"{data}/cWC SN + Proj. Discr.", name) for data in _CIFAR for name in _CWC_ABLATION},
    **{f"tiny-imagenet/{n}": ("tiny-imagenet/cWC SN + Proj. Discr.", n) for n in ("cBN", "cWC_sa")},
    **{f"{data}/{n}BN": (f"{data}/{n}WC", f"{n}BN") for data in ("mnist", "fashion-mnist") for n in ("", "c")},
}


def row_to_config(name: str) -> Config:
    """The config of a row of the paper's tables, of results or of architectures."""
    shared, normalization = _VARIATIONS.get(name, (name, None))
    dataset, _, row = shared.partition("/")
    framework = next((f for f in _FRAMEWORKS if f in row), "SN")
    generator, discriminator = _NETWORKS[shared]
    config = Config(
        DataConfig(name=dataset),
        replace(generator, normalization=normalization or generator.normalization),
        discriminator,
        replace(
            _FRAMEWORKS[framework],
            checkpoint_every=1000,
            sample_every=1000,
            **_CHANGES.get(shared, {}),
            **_DROPS.get(name, {}),
        ),
    )
    return as_the_authors(config)


def through_decomposition(config: Config) -> Config:
    """A config with ZCA whose gradient goes through the eigendecomposition, as in the paper, instead of ours."""
    return replace(config, generator=replace(config.generator, options={"whitening": "zca-decomposition"}))


_GANS = (table for table in TABLES.values() if not table.classifiers)
_ROWS = (*(row.preset for table in _GANS for row in table.rows), *ARCHITECTURES, *_VARIATIONS)
PRESETS: dict[str, Callable[[], Config]] = {
    **{f"digits/{name}": (lambda name=name: digits(name)) for name in VARIANTS},  # type: ignore[misc]
    **{name: (lambda name=name: row_to_config(name)) for name in map(canonical_name, _ROWS)},  # type: ignore[misc]
    **BEST,
    **BY_DATA,  # type: ignore[dict-item]
    "digits/WzcaC-decomposition": lambda: through_decomposition(digits("WzcaC")),
    "cifar10/WzcaC-decomposition": lambda: through_decomposition(row_to_config("cifar10/WzcaC")),
}


def configure(name: str, data: str | None = None, strict: bool = False, settings: Sequence[str] = ()) -> Config:
    """A preset's config, with other data and with single fields changed by `section.field=value`.

    A preset in `BY_DATA` looks at the pictures for their resolution and classes.
    """
    config = preset(name)
    if name in BY_DATA:
        chosen = change(config, data, strict, [each for each in settings if each.startswith("data.")]).data
        if chosen.name == config.data.name:
            raise ValueError(f"the preset {name} is for your own pictures: name their folder with --data")
        resolution, classes = pictures_to_size(chosen)
        config = replace(BY_DATA[name](resolution, classes), preset=name)
        config = replace(config, data=replace(config.data, resolution=resolution))
    return change(config, data, strict, settings)


def dataset_to_config(name: str | None, dataset: Dataset, settings: Sequence[str] = ()) -> Config:
    """The config of a preset for images in memory; None for the preset `folder`."""
    config = preset(name or "folder")
    if config.preset in BY_DATA:
        classes = len(dataset.classes) if len(dataset.classes) > 1 else None
        config = replace(BY_DATA[config.preset](dataset.images.shape[-1], classes), preset=config.preset)
    return change(config, dataset.name, settings=settings)


def pictures_to_size(chosen: DataConfig) -> tuple[int, int | None]:
    """The resolution to train at, unless the config names one, and the number of classes or None.

    It is that of the pictures if the networks can have it, else the largest of `SIDES` that half of them reach.
    """
    from wcgan.train.start import blocks_for

    seen = glance(chosen.name)
    classes = seen.classes if training_split(chosen.name) == "train" and seen.classes > 1 else None
    if chosen.resolution is not None:
        return chosen.resolution, classes
    side = max((each for each in SIDES if each <= seen.side), default=SIDES[0])
    with suppress(ValueError):
        blocks_for(seen.side)
        side = seen.side if seen.alike and seen.side <= SIDES[-1] else side
    if is_first_process() and (side, True) != (seen.side, seen.alike):
        announce(
            f"training at {side}x{side}: each picture is cropped to a square and resized; --resolution sets a size"
        )
    return side, classes


def preset(name: str) -> Config:
    """The config of a preset, given a name in `PRESETS` or one of `ALIASES`; it records the name in `PRESETS`."""
    own = canonical_name(name)
    if own in CLASSIFIERS:
        raise ValueError(f'{name!r} is a classifier\'s preset: wcgan classify "{name}"')
    if own not in PRESETS:
        if (Path(name) / "config.yaml").is_file():
            raise ValueError(f"{name} is no preset but a run: `wcgan train --resume --out {quote(name)}` continues it")
        if name in names() or Path(name).is_dir():
            raise ValueError(
                f"{name} is no preset but {'a dataset' if name in names() else 'a folder'}: give it with --data"
            )
        if Path(name).is_file():
            raise ValueError(f"{name} is no preset but a file: give it with --config, or to wcgan.fit as a Path")
        near = nearest(name, (*PRESETS, *ALIASES))
        raise ValueError(f"unknown preset {name!r}; `wcgan presets` lists them; the nearest are {near}")
    return replace(PRESETS[own](), preset=own)


def classifier_preset(name: str) -> ClassifyConfig:
    """The config of a classifier's preset, given a name in `CLASSIFIERS`."""
    if canonical_name(name) in PRESETS:
        raise ValueError(f'{name!r} is a GAN\'s preset: wcgan train "{name}"')
    if name not in CLASSIFIERS:
        near = nearest(name, CLASSIFIERS)
        raise ValueError(f"unknown preset {name!r}; `wcgan presets ResNet-` lists them; the nearest are {near}")
    return replace(CLASSIFIERS[name](), preset=name)


def configure_classifier(
    preset: str | None = None,
    dataset: str | None = None,
    depth: int | None = None,
    norm: str | None = None,
    where: str | None = None,
    strict: bool = False,
    settings: Sequence[str] = (),
) -> ClassifyConfig:
    """A classifier's preset, or He et al.'s training for a data set, with some parts changed.

    Args:
        preset: a key of `CLASSIFIERS`; None for He et al.'s training on `dataset`.
        dataset: a data set's name, or a folder of images with a sub-folder for each class; None for the preset's, or
            for the embedded digits if there is no preset.
        depth: depth of the ResNet, 6n + 2.
        norm: the normalisation, a key of `wcgan.VARIANTS`.
        where: which layers have it: first or all.
        strict: whether a broken image is an error.
        settings: `section.field=value`, applied last.
    """
    config = dataset_to_classifier(dataset or "digits", depth) if preset is None else classifier_preset(preset)
    chosen: dict[str, Any] = {"depth": depth, "normalization": norm, "where": where}
    network = replace(config.classifier, **{name: value for name, value in chosen.items() if value is not None})
    config = change(replace(config, classifier=network), dataset, strict)
    name = classifier_to_name(config)
    if preset is None and name in CLASSIFIERS and CLASSIFIERS[name]() == config:
        config = replace(config, preset=name)  # the same settings as a row of a table
    return override(config, settings)


def find_config(
    name: str | None = None,
    file: Path | None = None,
    origin: str | Path | None = None,
    data: str | None = None,
    strict: bool = False,
    settings: Sequence[str] = (),
) -> Config:
    """The config of a new run: of a preset, a file, or the run it takes its weights from, with some parts changed.

    Args:
        name: a preset; None for `folder` if there is `data`, else for the embedded digits.
        file: a `config.yaml`, in place of a preset.
        origin: a run or a shipped generator whose networks are taken if there is neither a preset nor a file.
        data: a data set's name, or a folder of images.
        strict: whether a broken image is an error.
        settings: `section.field=value`, applied last.
    """
    if name is not None and file is not None:
        raise ValueError(f"give either the preset {name} or --config {file}")
    if file is not None:
        return change(read_config(file), data, strict, settings)
    if name is None and origin is not None:
        config = Run(find_source(origin)).config()
        if data is not None:  # other pictures, at the resolution of the networks; scores are asked for anew
            chosen = DataConfig(data, resolution=config.generator.resolution)
            config = replace(config, data=chosen, train=replace(config.train, evaluate_every=0))
        return change(config, data, strict, settings)
    return configure(name or (DEFAULT if data in (None, "digits") else "folder"), data, strict, settings)


def default_folder(name: str | None, config: Config, data: str | None) -> Path:
    """Where a run goes unless `--out` says: after the data if that was chosen, else after the preset.

    Example:
        >>> str(default_folder("digits/cBN", preset("digits/cBN"), "photos/cats"))
        'runs/cats-digits-cBN'
    """
    own = preset_to_folder(config.preset or "run")
    if data is None and config.data.name in names():
        return Path("runs") / own
    after_data = Path(config.data.name if data is None else data).absolute().name
    return Path("runs") / (after_data if name in (None, *BY_DATA) else f"{after_data}-{own}")


def preset_to_folder(name: str) -> str:
    """The name of the folder for a preset's runs.

    Example:
        >>> preset_to_folder("cifar10/WC SN + ResNet")
        'cifar10-WCSN+ResNet'
    """
    return name.replace("/", "-").replace(" ", "")
