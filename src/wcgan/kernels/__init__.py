"""GPU kernels. Each computes the same as a plain PyTorch function in `wcgan.functional`; tests compare the two."""

import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

Addresses = Iterable[int | None]
Direct = Callable[[int, Addresses], object]
"""`call(stream, addresses)`: a launch with nothing left to find."""
Pick = Callable[[list[int | None]], Addresses]

ALIGNMENT = 16  # bytes, which Triton's binaries count on
_state = {"direct": True}


@functools.cache
def capability(device: torch.device) -> tuple[int, int]:
    """The compute capability of a GPU, asked once: a layer asks at each call."""
    return torch.cuda.get_device_capability(device)


# `torch.backends.cuda.matmul.fp32_precision` without the comparisons of names on the way to it, for each layer's call.
_precision = getattr(torch._C, "_get_fp32_precision_getter", None)


def tf32_allowed() -> bool:
    """Whether PyTorch may round float32 products to tf32. The old flag cannot be read once the new one is set."""
    if _precision is None:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    return bool(_precision("cuda", "matmul") == "tf32")


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
        addresses = [None if t is None else t.data_ptr() for t in tensors]
        device = first.get_device()
        key = (device, *[None if t is None else t.dtype for t in tensors])
        for address in addresses:
            if address is not None:
                bits |= address
        aligned = not bits % ALIGNMENT
        direct = self._direct.get(key) if aligned and _state["direct"] else None
        if direct is not None:
            direct(torch._C._cuda_getCurrentRawStream(device), addresses)
            return
        compiled = self._launch_by_triton(*tensors)
        if aligned and _can_be_called(compiled):
            self._direct[key] = self._caller(compiled, len(tensors))

    def _launch_by_triton(self, *tensors: Tensor | None) -> Any:
        """Triton's own launch, on a GPU with little shared memory in fewer stages: each has tiles of its own there."""
        from triton import OutOfResources

        while True:
            try:
                return self.kernel[self.grid](*tensors, *self.numbers, **self.constants)
            except OutOfResources:
                fewer = self.constants.get("num_stages", 1) - 1
                if fewer < 1:
                    raise
                self.constants = self.constants | {"num_stages": fewer}

    def direct_for(self, tensors: list[Tensor | None]) -> Direct | None:
        """The direct launch for tensors like these, if there has been one by Triton."""
        device = next(t.get_device() for t in tensors if t is not None)
        return self._direct.get((device, *[None if t is None else t.dtype for t in tensors]))

    def _caller(self, compiled: Any, tensors: int) -> Direct:
        """As `triton.runtime.jit.JITFunction.run` ends, without hooks."""
        names = self.kernel.arg_names[tensors + len(self.numbers) :]
        rest = (*self.numbers, *(self.constants[name] for name in names))
        run, function, metadata, grid = compiled.run, compiled.function, compiled.packed_metadata, self.grid

        def call(stream: int, addresses: Addresses) -> None:
            run(*grid, stream, function, metadata, None, None, None, *addresses, *rest)

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


# Sequences


class Kernel(Protocol):
    """A kernel of a sequence: a `Launcher`, or what can be called like one."""

    def __call__(self, *tensors: Tensor | None) -> None: ...

    def direct_for(self, tensors: list[Tensor | None]) -> Direct | None: ...


class Place(NamedTuple):
    """An array of a sequence: one of the tensors that it is called with, or a part of a workspace among them."""

    tensor: int
    offset: int = 0
    """In bytes."""
    numel: int = 0
    dtype: torch.dtype | None = None
    """None for the tensor as it is."""


class Sequence:
    """Kernels that run one after the other, known once for a shape, so that a call is little more than their launches.

    Kernels name their arrays. An array is a tensor that is given at each call, or lies in a workspace: a tensor of
    `sizes[name]` float32 numbers, given as well. A call takes the address of each tensor once and makes no views.

    Args:
        given: names of the tensors of a call, in order; workspaces are among them.
    """

    def __init__(self, *given: str) -> None:
        self.places = {name: Place(i) for i, name in enumerate(given)}
        self.sizes = dict.fromkeys(given, 0)
        self._steps: list[tuple[Kernel, list[Place | None]]] = []
        self._direct: dict[int, tuple[list[tuple[int, int]], list[tuple[Direct, Pick]]]] = {}
        """By device, since a binary is loaded on one of them: tensor and offset of each array, and the launches."""

    def lay_out(self, workspace: str, name: str, numel: int, dtype: torch.dtype = torch.float32) -> str:
        """Adds an array at the end of a workspace; it may take the place of a tensor that is not given."""
        assert name not in self.places or self.places[name].dtype is None, f"there is an array {name} already"
        begin = self.sizes[workspace] * 4
        self.places[name] = Place(self.places[workspace].tensor, begin, numel, dtype)
        self.sizes[workspace] += -(-numel * dtype.itemsize // 128) * 32
        return name

    def part(self, name: str, array: str, begin: int, numel: int) -> str:
        """Names a part of an array of a workspace; it has to be aligned for the kernels that read it."""
        place = self.places[array]
        assert place.dtype is not None
        assert begin + numel <= place.numel
        self.places[name] = place._replace(offset=place.offset + begin * place.dtype.itemsize, numel=numel)
        return name

    def array(self, name: str, workspace: Tensor) -> Tensor:
        """An array of a workspace, as a view."""
        array = _cut(workspace, self.places[name])
        assert array is not None
        return array

    def add(self, kernel: Kernel, *names: str | None) -> None:
        """Appends a kernel with its arrays; None for one that it does not read."""
        self._steps.append((kernel, [None if name is None else self.places[name] for name in names]))

    def __call__(self, device: int, *tensors: Tensor | None) -> None:
        """Launches everything on the current stream of the device, which is the current one; -1 for the CPU."""
        given = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
        aligned = not functools.reduce(operator.or_, given) % ALIGNMENT
        direct = self._direct.get(device)
        if direct is None or not aligned or not _state["direct"]:
            self._launch_by_tensors(device, tensors, known=aligned)
            return
        stream = torch._C._cuda_getCurrentRawStream(device)
        places, calls = direct
        addresses: list[int | None] = [given[tensor] + offset for tensor, offset in places]
        addresses.append(None)
        for call, pick in calls:
            call(stream, pick(addresses))

    def _launch_by_tensors(self, device: int, tensors: tuple[Tensor | None, ...], known: bool) -> None:
        """The first launch, and those of tensors that are not aligned; with `known`, looks for the direct launches."""
        calls, arrays_of = [], []
        for kernel, places in self._steps:
            arrays = [None if place is None else _cut(tensors[place.tensor], place) for place in places]
            kernel(*arrays)
            calls.append(kernel.direct_for(arrays) if known else None)
            arrays_of.append([None if place is None else (place.tensor, place.offset) for place in places])
        if all(call is not None for call in calls):
            used = list(dict.fromkeys(place for places in arrays_of for place in places if place is not None))
            picks = [_picker([-1 if place is None else used.index(place) for place in places]) for places in arrays_of]
            self._direct[device] = used, list(zip(calls, picks, strict=True))  # type: ignore[arg-type]


def _picker(indices: list[int]) -> Pick:
    """A list -> its items at these indices. For two and more, as kernels have, without bytecode."""
    return operator.itemgetter(*indices) if len(indices) > 1 else lambda items: [items[i] for i in indices]


def _cut(tensor: Tensor | None, place: Place) -> Tensor | None:
    if tensor is None or place.dtype is None:
        return tensor
    return tensor.view(torch.uint8)[place.offset :][: place.numel * place.dtype.itemsize].view(place.dtype)
