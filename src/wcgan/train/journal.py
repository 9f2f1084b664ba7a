"""The log of a training: lines of metrics, grids of samples, the best checkpoint, and calls of the callbacks."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor

from wcgan.core.device import Hardware
from wcgan.core.images import grid, scale_to_show, write_png
from wcgan.core.processes import Rank
from wcgan.core.terminal import TrainingProgress
from wcgan.evaluate.protocol import UNUSUAL
from wcgan.runs.checkpoint import write_checkpoint
from wcgan.runs.folder import find_commit
from wcgan.runs.sampler import Sampler
from wcgan.train.custom import Callback, TensorBoard, Training

GRID_COLUMNS = 10
Best = tuple[str, Callable[[], dict[str, Tensor]]]
"""A score's name, or how it begins, and the tensors to keep whenever it is the lowest so far."""


class Journal:
    """Writes in the first process of a run; in the others it does nothing.

    `retried` has the counts of layers when the training starts: those of a network that was used before are not 0.
    """

    def __init__(
        self,
        training: Training,
        progress: TrainingProgress,
        rank: Rank,
        hardware: Hardware,
        callbacks: Sequence[Callback] = (),
        retried: Mapping[str, int] | None = None,
    ) -> None:
        self.run, self.progress, self.silent = training.run, progress, not rank.first
        self._mark: tuple[int, float] | None = None
        self._retried: Mapping[str, int] = retried or {}
        self._said_retries = False
        self._callbacks: list[Callback] = []
        iteration = training.iteration
        if not self.silent:
            if find_spec("tensorboard") is None:
                progress.say("TensorBoard is not installed: its events are left out (pip install 'wcgan[train]')")
            else:
                callbacks = (TensorBoard(), *callbacks)
            facts = {**hardware.describe(), "processes": rank.count, "commit": find_commit()}
            self.event(iteration, "resumed" if iteration else "started", **facts)
            with ExitStack() as failing:
                failing.callback(self.close)
                for callback in callbacks:
                    callback.on_start(training)
                    self._callbacks.append(callback)
                failing.pop_all()  # all have started: `close` is for the end

    def event(self, iteration: int, what: str, **values: Any) -> None:
        """Logs that the training started, resumed, stopped, diverged or finished."""
        if not self.silent:
            self.run.event(iteration, what, **values)

    def losses(self, iteration: int, means: dict[str, float], seconds: float, rate: float, images: int) -> None:
        """Logs losses; `rate` is the learning rate of the iteration, `images` the real images in one."""
        if self.silent:
            return
        values: dict[str, float] = {
            **means,
            "learning_rate": rate,
            "images": iteration * images,
            "seconds": round(seconds, 3),
        }
        if self._mark is not None and seconds > self._mark[1]:
            values["iterations_per_second"] = round((iteration - self._mark[0]) / (seconds - self._mark[1]), 3)
        self._mark = (iteration, seconds)
        self.run.record("train", iteration, **values)
        self.progress.show(means)
        self._metrics(iteration, values)

    def retries(self, iteration: int, retried: Mapping[str, int]) -> None:
        """Logs how many batches were whitened with extra shrinkage since the last line; the first time it says so.

        `retried` has the count of each layer until now.
        """
        if self.silent:
            return
        before, self._retried = self._retried, retried
        new = {layer: count - before.get(layer, 0) for layer, count in retried.items()}
        total = sum(new.values())
        if total:
            self.run.record("retried", iteration, batches=total, layers={k: v for k, v in new.items() if v})
            self._metrics(iteration, {"retried": total})
            if not self._said_retries:
                self._said_retries = True
                self.progress.say(
                    f"iteration {iteration}: {max(new, key=new.__getitem__)} cannot whiten a batch without extra "
                    f"shrinkage; metrics.jsonl counts such batches as `retried`"
                )

    def samples(self, iteration: int, sampler: Sampler) -> None:
        """Writes a grid of samples."""
        picture = grid(sampler.rows(GRID_COLUMNS), GRID_COLUMNS)
        write_png(picture, self.run.samples / f"{iteration:07d}.png", scale_to_show(sampler.config.resolution))
        for callback in self._callbacks:
            callback.on_images(iteration, picture)

    def conditioning(self, iteration: int, sampler: Sampler, seed: int) -> None:
        """Logs the condition number of the generator's Jacobian."""
        from wcgan.evaluate.conditioning import NOISES, measure_conditioning

        figures = measure_conditioning(sampler.network, seed)
        self.run.record("conditioning", iteration, **figures)
        self._metrics(iteration, figures)
        lacking = NOISES - figures["noises"] + figures["rank_deficient"]
        if lacking:
            why = "lacks rank, or is not finite,"
            self.progress.say(f"iteration {iteration}: the generator's Jacobian {why} at {lacking} of {NOISES} z")

    def scores(self, iteration: int, scores: dict[str, Any], best: Best | None, facts: dict[str, Any]) -> None:
        """Logs an evaluation; if its score is the lowest so far, the checkpoint `best` is written, with these facts."""
        protocol = facts_of(scores)
        lines = [line for line in self.run.lines() if line["kind"] == "evaluation" and line["iteration"] < iteration]
        before = [line for line in lines if facts_of(line) == protocol]  # others are not comparable
        self.run.record("evaluation", iteration, **scores)
        self._metrics(iteration, scores)
        figures = {name: value for name, value in scores.items() if isinstance(value, float) and name != "seconds"}
        said = ", ".join(
            f"{name} {value:.1%}" if name.startswith("accuracy") else f"{name} {value:.4g}"
            for name, value in figures.items()
        )
        self.progress.say(f"iteration {iteration}: {said}")
        key = None if best is None else next((name for name in scores if name.startswith(best[0])), None)
        if best is not None and key is not None and all(scores[key] < v.get(key, float("inf")) for v in before):
            path = write_checkpoint(self.run.checkpoints, "best", best[1](), {**facts, key: scores[key]})
            self.checkpoint_written(iteration, path)

    def checkpoint_written(self, iteration: int, path: Path) -> None:
        """Tells the callbacks of a checkpoint that was written."""
        for callback in self._callbacks:
            callback.on_checkpoint(iteration, path)

    def close(self) -> None:
        """Ends the callbacks that were started."""
        with ExitStack() as ending:  # all of them, whatever one of them raises
            for callback in self._callbacks:
                ending.callback(callback.on_end)

    def _metrics(self, iteration: int, values: Mapping[str, Any]) -> None:
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        for callback in self._callbacks:
            callback.on_metrics(iteration, numbers)


def facts_of(scores: Mapping[str, Any]) -> tuple[Any, ...]:
    """What must be equal for two evaluations to be comparable: protocol, real images, how the generator was used."""
    protocol = scores.get("protocol") or {}
    reference = protocol.get("reference")
    images = reference.get("fingerprint") if isinstance(reference, dict) else None
    return protocol.get("name"), images, *(protocol.get(key) for key in UNUSUAL)
