"""The command-line reference, made from the help texts when the site is built."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from wcgan.cli import app

PAGE, MARK = "commands.md", "<!-- commands -->"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return markdown.replace(MARK, commands_to_markdown()) if page.file.src_uri == PAGE else markdown


def commands_to_markdown() -> str:
    return "\n".join(line for name, command in leaf_commands() for line in _section(name, command))


def leaf_commands(name: str = "wcgan", command: Any = None) -> Iterator[tuple[str, Any]]:
    """Every command that can be run, with its full name: `wcgan train`, `wcgan study create`."""
    command = command or get_command(app)
    if not hasattr(command, "commands"):
        yield name, command
        return
    for key, child in command.commands.items():
        yield from leaf_commands(f"{name} {key}", child)


def _section(name: str, command: Any) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and each.name != "help"]
    words = [_argument_to_usage(each) for each in arguments]
    words += [f"{each.opts[-1]} {each.name.upper()}" for each in options if each.required]
    yield f"\n## `{name}`\n\n{command.help}\n\n```text\n{' '.join([name, *words, '[OPTIONS]'])}\n```\n"
    if arguments:
        yield "| argument | default | what it is |\n|---|---|---|"
        yield from (f"| `{each.name.upper()}` | {_default(each)} | {_cell(each.help)} |" for each in arguments)
        yield ""
    if options:
        yield "| option | default | what it does |\n|---|---|---|"
        yield from (f"| {_names(each)} | {_default(each)} | {_cell(each.help)} |" for each in options)
        yield ""


def _argument_to_usage(argument: Any) -> str:
    text = argument.name.upper() + (" ..." if argument.nargs == -1 else "")
    return text if argument.required else f"[{text}]"


def _names(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):  # in words
        return _cell(parameter.show_default)
    shown = parameter.default not in (None, "") and not getattr(parameter, "is_flag", False)
    return f"`{parameter.default}`" if shown else ""


def _cell(text: str | None) -> str:
    return (text or "").replace("|", r"\|")
