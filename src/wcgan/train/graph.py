"""An iteration as one CUDA graph: recorded once, then replayed on inputs that are copied into the same tensors.

A replay costs the host one launch instead of thousands. The recorded work must be the same on the same tensors every
time, as it is in `train_iteration`; the inputs and the learning rate are copied into place before each replay.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim import Optimizer

from wcgan.core.device import Hardware
from wcgan.core.terminal import TrainingProgress
from wcgan.functional._factorisations import ZCA
from wcgan.norm import WhiteningLayer
from wcgan.runs.config import LoopConfig
from wcgan.train.learner import Learner, learner_to_tensors

Inputs = TypeVar("Inputs", bound=tuple[Any, ...])
"""Tensors, None, and tuples of these."""
Outputs = TypeVar("Outputs")
Compute = Callable[[Inputs], Outputs]
LARGEST_EIGEN = 32  # channels whose eigenvalues `wcgan.kernels.jacobi` finds without a wait
WARM_UP = 3  # iterations before the recording: they compile, choose kernels, and make the optimisers' moments
_state = {"streams": True}


def hindrance(learner: Learner) -> str | None:
    """Reason the networks cannot be captured in a CUDA graph, or None."""
    layers = [layer for network in learner.networks.values() for layer in network.modules()]
    for layer in layers:
        if isinstance(layer, WhiteningLayer) and layer.whitening in ZCA:
            size = layer.num_features // layer.groups
            if size > LARGEST_EIGEN:
                return f"ZCA whitening of {size} channels waits for its eigenvalues"
    return None


def hardware_for(learner: Learner, hardware: Hardware) -> Hardware:
    """The hardware settings for these networks: without a CUDA graph if they cannot be captured in one."""
    return hardware if hardware.eager_because is not None else replace(hardware, eager_because=hindrance(learner))


def run_on_stream(stream: torch.cuda.Stream, compute: Compute[Inputs, Outputs], inputs: Inputs) -> Outputs:
    """An ordinary iteration on a side stream, which PyTorch requires before a capture."""
    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        outputs = compute(inputs)
    current.wait_stream(stream)
    return outputs


def on_streams(calls: Sequence[Callable[[], Outputs]], device: torch.device) -> list[Outputs]:
    """Results of independent calls. On a GPU, all but the first get a stream of their own and run concurrently."""
    if device.type != "cuda" or len(calls) == 1 or not _state["streams"]:
        return [call() for call in calls]
    current, streams = torch.cuda.current_stream(), _side_streams(len(calls) - 1, device)
    for stream in streams:
        stream.wait_stream(current)
    outputs = [calls[0]()]
    for call, stream in zip(calls[1:], streams, strict=True):
        with torch.cuda.stream(stream):
            outputs.append(call())
    for stream in streams:
        current.wait_stream(stream)
    return outputs


def branch_point(device: torch.device, *networks: nn.Module) -> torch.cuda.Event | None:
    """Marks where a parallel branch of the graph that is being recorded may begin.

    None if nothing is recorded, or if networks of different branches have a tensor in common.
    """
    if device.type != "cuda" or not _state["streams"] or not torch.cuda.is_current_stream_capturing():
        return None
    return None if have_tensors_in_common(networks) else torch.cuda.current_stream(device).record_event()


def have_tensors_in_common(networks: Sequence[nn.Module]) -> bool:
    """Whether a parameter or buffer of one network is another's too."""
    tensors = [{id(tensor) for tensor in (*network.parameters(), *network.buffers())} for network in networks]
    return len(set().union(*tensors)) < sum(map(len, tensors))


@contextmanager
def branch_from(point: torch.cuda.Event | None) -> Iterator[None]:
    """Records the body on a stream of its own, which waits for the point only; what follows waits for the body.

    What was recorded since the point runs beside the body; neither may write what the other uses. The host issues both
    in the order of the code, so random draws keep their order. With None, the body runs on the current stream.

    Memory that is freed on a stream is used again on that stream alone. So the body may read only what outlives the
    recording, such as inputs and weights. Its results may be freed at any time: later, only the body's backward pass
    uses its stream, after all other uses of the results, and autograd has the current stream wait for that pass.
    """
    if point is None:
        yield
        return
    current = torch.cuda.current_stream()
    (side,) = _side_streams(1, current.device)
    side.wait_event(point)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)


@contextmanager
def one_stream() -> Iterator[None]:
    """Context manager that keeps everything on one stream, to compare with parallel branches."""
    before = _state["streams"]
    _state["streams"] = False
    try:
        yield
    finally:
        _state["streams"] = before


@cache
def _side_streams(count: int, device: torch.device) -> tuple[torch.cuda.Stream, ...]:
    return tuple(torch.cuda.Stream(device) for _ in range(count))


def record(
    compute: Compute[Inputs, Outputs], inputs: Inputs, optimizers: Iterable[Optimizer]
) -> tuple[torch.cuda.CUDAGraph, Outputs]:
    """Records the graph of an iteration on these inputs; nothing is computed. Returns the graph and its output tensors.

    Raises:
        RuntimeError: if something in the iteration cannot be recorded; no weight or statistic has changed.
    """
    graph = torch.cuda.CUDAGraph()
    here = torch.cuda.stream(torch.cuda.current_stream())  # to come back to: a recording that fails does not
    with here, _capturable(optimizers), torch.cuda.graph(graph):
        outputs = compute(inputs)
    return graph, outputs


@contextmanager
def _capturable(optimizers: Iterable[Optimizer]) -> Iterator[None]:
    """Sets `capturable`, which fused Adam demands during a capture and warns about elsewhere."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False


def _cloned(inputs: Inputs) -> Inputs:
    """A copy in other memory."""
    parts = [_cloned(part) if isinstance(part, tuple) else None if part is None else part.clone() for part in inputs]
    kind: Any = type(inputs)
    return kind(*parts) if hasattr(inputs, "_fields") else kind(parts)


def _copy(target: tuple[Any, ...], source: tuple[Any, ...]) -> None:
    """Puts values into the same places."""
    for mine, theirs in zip(target, source, strict=True):
        if isinstance(mine, tuple):
            _copy(mine, theirs)
        elif mine is not None and theirs is not None:
            mine.copy_(theirs)


class GraphedIteration(Generic[Inputs, Outputs]):
    """Computes an iteration: the first few as ordinary calls, all later ones by replaying a CUDA graph of it.

    The losses of a replay are valid until the next one. If the recording fails, a message says why, and all iterations
    are ordinary calls.

    Args:
        compute: an iteration; it must do the same work on the same tensors every time.
        learner: the networks and optimisers that it trains.
        say: called with the reason if there is no graph.
        required: raises an error if there is no graph.
    """

    def __init__(
        self,
        compute: Compute[Inputs, Outputs],
        learner: Learner,
        say: Callable[[str], None],
        required: bool = False,
    ) -> None:
        self.compute, self.learner, self.say, self.required = compute, learner, say, required
        self._left, self._tried = WARM_UP, False
        self._stream: torch.cuda.Stream
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: Inputs
        self._outputs: Outputs
        self._changed: list[Tensor]
        if why := hindrance(learner):
            self._give_up(why)
        else:
            self._stream = torch.cuda.Stream()

    @property
    def replays(self) -> bool:
        """Whether the next call replays a graph."""
        return self._graph is not None

    def __call__(self, inputs: Inputs) -> Outputs:
        if self._left > 0:
            self._left -= 1
            return run_on_stream(self._stream, self.compute, inputs)
        if not self._tried:
            self._record(inputs)
        if self._graph is None:
            return self.compute(inputs)
        _copy(self._inputs, inputs)
        self._graph.replay()
        increment_version(self._changed)  # a replay does not; the layers' inference matrices depend on it
        return self._outputs

    def _record(self, inputs: Inputs) -> None:
        self._tried = True
        self._inputs = _cloned(inputs)
        try:
            self._graph, self._outputs = record(self.compute, self._inputs, self.learner.optimizers.values())
        except RuntimeError as error:
            self._give_up(_first_cause(error))
        else:
            self._changed = list(learner_to_tensors(self.learner).values())

    def _give_up(self, why: str) -> None:
        if self.required:
            raise ValueError(f"train.cuda_graph=yes is not possible: {why}; use auto or no")
        self.say(f"an iteration is not one CUDA graph: {why}; going on without")
        self._left, self._tried = 0, True


def graphed(
    compute: Compute[Inputs, Outputs],
    learner: Learner,
    settings: LoopConfig,
    hardware: Hardware,
    progress: TrainingProgress,
) -> Compute[Inputs, Outputs]:
    """The iteration as one CUDA graph if possible, else unchanged; on a GPU a message says why."""
    if hardware.eager_because is None:
        return GraphedIteration(compute, learner, progress.say, required=settings.cuda_graph == "yes")
    if hardware.eager_because and hardware.device.type == "cuda":
        progress.say(f"an iteration is not one CUDA graph: {hardware.eager_because}")
    return compute


def _first_cause(error: BaseException) -> str:
    """The first error in one line: ending a failed capture raises a second one."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error).strip().partition("\n")[0]
