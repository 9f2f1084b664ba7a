"""Numbers as a person reads them."""

from __future__ import annotations

import math
from typing import Any, TypeGuard


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value: Any, digits: int = 4) -> str:
    """A number with a few significant digits; a dash where there is none.

    Example:
        >>> [number(v) for v in (12.34567, 0.000123456, 1234567, 60.0, float("nan"), None)]
        ['12.35', '0.0001235', '1,234,567', '60', 'NaN', '\u2013']
    """
    if not is_number(value):
        return "\u2013"
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
    return written.replace("-", "\u2212", 1) if value < 0 else written


def counted(count: int, noun: str) -> str:
    """A number of things; the noun takes an s.

    Example:
        >>> counted(1, "run"), counted(1200, "run")
        ('1 run', '1,200 runs')
    """
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def percent(value: Any) -> str:
    """A share.

    Example:
        >>> percent(0.98304), percent(-0.02)
        ('98.3%', '\u22122.0%')
    """
    return f"{100 * value:.1f}%".replace("-", "\u2212") if is_number(value) and math.isfinite(value) else number(value)


def hundredths(value: Any) -> str:
    """A share that is in percent already, as classification errors are reported.

    Example:
        >>> hundredths(7.0), hundredths(-0.314)
        ('7.00%', '\u22120.31%')
    """
    return f"{value:.2f}%".replace("-", "\u2212") if is_number(value) and math.isfinite(value) else number(value)


def duration(seconds: Any) -> str:
    """A time span.

    Example:
        >>> [duration(s) for s in (8.4, 75, 3700, 200_000)]
        ['8 s', '1 min 15 s', '1 h 1 min', '2 d 7 h']
    """
    if not is_number(seconds) or not math.isfinite(seconds):
        return "\u2013"
    whole = round(seconds)
    for unit, size, below, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"
