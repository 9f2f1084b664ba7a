"""Typed configs: frozen dataclasses to plain values and back, and single fields set from text."""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Literal, TypeVar

import yaml

from wcgan.core.reading import parse_yaml
from wcgan.core.terminal import shortened, shown

AnyConfig = TypeVar("AnyConfig")


def config_to_dict(config: Any) -> dict[str, Any]:
    return {
        f.name: config_to_dict(value)
        if dataclasses.is_dataclass(value)
        else list(value)
        if isinstance(value, tuple)
        else dict(value)
        if isinstance(value, Mapping)
        else value
        for f in dataclasses.fields(config)
        for value in [getattr(config, f.name)]
    }


def flattened(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Plain values without their sections: `train.seed` -> 0.

    Example:
        >>> flattened({"train": {"seed": 0}, "preset": "digits"})
        {'train.seed': 0, 'preset': 'digits'}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{path}{key}.")
        else:
            flat[f"{path}{key}"] = value
    return flat


def config_from_dict(values: dict[str, Any], kind: type, path: str = "") -> Any:
    """A config from plain values, each checked against its field's type."""
    if not isinstance(values, dict):
        raise ValueError(f"{path.rstrip('.') or 'the config'} must be a mapping of fields, got {shown(values)}")
    hints = typing.get_type_hints(kind)
    known = [f.name for f in dataclasses.fields(kind)]
    for name in values:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            advice = f": did you mean {path}{near[0]}?" if near else f"; known are {', '.join(path + k for k in known)}"
            raise ValueError(f"unknown field {path}{shortened(str(name))}{advice}")
    for f in dataclasses.fields(kind):
        if f.default is f.default_factory is dataclasses.MISSING and f.name not in values:
            raise ValueError(f"the field {path}{f.name} is missing")
    fields = {name: _typed(value, hints[name], f"{path}{name}") for name, value in values.items()}
    try:
        return kind(**fields)
    except ValueError as error:  # names the field of a section as it stands in the file
        raise ValueError(str(error).replace(f"{kind.__name__}.", path) if path else str(error)) from None


_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    tuple: "a list in brackets",
    dict: "a mapping in braces",
}


def _typed(value: Any, hint: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return config_from_dict(value, typing.cast(type, hint), f"{path}.")
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _typed(value, next(a for a in arguments if a is not type(None)), path)
    if origin is Literal:
        value = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
        if value not in arguments:
            raise ValueError(f"{path} must be one of {', '.join(map(str, arguments))}, got {shown(value)}")
        return value
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_typed(v, arguments[0], path) for v in value)
    wanted = origin or hint
    if wanted is float and isinstance(value, int | str) and not isinstance(value, bool):
        with suppress(ValueError):
            value = float(value)  # YAML takes 1e-4, without a dot, for a string
    if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
        raise ValueError(f"{path} must be {_KINDS.get(wanted, wanted.__name__)}, got {shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path} must be a finite number, got {value}")
    return value


def config_to_yaml(config: Any) -> str:
    return yaml.safe_dump(config_to_dict(config), sort_keys=False)


def override(config: AnyConfig, settings: Sequence[str]) -> AnyConfig:
    """A copy with `section.field=value` settings applied; values are read as YAML."""
    values = config_to_dict(config)
    sections = [name for name, value in values.items() if isinstance(value, dict)]
    for setting in settings:
        key, equals, text = setting.partition("=")
        section, _, name = key.strip().partition(".")
        if not equals or not name:
            raise ValueError(f"a setting is section.field=value, such as train.iterations=1000; got {setting!r}")
        if section not in sections:
            raise ValueError(f"unknown section {section!r} in {setting}; known are {', '.join(sections)}")
        field, _, inner = name.partition(".")
        if inner and isinstance(values[section].get(field), dict):
            raise ValueError(
                f"{section}.{field} is set as a whole: '{section}.{field}={{{shortened(f'{inner}: {text}')}}}'"
            )
        try:
            values[section][name] = parse_yaml(text)
        except ValueError as error:
            raise ValueError(
                f"the value in {shown(setting)} is not YAML: {error} (text with []{{}},: needs quotes)"
            ) from None
    changed: AnyConfig = config_from_dict(values, type(config))
    return changed
