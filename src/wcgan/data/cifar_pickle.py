"""CIFAR's "python version": pickles, read without `pickle`.

The official files use a few of pickle's instructions: to make dictionaries, lists, numbers, strings and one array of
bytes. A machine for these alone has nothing that a file could turn against its reader: no imports, no calls, no
objects but its own, and no memory that the file does not fill.
"""

import io
import pickletools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wcgan.data.terminal import shown

_ARRAY_MAKERS = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_BYTES_STATES = tuple((3, order, None, None, None, -1, -1, 0) for order in (b"|", "|"))
_NAMES = (*_ARRAY_MAKERS, "numpy ndarray", "numpy dtype", "_codecs encode")


class _Mark:
    """Where a tuple, or a row of entries, begins on the stack."""


class _Name(str):
    """A name from `_NAMES`, which stands for itself: nothing is imported."""


class _Bytes:
    """The type of an array of unsigned bytes."""


class _Array:
    """An array that is announced and not filled yet."""

    pixels: NDArray[np.uint8] | None = None


def read_batch(data: bytes) -> dict[str, Any]:
    """The dictionary in a CIFAR file: lists, whole numbers and strings, and arrays of unsigned bytes, by key.

    Raises:
        ValueError: for a pickle with anything else in it, or none at all.
    """
    stack: list[Any] = []
    memory: dict[int, Any] = {}
    frame_end = before = 0  # a frame holds whole instructions, and no other frame
    try:
        for instruction, argument, place in pickletools.genops(io.BytesIO(data)):
            name, start, before = instruction.name, before, place or 0
            if start < frame_end < before:
                raise IndexError
            if name == "FRAME":
                if before < frame_end or before + 9 + argument > len(data):  # 9 bytes are its own
                    raise IndexError
                frame_end = before + 9 + argument
            elif name in _MEMORY:
                _remember(stack, memory, name, argument)
            elif name == "STOP":
                break
            elif name in _STEPS:
                _STEPS[name](stack, argument)
            else:
                raise ValueError(f"it has the instruction {name}, which no CIFAR file needs")
        (content,) = stack
    except (LookupError, TypeError, AttributeError) as error:  # instructions that do not fit together
        raise ValueError(f"it is damaged ({type(error).__name__})") from None
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__.strip('_').lower()}, not the dictionary of a CIFAR file")
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): value.pixels if type(value) is _Array else value
        for key, value in content.items()
    }


def _remember(stack: list[Any], memory: dict[int, Any], name: str, place: Any) -> None:
    if name == "MEMOIZE":
        memory[len(memory)] = stack[-1]
    elif name.endswith("PUT"):
        memory[place] = stack[-1]
    else:
        stack.append(memory[place])


def _since_mark(stack: list[Any]) -> list[Any]:
    found: list[Any] = []
    while not isinstance(value := stack.pop(), _Mark):
        found.append(value)
    return found[::-1]


def _last(count: int) -> Callable[[list[Any], Any], None]:
    def make_tuple(stack: list[Any], _: Any) -> None:
        if len(stack) < count:
            raise IndexError
        found = tuple(stack[-count:])
        stack[-count:] = [found]

    return make_tuple


def _to_list(stack: list[Any], values: list[Any]) -> None:
    if type(stack[-1]) is not list:
        raise TypeError
    stack[-1].extend(values)


def _to_dictionary(stack: list[Any], values: list[Any]) -> None:
    if type(stack[-1]) is not dict or len(values) % 2:
        raise TypeError
    for key, value in zip(values[::2], values[1::2], strict=True):
        if not isinstance(key, str | bytes):
            raise TypeError
        stack[-1][key] = value


def _pop(stack: list[Any], count: int) -> list[Any]:
    return [stack.pop() for _ in range(count)][::-1]


def _name(stack: list[Any], name: Any) -> None:
    if name not in _NAMES:
        raise ValueError(f"it asks for {shown(name)}, which no CIFAR file needs")
    stack.append(_Name(name))


def _call(stack: list[Any], _: Any) -> None:
    """What each name makes of its arguments."""
    name, arguments = _pop(stack, 2)
    if type(name) is not _Name or type(arguments) is not tuple or not isinstance(arguments[0], str | bytes):
        raise TypeError
    if name in _ARRAY_MAKERS and arguments[0] == "numpy ndarray" and arguments[1:] == ((0,), b"b"):
        stack.append(_Array())
    elif name == "numpy dtype" and arguments[1:] == (False, True):
        if arguments[0] not in (b"u1", "u1"):
            raise ValueError(f"it has an array of {shown(arguments[0])}, where a CIFAR file has unsigned bytes")
        stack.append(_Bytes())
    elif name == "_codecs encode" and arguments[1:] == ("latin1",):  # how Python 3 writes bytes in an old protocol
        stack.append(arguments[0].encode("latin1"))
    else:
        raise TypeError


def _fill(stack: list[Any], _: Any) -> None:
    """The state of an array or of its type."""
    made, state = _pop(stack, 2)
    if type(made) is _Array and made.pixels is None:
        version, shape, kind, by_columns, content = state
        if version != 1 or type(kind) is not _Bytes or by_columns or not isinstance(content, bytes):
            raise TypeError
        if type(shape) is not tuple or len(shape) != 2 or not all(type(size) is int and size >= 0 for size in shape):
            raise TypeError
        if shape[0] * shape[1] != len(content):
            raise ValueError(f"it has {len(content)} bytes for an array of {shape[0]} x {shape[1]}")
        made.pixels = np.frombuffer(content, np.uint8).reshape(shape)
    elif type(made) is not _Bytes or state not in _BYTES_STATES:
        raise TypeError
    stack.append(made)


def _push(value: Callable[[Any], Any]) -> Callable[[list[Any], Any], None]:
    return lambda stack, argument: stack.append(value(argument))


_MEMORY = {"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET"}
_AS_IT_IS = (
    "BININT",
    "BININT1",
    "BININT2",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINBYTES",
    "SHORT_BINBYTES",
    "BINBYTES8",
)
_STEPS: Mapping[str, Callable[[list[Any], Any], None]] = {
    "PROTO": lambda stack, argument: None,
    "MARK": lambda stack, argument: stack.append(_Mark()),
    "NONE": _push(lambda _: None),
    "NEWTRUE": _push(lambda _: True),
    "NEWFALSE": _push(lambda _: False),
    **dict.fromkeys(_AS_IT_IS, _push(lambda argument: argument)),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), _push(lambda text: text.encode("latin1"))),  # Python 2's strings
    "EMPTY_DICT": _push(lambda _: {}),
    "EMPTY_LIST": _push(lambda _: []),
    "EMPTY_TUPLE": _push(lambda _: ()),
    "TUPLE": lambda stack, argument: stack.append(tuple(_since_mark(stack))),
    "TUPLE1": _last(1),
    "TUPLE2": _last(2),
    "TUPLE3": _last(3),
    "APPEND": lambda stack, argument: _to_list(stack, _pop(stack, 1)),
    "APPENDS": lambda stack, argument: _to_list(stack, _since_mark(stack)),
    "SETITEM": lambda stack, argument: _to_dictionary(stack, _pop(stack, 2)),
    "SETITEMS": lambda stack, argument: _to_dictionary(stack, _since_mark(stack)),
    "GLOBAL": _name,
    "STACK_GLOBAL": lambda stack, argument: _name(stack, " ".join(_pop(stack, 2))),
    "REDUCE": _call,
    "BUILD": _fill,
}
