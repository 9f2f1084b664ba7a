"""Numbers and scores as text for people."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

DASH = "\u2013"
"""Stands for a value that is missing."""


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value: Any, digits: int = 4) -> str:
    """A number with a few significant digits; a dash for anything else.

    Example:
        >>> [number(v) for v in (12.34567, 0.000123456, 1234567, 60.0, float("nan"), None)]
        ['12.35', '0.0001235', '1,234,567', '60', 'NaN', '\u2013']
    """
    if not is_number(value):
        return DASH
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "\u221e" if value > 0 else "\u2212\u221e"
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        written = f"{int(value):,}"
    elif abs(value) >= 1e4 or abs(value) < 1e-4:
        written = f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.{digits - 1}g}"
    else:
        written = f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
    return _with_minus(written) if value < 0 else written


def percent(value: Any, digits: int = 1, whole: float = 1.0) -> str:
    """A part of a whole in percent; `whole=100` for a value that is in percent already.

    Example:
        >>> percent(0.98304), percent(-0.02), percent(-0.0002), percent(7.0, digits=2, whole=100)
        ('98.3%', '\u22122.0%', '0.0%', '7.00%')
    """
    if not is_number(value) or not math.isfinite(value):
        return number(value)
    return _with_minus(f"{round(100 / whole * value, digits) + 0.0:.{digits}f}%")  # no negative zero


def score_to_text(name: str, value: float | None, deviation: float | None = None) -> str:
    """The value of a score: accuracies and errors in percent, other scores as numbers.

    Example:
        >>> score_to_text("FID", 17.25), score_to_text("IS", 8.5, 0.11), score_to_text("error", 7.0, 0.2)
        ('17.25', '8.500 ± 0.11', '7.00% ± 0.20%')
    """
    if name.startswith("accuracy"):
        texts = [percent(value), percent(deviation)]
    elif name.startswith("error"):
        texts = [percent(value, 2, 100), percent(deviation, 2, 100)]
    else:
        texts = [number(value), number(deviation, 2)]
    return texts[0] if deviation is None else " \u00b1 ".join(texts)


def paper_to_text(figure: tuple[float, float | None] | None, name: str) -> str:
    """The paper's mean and deviation for a score, with the digits that the paper prints.

    Example:
        >>> paper_to_text((8.2, 0.08), "IS"), paper_to_text((17.2, None), "FID"), paper_to_text((7.0, None), "error")
        ('8.20 ± 0.08', '17.2', '7.00%')
    """
    if figure is None:
        return DASH
    mean, deviation = figure
    if name == "error":
        return score_to_text(name, mean, deviation)
    return str(mean) if deviation is None else f"{mean:.2f} \u00b1 {deviation:.2f}"


def difference_to_text(difference: float | None) -> str:
    """A difference with its sign.

    Example:
        >>> difference_to_text(0.04), difference_to_text(-1.5), difference_to_text(None)
        ('+0.04', '−1.50', '–')
    """
    if difference is None or not math.isfinite(difference):
        return number(difference)
    return _with_minus(f"{difference:+.2f}")


def p_to_text(value: float) -> str:
    """A p value.

    Example:
        >>> p_to_text(0.0123), p_to_text(1e-5)
        ('0.012', '< 0.001')
    """
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _with_minus(text: str) -> str:
    """A hyphen in front becomes a minus sign."""
    return text.replace("-", "\u2212", 1) if text.startswith("-") else text
