"""Presets: a named config for every row of the paper's tables, and for the embedded digits."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from wcgan.core.config import override
from wcgan.nets import DiscriminatorConfig, GeneratorConfig
from wcgan.norm import VARIANTS
from wcgan.paper.classifier_presets import CLASSIFIERS, classifier_to_name, dataset_to_classifier
from wcgan.paper.printed import ARCHITECTURES
from wcgan.paper.recipe import BEST, BEST_FOLDER
from wcgan.paper.tables import ALIASES, TABLES, canonical_name
from wcgan.runs.config import ClassifyConfig, Config, DataConfig, TrainConfig

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
    **BEST_FOLDER,
    "digits/WzcaC-decomposition": lambda: through_decomposition(digits("WzcaC")),
    "cifar10/WzcaC-decomposition": lambda: through_decomposition(row_to_config("cifar10/WzcaC")),
}


def configure(name: str, data: str | None = None, strict: bool = False, settings: Sequence[str] = ()) -> Config:
    """A preset's config, with other data and with single fields changed by `section.field=value`."""
    config = preset(name)
    chosen = replace(config.data, name=data or config.data.name, strict=strict or config.data.strict)
    return override(replace(config, data=chosen), settings)


def preset(name: str) -> Config:
    """The config of a preset, given a name in `PRESETS` or one of `ALIASES`; it records the name in `PRESETS`."""
    own = canonical_name(name)
    if own in CLASSIFIERS:
        raise ValueError(f'{name!r} is a classifier\'s preset: wcgan classify "{name}"')
    if own not in PRESETS:
        near = ", ".join(get_close_matches(name, (*PRESETS, *ALIASES), cutoff=0))
        raise ValueError(f"unknown preset {name!r}; `wcgan presets` lists them; the nearest are {near}")
    return replace(PRESETS[own](), preset=own)


def classifier_preset(name: str) -> ClassifyConfig:
    """The config of a classifier's preset, given a name in `CLASSIFIERS`."""
    if canonical_name(name) in PRESETS:
        raise ValueError(f'{name!r} is a GAN\'s preset: wcgan train "{name}"')
    if name not in CLASSIFIERS:
        near = ", ".join(get_close_matches(name, CLASSIFIERS, cutoff=0))
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
    data = replace(config.data, name=dataset or config.data.name, strict=strict or config.data.strict)
    config = replace(config, data=data, classifier=network)
    name = classifier_to_name(config)
    if preset is None and name in CLASSIFIERS and CLASSIFIERS[name]() == config:
        config = replace(config, preset=name)  # the same settings as a row of a table
    return override(config, settings)


def preset_to_folder(name: str) -> str:
    """The name of the folder for a preset's runs.

    Example:
        >>> preset_to_folder("cifar10/WC SN + ResNet")
        'cifar10-WCSN+ResNet'
    """
    return name.replace("/", "-").replace(" ", "")
