"""The command line: parses and calls."""

import sys
from importlib import import_module
from typing import NoReturn

from wcgan.cli.app import app, errors, say

BAD_INPUT = 2
for _commands in ("training", "measuring", "serving"):  # in the order in which they are listed
    import_module(f"wcgan.cli.{_commands}")


def main() -> NoReturn:
    """Runs a command; what a user can mend is one sentence and exit code 2."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        if isinstance(error, ImportError) and "wcgan[" not in str(error):  # not a missing extra: a bug
            raise
        say(f"wcgan: {_sentence(error)}", errors)
        sys.exit(BAD_INPUT)
    sys.exit(0)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:  # from the system: a path, and what is wrong with it
        return f"{error.filename or 'a file'} cannot be used: {error.strerror.lower()}"
    return str(error)
