"""Protocols: which images are scored against which, and how many. A figure means nothing without one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

METRICS = ("is", "fid", "kid", "pr")
"""Inception Score, FID, KID, and precision with recall."""
KEEPING = {"kid", "pr"}
"""Those that need the features of all images at once."""


@dataclass(frozen=True)
class Protocol:
    """A published way to measure."""

    name: str
    split: str
    """Where the real images come from, if nothing else is said."""
    reference: int | None
    """Real images in all scores but IS; None for all there are."""
    generated: int | None
    """Generated images in all scores but IS; None for all there are."""
    sets: int = 10
    """Sets of generated images that get an Inception Score each."""
    set_size: int | None = 5_000
    """Images in each of them; None shares out the generated images."""
    what: str = ""
    """In words."""


@dataclass(frozen=True)
class Plan:
    """A protocol with its numbers of images, for the sets at hand."""

    name: str
    """The protocol's, and after it all that differs from it."""
    reference: int
    """Real images in all scores but IS."""
    generated: int
    """Generated images in all scores but IS: the first ones."""
    sets: int
    """Sets that get an Inception Score each."""
    scored: int
    """Generated images in all these sets together."""

    def images(self, metrics: Sequence[str]) -> int:
        """Generated images that these metrics need."""
        return max(self.scored if "is" in metrics else 0, self.generated if set(metrics) - {"is"} else 0)


PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol("paper-5k", "test", 10_000, 5_000, what="the paper's FID 5k: 10,000 test images, 5,000 generated"),
        Protocol("paper-10k", "test", 10_000, 10_000, what="the paper's FID 10k: 10,000 test images, 10,000 generated"),
        Protocol(
            "50k-train", "train", 50_000, 50_000, what="what mimicry and StudioGAN publish: 50,000 training images"
        ),
        Protocol("all", "test", None, None, set_size=None, what="every image of both sets, as torch-fidelity has it"),
    )
}


def find_protocol(name: str) -> Protocol:
    """A protocol by its name."""
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}; choose one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


def plan_name_of(score: str, name: str) -> str:
    """A plan's name without what a score has nothing to do with: sets are those of IS, real images those of the others.

    Example:
        >>> plan_name_of("FID", "paper-10k, 10 sets of 1,000"), plan_name_of("IS", "paper-10k, 10 sets of 1,000")
        ('paper-10k', 'paper-10k, 10 sets of 1,000')
    """
    foreign = r", [\d,]+ generated against [\d,]*\d" if score.lower().startswith("is") else r", \d+ sets of [\d,]+$"
    return re.sub(foreign, "", name)


def protocol_to_plan(
    protocol: Protocol,
    reference: int,
    generated: int | None = None,
    images: int | None = None,
    metrics: Sequence[str] = METRICS,
) -> Plan:
    """The numbers of images for the sets at hand.

    Args:
        protocol: what is asked for.
        reference: real images there are.
        generated: generated images there are; None where a generator makes as many as are needed.
        images: generated images to use in place of the protocol's number. The real images are then those there are, up
            to the protocol's number.
        metrics: what will be measured: without IS, no images are needed for its sets.

    Raises:
        ValueError: where there are fewer images than the protocol has.

    Example:
        >>> protocol_to_plan(PROTOCOLS["paper-10k"], reference=359, images=2000).name
        'paper-10k, 2,000 generated against 359, 10 sets of 200'
    """
    if images is not None and images < 10:
        raise ValueError(f"--images must be at least 10, got {images}")
    real = protocol.reference if protocol.reference is not None and images is None else reference
    real = min(real, protocol.reference or real)
    count = images or protocol.generated or generated
    if count is None:
        raise ValueError(f"a generator has no end of images for the protocol {protocol.name!r}: say --images N")
    scored = protocol.sets * protocol.set_size if images is None and protocol.set_size else count
    sets = max(1, min(protocol.sets, scored // 2))
    name = protocol.name
    if set(metrics) - {"is"} and (real, count) != (protocol.reference, protocol.generated):
        name += f", {count:,} generated against {real:,}"
    if "is" in metrics and (sets, scored // sets) != (protocol.sets, protocol.set_size):
        name += f", {sets} sets of {scored // sets:,}"
    plan = Plan(name, real, count, sets, scored)
    if reference < max(2, real):
        raise ValueError(
            f"the protocol {protocol.name!r} needs {max(2, real):,} real images and there are {reference:,}: take "
            "another --reference, or say --images N to use those there are, with a name that says so"
        )
    needed = max(2, plan.images(metrics))
    if generated is not None and generated < needed:
        raise ValueError(
            f"the protocol {protocol.name!r} needs {needed:,} images to score and there are {generated:,}: make more, "
            "take the protocol 'all', or say --images N to use fewer, with a name that says so"
        )
    return plan
