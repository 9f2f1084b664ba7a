"""Complete runs as tasks on Ray: on this machine, or on a cluster whose machines share the folder of the runs."""

from __future__ import annotations

import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wcgan.core.terminal import first_line
from wcgan.reproduce.complete_run import RunResult, Scorer, complete_run, run_to_summary
from wcgan.reproduce.plan import PlannedRun
from wcgan.runs.folder import Run
from wcgan.runs.status import RunStatus

if TYPE_CHECKING:
    from wcgan.reproduce.command import Show

RETRIES = 5  # for a task whose worker died
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_ANSWER = 10.0
SECONDS_TO_STOP = 300.0  # for an iteration and a checkpoint, however large the networks
_QUIET = {  # defaults: a variable that is set is kept
    "RAY_AUTH_MODE": "disabled",  # otherwise Ray writes a token under HOME
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # otherwise Ray warns about a later version
}


def import_ray() -> Any:
    """The module `ray`, or None if it is not installed."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        return None
    return ray


@contextmanager
def connected(ray: Any, address: str) -> Iterator[None]:
    """Connect to the cluster at an address, or start one on this machine for `local`; keep an existing connection.

    Raises:
        ValueError: if no cluster answers.
    """
    if ray.is_initialized():
        yield
        return
    options = {"include_dashboard": False} if address == "local" else {}
    before = signal.getsignal(signal.SIGTERM)
    try:
        _check_listening(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except OSError as error:
        why = first_line(error)
        raise ValueError(f"no Ray cluster answers at {address} ({why}): --ray local starts one here") from None
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray's own handler exits at once, and no run ends at a checkpoint
    try:
        yield
    finally:
        ray.shutdown()


def _check_listening(address: str) -> None:
    """Raises an OSError if nothing listens at an address; Ray itself would retry for minutes."""
    if address in ("local", "auto"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"--ray takes local, auto or HOST:PORT, got {address!r}")
    socket.create_connection((host, int(port)), timeout=SECONDS_TO_ANSWER).close()


def run_on_cluster(
    ray: Any,
    runs: Sequence[PlannedRun],
    out: Path,
    gpus_per_run: float | None,
    show: Show,
    stopping: Callable[[], bool],
) -> Iterator[tuple[PlannedRun, RunResult]]:
    """Complete each run as a task, and yield each result as it arrives.

    A task whose worker dies is started again, and resumes from its last checkpoint.

    Args:
        ray: the module, connected to a cluster.
        runs: the runs to complete.
        out: the folder of all runs, which every machine must share.
        gpus_per_run: a task's share of a GPU; None for a whole one. On a cluster without GPUs, tasks need none.
        show: called with a run, its status, and details.
        stopping: tells whether to stop all runs at their next checkpoint.
    """
    share = (1.0 if gpus_per_run is None else gpus_per_run) if ray.cluster_resources().get("GPU", 0) else 0.0
    mark, token = _leave_token(out)
    environment = {name: value for name, value in os.environ.items() if name.startswith("WCGAN_")}
    task = ray.remote(_complete_on_worker).options(num_cpus=1, num_gpus=share, max_retries=RETRIES)

    def submit(run: PlannedRun) -> Any:
        return task.remote(replace(run, folder=run.folder.absolute()), environment, mark, token)

    pending = {submit(run): run for run in runs}
    changes = {run.folder: _last_change(run) for run in runs}
    while pending:
        if stopping():
            yield from _stop(ray, pending)
            return
        ready, _ = ray.wait(list(pending), num_returns=1, timeout=SECONDS_BETWEEN_LOOKS)
        for reference in ready:
            run = pending.pop(reference)
            result = _result(ray, reference, run)
            if result.status is RunStatus.STOPPED and not stopping():  # only its worker was told to stop
                pending[submit(run)] = run
            else:
                yield run, result
        for run in pending.values():
            if changes[run.folder] != _last_change(run):
                changes[run.folder] = _last_change(run)
                iteration = run_to_summary(run, Scorer("classifier")).iteration
                show(run, RunStatus.RUNNING, f"{iteration:,} of {run.config.train.iterations:,}")


def _complete_on_worker(planned: PlannedRun, environment: dict[str, str], mark: Path, token: str) -> RunResult:
    os.environ.update(environment)
    if not mark.is_file() or mark.read_text(encoding="utf-8") != token:
        where = socket.gethostname()
        return RunResult(
            RunStatus.FAILED, sentence=f"{mark.parent} is another folder on {where}: name one that all machines share"
        )
    return complete_run(planned)


def _leave_token(out: Path) -> tuple[Path, str]:
    """Write a file with a random token, by which workers recognise the folder; later tables reuse it."""
    out.mkdir(parents=True, exist_ok=True)
    mark = out.absolute() / ".shared"
    if not mark.is_file():
        mark.write_text(uuid.uuid4().hex, encoding="utf-8")
    return mark, mark.read_text(encoding="utf-8")


def _last_change(run: PlannedRun) -> int:
    metrics = Run(run.folder).metrics
    return metrics.stat().st_mtime_ns if metrics.exists() else 0


def _stop(ray: Any, pending: dict[Any, PlannedRun]) -> Iterator[tuple[PlannedRun, RunResult]]:
    """Interrupt all tasks: running ones write a checkpoint first, waiting ones never start."""
    for reference in pending:
        ray.cancel(reference)
    ray.wait(list(pending), num_returns=len(pending), timeout=SECONDS_TO_STOP)
    for reference, run in pending.items():
        yield run, _result(ray, reference, run)


def _result(ray: Any, reference: Any, run: PlannedRun) -> RunResult:
    try:
        result: RunResult = ray.get(reference, timeout=0)
    except (ray.exceptions.TaskCancelledError, ray.exceptions.GetTimeoutError):
        iteration = run_to_summary(run, Scorer("classifier")).iteration
        sentence = f"stopped at iteration {iteration}" if iteration else str(RunStatus.NOT_STARTED)
        return RunResult(RunStatus.STOPPED, iteration, sentence)
    except ray.exceptions.RayError as error:
        return RunResult(RunStatus.FAILED, sentence=f"its worker died {RETRIES + 1} times: {first_line(error)}")
    return result
