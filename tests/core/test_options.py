"""Messages name options on the command line, and arguments in Python."""

import inspect
import re
from pathlib import Path

import pytest
from typer.main import get_command

import wcgan
from wcgan.cli import app
from wcgan.core.options import SETTINGS, naming_arguments, options_to_arguments
from wcgan.core.terminal import announce
from wcgan.runs.config import Config, change

OPTIONS = [name for each in get_command(app).commands["train"].params for name in each.opts if name.startswith("--")]


@pytest.mark.parametrize("option", sorted(set(OPTIONS) - {"--help", "--dry-run"}))
def test_every_option_of_train_has_an_argument_or_a_setting_of_fit(option):
    said = options_to_arguments(f"give {option} or not")
    assert "--" not in said
    if found := re.fullmatch(r'give settings={"(.+)": (\.\.\.|True)} or not', said):
        section, _, field = found[1].partition(".")
        assert hasattr(getattr(Config(), section), field)
        assert SETTINGS.get(option[2:], found[1]) == found[1]
    else:
        argument = re.fullmatch(r"give (\w+)(=True)? or not", said)[1]
        assert argument in inspect.signature(wcgan.fit).parameters


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("train without it by --set train.compile=no", 'train without it by settings={"train.compile": "no"}'),
        ("another --out (--from runs/a starts it)", 'another out (origin="runs/a" starts it)'),
        ("weights by --inception-weights FILE", "weights by inception_weights=FILE"),
        ("or use --features classifier", 'or use settings={"train.evaluate_with": "classifier"}'),
        ("--outer and --format hub", "--outer and --format hub"),
        ("`wcgan x --data a`: --data", "`wcgan x --data a`: data"),
    ],
)
def test_values_become_those_of_python_and_other_text_stays(text, said):
    assert options_to_arguments(text) == said


def test_announcements_name_arguments_within_the_block_and_options_after_it(capsys):
    with naming_arguments():
        announce("see --resume")
    announce("see --resume")
    assert capsys.readouterr().err == "see resume=True\nsee --resume\n"


def test_an_error_keeps_its_type_and_numbers():
    with pytest.raises(FileNotFoundError) as caught, naming_arguments():
        Path("--data").read_bytes()
    assert caught.value.errno == 2
    assert "--data" in str(caught.value)


def test_errors_of_others_stay_as_they_are():
    with pytest.raises(ValueError, match="mine has --out"), naming_arguments():
        raise ValueError("mine has --out")
    with pytest.raises(ValueError, match="a setting is section"), naming_arguments():
        change(Config(), settings=["train"])
