"""What the commands share: the application, its console, and arguments of one meaning."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wcgan._version import __version__

try:
    import typer
    from rich.console import Console

    from wcgan.core.terminal import printable_lines
except ImportError:
    sys.exit("the command line needs more packages than the layers do: pip install 'wcgan[train]'")

if TYPE_CHECKING:
    from wcgan.train.loop import Outcome

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
out, errors = Console(), Console(stderr=True)

Settings = Annotated[list[str] | None, typer.Option("--set", help="section.field=value; may be given several times.")]
RunFolder = Annotated[
    Path | None, typer.Argument(help="The folder of a run, or a shipped generator's name; else that of CIFAR-10.")
]


def _say_version(wanted: bool) -> None:
    if wanted:
        say(f"wcgan {__version__}")
        raise typer.Exit


@app.callback(help="Whitening and coloring GANs.")
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version, and no more.")
    ] = False,
) -> None:
    """What goes before a command."""


def say_end(command: str, outcome: "Outcome", planned: int, folder: Path) -> bool:
    """How a training ended -> whether there is a report to write; one that a signal ended exits with its number."""
    finished = outcome.iteration >= planned
    if outcome.first_process and not finished:
        say(f"stopped at iteration {outcome.iteration}; go on with: wcgan {command} --resume --out {folder}")
    if outcome.stopped_by is not None:
        raise typer.Exit(128 + outcome.stopped_by)
    if outcome.first_process and finished:
        say(f"finished at iteration {outcome.iteration}: {folder}")
    return outcome.first_process


def say(text: str, console: Console = out) -> None:
    """A line as it is, however long, but for characters that would command the terminal."""
    console.print(printable_lines(text), markup=False, highlight=False, emoji=False, soft_wrap=True)


def words(text: str) -> list[str]:
    """What stands between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]
