"""What all commands share: help, completion, lists, versions and how errors are shown."""

import inspect
import logging
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import get_args

import pytest

import wcgan
from wcgan import cli
from wcgan.paper.presets import PRESETS
from wcgan.paper.tables import ALIASES


def commands(group, *before):
    """Every command below a group, with the words that are typed before its options."""
    for name, found in group.commands.items():
        yield (*before, name), found
        if hasattr(found, "commands"):
            yield from commands(found, *before, name)


def test_presets_lists_every_preset_and_writes_nothing(command, place):
    code, out, _ = command("presets")
    assert code == 0
    other = {name: alias for alias, name in ALIASES.items()}  # a table's row may have the shorter name
    assert [name for name in PRESETS if name not in out and other.get(name, name) not in out] == []
    assert "450,000" in out
    assert list(place.iterdir()) == []


def test_datasets_says_what_is_here_and_how_to_get_the_rest(command, place):
    code, out, _ = command("datasets")
    assert code == 0
    state = {line.split()[0]: line.split()[1] for line in out.splitlines() if not line.startswith(" ")}
    assert state["digits"] == "here"
    assert state["mnist"] == state["imagenet"] == "missing"
    assert str(place.parent / "data" / "mnist") in out
    assert list(place.iterdir()) == []


def test_warnings_of_other_libraries_are_not_shown_and_ours_are(monkeypatch):
    monkeypatch.setattr(sys, "warnoptions", [])
    for name in ("torch._inductor", "torch._dynamo", "torch._functorch"):
        monkeypatch.setattr(logging.getLogger(name), "level", logging.WARNING)
    with warnings.catch_warnings(record=True) as shown:
        cli.quiet_libraries()
        for module in ("torch.nn", "wcgan.kernels.cholesky", "wcgan.train.gan"):
            warnings.warn_explicit(f"from {module}", UserWarning, "file.py", 1, module)
    assert [str(warning.message) for warning in shown] == ["from wcgan.kernels.cholesky"]
    assert not logging.getLogger("torch._inductor").isEnabledFor(logging.WARNING)


def test_a_bug_is_not_hidden(monkeypatch):
    from wcgan.paper import presets

    def fail(*arguments):
        raise RuntimeError("a bug")

    monkeypatch.setattr(sys, "argv", ["wcgan", "train"])
    monkeypatch.setattr(presets, "configure", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main()


def test_the_version_is_printed(command):
    assert command("--version") == (0, f"wcgan {wcgan.__version__}\n", "")


def test_help_explains_every_option_of_every_command(command):
    from typer.main import get_command

    found = dict(commands(get_command(cli.app)))
    assert ("study", "create") in found
    for name, each in found.items():
        unexplained = [option.name for option in each.params if not (option.help or "").endswith((".", ")"))]
        assert unexplained == [], name
        assert [option.name for option in each.params if "[" in (option.help or "")] == []  # it would be left out
        code, out, _ = command(*name, "--help")
        assert code == 0
        assert "<bool>" not in out
        assert "<list[" not in out


def test_help_lists_the_commands_in_groups(command):
    code, out, _ = command("--help")
    assert code == 0
    places = [out.index(f"\u2500 {title} ") for title in (cli.TRAIN, cli.USE, cli.MEASURE)]
    panels = (out[begin:end].splitlines()[1:] for begin, end in zip(places, [*places[1:], None], strict=True))
    names = [
        [line.split()[1] for line in panel if line.startswith("\u2502 ") and line[2].isalpha()] for panel in panels
    ]
    assert [" ".join(found) for found in names] == [
        "train classify tune presets datasets",
        "models sample interpolate demo export",
        "evaluate compare reproduce study",
    ]


def test_one_word_stands_for_one_option_in_all_commands(command):
    from typer.main import get_command

    words = {}
    for name, each in commands(get_command(cli.app)):
        for option in each.params:
            if option.param_type_name == "option" and option.name != "help" and not hasattr(each, "commands"):
                annotation = get_args(inspect.signature(each.callback).parameters[option.name].annotation)[0]
                kinds = {str if kind is Path else kind for kind in get_args(annotation) or [annotation]} - {type(None)}
                words.setdefault(max(option.opts, key=len), {})[name] = frozenset(kinds)
    assert {word: kinds for word, kinds in words.items() if len(set(kinds.values())) > 1} == {}
    assert [names for names in ("--dataset", "--reference", "--count", "--label") if names in words] == []


@pytest.mark.parametrize(("shell", "file"), [("bash", ".bash_completions/wcgan.sh"), ("zsh", ".zfunc/_wcgan")])
def test_completion_is_installed_for_the_users_shell(place, shell, file):
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    code = "import sys; sys.argv[0] = 'wcgan'; from wcgan.cli import main; main()"
    environment = os.environ | {"HOME": str(place), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    arguments = [sys.executable, "-c", code]
    done = subprocess.run(
        [*arguments, "--install-completion", shell], env=environment, capture_output=True, text=True, check=True
    )
    assert f"{shell} completion installed" in done.stdout
    assert "_WCGAN_COMPLETE" in (place / file).read_text()


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("wcgan inter", ["interpolate"]),
        ("wcgan sample digits", ["digits-cWC_sa"]),
        ("wcgan train digits/cWC_", ["digits/cWC_sa", "digits/cWC_sa-cls-only"]),
        ("wcgan sample --trunc", ["--truncation"]),
        ("wcgan reproduce table1", ["table1", "table10", "table11", "table12", "table13"]),
        ("wcgan reproduce ablation-W", ["ablation-WC"]),
        ("wcgan export --format tor", ["torch-export"]),
    ],
)
def test_what_is_typed_is_completed(monkeypatch, capsys, typed, words):
    monkeypatch.setenv("_WCGAN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    monkeypatch.setattr(sys, "argv", ["wcgan"])
    with pytest.raises(SystemExit):
        cli.main()
    assert sorted(capsys.readouterr().out.split()) == words
