"""Names in messages: options of `wcgan train` on the command line, arguments of `wcgan.fit` within it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from traceback import walk_tb

SETTINGS = {
    "resolution": "data.resolution",
    "iterations": "train.iterations",
    "seed": "train.seed",
    "device": "train.device",
    "deterministic": "train.deterministic",
    "evaluate-every": "train.evaluate_every",
}
"""Options that are short for a setting."""
_SETTINGS = SETTINGS | {"strict": "data.strict", "features": "train.evaluate_with"}
_FLAGS = ("resume", "accept-config", "deterministic", "strict")
_ARGUMENTS = {
    **{name: name.replace("-", "_") for name in ("data", "out", "config", "stop-at", "inception-weights", *_FLAGS[:2])},
    "from": "origin",
    "set": "settings",
}
_VALUE = r"\w+\.\w+=\w+|N|SIZE|FILE|FOLDER|classifier|[^\s()']*/[^\s()']+|'[^']*'"  # the last two are paths
# A command in backquotes, which stays; or an option, maybe with a value, maybe before another option.
_COMMAND_OR_OPTION = re.compile(rf"`[^`]*`|--({'|'.join(_ARGUMENTS | _SETTINGS)})\b(?: ({_VALUE}))?( (?=--))?")
_in_python: ContextVar[bool] = ContextVar("in_python", default=False)


def name_options(text: str) -> str:
    """A message as it is to be read here: with options, or within `naming_arguments` with arguments."""
    return options_to_arguments(text) if _in_python.get() else text


def options_to_arguments(text: str) -> str:
    """A message with the arguments of `wcgan.fit` in place of options.

    Example:
        >>> options_to_arguments("name another folder (--out), or resume the run (--resume)")
        'name another folder (out), or resume the run (resume=True)'
        >>> options_to_arguments("choose a size with --resolution SIZE")
        'choose a size with settings={"data.resolution": SIZE}'
        >>> options_to_arguments("--resume --data FOLDER says where they are now")
        'resume=True, data=FOLDER says where they are now'
        >>> options_to_arguments("(--from 'runs/my cats' starts it with these weights)")
        '(origin="runs/my cats" starts it with these weights)'
        >>> options_to_arguments("`wcgan datasets --data x` stays as it is")
        '`wcgan datasets --data x` stays as it is'
    """
    return _COMMAND_OR_OPTION.sub(_to_argument, text)


def _to_argument(found: re.Match[str]) -> str:
    option, value, another = found.groups()
    if option is None:
        return found[0]
    field = _SETTINGS.get(option)
    if option == "set" and value is not None:
        field, _, value = value.partition("=")
    if option in _FLAGS:
        value = "True"
    elif value is not None and not value.isupper():  # a value, not a word for one
        value = '"' + value.strip("'") + '"'
    if field is not None:
        argument = f'settings={{"{field}": {value or "..."}}}'
    else:
        argument = _ARGUMENTS[option] + ("" if value is None else f"={value}")
    return argument + (", " if another else "")


@contextmanager
def naming_arguments() -> Iterator[None]:
    """Within it, announcements and the errors of this package name arguments of `wcgan.fit`, not options."""
    before = _in_python.set(True)
    try:
        yield
    except (ValueError, OSError) as error:
        *_, (innermost, _) = walk_tb(error.__traceback__)
        ours = innermost.f_globals.get("__name__", "").startswith("wcgan.")  # not an error of somebody's callback
        if ours and error.args and isinstance(error.args[0], str):
            error.args = (options_to_arguments(error.args[0]), *error.args[1:])
        raise
    finally:
        _in_python.reset(before)
