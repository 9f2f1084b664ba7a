"""Runs as tasks on Ray: on this machine, or on a cluster whose machines share the folder of the runs."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from wcgan.reproduce.complete_run import Ending, Looker, finish_run, run_to_standing
from wcgan.reproduce.display import Show
from wcgan.reproduce.plan import PlannedRun
from wcgan.runs.folder import Run
from wcgan.runs.status import RunStatus

RETRIES = 5  # of a task whose worker died
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_ANSWER = 10.0
SECONDS_TO_STOP = 300.0  # for an iteration and a checkpoint, however large the networks
_QUIET = {  # whoever has set one of these keeps it
    "RAY_AUTH_MODE": "disabled",  # else a token is written under HOME
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else Ray warns of what a later version will do
}


def import_ray() -> Any:
    """Ray, or None where it is not installed."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        return None
    return ray


@contextmanager
def connected(ray: Any, address: str) -> Iterator[None]:
    """A cluster of this machine for `local`, else the one at an address; one that is connected already is kept.

    Raises:
        ValueError: where none answers.
    """
    if ray.is_initialized():
        yield
        return
    options = {"include_dashboard": False} if address == "local" else {}
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except OSError as error:
        why = _first_line(error)
        raise ValueError(f"no Ray cluster answers at {address} ({why}): --ray local starts one here") from None
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raises an OSError where nobody listens: Ray itself would try for minutes."""
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
) -> Iterator[tuple[PlannedRun, Ending]]:
    """Each run as a task -> each ending as it comes.

    A task whose worker dies is begun again, and goes on from its last checkpoint.

    Args:
        ray: the module, connected.
        runs: what to run.
        out: holds the folders of all runs; every machine must see it.
        gpus_per_run: a task's share of a GPU; None for a whole one. Where the cluster has none, it needs none.
        show: called with a run, its state, and more words on it.
        stopping: whether to end all of them, each at a good place.
    """
    share = (1.0 if gpus_per_run is None else gpus_per_run) if ray.cluster_resources().get("GPU", 0) else 0.0
    mark, token = _leave_token(out)
    environment = {name: value for name, value in os.environ.items() if name.startswith("WCGAN_")}
    task = ray.remote(_finish_on_worker).options(num_cpus=1, num_gpus=share, max_retries=RETRIES)

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
            ending = _ending(ray, reference, run)
            if ending.state is RunStatus.STOPPED and not stopping():  # its worker alone was told to end
                pending[submit(run)] = run
            else:
                yield run, ending
        for run in pending.values():
            if changes[run.folder] != _last_change(run):
                changes[run.folder] = _last_change(run)
                iteration = run_to_standing(run, Looker("classifier")).iteration
                show(run, RunStatus.RUNNING, f"{iteration:,} of {run.config.train.iterations:,}")


def _finish_on_worker(planned: PlannedRun, environment: dict[str, str], mark: Path, token: str) -> Ending:
    os.environ.update(environment)
    if not mark.is_file() or mark.read_text(encoding="utf-8") != token:
        where = os.uname().nodename
        return Ending(
            RunStatus.FAILED, sentence=f"{mark.parent} is another folder on {where}: name one that all machines share"
        )
    return finish_run(planned)


def _leave_token(out: Path) -> tuple[Path, str]:
    """A file by which a worker knows the folder, and what it says; a later table finds it there."""
    out.mkdir(parents=True, exist_ok=True)
    mark = out.absolute() / ".shared"
    if not mark.is_file():
        mark.write_text(uuid.uuid4().hex, encoding="utf-8")
    return mark, mark.read_text(encoding="utf-8")


def _last_change(run: PlannedRun) -> int:
    metrics = Run(run.folder).metrics
    return metrics.stat().st_mtime_ns if metrics.exists() else 0


def _stop(ray: Any, pending: dict[Any, PlannedRun]) -> Iterator[tuple[PlannedRun, Ending]]:
    """Interrupts all tasks: those that train write a checkpoint first, those that wait are never started."""
    for reference in pending:
        ray.cancel(reference)
    ray.wait(list(pending), num_returns=len(pending), timeout=SECONDS_TO_STOP)
    for reference, run in pending.items():
        yield run, _ending(ray, reference, run)


def _ending(ray: Any, reference: Any, run: PlannedRun) -> Ending:
    try:
        ending: Ending = ray.get(reference, timeout=0)
    except (ray.exceptions.TaskCancelledError, ray.exceptions.GetTimeoutError):
        iteration = run_to_standing(run, Looker("classifier")).iteration
        sentence = f"stopped at iteration {iteration}" if iteration else str(RunStatus.NOT_STARTED)
        return Ending(RunStatus.STOPPED, iteration, sentence)
    except ray.exceptions.RayError as error:
        return Ending(RunStatus.FAILED, sentence=f"its worker died {RETRIES + 1} times: {_first_line(error)}")
    return ending


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
