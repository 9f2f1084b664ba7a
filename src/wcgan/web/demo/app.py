"""The playground's page, its server, and its export as an app folder for a model hub."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from importlib.metadata import requires, version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import gradio as gr
from fastapi import Request, Response
from fastapi.middleware import Middleware
from fastapi.responses import PlainTextResponse
from starlette.datastructures import Headers

import wcgan
from wcgan.core.files import require_new, written_whole
from wcgan.core.terminal import counted
from wcgan.export.export import run_to_shipped
from wcgan.report.html import Markup, join, tag
from wcgan.runs.pretrained import find_source, shipped, shipped_generators
from wcgan.runs.sampler import Sampler, load_generator
from wcgan.web.demo.answers import Page, Samplers
from wcgan.web.demo.pictures import MOST_BYTES
from wcgan.web.demo.tabs import FIRST, TABS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST, PORT = "127.0.0.1", 7860
TITLE = "wcgan playground"
_CACHE_SECONDS = (600, 3600)  # between clean-ups of old files, and the age at which a file is old
_FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif"]
_MONO = ["ui-monospace", "SF Mono", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace"]
_WAITING = 32  # requests in the queue
_POSTED = re.compile(r"/gradio_api/(call(/v2)?/\w+|(run|api)/\w+|queue/join|cancel|reset)/?$")
SHEET = """
:root { --c0: #0064b0; --c1: #c04a00; }
.gradio-container { --line: var(--border-color-primary); }
.dark { --c0: #6cb8ff; --c1: #ff9d5c; }
.facts { color: var(--body-text-color-subdued); }
@media (max-width: 700px) {
  .work > :last-child { order: -1; } /* the picture above its controls */
  .tabs { width: calc(100% + 2.5rem) !important; margin: 0 -1.25rem; } /* into the margins of the page */
  h1, h1 ~ .facts { margin-left: -1.25rem; }
  .tab-container button { padding: 0 5px !important; font-size: 13px !important; } /* all tabs in one row */
}
/* Captions must not reach the buttons: no icon, and a long one is cut. */
.picture [data-testid=block-label] > span { display: none; }
.picture [data-testid=block-label] {
  display: block; max-width: calc(100% - 4rem); overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
}
figure { margin: 0; max-width: 28rem; }
.chart { display: block; width: 100%; height: auto; overflow: visible; }
.chart text { font-size: 13px; fill: var(--body-text-color-subdued); }
.chart .grid, .chart .axis { fill: none; stroke: var(--line); }
.chart .axis { stroke: var(--body-text-color-subdued); }
.chart .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.chart .line.c0 { stroke: var(--c0); }
.chart .line.c1 { stroke: var(--c1); }
.chart .dot.c0 { fill: var(--c0); }
.chart .dot.c1 { fill: var(--c1); }
.key { margin-left: .8rem; padding-left: .4rem; border-left: .8rem solid; }
.key.c0 { border-color: var(--c0); }
.key.c1 { border-color: var(--c1); }
.compared { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 240px), 1fr)); }
.picture .image-frame { padding-top: 2.2rem; }
.picture img { width: 100%; object-fit: contain; }
#nearest table { width: auto; border: 0; }
#nearest caption { text-align: left; white-space: nowrap; padding-bottom: .3rem; }
#nearest :is(tr, th, td) { border: 0; }
#nearest :is(th, td) { text-align: left; padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid var(--line); }
#nearest :is(th, td).number { text-align: right; font-variant-numeric: tabular-nums; }
"""


def load_runs(runs: Sequence[Path] = (), checkpoint: str = "last", device: str = "auto") -> dict[str, Sampler]:
    """Loads generators -> samplers by name: that of the folder, or the whole path if two have the same name.

    Args:
        runs: generators as `wcgan.load` takes them; empty for all shipped ones.
        checkpoint: `"last"`, `"best"` or the number of an iteration.
        device: `"auto"`, `"cpu"`, `"cuda"` or `"cuda:N"`.

    Raises:
        ValueError: for a folder that is not a run, or is given twice.
    """
    sources = list(runs) or [Path(name) for name in shipped_generators()]
    found = [find_source(source).resolve() for source in sources]
    twice = next((path for path in found if found.count(path) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is given twice")
    names = list(map(_source_to_name, sources, found))
    return {
        name if names.count(name) == 1 else str(path): load_generator(path, checkpoint, device)
        for name, path in zip(names, found, strict=True)
    }


def _source_to_name(source: Path, found: Path) -> str:
    """The name of a folder, of a checkpoint with that of its run, or of a shipped or downloaded generator."""
    if not source.exists():
        return str(source)
    return f"{found.parent.parent.name}/{found.stem}" if found.is_file() else found.name


def launch(samplers: Samplers, host: str | None = HOST, port: int | None = PORT) -> gr.Blocks:
    """Starts to serve in a background thread -> the page, whose `local_url` is its address.

    Args:
        samplers: generators by name, as `load_runs` returns them.
        host: the address to listen on; None for Gradio's environment variables, else 127.0.0.1.
        port: the port; None for Gradio's environment variables, else the first free one from 7860.

    Raises:
        ValueError: for a port out of range.
        OSError: for an address or a port that cannot be used.
    """
    if port is not None and not 1 <= port <= 65535:
        raise ValueError(f"--port takes 1 to 65535, got {port}")
    page = build(samplers).queue(max_size=_WAITING)
    try:
        page.launch(
            server_name=host,
            server_port=port,
            share=False,
            inbrowser=False,
            prevent_thread_lock=True,
            quiet=True,
            show_error=False,
            max_threads=4,
            max_file_size=MOST_BYTES,
            enable_monitoring=False,  # its address is a secret, and would be logged
            run_history=False,
            ssr_mode=False,
            footer_links=["settings"],
            app_kwargs={
                "middleware": [Middleware(OwnRequests), Middleware(BodyLimit, most=MOST_BYTES)],
                "exception_handlers": {KeyError: _nothing_there, TypeError: _wrong_names},
            },
            theme=_theme(),
            css=SHEET,
        )
    except OSError:
        raise OSError(f"cannot listen on {host or HOST}:{port or PORT}: choose another --host or --port") from None
    return page


def build(samplers: Samplers) -> gr.Blocks:
    """The page for these generators; `launch` serves it."""
    with Page(title=TITLE, analytics_enabled=False, delete_cache=_CACHE_SECONDS) as page:
        gr.HTML(describe(samplers))
        with gr.Tabs():
            for label, (purpose, fill) in TABS.items():
                with gr.Tab(label) as tab:
                    gr.HTML(tag("p", purpose, class_="facts"))
                    # The first tab gets no select event: it is open when the page loads.
                    fill(samplers, tab.select if label != FIRST else page.load)
    return page


def describe(samplers: Samplers) -> Markup:
    """The head of the page, with a line on each generator."""
    lines = []
    for name, sampler in samplers.items():
        config = sampler.config
        classes = counted(config.classes or 0, "class") if sampler.conditional else "no classes"
        facts = [config.normalization, classes, f"{config.resolution}\u00a0\u00d7\u00a0{config.resolution} pixels"]
        if sampler.iteration is not None:
            facts.append(counted(sampler.iteration, "iteration"))
        lines.append(tag("p", tag("b", name), f": {', '.join(facts)}", class_="facts"))
    return join([tag("h1", TITLE), *lines])


def _theme() -> gr.themes.Base:
    """Gradio's default theme with system fonts, and secondary text dark enough to read."""
    theme = gr.themes.Default(font=_FONTS, font_mono=_MONO)
    soft = ("body_text_color_subdued", "block_info_text_color")
    colours = dict.fromkeys(soft, "*neutral_600") | {f"{name}_dark": "*neutral_300" for name in soft}
    return theme.set(**colours)


async def _nothing_there(request: Request, error: Exception) -> Response:
    """Answers 404 where Gradio looks up a name from a request without checking it."""
    return PlainTextResponse("there is nothing of that name here", 404)


async def _wrong_names(request: Request, error: Exception) -> Response:
    """Answers 422 where Gradio calls a function with the names in a request without checking them."""
    return PlainTextResponse("this request has a value that is not asked for, or lacks one that is", 422)


class OwnRequests:
    """Refuses what the page never sends, such as uploads, and requests from pages of other sites."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = None
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            if not _POSTED.search(scope["path"]):
                answer = PlainTextResponse("the playground takes no files or requests of this kind", 403)
            elif _from_another_site(Headers(scope=scope)):
                answer = PlainTextResponse("the playground answers its own page only, not other sites", 403)
        await (answer or self.app)(scope, receive, send)


def _from_another_site(headers: Headers) -> bool:
    """Whether a browser says that another site sent the request; other clients send no such headers."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")


class BodyLimit:
    """Refuses a request whose body is too large, before anything else reads it."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.app = app
        self.most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        read: list[Message] = []
        size, more = 0, True
        while more:
            message = await receive()
            read.append(message)
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
            if size > self.most:
                refusal = PlainTextResponse(f"a request may have {self.most} bytes at most", 413)
                await refusal(scope, receive, send)
                return

        async def again() -> Message:
            return read.pop(0) if read else await receive()

        await self.app(scope, again, send)


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
    sources = [find_source(run) for run in runs] or [shipped(name) for name in shipped_generators()]
    names = [run.resolve().name for run in sources]
    if len(set(names)) < len(names):
        raise ValueError(f"two of these runs have the same name: {', '.join(names)}")
    require_new(folder, "name another with --export")
    texts = {
        "app.py": _PROGRAM,
        "requirements.txt": "".join(f"{line}\n" for line in requirements()),
        "README.md": _CARD.format(gradio=version("gradio"), names=", ".join(names)),
    }
    package = Path(wcgan.__file__).parent
    kept_out = shutil.ignore_patterns("__pycache__", *shipped_generators())
    with written_whole(folder) as temporary:
        for run, name in zip(sources, names, strict=True):
            run_to_shipped(run, temporary / "generators" / name, checkpoint=checkpoint)
        shutil.copytree(package, temporary / package.name, ignore=kept_out)
        for name, text in texts.items():
            (temporary / name).write_text(text, encoding="utf-8")
    return folder


def requirements() -> list[str]:
    """What the exported folder needs: the requirements of `wcgan[train]`, and this version of Gradio."""
    declared = [line.partition(";") for line in requires("wcgan") or ()]
    needed = [name.strip() for name, _, marker in declared if not marker or marker.strip() == 'extra == "train"']
    return [*needed, f"gradio=={version('gradio')}"]
