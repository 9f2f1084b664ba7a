"""Read the pickles of CIFAR's "python version" without `pickle`.

The official files use only a few of pickle's opcodes, for dictionaries, lists, numbers, strings and arrays of bytes.
This reader implements these alone. It never imports, calls or instantiates anything that a file names, and it allocates
no more memory than the file has bytes.
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
    """Marks on the stack where a tuple or a list of entries begins."""


class _Name(str):
    """A name from `_NAMES`; it is kept as text, and nothing is imported."""


class _Bytes:
    """The dtype of an array of unsigned bytes."""


class _Array:
    """An array; its pixels are None until its state is read."""

    pixels: NDArray[np.uint8] | None = None


def read_batch(data: bytes) -> dict[str, Any]:
    """The dictionary in a CIFAR file; its values are lists, integers, strings and arrays of unsigned bytes.

    Raises:
        ValueError: for a pickle with anything else in it, or a file that is not a pickle.
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
        raise ValueError(f"it is damaged ({type(error).__name__})") from None  # opcodes that do not fit together
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__.strip('_').lower()}, not the dictionary of a CIFAR file")
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): value.pixels if type(value) is _Array else value
        for key, value in content.items()
    }


def _instructions(data: bytes) -> Iterator[tuple[bytes, Any]]:
    """Each opcode with its argument, up to the final one."""
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
        if start < frame_end < place:  # a frame has complete opcodes, and no other frame
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
    """Apply a name to its arguments, as pickle would call it."""
    name, arguments = _pop(stack, 2)
    if type(name) is not _Name or type(arguments) is not tuple or type(arguments[0]) not in (str, bytes, _Name):
        raise TypeError
    if name in _ARRAY_MAKERS and arguments[0] == "numpy ndarray" and arguments[1:] == ((0,), b"b"):
        stack.append(_Array())
    elif name == "numpy dtype" and arguments[1:] == (False, True):
        if arguments[0] not in (b"u1", "u1"):
            raise ValueError(f"it has an array of {shown(arguments[0])}, where a CIFAR file has unsigned bytes")
        stack.append(_Bytes())
    elif name == "_codecs encode" and arguments[1:] == ("latin1",):  # how Python 3 writes bytes in old protocols
        stack.append(arguments[0].encode("latin1"))
    else:
        raise TypeError


def _fill(stack: list[Any], _: Any) -> None:
    """Set the state of an array or of its dtype."""
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
# Opcodes with a number: protocol, value, index in the memo, or length of a frame.
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
# Opcodes with a string -> format of its length, and its type. Strings of Python 2 are bytes.
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
