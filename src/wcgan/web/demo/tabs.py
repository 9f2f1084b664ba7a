"""The tabs of the playground: each lays out its controls and connects them to the function that answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr
from PIL import Image

from wcgan.report.html import tag
from wcgan.runs.sampler import Sampler
from wcgan.web.demo import inside
from wcgan.web.demo.answers import Samplers, answer, file_to_send, find_sampler, follow, picture_to_send
from wcgan.web.demo.pictures import (
    BETWEEN,
    MOST_FRAMES,
    MOST_IMAGES,
    MOST_PATHS,
    MOST_ROWS,
    MOST_SEED,
    MOST_TRUNCATION,
    WAYS,
    animation,
    checked_classes,
    class_to_text,
    comparison,
    fixed_z_picture,
    images_to_picture,
    images_to_zip,
    path_images,
    path_picture,
    sample_images,
    share_noise,
)

MATRIX = "Soft assignment A, classes by filters"
Tab = Callable[[Samplers, Any], None]
"""Fills a tab, given the generators by name and the event that opens the tab."""


def _run_box(samplers: Samplers, tab: str) -> gr.Dropdown:
    """A choice of generators; hidden if there is only one."""
    names = list(samplers)
    return gr.Dropdown(names, value=names[0], label="Generator", visible=len(names) > 1, elem_id=f"run-{tab}")


def _class_box(
    sampler: Sampler, label: str, info: str | None = None, several: bool = False, value: int | None = None
) -> gr.Dropdown:
    """A choice of classes; hidden for a generator without classes."""
    labels = range((sampler.config.classes or 0) if sampler.conditional else 0)
    choices = [(class_to_text(sampler, label), label) for label in labels]
    chosen: Any = [] if several else min(value or 0, len(choices) - 1) if choices else None
    return gr.Dropdown(
        choices,
        value=chosen,
        multiselect=several,
        label=label,
        info=info,
        visible=sampler.conditional,
        elem_id=f"box-{label.lower().replace(' ', '-')}",
    )


def _seed(label: str = "Seed", value: int = 0, visible: bool = True) -> gr.Number:
    return gr.Number(value, label=label, precision=0, minimum=0, maximum=MOST_SEED, step=1, visible=visible)


def _truncation() -> gr.Slider:
    return gr.Slider(
        0, MOST_TRUNCATION, 1.0, step=0.05, label="Truncation", info="Factor on the noise: below 1, images vary less."
    )


def _picture(label: str, file_type: str = "png", elem_id: str | None = None) -> gr.Image:
    return gr.Image(
        label=label,
        format=file_type,
        interactive=False,
        buttons=["download", "fullscreen"],
        min_width=240,
        elem_id=elem_id,
        elem_classes="picture",
    )


def _captioned(image: Image.Image, caption: str, component: gr.Image) -> gr.Image:
    """A component with another picture and caption."""
    return gr.Image(picture_to_send(image, component), label=caption, visible=True)


def sample_tab(samplers: Samplers, opened: Any) -> None:
    """Draws images of one class, of several, or of a mix."""
    first = next(iter(samplers.values()))
    with gr.Row(elem_classes="work"):
        with gr.Column(scale=2, min_width=280):
            run = _run_box(samplers, "sample")
            classes = _class_box(first, "Classes", "Empty: all classes in turn.", several=True)
            way = gr.Radio(list(WAYS), value=WAYS[0], label="Several classes", visible=first.conditional)
            weights = gr.Textbox("", label="Weights of a mix", placeholder="equal", max_length=200, visible=False)
            seed = _seed()
            count = gr.Slider(1, MOST_IMAGES, 64, step=1, label="Number of images")
            truncation = _truncation()
            draw = gr.Button("Sample", variant="primary")
        with gr.Column(scale=3, min_width=280):
            picture = _picture("Samples", elem_id="samples")
            with gr.Row():
                png = gr.DownloadButton("Save PNG", min_width=80)
                archive = gr.DownloadButton("Save ZIP", min_width=80)

    def sample(
        generator: object,
        classes: object,
        several: object,
        weights: object,
        count: object,
        seed: object,
        truncation: object,
    ) -> tuple[str, str, str]:
        found = find_sampler(samplers, generator)
        images = sample_images(found, classes, several, weights, count, seed, truncation)
        stem = f"{generator}-seed-{seed}"
        shown = picture_to_send(images_to_picture(images), png, stem)
        return shown, shown, file_to_send(images_to_zip(images), f"{stem}.zip", archive)

    updates = {
        classes: lambda sampler: _class_box(sampler, "Classes", "Empty: all classes in turn.", several=True),
        way: lambda sampler: gr.Radio(value=WAYS[0], visible=sampler.conditional),
        weights: lambda _: gr.Textbox(value="", visible=False),
    }
    changes = [opened, draw.click, classes.input, way.input, weights.submit, weights.blur]
    changes += [seed.input, count.release, truncation.release]
    inputs = [run, classes, way, weights, count, seed, truncation]
    answer(changes, sample, inputs, [picture, png, archive], "sample", follow(samplers, run, updates))
    way.change(
        lambda chosen: gr.Textbox(visible=chosen == WAYS[1]),
        way,
        weights,
        preprocess=False,
        queue=False,
        api_visibility="private",
    )


def fixed_z_tab(samplers: Samplers, opened: Any) -> None:
    """Draws the paper's figure: one noise vector per column, one class per row."""
    classed = {name: sampler for name, sampler in samplers.items() if sampler.conditional}
    if not classed:
        gr.HTML(tag("p", "None of these generators has classes to show."))
        return
    first = next(iter(classed.values()))
    info = f"At most {MOST_ROWS}. Empty: ten classes."
    with gr.Row(elem_classes="work"):
        with gr.Column(scale=2, min_width=280):
            run = _run_box(classed, "fixed-z")
            classes = _class_box(first, "Rows", info, several=True)
            seed, truncation = _seed(), _truncation()
            draw = gr.Button("Draw", variant="primary")
        with gr.Column(scale=3, min_width=280):
            picture = _picture("One z per column, one class per row", elem_id="fixed-z")

    def fixed_z(generator: object, classes: object, seed: object, truncation: object) -> str:
        drawn = fixed_z_picture(find_sampler(samplers, generator), classes, seed, truncation)
        return picture_to_send(drawn, picture, "fixed-z")

    changes = [opened, draw.click, classes.input, seed.input, truncation.release]
    chosen = follow(samplers, run, {classes: lambda sampler: _class_box(sampler, "Rows", info, several=True)})
    answer(changes, fixed_z, [run, classes, seed, truncation], [picture], "fixed_z", chosen)


def interpolate_tab(samplers: Samplers, opened: Any) -> None:
    """Shows a position between two ends, and an animation of the way there and back."""
    first = next(iter(samplers.values()))

    def between_box(sampler: Sampler) -> gr.Radio:
        """What to interpolate between; hidden without classes, since only noise is left."""
        chosen = BETWEEN[1 if sampler.conditional else 0]
        return gr.Radio(list(BETWEEN), value=chosen, label="Between", visible=sampler.conditional, elem_id="between")

    with gr.Row(elem_classes="work"):
        with gr.Column(scale=2, min_width=280):
            run = _run_box(samplers, "interpolate")
            between = between_box(first)
            with gr.Row():
                # The second end of what stays the same is hidden.
                seeds = [_seed("First seed", 0), _seed("Second seed", 1, visible=not first.conditional)]
            with gr.Row():
                ends = [_class_box(first, "First class", value=0), _class_box(first, "Second class", value=1)]
            count = gr.Slider(1, MOST_PATHS, 8, step=1, label="Number of images")
            truncation = _truncation()
            frames = gr.Slider(2, MOST_FRAMES, 24, step=1, label="Frames of the animation")
            film = gr.Button("Animate", variant="primary")
        with gr.Column(scale=3, min_width=280):
            moving = _picture("There and back", "webp", elem_id="animation")
            position = gr.Slider(
                0, 1, 0.5, step=0.01, label="Position", info="0 is the first end, 1 the second.", elem_id="position"
            )
            picture = _picture("At this position", elem_id="frame")

    # The API has these names, so both functions spell them out.
    def frame(
        generator: object,
        position: object,
        between: object,
        first_seed: object,
        second_seed: object,
        first_class: object,
        second_class: object,
        count: object,
        truncation: object,
    ) -> str:
        ends = (first_seed, second_seed), (first_class, second_class)
        images = path_images(find_sampler(samplers, generator), position, between, *ends, count, truncation)
        return picture_to_send(path_picture(images), picture)

    def animate(
        generator: object,
        frames: object,
        between: object,
        first_seed: object,
        second_seed: object,
        first_class: object,
        second_class: object,
        count: object,
        truncation: object,
    ) -> str:
        ends = (first_seed, second_seed), (first_class, second_class)
        content = animation(find_sampler(samplers, generator), frames, between, *ends, count, truncation)
        return file_to_send(content, f"{generator}.webp", moving)

    shared = [between, *seeds, *ends, count, truncation]
    changes = [opened, between.input, count.release, truncation.release]
    changes += [*(seed.input for seed in seeds), *(end.input for end in ends)]
    updates = {
        between: between_box,
        seeds[1]: lambda sampler: gr.Number(visible=not sampler.conditional),
        ends[0]: lambda sampler: _class_box(sampler, "First class", value=0),
        ends[1]: lambda sampler: _class_box(sampler, "Second class", value=1),
    }
    chosen = follow(samplers, run, updates)
    answer([*changes, position.input], frame, [run, position, *shared], [picture], "interpolate", chosen)
    answer([*changes, frames.release, film.click], animate, [run, frames, *shared], [moving], "animate", chosen)
    between.change(
        lambda chosen: (gr.Number(visible=chosen != BETWEEN[1]), gr.Dropdown(visible=chosen != BETWEEN[0])),
        between,
        [seeds[1], ends[1]],
        preprocess=False,
        queue=False,
        api_visibility="private",
    )


def compare_tab(samplers: Samplers, opened: Any) -> None:
    """Shows several runs side by side."""
    together = share_noise(samplers)
    if not together:
        several = "These generators cannot be compared, since their noise has different lengths. "
        condition = (
            f"{several if len(samplers) > 1 else ''}Start the playground with two runs of the same noise length: "
        )
        gr.HTML(tag("p", condition, tag("code", "wcgan demo RUN RUN")))
        return
    # Every run has the classes of the run with the fewest.
    fewest = min(samplers.values(), key=lambda s: s.config.classes or 0 if s.conditional else float("inf"))
    with gr.Row(elem_classes="work"):
        with gr.Column(scale=2, min_width=280):
            names = gr.CheckboxGroup(list(samplers), value=together, label="Runs")
            classes = _class_box(fewest, "Class", "Empty: all classes in turn.", several=True)
            seed = _seed()
            count = gr.Slider(1, MOST_IMAGES, 36, step=1, label="Number of images")
            truncation = _truncation()
            draw = gr.Button("Compare", variant="primary")
        with gr.Column(scale=3, min_width=280), gr.Row(elem_classes="compared"):
            pictures = [_picture(name, elem_id=f"compared-{place}") for place, name in enumerate(samplers)]

    def compare(generators: object, classes: object, count: object, seed: object, truncation: object) -> list[gr.Image]:
        found = comparison(samplers, generators, classes, count, seed, truncation)
        return [
            _captioned(*found[name], component) if name in found else gr.Image(visible=False)
            for name, component in zip(samplers, pictures, strict=True)
        ]

    changes = [opened, draw.click, names.input, classes.input, seed.input, count.release, truncation.release]
    answer(changes, compare, [names, classes, count, seed, truncation], pictures, "compare")


def inside_tab(samplers: Samplers, opened: Any) -> None:
    """Shows what a layer does to its input."""
    first = next(iter(samplers.values()))

    def layer_box(sampler: Sampler) -> gr.Dropdown:
        names = list(inside.layers_of(sampler))
        return gr.Dropdown(names, value=names[0], label="Layer", elem_id="layer")

    with gr.Row(elem_classes="work"):
        with gr.Column(scale=2, min_width=280):
            run = _run_box(samplers, "inside")
            layer = layer_box(first)
            statistics = gr.Radio(list(inside.STATISTICS), value=inside.STATISTICS[0], label="Covariance from")
            seed = _seed()
            label = _class_box(first, "Neighbours of", value=0)
        with gr.Column(scale=3, min_width=280):
            with gr.Row():
                before, after = (
                    _picture("Before whitening", elem_id="before"),
                    _picture("After whitening", elem_id="after"),
                )
            spectrum = gr.HTML(elem_id="spectrum")
            assignment = _picture(MATRIX, elem_id="assignment")
            nearest = gr.HTML(elem_id="nearest")

    def look(generator: object, layer: object, statistics: object, seed: object, label: object) -> tuple[Any, ...]:
        sampler = find_sampler(samplers, generator)
        found = inside.covariances(sampler, layer, statistics, seed)
        first, second = inside.covariances_to_maps(found)
        maps = _captioned(*first, before), _captioned(*second, after)
        here = inside.find_layer(sampler, layer)
        chosen = (checked_classes(sampler, label, 1) or [0])[0]
        picture = inside.assignment_picture(sampler, here, chosen)
        matrix = gr.Image(visible=False) if picture is None else _captioned(picture, MATRIX, assignment)
        return *maps, inside.covariances_to_figure(found), matrix, inside.neighbours_to_table(sampler, here, chosen)

    changes = [opened, layer.input, statistics.input, seed.input, label.input]
    outputs = [before, after, spectrum, assignment, nearest]
    chosen = follow(
        samplers, run, {layer: layer_box, label: lambda sampler: _class_box(sampler, "Neighbours of", value=0)}
    )
    answer(changes, look, [run, layer, statistics, seed, label], outputs, "inside", chosen)


FIRST = "Sample"
TABS: dict[str, tuple[str, Tab]] = {
    FIRST: ("Draw images: all classes in turn, the classes you choose, or a mix of them.", sample_tab),
    "Fixed z": (
        "See what the class decides: each column has one noise vector z, each row one class.",
        fixed_z_tab,
    ),
    "Interpolate": ("Move gradually between two noise vectors, between two classes, or both.", interpolate_tab),
    "Compare": ("See what several generators draw from the same noise.", compare_tab),
    "Inside": (
        "See what a whitening layer does to the covariance of its input, and which classes it colors alike. "
        "Blue is below 0, red above; the captions give the value of the strongest colour.",
        inside_tab,
    ),
}
"""What each tab is for, and what fills it, by name."""
