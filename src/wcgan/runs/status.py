"""The status of a run: one word for every command, table and page."""

from collections.abc import Sequence
from enum import Enum
from typing import Any


class RunStatus(str, Enum):
    """How far a run is."""

    NOT_STARTED = "not started"
    RUNNING = "running"
    """A process of this command is at work on it."""
    UNFINISHED = "unfinished"
    """Begun, and killed or still training."""
    STOPPED = "stopped"
    """By a signal or `--stop-at`: it can be resumed."""
    FAILED = "failed"
    """Ended by an error."""
    DIVERGED = "diverged"
    """A loss or weight was no longer finite."""
    FINISHED = "finished"
    """Trained to its last iteration."""
    DONE = "done"
    """Finished, and measured by everything its table asks for."""

    def __str__(self) -> str:
        return self.value


def metrics_to_status(lines: Sequence[dict[str, Any]], planned: int | None) -> RunStatus:
    """The status that the lines of `metrics.jsonl` tell.

    Args:
        lines: as `read_metrics` returns them.
        planned: iterations that the run is to have; None if unknown.

    Example:
        >>> metrics_to_status([{"kind": "event", "iteration": 5, "what": "stopped"}], planned=10)
        <RunStatus.STOPPED: 'stopped'>
    """
    events = (line["what"] for line in reversed(lines) if line["kind"] == "event")
    last = next((what for what in events if what != "changed"), None)  # another config alone trains nothing
    if last in ("diverged", "stopped"):
        return RunStatus(last)
    finished = last == "finished" if planned is None else lines_to_iteration(lines) >= planned
    if finished:
        return RunStatus.FINISHED
    return RunStatus.UNFINISHED if lines else RunStatus.NOT_STARTED


def lines_to_iteration(lines: Sequence[dict[str, Any]]) -> int:
    """How many iterations the lines of `metrics.jsonl` tell of."""
    return max((line["iteration"] for line in lines), default=0)
