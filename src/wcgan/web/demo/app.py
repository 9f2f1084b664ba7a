"""The page: a generator to choose, and a tab for each thing to do with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gradio as gr

from wcgan.report.html import Markup, join, tag
from wcgan.train.loading import load_generator
from wcgan.train.sampling import Sampler
from wcgan.train.shipped import find_run, shipped, shipped_generators
from wcgan.web.demo.answers import Page, Samplers
from wcgan.web.demo.tabs import FIRST, TABS

TITLE = "wcgan playground"
_CACHE_SECONDS = (600, 3600)  # how often old files are looked for, and how old they may grow


def load_runs(runs: Sequence[Path] = (), checkpoint: str = "last", device: str = "auto") -> dict[str, Sampler]:
    """Generators by name: the folder's, or the whole path where two folders are called alike.

    Args:
        runs: folders of runs, or names of generators that come with the package; none for all of those.
        checkpoint: `"last"`, `"best"` or the number of an iteration.
        device: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:N"`.

    Raises:
        ValueError: for a folder that is not a run's, or is named twice.
    """
    folders = [find_run(run).resolve() for run in runs] or [shipped(name) for name in shipped_generators()]
    twice = next((folder for folder in folders if folders.count(folder) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is named twice")
    names = [folder.name for folder in folders]
    return {
        name if names.count(name) == 1 else str(folder): load_generator(folder, checkpoint, device)
        for name, folder in zip(names, folders, strict=True)
    }


def describe(samplers: Samplers) -> Markup:
    """The page's head, with one line on each generator."""
    lines = []
    for name, sampler in samplers.items():
        config = sampler.config
        classes = f"{config.classes} classes" if sampler.conditional else "no classes"
        facts = (config.normalization, classes, f"{config.resolution}\u00a0\u00d7\u00a0{config.resolution}")
        lines.append(tag("p", tag("b", name), f": {', '.join(facts)}, iteration {sampler.iteration}", class_="facts"))
    return join([tag("h1", TITLE), *lines])


def build(samplers: Samplers) -> gr.Blocks:
    """The page on these generators; `launch` serves it."""
    with Page(title=TITLE, analytics_enabled=False, delete_cache=_CACHE_SECONDS) as page:
        gr.HTML(describe(samplers))
        with gr.Tabs():
            for label, fill in TABS.items():
                with gr.Tab(label) as tab:
                    # The first tab is never selected: it is there when the page is.
                    fill(samplers, tab.select if label != FIRST else page.load)
    return page
