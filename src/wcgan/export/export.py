"""Exports the generator of a run to a folder, in one of several formats, and reads the weights format back."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from wcgan.core.files import require_new, written_whole
from wcgan.core.reading import parse_json, read_bytes
from wcgan.core.terminal import OnProgress
from wcgan.export.programs import Servable, make_servable, write_compiled, write_onnx, write_program
from wcgan.nets import Generator, GeneratorConfig, build_generator
from wcgan.runs.folder import Run
from wcgan.runs.sampler import Sampler, load_generator

WEIGHTS, CONFIG = "model.safetensors", "config.json"
_CHECKED = 64
Facts = dict[str, Any]


def export_run(
    run: Path,
    form: str,
    folder: Path,
    checkpoint: str = "last",
    label: int | None = None,
    progress: OnProgress = lambda what, done, total: None,
) -> Facts:
    """Exports the generator of a run to a new folder, with facts about it in `export.json`.

    The folder appears when everything in it is written and checked, or not at all.

    Args:
        run: the folder of a run.
        form: one of `FORMATS`.
        folder: a folder that does not exist, or is empty.
        checkpoint: `"last"`, `"best"` or the number of an iteration.
        label: the only class to keep, for `onnx`, `torch-export` and `aoti`; None for all.
        progress: called with what is being done, how much of it is done, and how much there is.

    Returns:
        The facts: files and their bytes, and the largest difference from the original on random inputs.

    Raises:
        ValueError: for an unknown format, a folder that is not empty, a label out of place, a run without a
            generator, and a generator that cannot be exported exactly.
    """
    if form not in FORMATS:
        raise ValueError(f"unknown format {form!r}; choose one of {', '.join(FORMATS)}")
    if label is not None and form in _TRAINED:
        raise ValueError(f"{form} keeps the generator as it was trained, with all classes: leave out label={label}")
    require_new(folder)
    sampler = load_generator(run, checkpoint, "cpu")
    with written_whole(folder) as temporary:
        if form in _FOLDED:
            name, write = _FOLDED[form]
            facts = write(sampler_to_servable(sampler, label), temporary / name, progress)
        else:
            network = _TRAINED[form](sampler, Run(run), temporary, progress)
            facts = {"largest difference": check_same(sampler, network, progress)}
        files = {str(p.relative_to(temporary)): p.stat().st_size for p in sorted(temporary.rglob("*")) if p.is_file()}
        facts = {"format": form, "iteration": sampler.iteration, "label": label, "bytes": files, **facts}
        (temporary / "export.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def facts_to_lines(facts: Facts) -> list[str]:
    """What the command line prints about an export."""
    lines = [f"{name}: {size:,} bytes" for name, size in facts["bytes"].items()]
    if "opset" in facts:
        lines.append(f"opset {facts['opset']}: " + ", ".join(f"{k} {v}" for k, v in facts["operators"].items()))
    lines.append(f"checked: largest difference {facts['largest difference']:.1e} from the trained generator")
    return lines


def sampler_to_servable(sampler: Sampler, label: int | None = None) -> Servable:
    """The folded generator, whose inputs are noise and, with classes and without `label`, labels."""

    def draw(count: int, seed: int) -> tuple[Tensor, ...]:
        noise = sampler.noise(count, seed)
        if not sampler.conditional or sampler.config.classes is None or label is not None:
            return (noise,)
        random = torch.Generator().manual_seed(seed)
        return noise, torch.randint(sampler.config.classes, (count,), generator=random)

    names = ("noise", "labels") if sampler.conditional and label is None else ("noise",)
    return dataclasses.replace(make_servable(sampler.network, names, draw, label), class_names=sampler.class_names)


# The generator as it was trained


def write_weights(sampler: Sampler, run: Run, folder: Path, progress: OnProgress) -> Generator:
    """Writes weights and config as they were trained -> the generator read back from them."""
    write_state(sampler.network, folder / WEIGHTS)
    config = dataclasses.asdict(sampler.config) | {"class_names": list(sampler.class_names)}
    (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return read_weights(folder)


def write_state(network: nn.Module, file: Path) -> None:
    """Writes the tensors of a network; with the umask's mode, unlike safetensors, which makes its files private."""
    file.write_bytes(save({k: v.contiguous() for k, v in network.state_dict().items()}, {"format": "pt"}))


def read_weights(folder: Path) -> Generator:
    """The generator in a folder of the format `safetensors` or `hub`, in evaluation mode.

    Raises:
        ValueError: if a file is missing, or the two do not fit each other.
    """
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no generator: there is no {name}")
    try:
        values = dict(parse_json(read_bytes(folder / CONFIG)))
        values.pop("class_names", None)
        config = GeneratorConfig(**values)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / CONFIG} describes no generator: {error}") from None
    network = build_generator(config)
    try:
        network.load_state_dict(load_file(folder / WEIGHTS))
    except (RuntimeError, SafetensorError):
        raise ValueError(f"{folder}: {WEIGHTS} does not fit {CONFIG}") from None
    return network.requires_grad_(False).eval()


@torch.no_grad()
def check_same(sampler: Sampler, network: Generator, progress: OnProgress) -> float:
    """Checks that a generator read back makes the same images, bit for bit -> the largest difference, 0.

    Raises:
        ValueError: if the images differ.
    """
    noise, labels = sampler.noise(_CHECKED, 0), sampler.labels(_CHECKED, None)
    inputs = (noise,) if labels is None else (noise, labels)
    largest = float((network(*inputs) - sampler.network(*inputs)).abs().max())
    progress("checking", _CHECKED, _CHECKED)
    if largest != 0:
        raise ValueError(f"the written generator differs by {largest:.1e} from the one that was trained")
    return largest


def _write_hub(sampler: Sampler, run: Run, folder: Path, progress: OnProgress) -> Generator:
    from wcgan.export.hub import write_hub

    return write_hub(sampler, run, folder, progress)


_FOLDED: Mapping[str, tuple[str, Callable[[Servable, Path, OnProgress], Facts]]] = {
    "onnx": ("generator.onnx", write_onnx),
    "torch-export": ("generator.pt2", write_program),
    "aoti": ("generator.aoti.pt2", write_compiled),
}
_TRAINED: Mapping[str, Callable[[Sampler, Run, Path, OnProgress], Generator]] = {
    "safetensors": write_weights,
    "hub": _write_hub,
}
FORMATS = (*_FOLDED, *_TRAINED)
