"""Protocols: which images are scored against which, how many, and by which kind of network.

Scores are comparable only within one protocol.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

METRICS = ("is", "fid", "kid", "pr")
"""Inception Score, FID, KID, and precision with recall."""
KEEPING = {"kid", "pr"}
"""Metrics that need the features of all images at once."""


@dataclass(frozen=True)
class Protocol:
    """A published way to measure."""

    name: str
    split: str
    """The default split of the real images."""
    reference: int | None
    """Number of real images, for all metrics except IS; None for all that exist."""
    generated: int | None
    """Number of generated images, for all metrics except IS; None for all that exist."""
    sets: int = 10
    """Number of sets of generated images; the Inception Score is the mean over them."""
    set_size: int | None = 5_000
    """Images per set; None to divide the generated images among the sets."""
    what: str = ""
    """A short description."""


@dataclass(frozen=True)
class Plan:
    """The numbers of images that a protocol means for the data at hand."""

    name: str
    """The protocol's name, followed by every count that differs from it."""
    reference: int
    """Real images, for all metrics except IS."""
    generated: int
    """Generated images, for all metrics except IS: the first ones."""
    sets: int
    """Sets over which the Inception Score is averaged."""
    scored: int
    """Generated images in all these sets together."""

    def images(self, metrics: Sequence[str]) -> int:
        """Number of generated images that these metrics need."""
        return max(self.scored if "is" in metrics else 0, self.generated if set(metrics) - {"is"} else 0)


PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol("paper-5k", "test", 10_000, 5_000, what="the paper's FID 5k: 10,000 test images, 5,000 generated"),
        Protocol("paper-10k", "test", 10_000, 10_000, what="the paper's FID 10k: 10,000 test images, 10,000 generated"),
        Protocol("50k-train", "train", 50_000, 50_000, what="as in mimicry and StudioGAN: 50,000 training images"),
        Protocol("all", "test", None, None, set_size=None, what="every image of both sets, as in torch-fidelity"),
    )
}


def find_protocol(name: str) -> Protocol:
    """The protocol with a name."""
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}; choose one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


def protocol_to_plan(
    protocol: Protocol,
    reference: int,
    generated: int | None = None,
    images: int | None = None,
    metrics: Sequence[str] = METRICS,
) -> Plan:
    """The numbers of images that a protocol means for the data at hand.

    Args:
        protocol: the protocol.
        reference: number of real images that exist.
        generated: number of generated images that exist; None for a generator, which makes as many as needed.
        images: number of generated images to use instead of the protocol's. The real images are then all that exist, up
            to the protocol's number.
        metrics: the metrics to measure; without IS, no images are needed for its sets, and IS needs no real images.

    Raises:
        ValueError: if there are fewer images than the protocol asks for.

    Example:
        >>> protocol_to_plan(PROTOCOLS["paper-10k"], reference=359, images=2000).name
        'paper-10k, 2,000 generated against 359, 10 sets of 200'
    """
    if images is not None and images < 10:
        raise ValueError(f"--images must be at least 10, got {images}")
    real = protocol.reference if protocol.reference is not None and images is None else reference
    real = min(real, protocol.reference or real)
    compared = bool(set(metrics) - {"is"})
    if not compared:  # IS needs no real images
        real = min(real, reference)
    count = images or protocol.generated or generated
    if count is None:
        raise ValueError(f"the protocol {protocol.name!r} has no number of images for a generator: give --images N")
    scored = protocol.sets * protocol.set_size if images is None and protocol.set_size else count
    sets = max(1, min(protocol.sets, scored // 2))
    name = protocol.name
    if compared:
        name += _changed_counts(protocol, real, count)
    if "is" in metrics:
        name += _changed_sets(protocol, sets, scored)
    plan = Plan(name, real, count, sets, scored)
    if compared and reference < max(2, real):
        raise ValueError(
            f"the protocol {protocol.name!r} needs {max(2, real):,} real images and there are {reference:,}: name "
            "others with --data, leave out --protocol for one that fits, or give --images N to use those that exist"
        )
    needed = max(2, plan.images(metrics))
    if generated is not None and generated < needed:
        raise ValueError(
            f"the protocol {protocol.name!r} needs {needed:,} images to score and there are {generated:,}: make more, "
            "use --protocol all, or give --images N to use fewer, which will be part of the protocol's name"
        )
    return plan


UNUSUAL = ("generator", "statistics")
"""Facts of a recorded protocol that say how the generator was used, where not as usual."""


def is_unusual(facts: Mapping[str, Any]) -> bool:
    """Whether a recorded protocol used the generator in another way than usual, which no protocol's name means."""
    return any(key in facts for key in UNUSUAL)


def facts_to_name(score: str, facts: Mapping[str, Any]) -> str:
    """The name of the protocol that a recorded score was measured with, and the counts that concern that score.

    IS depends on the sets of generated images, and every other score on the real and generated images. What is unusual
    about the generator is part of the name: not averaged, or with the statistics of batches.

    Args:
        score: the score's name, such as "FID" or "IS(classifier)".
        facts: the record "protocol" of an evaluation. If the protocol is not known, or its counts are missing, they are
            those in the recorded name.

    Example:
        >>> facts = {"name": "paper-10k, 10 sets of 1,000", "splits": 10, "scored_by_IS": 10_000}
        >>> facts |= {"reference": {"images": 10_000}, "generated": 10_000}
        >>> facts_to_name("FID", facts), facts_to_name("IS", facts)
        ('paper-10k', 'paper-10k, 10 sets of 1,000')
        >>> facts_to_name("FID", facts | {"statistics": "of batches of 64"})
        'paper-10k, statistics of batches of 64'
    """
    return _name_with_counts(score, facts) + "".join(f", {key} {facts[key]}" for key in UNUSUAL if key in facts)


def _name_with_counts(score: str, facts: Mapping[str, Any]) -> str:
    name = str(facts["name"])
    protocol = PROTOCOLS.get(name.partition(", ")[0])
    if protocol is None:
        return name
    try:
        if score.lower().partition("(")[0] == "is":
            return protocol.name + _changed_sets(protocol, facts["splits"], facts["scored_by_IS"])
        return protocol.name + _changed_counts(protocol, facts["reference"]["images"], facts["generated"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):  # a record without its counts
        return name


def _changed_counts(protocol: Protocol, reference: int, generated: int) -> str:
    same = (reference, generated) == (protocol.reference, protocol.generated)
    return "" if same else f", {generated:,} generated against {reference:,}"


def _changed_sets(protocol: Protocol, sets: int, scored: int) -> str:
    same = (sets, scored // sets) == (protocol.sets, protocol.set_size)
    return "" if same else f", {sets} sets of {scored // sets:,}"


# The networks that score images, and the names of scores


class Features(typing.Protocol):
    """A network that turns images into features and, where it has classes, predictions."""

    @property
    def name(self) -> str:
        """`inception`, or `classifier`."""

    @property
    def size(self) -> int:
        """The number f of features."""

    @property
    def classes(self) -> int | None:
        """Number of classes; None for a network without predictions, which gives no Inception Score."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the weights: scores are comparable only if it is the same."""

    @property
    def device(self) -> torch.device:
        """The device that it runs on."""

    @property
    def batch(self) -> int:
        """A suitable batch size."""

    def predict(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Features `(N, f)` and logits `(N, classes)` or None, of uint8 images `(N, C, H, W)`, in float32."""


def score_name(metric: str, features: Features) -> str:
    """The name of a score: plain for the Inception network, and with the network's name for any other.

    Example:
        >>> from types import SimpleNamespace
        >>> [score_name("fid", SimpleNamespace(name=name)) for name in ("inception", "classifier")]
        ['FID', 'FID(classifier)']
    """
    name = metric if metric in ("accuracy", "precision", "recall") else metric.upper()
    return name if features.name == "inception" else f"{name}({features.name})"


def check_pixels(images: Tensor) -> None:
    """Raises a ValueError for anything but uint8 images `(N, C, H, W)`."""
    if not isinstance(images, Tensor) or images.dtype != torch.uint8 or images.dim() != 4:
        what = f"{images.dtype} {tuple(images.shape)}" if isinstance(images, Tensor) else type(images).__name__
        raise ValueError(f"images must be a uint8 tensor (N, C, H, W) with values from 0 to 255, got {what}")


def shape_to_words(shape: tuple[int, ...]) -> str:
    """An image's size and mode, given its shape `(C, H, W)`.

    Example:
        >>> shape_to_words((3, 32, 48))
        '32x48 RGB'
    """
    channels, height, width = shape
    mode = {1: "grey", 3: "RGB", 4: "RGBA"}.get(channels, f"{channels}-channel")
    return f"{height}x{width} {mode}"
