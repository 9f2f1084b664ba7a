"""GPU kernels. Each computes the same as a plain PyTorch function in `wcgan.functional`; tests compare the two."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_state = {"direct": True}


@functools.cache
def capability(device: torch.device) -> tuple[int, int]:
    """The compute capability of a GPU, asked once: a layer asks at each call."""
    return torch.cuda.get_device_capability(device)


class Launcher:
    """A Triton kernel with all arguments fixed except its tensors, which come first.

    At each launch, Triton finds its binary by the types, values and alignments of all arguments, which takes the host
    longer than most of these kernels run. Here the first launch is Triton's own. Later ones with tensors of the same
    types call the binary directly, if all tensors are aligned; others are Triton's.
    """

    def __init__(
        self, kernel: Any, grid: tuple[int, ...], numbers: tuple[int | float, ...], constants: dict[str, Any]
    ) -> None:
        self.kernel, self.grid, self.numbers, self.constants = kernel, (*grid, 1, 1)[:3], numbers, constants
        self._direct: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def __call__(self, *tensors: Tensor | None) -> None:
        first, bits = tensors[0], 0
        assert first is not None
        pointers = [None if t is None else t.data_ptr() for t in tensors]
        device = first.get_device()
        key = (device, *[None if t is None else t.dtype for t in tensors])
        for pointer in pointers:
            if pointer is not None:
                bits |= pointer
        aligned = not bits % 16
        direct = self._direct.get(key) if aligned and _state["direct"] else None
        if direct is not None:
            direct(torch._C._cuda_getCurrentRawStream(device), pointers)
            return
        compiled = self.kernel[self.grid](*tensors, *self.numbers, **self.constants)
        if aligned and _can_be_called(compiled):
            self._direct[key] = self._caller(compiled, len(tensors))

    def _caller(self, compiled: Any, tensors: int) -> Callable[[int, list[int | None]], None]:
        """`call(stream, pointers)`, as `triton.runtime.jit.JITFunction.run` ends, without hooks."""
        names = self.kernel.arg_names[tensors + len(self.numbers) :]
        rest = (*self.numbers, *(self.constants[name] for name in names))
        run, function, metadata, grid = compiled.run, compiled.function, compiled.packed_metadata, self.grid

        def call(stream: int, pointers: list[int | None]) -> None:
            run(*grid, stream, function, metadata, None, None, None, *pointers, *rest)

        return call


def _can_be_called(compiled: Any) -> bool:
    """Whether Triton returned a binary in the form that 3.4 to 3.9 have; the interpreter returns None."""
    return triton_version() >= (3, 4) and all(hasattr(compiled, n) for n in ("run", "function", "packed_metadata"))


@functools.cache
def triton_version() -> tuple[int, ...]:
    """Major and minor."""
    import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return tuple(int(part) for part in triton.__version__.split(".")[:2])


@contextmanager
def launches_by_triton() -> Iterator[None]:
    """Context manager that leaves every launch to Triton, to compare with direct ones."""
    before = _state["direct"]
    _state["direct"] = False
    try:
        yield
    finally:
        _state["direct"] = before
