"""A run's generator -> a folder in one of the formats."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wcgan.core.files import require_new, written_whole
from wcgan.core.terminal import OnProgress
from wcgan.export.hub import write_weights
from wcgan.export.programs import write_compiled, write_onnx, write_program
from wcgan.export.servable import Servable, make_servable
from wcgan.runs.folder import Run
from wcgan.runs.sampler import Sampler, load_generator

Facts = dict[str, Any]


def _write_hub(sampler: Sampler, run: Run, folder: Path, progress: OnProgress) -> Facts:
    from wcgan.export.hub import write_hub

    return write_hub(sampler, run, folder, progress)


_SERVED: Mapping[str, tuple[str, Callable[[Servable, Path, OnProgress], Facts]]] = {
    "onnx": ("generator.onnx", write_onnx),
    "torch-export": ("generator.pt2", write_program),
    "aoti": ("generator.aoti.pt2", write_compiled),
}
_KEPT: Mapping[str, Callable[[Sampler, Run, Path, OnProgress], Facts]] = {
    "safetensors": write_weights,
    "hub": _write_hub,
}
FORMATS = (*_SERVED, *_KEPT)


def export_run(
    run: Path,
    form: str,
    folder: Path,
    checkpoint: str = "last",
    label: int | None = None,
    progress: OnProgress = lambda what, done, total: None,
) -> Facts:
    """Writes a run's generator, and `export.json` with facts about it, into a new folder: all of it or nothing.

    Args:
        run: the folder of a run.
        form: one of `FORMATS`.
        folder: must not exist, or be empty.
        checkpoint: `"last"`, `"best"` or the number of an iteration.
        label: the one class to keep, for the formats that are served; None for all.
        progress: is told what is being done, how much of it is done, and how much there is.

    Returns:
        The facts: files and their bytes, and the largest difference from the original on random inputs.

    Raises:
        ValueError: for an unknown format, a folder that holds something, a label that makes no sense, a run without a
            generator, and a generator that cannot be exported exactly.
    """
    if form not in FORMATS:
        raise ValueError(f"unknown format {form!r}; choose one of {', '.join(FORMATS)}")
    if label is not None and form in _KEPT:
        raise ValueError(f"{form} keeps the generator as it was trained, with all classes: leave out label={label}")
    require_new(folder)
    sampler = load_generator(run, checkpoint, "cpu")
    with written_whole(folder) as temporary:
        if form in _SERVED:
            name, write = _SERVED[form]
            facts = write(sampler_to_servable(sampler, label), temporary / name, progress)
        else:
            facts = _KEPT[form](sampler, Run(run), temporary, progress)
        files = {str(p.relative_to(temporary)): p.stat().st_size for p in sorted(temporary.rglob("*")) if p.is_file()}
        facts = {"format": form, "iteration": sampler.iteration, "label": label, "bytes": files, **facts}
        (temporary / "export.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def sampler_to_servable(sampler: Sampler, label: int | None = None) -> Servable:
    """A generator of noise, and of labels where it has classes and none is fixed."""

    def draw(count: int, seed: int) -> tuple[Tensor, ...]:
        noise = sampler.noise(count, seed)
        if not sampler.conditional or sampler.config.classes is None or label is not None:
            return (noise,)
        random = torch.Generator().manual_seed(seed)
        return noise, torch.randint(sampler.config.classes, (count,), generator=random)

    names = ("noise", "labels") if sampler.conditional and label is None else ("noise",)
    return make_servable(sampler.network, names, draw, label)


def facts_to_lines(facts: Facts) -> list[str]:
    """What a person wants to know of an export."""
    lines = [f"{name}: {size:,} bytes" for name, size in facts["bytes"].items()]
    if "opset" in facts:
        lines.append(f"opset {facts['opset']}: " + ", ".join(f"{k} {v}" for k, v in facts["operators"].items()))
    lines.append(f"checked: largest difference {facts['largest difference']:.1e} from the trained generator")
    return lines
