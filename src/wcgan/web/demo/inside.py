"""Looks inside the layers of a generator: covariances, spectra, and which classes are colored alike."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import normalize

from wcgan.core.images import pixels_to_image, with_names
from wcgan.core.terminal import shown
from wcgan.functional import covariance_to_whitening, moments
from wcgan.norm import WhiteningLayer
from wcgan.norm.conditional import ConditionalWhiteningColoring
from wcgan.report.charts import Series, series_to_svg
from wcgan.report.html import Markup, join, tag
from wcgan.runs.sampler import Sampler
from wcgan.web.demo.pictures import MOST_SEED, class_to_text, whole

STATISTICS = ("a fresh batch", "the running averages")
BATCH = 256
"""Number of images in a fresh batch."""
NEAREST = 5
_MOST_NAMES = 100  # with more classes, A shows only rows near the chosen one
_FEW = 24
_CELL = 24
_LEAST_SIDE = 512  # pixels of a heat map
_BELOW, _ABOVE = (67, 147, 195), (214, 96, 77)  # blue and red, distinct for colour-blind readers too


class _ReachedError(Exception):
    """Ends a forward pass at the chosen layer: the rest is not needed."""


@dataclass(frozen=True)
class Covariances:
    """Covariances of the input of a layer before and after whitening, `(d, d)` in float64."""

    before: Tensor
    after: Tensor


def layers_of(sampler: Sampler) -> dict[str, WhiteningLayer]:
    """The whitening layers by their names in the network, in order."""
    return {name: layer for name, layer in sampler.network.named_modules() if isinstance(layer, WhiteningLayer)}


def find_layer(sampler: Sampler, name: object) -> WhiteningLayer:
    layers = layers_of(sampler)
    if not isinstance(name, str) or name not in layers:
        raise ValueError(f"this generator has the layers {', '.join(layers)}; got {shown(name)}")
    return layers[name]


def batch_covariance(sampler: Sampler, layer: WhiteningLayer, seed: int = 0) -> Tensor:
    """The covariance `(d, d)` of the input of a layer, for a fresh batch with all classes in turn."""
    seen: list[Tensor] = []

    def keep(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.append(inputs[0].detach())
        raise _ReachedError

    handle = layer.register_forward_pre_hook(keep)
    try:
        with suppress(_ReachedError):
            sampler.sample(BATCH, seed=seed, batch=BATCH)
    finally:
        handle.remove()
    return moments(seen[0].double())[1].cpu()


def running_covariance(layer: WhiteningLayer) -> Tensor:
    """The running covariance of a layer as `(d, d)`, with 0 where the layer tracks nothing.

    Raises:
        ValueError: for a layer without running averages.
    """
    if not layer.track_running_stats:
        raise ValueError(f"this layer keeps no running averages: look at {STATISTICS[0]}")
    if layer.whitening == "standardize":
        return torch.diag(layer.get_buffer("running_var").double().cpu())
    size = layer.num_features // layer.groups
    return torch.block_diag(*layer.get_buffer("running_covariance").double().cpu().view(-1, size, size))


def whitening_matrix(layer: WhiteningLayer, covariance: Tensor) -> Tensor:
    """W `(d, d)` as applied in evaluation: from the running averages, or from the batch if there are none."""
    if layer.whitening == "none":
        return torch.eye(layer.num_features, dtype=torch.float64)
    if layer.track_running_stats:
        return torch.block_diag(*layer.as_map(None, None)[0][0].double().cpu())
    groups = layer.num_features if layer.whitening == "standardize" else layer.groups
    size = layer.num_features // groups
    blocks = torch.stack([covariance[i : i + size, i : i + size] for i in range(0, layer.num_features, size)])
    return torch.block_diag(
        *covariance_to_whitening(blocks, whitening=layer.whitening, eps=layer.eps, iterations=layer.iterations)
    )


def covariances(sampler: Sampler, name: object, statistics: object = STATISTICS[0], seed: object = 0) -> Covariances:
    r""":math:`\Sigma` and :math:`W \Sigma W^\top`, with the W that the layer applies in evaluation.

    Args:
        sampler: a generator.
        name: a key of `layers_of`.
        statistics: one of `STATISTICS`. For the running averages the result is the identity, up to shrinkage; for a
            fresh batch, it is close to that if the averages describe the batch well.
        seed: seed of the fresh batch.

    Raises:
        ValueError: for an unknown layer or statistics, or those that the layer does not keep.
    """
    layer = find_layer(sampler, name)
    start = whole("seed", seed, 0, MOST_SEED)
    if statistics not in STATISTICS:
        raise ValueError(f"statistics are those of {' or '.join(STATISTICS)}, got {shown(statistics)}")
    fresh = statistics == STATISTICS[0]
    before = batch_covariance(sampler, layer, start) if fresh else running_covariance(layer)
    matrix = whitening_matrix(layer, before)
    return Covariances(before, matrix @ before @ matrix.T)


def covariances_to_maps(found: Covariances) -> tuple[tuple[Image.Image, str], tuple[Image.Image, str]]:
    """Both as heat maps, each with a caption that gives the value of the strongest colour."""
    bounds = [max(float(matrix.abs().max()), 1e-12) for matrix in (found.before, found.after)]
    first, second = (heat_map(m, bound) for m, bound in zip((found.before, found.after), bounds, strict=True))
    before, after = (f"whitening, \u00b1{bound:.3g}" for bound in bounds)
    return (first, f"Before {before}"), (second, f"After {after}")


def covariances_to_spectrum(found: Covariances) -> Markup:
    """The eigenvalues before and after, the largest first, as a chart."""
    series = []
    for style, (label, matrix) in enumerate((("before", found.before), ("after", found.after))):
        values = torch.linalg.eigvalsh(matrix).flip(0).tolist()
        series.append(Series(label, style, tuple((float(rank), value) for rank, value in enumerate(values, 1))))
    return series_to_svg("Eigenvalues", series, "rank")


def covariances_to_figure(found: Covariances) -> Markup:
    """The spectrum with its legend."""
    legend = [tag("span", word, class_=f"key c{style}") for style, word in enumerate(("before", "after"))]
    return tag("figure", tag("figcaption", "Eigenvalues ", *legend), covariances_to_spectrum(found))


def values_to_colours(values: Tensor, bound: float) -> Tensor:
    """Values `(H, W)` from -bound (blue) over 0 (transparent) to bound (red) -> `(4, H, W)` uint8, RGB and opacity.

    Example:
        >>> values_to_colours(torch.tensor([[-1.0, 0.0, 9.0]]), 1.0).squeeze(1).T.tolist()
        [[67, 147, 195, 255], [214, 96, 77, 0], [214, 96, 77, 255]]
    """
    part = (values.double() / bound).clamp(-1, 1)
    colours = torch.where((part < 0)[..., None], torch.tensor(_BELOW), torch.tensor(_ABOVE))  # (H, W, 3)
    opacity = (255 * part.abs()).round()
    return torch.cat([colours, opacity[..., None]], dim=-1).to(torch.uint8).permute(2, 0, 1)


def heat_map(values: Tensor, bound: float, cell: int | None = None) -> Image.Image:
    """Values `(H, W)` as squares of `cell` pixels; by default large enough to see."""
    return pixels_to_image(values_to_colours(values, bound), cell or max(1, -(-_LEAST_SIDE // values.shape[1])))


# Classes


def class_table(layer: WhiteningLayer) -> tuple[Tensor, str] | None:
    """One row per class that decides its coloring, and what the row is; None for a layer without classes."""
    if not isinstance(layer, ConditionalWhiteningColoring):
        return None
    if layer.assignment is not None:
        rows = normalize(layer.assignment, dim=1) if layer.normalize_assignment else layer.assignment
        return rows.detach().double().cpu(), "assignment"
    assert layer.class_weight is not None
    return layer.class_weight.detach().double().cpu().flatten(1), "coloring matrix"


def nearest_classes(rows: Tensor, label: int, count: int = NEAREST) -> list[tuple[int, float]]:
    """The classes whose rows are most similar to that of `label`, with the cosine between them.

    Example:
        >>> import torch
        >>> nearest_classes(torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]), 0, 1)
        [(2, 1.0)]
    """
    unit = normalize(rows, dim=1)
    cosines = unit @ unit[label]
    order = [i for i in cosines.argsort(descending=True, stable=True).tolist() if i != label]
    return [(i, cosines[i].item()) for i in order[:count]]


def assignment_picture(sampler: Sampler, layer: WhiteningLayer, label: int) -> Image.Image | None:
    """The assignment matrix A of cWC_sa, one class per row and one filter per column; None for other layers.

    With many classes, only those near the chosen one.
    """
    table = class_table(layer)
    if table is None or table[1] != "assignment":
        return None
    rows, classes = table[0], list(range(len(table[0])))
    if len(rows) > _MOST_NAMES:
        classes = [label, *(near for near, _ in nearest_classes(rows, label, _FEW))]
    picture = heat_map(rows[classes], float(rows.abs().max()), _CELL)
    names = [class_to_text(sampler, number) for number in classes]
    return with_names(picture, names, [str(column) for column in range(1, rows.shape[1] + 1)])


def neighbours_to_table(sampler: Sampler, layer: WhiteningLayer, label: int) -> Markup:
    """The classes that a layer colors most like the chosen one."""
    table = class_table(layer)
    if table is None:
        return tag("p", "This layer does not depend on the class.", class_="facts")
    rows = [
        tag("tr", tag("td", class_to_text(sampler, near)), tag("td", f"{cosine:.3f}", class_="number"))
        for near, cosine in nearest_classes(table[0], label)
    ]
    caption = f"Nearest to {class_to_text(sampler, label)} by {table[1]}"
    head = tag("tr", tag("th", "Class"), tag("th", "Cosine similarity", class_="number"))
    return tag("table", tag("caption", caption), tag("thead", head), tag("tbody", join(rows)))
