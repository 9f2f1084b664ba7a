"""Pure functions behind the layers: no state, differentiable twice."""

from wcgan.functional._operators import plain_passes
from wcgan.functional.affine import affine, compose
from wcgan.functional.normalize import Statistics, whiten, whiten_color
from wcgan.functional.parts import whiten_color_parts
from wcgan.functional.whitening import covariance_to_whitening, moments

__all__ = [
    "Statistics",
    "affine",
    "compose",
    "covariance_to_whitening",
    "moments",
    "plain_passes",
    "whiten",
    "whiten_color",
    "whiten_color_parts",
]
