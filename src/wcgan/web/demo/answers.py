"""Connects controls to functions, and sends pictures and files, or one sentence on what is wrong."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import gradio as gr
from gradio.events import Dependency
from PIL import Image

from wcgan.core.files import NO_SPACE, write_atomically
from wcgan.core.images import image_to_png
from wcgan.core.terminal import shown
from wcgan.runs.sampler import Sampler

Samplers = Mapping[str, Sampler]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def find_sampler(samplers: Samplers, name: object) -> Sampler:
    if not isinstance(name, str) or name not in samplers:
        raise ValueError(f"there are the generators {', '.join(samplers)}; got {shown(name)}")
    return samplers[name]


def in_a_sentence(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Shows a ValueError to the user as a sentence, without a traceback in the log."""

    @wraps(function)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        try:
            return function(*arguments, **options)
        except ValueError as error:
            raise _sentence(str(error)) from None

    return call


def _sentence(message: str) -> gr.Error:
    """An error for the page, which shows messages as HTML."""
    return gr.Error(html.escape(message, quote=False), print_exception=False)


def answer(
    triggers: list[Any],
    function: Callable[..., Any],
    inputs: list[Any],
    outputs: list[Any],
    name: str,
    after: Dependency | None = None,
) -> None:
    """Calls a function, which must check its arguments, on any of the triggers and after another event.

    Only one request computes at a time.
    """
    options: dict[str, Any] = {
        "fn": in_a_sentence(function),
        "inputs": inputs,
        "outputs": outputs,
        "preprocess": False,
        "trigger_mode": "always_last",
        "concurrency_id": "network",
        "concurrency_limit": 1,
        "show_progress": "minimal",
    }
    gr.on(triggers, api_name=name, **options)
    if after is not None:
        after.success(api_visibility="private", **options)


def follow(samplers: Samplers, run: gr.Dropdown, updates: Mapping[Any, Callable[[Sampler], Any]]) -> Dependency:
    """Updates components when another generator is chosen."""

    def change(name: object) -> Any:
        sampler = find_sampler(samplers, name)
        changed = [update(sampler) for update in updates.values()]
        return changed if len(changed) > 1 else changed[0]

    return run.input(in_a_sentence(change), run, list(updates), preprocess=False, queue=False, api_visibility="private")


def file_to_send(content: bytes, name: str, component: gr.Component) -> str:
    """Writes a file to the cache of the page, which deletes old ones -> its path.

    An existing file is not written again: a browser may be loading it.

    Raises:
        ValueError: if the disk is full; the message names no folder.
    """
    path = Path(component.GRADIO_CACHE) / hashlib.sha256(content).hexdigest() / name.replace("/", "-")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.touch()
        else:
            write_atomically(path, content)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise ValueError(f"the playground has no space left for {path.name}: free some where it runs") from error
        raise
    return str(path)


def picture_to_send(image: Image.Image, component: gr.Component, name: str = "picture") -> str:
    return file_to_send(image_to_png(image), f"{name}.png", component)


class Page(gr.Blocks):
    """Blocks that answer a malformed request with a sentence."""

    async def preprocess_data(self, block_fn: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return await super().preprocess_data(block_fn, *arguments, **options)
        except ValueError:
            raise _sentence(f"this request takes {len(block_fn.inputs)} values, and no files") from None
