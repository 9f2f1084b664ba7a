"""An iteration as one CUDA graph: recorded once, then replayed on inputs that are put in the same place.

A replay costs the host one launch in place of thousands. What is recorded must be the same work on the same tensors
every time, which `train_iteration` is; the draws and the learning rate are put in place before each replay.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim import Adam

from wcgan.norm import WhiteningLayer
from wcgan.train.batches import Inputs
from wcgan.train.checkpoint import players_to_tensors
from wcgan.train.iteration import Players

Losses = dict[str, Tensor]
Compute = Callable[[Inputs], Losses]
WARM_UP = 3  # iterations before the recording: they compile, choose kernels, and make Adam's moments


def hindrance(players: Players) -> str | None:
    """Why these networks cannot be recorded; None where nothing is known to speak against it."""
    layers = [layer for layer in players.generator.modules() if isinstance(layer, WhiteningLayer)]
    if any(layer.whitening == "zca" for layer in layers):
        return "ZCA whitening waits for its eigenvalues"
    return None


def run_on_stream(stream: torch.cuda.Stream, compute: Compute, inputs: Inputs) -> Losses:
    """An ordinary iteration, on another stream than the default one, as before a recording it must be."""
    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        losses = compute(inputs)
    current.wait_stream(stream)
    return losses


def record(compute: Compute, inputs: Inputs, optimizers: Sequence[Adam]) -> tuple[torch.cuda.CUDAGraph, Losses]:
    """The graph of an iteration on these very inputs, and where its losses will be; nothing is computed.

    Raises:
        RuntimeError: if something in the iteration cannot be recorded. No weight or statistic has changed then.
    """
    graph = torch.cuda.CUDAGraph()
    here = torch.cuda.stream(torch.cuda.current_stream())  # to come back to: a recording that fails does not
    with here, _capturable(optimizers), torch.cuda.graph(graph):
        losses = compute(inputs)
    return graph, losses


@contextmanager
def _capturable(optimizers: Sequence[Adam]) -> Iterator[None]:
    """Fused Adam is the same either way, but refuses a recording without this word, and warns of it elsewhere."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False


class GraphedIteration:
    """Inputs to losses like the function it is made from: a few times as that is, then by replays of its graph.

    Losses of a replay are valid until the next. Where recording fails, it says so and goes on as the function is.

    Args:
        compute: an iteration; it must do the same work on the same tensors every time.
        players: those whom it trains.
        say: takes the sentence that says why there is no graph.
        required: whether it is an error if there is none.
    """

    def __init__(self, compute: Compute, players: Players, say: Callable[[str], None], required: bool = False) -> None:
        self.compute, self.players, self.say, self.required = compute, players, say, required
        self._left, self._tried = WARM_UP, False
        self._stream: torch.cuda.Stream
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: Inputs
        self._losses: Losses
        self._changed: list[Tensor]
        if why := hindrance(players):
            self._give_up(why)
        else:
            self._stream = torch.cuda.Stream()

    @property
    def replays(self) -> bool:
        """Whether the next call replays a graph."""
        return self._graph is not None

    def __call__(self, inputs: Inputs) -> Losses:
        if self._left > 0:
            self._left -= 1
            return run_on_stream(self._stream, self.compute, inputs)
        if not self._tried:
            self._record(inputs)
        if self._graph is None:
            return self.compute(inputs)
        for mine, theirs in zip(self._inputs, inputs, strict=True):
            if mine is not None and theirs is not None:
                mine.copy_(theirs)
        self._graph.replay()
        increment_version(self._changed)  # a replay does not; the layers' inference matrices depend on it
        return self._losses

    def _record(self, inputs: Inputs) -> None:
        self._tried = True
        self._inputs = Inputs(*(None if values is None else values.clone() for values in inputs))  # type: ignore[arg-type]
        try:
            self._graph, self._losses = record(self.compute, self._inputs, self.players.optimizers)
        except RuntimeError as error:
            self._give_up(_first_cause(error))
        else:
            self._changed = list(players_to_tensors(self.players).values())

    def _give_up(self, why: str) -> None:
        if self.required:
            raise ValueError(f"train.cuda_graph=yes is not possible: {why}; use auto or no")
        self.say(f"an iteration is not one CUDA graph: {why}; going on without")
        self._left, self._tried = 0, True


def _first_cause(error: BaseException) -> str:
    """What failed first, in one line: the end of a failed recording fails, too."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error).strip().partition("\n")[0]
