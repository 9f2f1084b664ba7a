"""Exports the generator of a run to a folder: in one of several formats, or as the package ships its own."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

import wcgan
from wcgan.core.config import config_to_dict
from wcgan.core.files import is_named_like_a_file, require_new, write_atomically, written_whole
from wcgan.core.reading import parse_json, read_text
from wcgan.core.terminal import OnProgress, shown
from wcgan.evaluate.protocol import facts_to_name, is_unusual
from wcgan.export.programs import Servable, make_servable, write_compiled, write_onnx, write_program
from wcgan.nets import Generator
from wcgan.runs.checkpoint import write_checkpoint
from wcgan.runs.folder import Run, new_run
from wcgan.runs.pretrained import CONFIG, ORIGIN, WEIGHTS, read_exported
from wcgan.runs.sampler import Sampler, load_generator

_CHECKED = 64
Facts = dict[str, Any]


def export_run(
    run: Path,
    form: str,
    folder: Path,
    checkpoint: str = "last",
    label: int | str | None = None,
    progress: OnProgress = lambda what, done, total: None,
) -> Facts:
    """Exports the generator of a run to a new folder, with facts about it in `export.json`.

    The folder appears when everything in it is written and checked, or not at all.

    Args:
        run: the folder of a run.
        form: one of `FORMATS`.
        folder: a folder that does not exist and has no file's extension, or is empty.
        checkpoint: `"last"`, `"best"` or the number of an iteration.
        label: the only class to keep, by number or name, for `onnx`, `torch-export` and `aoti`; None for all.
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
        raise ValueError(
            f"{form} keeps the generator as it was trained, with all its classes: leave out the class {label}"
        )
    if is_named_like_a_file(folder):
        raise ValueError(f"an export is a folder with several files: name one without {folder.suffix}, not {folder}")
    require_new(folder)
    sampler = load_generator(run, checkpoint, "cpu")
    if isinstance(label, str) and "," in label and label not in sampler.class_names:
        raise ValueError(f"an export keeps one class or all: name one, not {shown(label)}, or leave --classes out")
    if label is not None:
        sampler.labels(1, label)  # which a generator without classes refuses
    only = None if label is None else sampler.class_number(label)
    with written_whole(folder) as temporary:
        if form in _FOLDED:
            name, write = _FOLDED[form]
            facts = write(sampler_to_servable(sampler, only), temporary / name, progress)
        else:
            network = _TRAINED[form](sampler, Run(run), temporary, progress)
            facts = {"largest difference": check_same(sampler, network, progress)}
        files = {str(p.relative_to(temporary)): p.stat().st_size for p in sorted(temporary.rglob("*")) if p.is_file()}
        versions = {"wcgan": wcgan.__version__, "torch": str(torch.__version__), **facts.pop("versions", {})}
        facts = {"format": form, "iteration": sampler.iteration, "label": only, "bytes": files, **facts}
        facts["versions"] = versions
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
    kept = sampler.class_names if label is None else sampler.class_names[label : label + 1]
    return dataclasses.replace(make_servable(sampler.network, names, draw, label), class_names=kept)


# The generator as it was trained


def write_weights(sampler: Sampler, run: Run, folder: Path, progress: OnProgress) -> Generator:
    """Writes weights and config as they were trained -> the generator read back from them."""
    write_state(sampler.network, folder / WEIGHTS)
    config = dataclasses.asdict(sampler.config) | {"class_names": list(sampler.class_names)}
    (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return read_exported(folder)[0]


def write_state(network: nn.Module, file: Path) -> None:
    """Writes the tensors of a network; with the umask's mode, unlike safetensors, which makes its files private."""
    file.write_bytes(save({k: v.contiguous() for k, v in network.state_dict().items()}, {"format": "pt"}))


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


# A generator as the package ships its own


def run_to_shipped(run: Path, folder: Path, command: str = "", checkpoint: str = "last", licence: str = "") -> Path:
    """Writes a run's generator alone: config, weights in half precision, and where it comes from.

    Running statistics keep their precision: rounding a covariance can take away its smallest eigenvalues. At a constant
    rate, the config's length is that of the training until the checkpoint, which fine-tuning takes over.

    Args:
        run: the folder of a run.
        folder: a new folder; it can be loaded as a run's.
        command: what made the run, for `origin.json`; empty where it is not known.
        checkpoint: `"last"`, `"best"` or the number of an iteration.
        licence: of the weights, for `origin.json`; empty where it is not known.
    """
    sampler, old = load_generator(run, checkpoint, "cpu"), Run(run)
    config, iteration = old.config().without_paths(), sampler.iteration or 0
    if config.train.schedule == "constant":  # the planned length changed nothing until here
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, iterations=max(1, iteration)))
    new = new_run(folder, config)
    state = sampler.network.state_dict()
    tensors = {f"generator.{key}": value if "running_" in key else _halved(value) for key, value in state.items()}
    facts = {
        "iteration": iteration,
        "classes": list(sampler.class_names),
        "config": config_to_dict(new.config()),
        "version": wcgan.__version__,
    }
    write_checkpoint(new.checkpoints, f"{iteration:07d}", tensors, facts)
    write_atomically(folder / ORIGIN, json.dumps(_origin(old, iteration, command, licence), indent=1).encode())
    return folder


def _halved(value: Tensor) -> Tensor:
    """In float16, except for integers and values that are too large for it."""
    half = value.to(torch.float16) if value.is_floating_point() else value
    return half if bool(torch.isfinite(half).all()) else value


def _origin(run: Run, iteration: int, command: str, licence: str) -> dict[str, Any]:
    """How the generator was made; the `origin.json` of one that was shipped before is kept."""
    if (run.folder / ORIGIN).is_file():
        try:
            kept = parse_json(read_text(run.folder / ORIGIN))
        except ValueError as error:
            raise ValueError(f"{run.folder / ORIGIN} cannot be read: {error}") from None
        if not isinstance(kept, dict):
            raise ValueError(f"{run.folder / ORIGIN} cannot be read: it is not a mapping")
        return kept
    lines = run.lines()
    begun: list[dict[str, Any]] = [line for line in lines if line.get("what") in ("started", "resumed")]
    commits = dict.fromkeys(str(line["commit"]) for line in begun if line.get("commit"))
    measured = [v for v in lines if v["kind"] == "evaluation" and v["iteration"] == iteration]
    scores, protocols = {}, {}
    for line in measured:
        facts = line.get("protocol", {})
        names = [k for k in line if "(" in k or k in ("IS", "FID", "KID", "precision", "recall")]
        for name in () if is_unusual(facts) else names:
            scores[name], protocols[name] = line[name], facts_to_name(name, facts) if "name" in facts else None
    return {
        "command": command,
        "licence": licence,
        "commit": "; ".join(commits) or None,
        **{key: begun[0].get(key) if begun else None for key in ("time", "device", "torch")},
        "scores": scores,
        "protocols": protocols,
    }
