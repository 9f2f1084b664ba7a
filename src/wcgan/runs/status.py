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
    """Begun, and killed or still training: its last evaluation or checkpoint may be missing."""
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
    last = _last_event(lines).get("what")
    if last in ("diverged", "stopped"):
        return RunStatus(last)
    if last == "finished" and lines_to_iteration(lines) >= (planned or 0):
        return RunStatus.FINISHED
    return RunStatus.UNFINISHED if lines else RunStatus.NOT_STARTED


def lines_to_iteration(lines: Sequence[dict[str, Any]]) -> int:
    """How many iterations the lines of `metrics.jsonl` tell of; a run that was resumed may have gone back."""
    last = _last_event(lines)
    return max((line["iteration"] for line in lines if line["kind"] != "event" or line is last), default=0)


def _last_event(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The last event but for another config, which alone trains nothing; empty if there is none."""
    events = (line for line in reversed(lines) if line["kind"] == "event")
    return next((line for line in events if line["what"] != "changed"), {})
