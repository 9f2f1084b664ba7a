"""Damage to files, by a seed: what a bad disk, a broken transfer and an attacker do to bytes."""

import random
from typing import Any

_TELLING = (0, 1, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_NUMBERS = (0, -1, 10**18, 1e308, float("nan"), float("inf"))
_OTHER = (*_NUMBERS, None, True, "x", "", "a\nb", "\x1b[2J", "\ud800", [], {}, [1], {"a": 1})


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes after one to four kinds of damage; at times the same bytes."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        chance.choice(_KINDS)(found, chance)
    return bytes(found)


def _place(data: bytearray, chance: random.Random) -> int:
    """Anywhere, but every other time where the header is."""
    return chance.randrange(min(len(data), chance.choice((64, len(data)))) or 1) if data else 0


def _flip(data: bytearray, chance: random.Random) -> None:
    if data:
        data[_place(data, chance)] ^= 1 << chance.randrange(8)


def _overwrite(data: bytearray, chance: random.Random) -> None:
    number, size, order = chance.choice(_TELLING), chance.choice((1, 2, 4)), chance.choice(("big", "little"))
    place = _place(data, chance)
    data[place : place + size] = (number % 256**size).to_bytes(size, order)  # type: ignore[arg-type]


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[_place(data, chance) :]


def _remove(data: bytearray, chance: random.Random) -> None:
    place = _place(data, chance)
    del data[place : place + chance.randrange(1, 64)]


def _repeat(data: bytearray, chance: random.Random) -> None:
    place = _place(data, chance)
    data[place:place] = data[place : place + chance.randrange(1, 256)] * chance.choice((1, 1, 8))


def _insert(data: bytearray, chance: random.Random) -> None:
    place = _place(data, chance)
    data[place:place] = chance.randbytes(chance.randrange(1, 16))


_KINDS = (_flip, _flip, _flip, _overwrite, _overwrite, _cut, _remove, _repeat, _insert)


def with_other_values(parsed: Any, chance: random.Random) -> Any:
    """Parsed JSON in which one to three values, at any depth, have become others of any type; changed in place."""
    for _ in range(chance.randrange(1, 4)):
        place = parsed
        while place:
            key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if isinstance(place[key], dict | list) and place[key] and chance.random() < 0.8:
                place = place[key]
            else:
                place[key] = chance.choice(_OTHER)
                break
    return parsed
