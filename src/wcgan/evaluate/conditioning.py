"""How well a generator is conditioned: the singular values of its Jacobian."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from statistics import fmean, median, pstdev
from typing import Any

import torch
from torch import Tensor
from torch.func import jvp, vmap

from wcgan.core.device import random_generator
from wcgan.evaluate.small_classifier import reproducible
from wcgan.nets import Generator

NOISES = 16
"""How many z are looked at."""
RESOLUTION = 1e-6
"""Of singular values, as parts of the largest: rounding of float32 leaves up to 4e-7 where there should be 0."""
_DIRECTIONS_AT_ONCE = 64  # of all noise's dimensions: bounds memory, and costs no time


def function_to_jacobian(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    r"""The Jacobian :math:`J_z` at one point, exactly: a derivative along each of its dimensions.

    Args:
        function: differentiable in forward mode.
        z: `(n,)`.

    Returns:
        `(m, n)` for outputs of m values in all.

    Example:
        >>> import torch
        >>> function_to_jacobian(lambda z: torch.stack([z[0] * z[1], 3 * z[1]]), torch.tensor([2.0, 5.0]))
        tensor([[5., 2.],
                [0., 3.]])
    """

    def along(direction: Tensor) -> Tensor:
        derivative: Tensor = jvp(function, (z,), (direction,))[1]
        return derivative

    directions = torch.eye(len(z), dtype=z.dtype, device=z.device)
    return vmap(along, chunk_size=_DIRECTIONS_AT_ONCE)(directions).flatten(1).mT  # (n, ...) -> (m, n)


def jacobian_to_extremes(jacobian: Tensor) -> tuple[float, float]:
    """The largest singular value and the smallest of n, which is 0 where `(m, n)` has fewer rows than columns."""
    values = torch.linalg.svdvals(jacobian.cpu().double())
    wide = jacobian.shape[0] < jacobian.shape[1]
    return values[0].item(), 0.0 if wide else values[-1].item()


def extremes_to_condition_number(largest: float, smallest: float) -> float:
    r"""The condition number of :math:`M_z = J_z^\top J_z`, its largest eigenvalue over its smallest.

    That is the square of the ratio of the Jacobian's singular values. Below `RESOLUTION` the smallest cannot be told
    from 0, and the result is the bound: 1e12.

    Example:
        >>> extremes_to_condition_number(6.0, 2.0), extremes_to_condition_number(6.0, 0.0)
        (9.0, 1000000000000.0)
    """
    ratio = largest / smallest if smallest > 0 else math.inf
    return min(ratio, 1 / RESOLUTION) ** 2


@torch.no_grad()
def generator_to_extremes(generator: Generator, z: Tensor, labels: Tensor | None) -> list[tuple[float, float]]:
    """The largest and the smallest singular value of the Jacobian at each z `(N, n)`, where they are finite.

    The generator is at rest, so that the samples of a batch do not touch each other; it is left as it was.
    """
    weight = next(generator.parameters())
    classes = [None] * len(z) if labels is None else labels.to(weight.device).split(1)

    def draw(z: Tensor, labels: Tensor | None) -> Tensor:
        return generator.forward(z.unsqueeze(0), labels)  # not a compiled network's own call

    was_training = generator.training
    generator.eval()
    try:
        with reproducible(), torch.autocast(weight.device.type, enabled=False):
            jacobians = (
                function_to_jacobian(partial(draw, labels=label), noise)
                for noise, label in zip(z.to(weight), classes, strict=True)
            )
            return [jacobian_to_extremes(jacobian) for jacobian in jacobians if jacobian.isfinite().all()]
    finally:
        generator.train(was_training)


def measure_conditioning(generator: Generator, seed: int) -> dict[str, Any]:
    r"""The condition number of :math:`J_z^\top J_z` over z of the prior, the same for a seed at every call.

    Args:
        generator: any of this library; of a conditional one, classes take turns.
        seed: of z.

    Returns:
        `condition/median`; `condition/log10_mean` and `condition/log10_std`, over z, of its logarithm;
        `singular/largest` and `singular/smallest`, medians; `noises`, the number of z whose Jacobian is finite, without
        which all these are None; and of these `rank_deficient`, where the smallest singular value cannot be told from 0
        and the condition number stands at its bound.

    Example:
        >>> from wcgan.nets import GeneratorConfig, build_generator
        >>> found = measure_conditioning(build_generator(GeneratorConfig(widths=(8,), noise=4)), seed=0)
        >>> found["noises"], found["rank_deficient"]
        (16, 0)

    Reference:
        Odena et al., "Is generator conditioning causally related to GAN performance?", ICML 2018.
    """
    config = generator.config
    z = torch.randn(NOISES, config.noise, generator=random_generator(seed, "conditioning", 0))
    labels = torch.arange(NOISES) % config.classes if config.conditional and config.classes is not None else None
    found = generator_to_extremes(generator, z, labels)
    conditions = [extremes_to_condition_number(*extremes) for extremes in found]
    logarithms = torch.tensor(conditions, dtype=torch.float64).log10().tolist()
    figures = {
        "condition/median": median(conditions) if found else None,
        "condition/log10_mean": fmean(logarithms) if found else None,
        "condition/log10_std": pstdev(logarithms) if found else None,
        "singular/largest": median(largest for largest, _ in found) if found else None,
        "singular/smallest": median(smallest for _, smallest in found) if found else None,
    }
    deficient = sum(smallest <= RESOLUTION * largest for largest, smallest in found)
    return {**figures, "noises": len(found), "rank_deficient": deficient}
