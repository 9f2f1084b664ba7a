"""The command line, `wcgan`. A command parses its options, calls the library and prints what came back."""

import logging
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

from wcgan import __version__

try:
    import typer
    from rich.console import Console
    from typer.core import TyperCommand, TyperGroup

    from wcgan.core.terminal import BAD_INPUT, printable_lines
except ImportError:
    sys.exit("the command line needs more packages than the layers do: pip install 'wcgan[train]'")

TRAIN, USE, MEASURE = "Train", "Use a trained generator", "Measure and compare"
"""The groups of `wcgan --help`, a module each."""

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as train.iterations=2000. Repeatable."),
]
CheckpointName = Annotated[str, typer.Option("--checkpoint", help="Checkpoint of a run: last, best or an iteration.")]
InceptionWeights = Annotated[
    Path | None, typer.Option("--inception-weights", help="File with the weights of the Inception network.")
]
Device = Annotated[str, typer.Option("--device", help="Where to compute: auto, cpu, cuda or cuda:N.")]


class _PlainHelp:
    """Help without types that tell a reader nothing: `<bool>` beside a flag, `<list[Path]>` beside an argument."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if param.param_type_name == "argument":
                param.metavar = param.name.upper()
                param.display_type_rich = lambda ctx: None
            elif getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class Command(_PlainHelp, TyperCommand):
    """A command."""


class Group(_PlainHelp, TyperGroup):
    """Several commands under one name."""


app = typer.Typer(cls=Group, no_args_is_help=True, pretty_exceptions_enable=False)
out, errors = Console(), Console(stderr=True)


def main() -> NoReturn:
    """Runs a command. An error that the user can fix is printed as one sentence, with exit code 2."""
    quiet_libraries()
    try:
        app(prog_name="wcgan")
    except (ValueError, OSError, ImportError) as error:
        if isinstance(error, ImportError) and "wcgan[" not in str(error):  # not a missing extra: a bug
            raise
        say(f"wcgan: {_sentence(error)}", errors)
        sys.exit(BAD_INPUT)
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        say("wcgan: not enough memory: ask for fewer images, a smaller train.batch or another --device", errors)
        sys.exit(BAD_INPUT)
    sys.exit(0)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether Python, or PyTorch on a CPU or a GPU, could not allocate memory."""
    said = str(error)
    return isinstance(error, MemoryError) or "can't allocate memory" in said or "out of memory" in said


def quiet_libraries() -> None:
    """Leaves out other libraries' warnings, about which a user can do nothing; `python -W` shows them."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", module=r"wcgan\.(kernels|functional)")
        for name in ("torch._inductor", "torch._dynamo", "torch._functorch"):
            logging.getLogger(name).setLevel(logging.ERROR)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:  # from the system: a path, and what is wrong with it
        return f"{error.filename or 'a file'} cannot be used: {error.strerror.lower()}"
    return str(error)


def say(text: str, console: Console = out) -> None:
    """Prints a line without wrapping it, with control characters escaped."""
    console.print(printable_lines(text), markup=False, highlight=False, emoji=False, soft_wrap=True)


def split_words(text: str) -> list[str]:
    """The words of a comma-separated list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def find_source(name: Path | None) -> Path:
    """What a generator is loaded from, see `wcgan.load`; None for the shipped CIFAR-10 generator."""
    from wcgan.runs import pretrained

    return pretrained.shipped() if name is None else pretrained.find_source(name)


def complete_preset(incomplete: str) -> list[str]:
    """The presets whose names begin like this, for shell completion."""
    from wcgan.paper.presets import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


def complete_source(incomplete: str) -> list[str]:
    """The shipped generators whose names begin like this; otherwise a shell completes paths."""
    from wcgan.runs.pretrained import shipped_generators

    return [name for name in shipped_generators() if name.startswith(incomplete)]


def complete_table(incomplete: str) -> list[str]:
    """The tables whose names or places in the paper begin like this."""
    from wcgan.reproduce.measurements import list_tables

    return [name for key, place, _ in list_tables() for name in (key, place) if name and name.startswith(incomplete)]


def complete_format(incomplete: str) -> list[str]:
    """The formats of `wcgan export` that begin like this."""
    from wcgan.export import FORMATS

    return [name for name in FORMATS if name.startswith(incomplete)]


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"wcgan {__version__}")
        raise typer.Exit


@app.callback(
    help="Whitening and coloring for GANs: train, sample, evaluate, reproduce the paper's tables.",
    epilog="`wcgan COMMAND --help` explains a command.",
)
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the name of a command."""


# Each module adds its commands to `app`; `wcgan --help` lists them in this order.
for _module in ("training", "using", "measuring"):
    import_module(f"wcgan.cli.{_module}")
