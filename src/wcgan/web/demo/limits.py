"""Limits on what a request may ask for, and checks that refuse the rest with one sentence."""

from wcgan.core.terminal import shown

MOST_IMAGES = 256
MOST_PATHS = 16
MOST_FRAMES = 48
MOST_ROWS = 20
MOST_SEED = 2**32 - 1
MOST_TRUNCATION = 2.0
MOST_BYTES = 64 * 1024
"""Size of the body of a request."""


def real(name: str, value: object, least: float, most: float) -> float:
    """A number within bounds, not NaN.

    Raises:
        ValueError: for anything else.

    Example:
        >>> real("truncation", 0.5, 0, 2)
        0.5
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{name} must be a number from {least:g} to {most:g}, got {shown(value)}")
    return float(value)


def whole(name: str, value: object, least: int, most: int) -> int:
    """A whole number within bounds.

    Raises:
        ValueError: for anything else.

    Example:
        >>> whole("count", 16.0, 1, 256)
        16
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most or value % 1:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {shown(value)}")
    return int(value)
