"""Presets as lines: every one, in 80 columns, under its tables."""

import os
import subprocess
import sys

import pytest

from wcgan.paper.classifier_presets import CLASSIFIERS
from wcgan.paper.listing import count_to_text, presets_to_lines
from wcgan.paper.presets import PRESETS, preset
from wcgan.paper.tables import ALIASES, TABLES, canonical_name

SCALES = {"k": 1_000, "M": 1_000_000}


def rows_of(lines):
    """Name -> the words after it, of the lines that are of presets."""
    names = sorted((*PRESETS, *ALIASES, *CLASSIFIERS), key=len, reverse=True)
    found = {}
    for line in lines:
        name = next((name for name in names if line.startswith(f"{name} ")), None)
        if name is not None:
            found[name] = line.removeprefix(name).split()
    return found


def group_of(lines, key):
    """The presets of a table, in order."""
    start = next(i for i, line in enumerate(lines) if line.endswith(f"({key})"))
    end = lines.index("", start)
    return [next(iter(rows_of([line]))) for line in lines[start + 1 : end]]


def test_every_preset_has_a_line_of_at_most_80_characters():
    lines = presets_to_lines()
    assert {canonical_name(name) for name in rows_of(lines)} == set(PRESETS) | set(CLASSIFIERS)
    assert max(map(len, lines)) <= 80


def test_a_table_is_listed_with_its_rows_in_order():
    lines = presets_to_lines()
    assert {key: group_of(lines, key) for key in TABLES} == {
        key: [row.preset for row in table.rows] for key, table in TABLES.items()
    }


def test_a_row_is_found_by_either_of_its_names():
    assert list(rows_of(presets_to_lines("tiny-imagenet/cWC SN"))) == ["tiny-imagenet/cWC"]
    assert list(rows_of(presets_to_lines("cifar10/WC SN + ResNet"))) == ["cifar10/WC SN + ResNet", "cifar10/WC"]


def test_a_line_has_iterations_images_and_the_papers_figures():
    rows = rows_of(presets_to_lines())
    assert rows["cifar10/cWC SN + Proj. Discr."] == ["50,000", "16M", "8.97±0.11", "16.0", "13.5"]
    assert rows["cifar10/cWC SN + Proj. Discr. drop"] == ["31,000", "9.92M", "9.06±0.13", "-", "-"]
    assert rows["cifar100/SN + Proj. Discr."] == ["50,000", "16M", "9.04", "23.2", "-"]
    assert rows["imagenet/cWC_sa SN + Proj. Discr."] == ["450,000", "144M", "34.36±0.67", "-", "-"]
    assert rows["fashion-mnist/cWC"] == ["20,000", "6.4M", "-", "-", "6.2"]
    assert rows["digits/cWC"] == ["1,500", "48k", "-", "-", "-"]
    assert rows["cifar10/ResNet-32 WC"] == ["64,000", "8.192M", "7.00"]
    assert rows["digits/ResNet-8 DBN"] == ["200", "12.8k", "-"]


def test_the_images_of_a_line_are_exact():
    for name, (_, text, *_) in rows_of(presets_to_lines()).items():
        if name not in CLASSIFIERS:
            train = preset(name).train
            assert round(float(text[:-1]) * SCALES[text[-1]]) == train.iterations * train.critic_steps * train.batch


def test_columns_stand_under_their_names():
    lines = presets_to_lines("cifar100/cWC SN + Proj. Discr.")
    head, line = lines[0], next(line for line in lines if line.startswith("cifar100/cWC SN + Proj. Discr.  "))
    values = {"iterations": "50,000", "images": "16M", "IS": "9.52±0.07", "FID 5k": "20.5", "FID 10k": "17.2"}
    for name, value in values.items():
        assert head.index(name) + len(name) == line.index(value) + len(value)


def test_the_error_of_a_classifier_stands_under_its_name():
    lines = presets_to_lines("ResNet-56 DBN")
    (line,) = (line for line in lines if line.startswith("cifar10"))
    for name, value in {"iterations": "64,000", "images": "8.192M", "error": "6.49"}.items():
        assert lines[0].index(name) + len(name) == line.index(value) + len(value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("fashion", [row.preset for row in TABLES["mnist"].rows]),  # of the table's title
        ("FASHION-mnist/c", ["fashion-mnist/cBN", "fashion-mnist/cWC"]),
        ("ablation-wc", [row.preset for row in TABLES["ablation-WC"].rows]),
        ("drop", ["cifar10/cWC SN + Proj. Discr. drop"]),
        ("resnet-", list(CLASSIFIERS)),
    ],
)
def test_a_text_chooses_by_name_or_table_whatever_its_case(text, names):
    assert list(rows_of(presets_to_lines(text))) == names


def test_a_text_that_no_preset_has_is_said():
    with pytest.raises(ValueError, match=r"no preset has 'resnext' in its name or its table's; `wcgan presets` lists"):
        presets_to_lines("resnext")


@pytest.mark.parametrize(("count", "text"), [(999_000, "999k"), (1_000_000, "1M"), (1_234_567, "1.234567M")])
def test_counts_are_written_in_full(count, text):
    assert count_to_text(count) == text


def test_the_command_prints_these_lines_whole_into_a_pipe():
    command = [sys.executable, "-m", "wcgan", "presets", "cWC_sa"]
    environment = {**os.environ, "COLUMNS": "40", "PYTHONIOENCODING": "utf-8"}
    result = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, timeout=120)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == presets_to_lines("cWC_sa")


def test_the_command_says_in_one_sentence_that_there_is_none(command):
    code, out, err = command("presets", "resnext")
    assert (code, out) == (2, "")
    assert err.startswith("wcgan: no preset has 'resnext'")
    assert err.count("\n") == 1
