"""Timers for GPU work that exclude the host."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import torch

Timer = Callable[[], float]
"""Measures the seconds of its work at each call."""


def make_timer(calls: Sequence[Callable[[], object]], device: str, graphed: bool = True) -> Timer:
    """A timer for seconds per call; the calls run one after another, on a GPU as one graph."""
    if device == "cpu":
        return partial(_host_seconds, calls)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # capture needs a warm-up on a side stream
        for call in (*calls[:1], *calls[:1], *calls):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    if not graphed:
        return partial(_device_seconds, lambda: [call() for call in calls], len(calls))
    recording = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(recording):
        for call in calls:
            call()
    return partial(_device_seconds, recording.replay, len(calls))


def _host_seconds(calls: Sequence[Callable[[], object]]) -> float:
    begin = time.perf_counter()
    for call in calls:
        call()
    return (time.perf_counter() - begin) / len(calls)


def _device_seconds(run: Callable[[], object], count: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / count


def take_turns(timers: dict[str, Timer], rounds: int) -> dict[str, list[float]]:
    """Seconds of each timer in every round, after one round of warm-up."""
    times: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds + 1):
        for name, timer in timers.items():
            times[name].append(timer())
    return {name: values[1:] for name, values in times.items()}
