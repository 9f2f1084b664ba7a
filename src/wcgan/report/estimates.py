"""What a table would take, as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from wcgan.experiments.burst import Estimate
from wcgan.report.figures import duration

_HEAD = f"{'row':35} iterations {'done':>8} {'time left':>12} {'disk':>8}"


def estimates_to_lines(estimates: Sequence[Estimate], notes: Sequence[str] = ()) -> list[str]:
    """A line for each row and one for all of them, then why rows cannot be trained: one for each reason."""
    lines = [_HEAD]
    for each in estimates:
        cost = ("-", "-") if each.missing else (duration(each.seconds), size(each.bytes))
        lines.append(_line(each.row.preset, f"{each.iterations:,}", each.done, each.seeds, *cost))
    done, seeds = sum(each.done for each in estimates), sum(each.seeds for each in estimates)
    cost = duration(sum(each.seconds for each in estimates)), size(sum(each.bytes for each in estimates))
    lines.append(_line("all, one run after another", "", done, seeds, *cost))
    reasons = Counter(each.missing for each in estimates if each.missing)
    left_out = [
        f"{count} of {len(estimates)} rows cannot be trained here and are left out of the sum: {reason}"
        for reason, count in reasons.items()
    ]
    return [*lines, *left_out, *notes]


def _line(name: str, iterations: str, done: int, seeds: int, time: str, disk: str) -> str:
    return f"{name:35} {iterations:>10} {f'{done} of {seeds}':>8} {time:>12} {disk:>8}"


def size(count: int) -> str:
    """Bytes as a person reads them.

    Example:
        >>> size(2_500_000_000), size(3_000_000)
        ('2.5 GB', '3 MB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
