"""Generators besides those of your own runs: shipped with the package, exported to a folder, on a model hub."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import wcgan
from wcgan.core.config import config_from_dict
from wcgan.core.reading import open_file, parse_json, read_bytes, read_text
from wcgan.core.tensor_files import bytes_to_tensors
from wcgan.core.terminal import counted, first_line
from wcgan.nets import Generator, GeneratorConfig, build_generator
from wcgan.runs.checkpoint import MOST_FACTS, fill_network
from wcgan.runs.folder import Run

DEFAULT = "cifar10-best"
ORIGIN = "origin.json"
WEIGHTS, CONFIG = "model.safetensors", "config.json"
_FOLDER = Path(wcgan.__file__).parent / "generators"
_HUB_SECONDS = 10.0
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def find_source(source: str | os.PathLike[str]) -> Path:
    """A path or a name -> what to load: a path that exists, else the shipped generator of that name, else one on a hub.

    Raises:
        ValueError: if there is none of these.
    """
    path, name = Path(source), os.fspath(source)
    if path.exists():
        return path
    if name in shipped_generators():
        return shipped(name)
    there = f"a shipped generator: {', '.join(shipped_generators())}"
    if not _HUB_NAME.fullmatch(name) or path.parent.is_dir():  # runs/mine, beside other runs, is a path with a typo
        raise ValueError(f"{name} is not there; name the folder of a run, or {there}")
    try:
        return download(name)
    except (ValueError, ImportError) as error:
        raise ValueError(
            f"{name} is not there; name the folder of a run, or {there}. As a model on a hub: {error}"
        ) from None


def download(name: str) -> Path:
    """Downloads a generator from the Hugging Face hub, or finds it in the hub's cache -> the folder.

    Args:
        name: `OWNER/NAME` of a model that the format `hub` of `wcgan export` made.

    Raises:
        ValueError: if it cannot be downloaded.
        ImportError: without `wcgan[export]`.
    """
    try:
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise ImportError(f"it needs more packages: pip install 'wcgan[export]' ({error})") from error
    try:
        HfApi().model_info(name, timeout=_HUB_SECONDS)  # fails at once where a download would try again and again
        reason = None
    except Exception as error:  # whatever the hub's HTTP client raises
        reason = first_line(error)
    try:
        files = [hf_hub_download(name, file, local_files_only=reason is not None) for file in (CONFIG, WEIGHTS)]
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise ValueError(f"it cannot be downloaded ({reason or first_line(error)})") from None
    return Path(files[0]).parent


# Shipped with the package


@dataclass(frozen=True)
class Model:
    """A generator that comes with the package."""

    name: str
    """For `wcgan.load` and the command line."""
    dataset: str
    classes: tuple[str, ...]
    """Names of its classes; empty without classes."""
    image: tuple[int, int, int]
    """Channels, height and width."""
    normalization: str
    bytes: int
    """Size of its weights on disk."""
    fid: float | None
    """FID on Inception features; None if it was not measured."""
    scores: dict[str, float]
    """All scores that were measured."""
    licence: str
    command: str
    """The command that trained it."""


def shipped_models() -> tuple[Model, ...]:
    """What is known about the generators that come with the package; see `wcgan.models`."""
    return tuple(map(_read_model, shipped_generators()))


def _read_model(name: str) -> Model:
    run = Run(shipped(name))
    config, origin = run.config(), parse_json(read_text(run.folder / ORIGIN))
    (facts,) = (parse_json(read_text(file)) for file in run.checkpoints.glob("*.json"))
    made = config.generator
    return Model(
        name=name,
        dataset=config.data.name,
        classes=tuple(facts["classes"]) if made.conditional else (),
        image=(made.channels, made.resolution, made.resolution),
        normalization=made.normalization,
        bytes=facts["bytes"],
        fid=origin["scores"].get("FID"),
        scores=origin["scores"],
        licence=origin["licence"],
        command=origin["command"],
    )


def models_to_lines(found: Sequence[Model]) -> list[str]:
    """What `wcgan models` prints."""
    lines = []
    for model in found:
        channels, height, width = model.image
        scores = [f"{key} {value:.3g}" for key, value in model.scores.items() if key.startswith("FID")]
        facts = {
            "draws": f"{model.dataset}, {width} x {height}, {'grey' if channels == 1 else 'colour'}",
            "network": f"{model.normalization}, {model.bytes / 1e6:.1f} MB",
            "scores": ", ".join(scores) or "not measured",
            "classes": ", ".join(model.classes) or "none",
            "licence": model.licence,
            "made by": f" \\\n{' ' * 13}".join(wrap(model.command, 65, break_on_hyphens=False)),
        }
        lines += [model.name, *(f"  {key:8} {value}" for key, value in facts.items())]
    return lines


def shipped_generators() -> tuple[str, ...]:
    """The names of the generators that come with the package."""
    return tuple(sorted(path.parent.name for path in _FOLDER.glob("*/config.yaml")))


def shipped(name: str = DEFAULT) -> Path:
    """The folder of a generator that comes with the package.

    Raises:
        ValueError: for another name.
    """
    if name not in shipped_generators():
        raise ValueError(f"no generator {name!r} comes with the package; there is {', '.join(shipped_generators())}")
    return _FOLDER / name


# Exported


def is_exported(folder: Path) -> bool:
    """Whether `read_exported` is meant to read this folder, not a run."""
    return not (folder / "config.yaml").exists() and any(
        (folder / name).exists() for name in (CONFIG, WEIGHTS, "export.json")
    )


def read_exported(folder: Path) -> tuple[Generator, tuple[str, ...]]:
    """The generator in a folder of the format `safetensors` or `hub`, in evaluation mode, and its class names.

    Raises:
        ValueError: if a file is missing, or the two do not fit each other.
    """
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            files = ", ".join(sorted(path.name for path in folder.glob("generator.*")))
            advice = f"; {files} is for other software (export with --format safetensors or hub)" if files else ""
            raise ValueError(f"{folder} has no generator to load: there is no {name}{advice}")
    try:
        values: Any = parse_json(read_bytes(folder / CONFIG, MOST_FACTS))
        names = values.pop("class_names", []) if isinstance(values, dict) else []
        config = config_from_dict(values, GeneratorConfig)
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
            raise ValueError("class_names must be a list of names")
        if names and config.conditional and len(names) != config.classes:
            raise ValueError(f"class_names has {counted(len(names), 'name')} for {counted(config.classes, 'class')}")
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG} describes no generator: {error}") from None
    with open_file(folder / WEIGHTS) as file:
        content = file.read()
    try:
        tensors = bytes_to_tensors(content)
    except ValueError as error:
        raise ValueError(f"{folder / WEIGHTS} is damaged: export or download it again ({error})") from None
    network = build_generator(config)
    try:
        fill_network(network, tensors)
    except ValueError:
        raise ValueError(f"{folder}: {WEIGHTS} does not fit {CONFIG}") from None
    return network.requires_grad_(False).eval(), tuple(names)
