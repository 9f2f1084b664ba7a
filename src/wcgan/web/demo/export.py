"""Exports the playground as an app folder for a model hub: code, generators and requirements."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.metadata import requires, version
from pathlib import Path

import wcgan
from wcgan.core.files import require_new
from wcgan.runs.sampler import find_run, run_to_shipped, shipped, shipped_generators

_PROGRAM = '''\
"""Serves the playground with the generators in this folder."""

from pathlib import Path

from wcgan.web.demo import launch, load_runs

runs = sorted((Path(__file__).parent / "generators").iterdir())
launch(load_runs(runs), host=None, port=None).block_thread()
'''
_CARD = """\
---
title: wcgan playground
sdk: gradio
sdk_version: {gradio}
app_file: app.py
---

A playground for {names}. Run it anywhere:

    pip install -r requirements.txt
    python app.py
"""


def export_app(runs: Sequence[Path], folder: Path, checkpoint: str = "last") -> Path:
    """Writes `app.py`, `requirements.txt`, `README.md`, the package and the generators.

    Args:
        runs: folders of runs, or names of shipped generators; empty for all shipped ones.
        folder: a new folder.
        checkpoint: `"last"`, `"best"` or the number of an iteration.

    Raises:
        ValueError: if the folder is not empty, or two runs have the same name.
    """
    sources = [find_run(run) for run in runs] or [shipped(name) for name in shipped_generators()]
    names = [run.resolve().name for run in sources]
    if len(set(names)) < len(names):
        raise ValueError(f"two of these runs have the same name: {', '.join(names)}")
    require_new(folder, "name another with --export")
    for run, name in zip(sources, names, strict=True):
        run_to_shipped(run, folder / "generators" / name, checkpoint=checkpoint)
    package = Path(wcgan.__file__).parent
    kept_out = shutil.ignore_patterns("__pycache__", *shipped_generators())
    shutil.copytree(package, folder / package.name, ignore=kept_out)
    (folder / "app.py").write_text(_PROGRAM, encoding="utf-8")
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in requirements()), encoding="utf-8")
    card = _CARD.format(gradio=version("gradio"), names=", ".join(names))
    (folder / "README.md").write_text(card, encoding="utf-8")
    return folder


def requirements() -> list[str]:
    """What the exported folder needs: the requirements of `wcgan[train]`, and this version of Gradio."""
    declared = [line.partition(";") for line in requires("wcgan") or ()]
    needed = [name.strip() for name, _, marker in declared if not marker or marker.strip() == 'extra == "train"']
    return [*needed, f"gradio=={version('gradio')}"]
