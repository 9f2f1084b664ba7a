"""Presets: a name for every set-up that trains with one command."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from wcgan.nets import ARCHITECTURES, DiscriminatorConfig, GeneratorConfig
from wcgan.train.config import Config, DataConfig, TrainConfig, override

DEFAULT = "digits/cWC"


def digits(normalization: str) -> Config:
    """Handwritten digits, small enough for two CPU cores: a hinge GAN with a projection discriminator."""
    return Config(
        DataConfig(name="digits"),
        GeneratorConfig(widths=(24, 24), noise=32, channels=1, normalization=normalization, classes=10),
        DiscriminatorConfig(widths=(24, 24, 24), head="projection", channels=1, classes=10, resolution=16),
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


# How the paper trains each of its architectures, by the protocol's name in the row.
_PROTOCOLS: dict[str, TrainConfig] = {
    "GP": TrainConfig(loss="wasserstein", gradient_penalty=10.0, iterations=100_000),
    "DCGAN": TrainConfig(iterations=100_000, critic_steps=1, generator_batch=64),
    "SN": TrainConfig(),
}
_LENGTHS: dict[str, dict[str, Any]] = {
    "mnist/WC": {"iterations": 5_000, "schedule": "constant"},
    "mnist/cWC": {"iterations": 5_000, "schedule": "constant"},
    "fashion-mnist/WC": {"iterations": 20_000},
    "fashion-mnist/cWC": {"iterations": 20_000},
    "stl10/WC SN + ResNet": {"iterations": 100_000},
    "stl10/WC SN + DCGAN": {"iterations": 200_000},
    "tiny-imagenet/cWC SN + Proj. Discr.": {"iterations": 100_000},
    "imagenet/cWC_sa SN + Proj. Discr.": {"iterations": 450_000, "learning_rate": 5e-4},
}


def paper(name: str) -> Config:
    """A row of the paper's tables of architectures, trained by its protocol."""
    dataset, _, row = name.partition("/")
    protocol = next((p for p in _PROTOCOLS if p in row), "SN")
    generator, discriminator = ARCHITECTURES[name]
    return Config(
        DataConfig(name=dataset),
        generator,
        discriminator,
        replace(_PROTOCOLS[protocol], checkpoint_every=1000, sample_every=1000, **_LENGTHS.get(name, {})),
    )


PRESETS: dict[str, Callable[[], Config]] = {
    **{f"digits/{name}": (lambda name=name: digits(name)) for name in ("cWC", "cWC_sa", "cBN")},  # type: ignore[misc]
    **{name: (lambda name=name: paper(name)) for name in ARCHITECTURES},  # type: ignore[misc]
}


def configure(name: str, data: str | None = None, strict: bool = False, settings: Sequence[str] = ()) -> Config:
    """A preset with other data and single fields set."""
    config = preset(name)
    chosen = replace(config.data, name=data or config.data.name, strict=strict or config.data.strict)
    return override(replace(config, data=chosen), settings)


def preset(name: str) -> Config:
    """A preset's config, by its name."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; `wcgan presets` lists them: {', '.join(PRESETS)}")
    return replace(PRESETS[name](), preset=name)
