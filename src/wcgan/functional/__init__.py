"""The maths of the layers, without state: pure functions, differentiable twice."""

from wcgan.functional.affine import affine
from wcgan.functional.moments import moments
from wcgan.functional.normalize import Statistics, compose, whiten, whiten_color
from wcgan.functional.whitening import covariance_to_whitening

__all__ = ["Statistics", "affine", "compose", "covariance_to_whitening", "moments", "whiten", "whiten_color"]
