"""CIFAR's "python version": pickles, read without `pickle`.

The official files use a few of pickle's instructions: to make dictionaries, lists, numbers, strings and one array of
bytes. A machine for these alone has nothing that a file could turn against its reader: no imports, no calls, no
objects but its own, and no memory that the file does not fill.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wcgan.core.terminal import shown

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
    try:
        for code, argument in _instructions(data):
            if code in _STEPS:
                _STEPS[code](stack, argument)
            elif code == b"\x94":
                memory[len(memory)] = _top(stack)
            elif code in (b"q", b"r"):
                memory[argument] = _top(stack)
            elif code in (b"h", b"j"):
                stack.append(memory[argument])
        (content,) = stack
    except (LookupError, TypeError, ValueError, struct.error) as error:
        if type(error) is ValueError and error.args:
            raise
        raise ValueError(f"it is damaged ({type(error).__name__})") from None  # instructions that do not fit together
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__.strip('_').lower()}, not the dictionary of a CIFAR file")
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): value.pixels if type(value) is _Array else value
        for key, value in content.items()
    }


def _instructions(data: bytes) -> Iterator[tuple[bytes, Any]]:
    """Each instruction up to the last with its argument."""
    place = frame_end = 0
    while True:
        start, code = place, data[place : place + 1]
        place += 1
        argument: Any = None
        if code in _NUMBERS:
            (argument,) = struct.unpack_from(_NUMBERS[code], data, place)
            place += struct.calcsize(_NUMBERS[code])
        elif code in _STRINGS:
            kind, to_value = _STRINGS[code]
            (length,) = struct.unpack_from(kind, data, place)
            place += struct.calcsize(kind) + length
            if length < 0 or place > len(data):
                raise IndexError
            argument = to_value(data[place - length : place])
        elif code == b"c":  # a name: two lines
            place = data.index(b"\n", data.index(b"\n", place) + 1) + 1
            argument = data[start + 1 : place - 1].decode("ascii").replace("\n", " ")
        elif code == b".":
            return
        elif code not in _STEPS and code != b"\x94":
            raise ValueError(f"it has the instruction {code!r}, which no CIFAR file needs")
        if start < frame_end < place:  # a frame holds whole instructions, and no other frame
            raise IndexError
        if code == b"\x95":
            if start < frame_end or place + argument > len(data):
                raise IndexError
            frame_end = place + argument
        yield code, argument


def _since_mark(stack: list[Any]) -> list[Any]:
    found: list[Any] = []
    while not isinstance(value := stack.pop(), _Mark):
        found.append(value)
    return found[::-1]


def _last(count: int) -> Callable[[list[Any], Any], None]:
    def make_tuple(stack: list[Any], _: Any) -> None:
        stack.append(tuple(_pop(stack, count)))

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
    found = []
    for _ in range(count):
        found.append(_top(stack))
        stack.pop()
    return found[::-1]


def _top(stack: list[Any]) -> Any:
    if isinstance(stack[-1], _Mark):
        raise IndexError
    return stack[-1]


def _name(stack: list[Any], name: Any) -> None:
    if name not in _NAMES:
        raise ValueError(f"it asks for {shown(name)}, which no CIFAR file needs")
    stack.append(_Name(name))


def _call(stack: list[Any], _: Any) -> None:
    """What each name makes of its arguments."""
    name, arguments = _pop(stack, 2)
    if type(name) is not _Name or type(arguments) is not tuple or type(arguments[0]) not in (str, bytes, _Name):
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


def _begin(stack: list[Any], protocol: int) -> None:
    if protocol > 5:
        raise TypeError


def _nothing(stack: list[Any], _: Any) -> None:
    pass


def _push(value: Callable[[Any], Any]) -> Callable[[list[Any], Any], None]:
    return lambda stack, argument: stack.append(value(argument))


_as_it_is = _push(lambda argument: argument)
# Instructions with a number: of the protocol, a value, a place in memory, or the length of a frame.
_NUMBERS = {
    b"\x80": "B",
    b"K": "B",
    b"M": "<H",
    b"J": "<i",
    b"q": "B",
    b"h": "B",
    b"r": "<I",
    b"j": "<I",
    b"\x95": "<Q",
}
# Those with a string: how its length is written, and what it becomes. Python 2's strings are bytes.
_STRINGS: Mapping[bytes, tuple[str, Callable[[bytes], Any]]] = {
    **{
        code: (length, bytes)
        for code, length in ((b"U", "B"), (b"T", "<i"), (b"C", "B"), (b"B", "<I"), (b"\x8e", "<Q"))
    },
    **{code: (length, bytes.decode) for code, length in ((b"\x8c", "B"), (b"X", "<I"))},
}
_STEPS: Mapping[bytes, Callable[[list[Any], Any], None]] = {
    b"\x80": _begin,
    b"\x95": _nothing,
    **dict.fromkeys((b"K", b"M", b"J", *_STRINGS), _as_it_is),
    b"(": lambda stack, _: stack.append(_Mark()),
    b"N": _push(lambda _: None),
    b"\x88": _push(lambda _: True),
    b"\x89": _push(lambda _: False),
    b"}": _push(lambda _: {}),
    b"]": _push(lambda _: []),
    b")": _push(lambda _: ()),
    b"t": lambda stack, _: stack.append(tuple(_since_mark(stack))),
    b"\x85": _last(1),
    b"\x86": _last(2),
    b"\x87": _last(3),
    b"a": lambda stack, _: _to_list(stack, _pop(stack, 1)),
    b"e": lambda stack, _: _to_list(stack, _since_mark(stack)),
    b"s": lambda stack, _: _to_dictionary(stack, _pop(stack, 2)),
    b"u": lambda stack, _: _to_dictionary(stack, _since_mark(stack)),
    b"c": _name,
    b"\x93": lambda stack, _: _name(stack, " ".join(_pop(stack, 2))),
    b"R": _call,
    b"b": _fill,
}
