"""What `make tour` prints is true."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent.parent
PICTURE = ROOT / "docs/images/covariance.svg"
SVG = "{http://www.w3.org/2000/svg}"


def run_tour(*arguments: str) -> str:
    command = [sys.executable, "-W", "error", str(ROOT / "examples/tour.py"), *arguments]
    environment = os.environ | {"PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, env=environment).stdout


@pytest.fixture(scope="module")
def output() -> str:
    return run_tour("--steps", "64")


def numbers(pattern: str, text: str) -> list[float]:
    return [float(value) for value in re.findall(pattern, text)]


def test_whitening_decorrelates_what_batch_normalisation_leaves_correlated(output: str) -> None:
    _, standardized, whitened = numbers(r"off the diagonal: ([\d.]+)", output)
    assert standardized > 0.8
    assert whitened < 0.005


def test_heat_map_of_whitened_channels_is_a_diagonal(output: str) -> None:
    rows = output.split("whitening\n")[1].splitlines()[:12]
    for i, row in enumerate(rows):
        assert row[61:].ljust(24) == ("  " * i + "██").ljust(24)


def test_each_class_has_the_covariance_of_its_coloring(output: str) -> None:
    gaps = numbers(r"gap to C C\^T: ([\d.]+)%", output)
    assert len(gaps) == 3
    assert max(gaps) < 5


def test_swap_leaves_the_evaluated_network_as_it_was(output: str) -> None:
    assert output.count("BatchNorm2d becomes") == 2
    (change,) = numbers(r"network computes the same: largest change (\S+)", output)
    assert change < 1e-6


def test_whitened_network_ends_with_the_lower_loss(output: str) -> None:
    rows = re.findall(r"^ +\d+-\d+ +([\d.]+) +([\d.]+)$", output, re.MULTILINE)
    assert len(rows) == 8
    plain, white = map(float, rows[-1])
    assert white < plain


def test_folding_leaves_nothing_of_the_layers_and_the_same_output(output: str) -> None:
    assert output.count("num_batches_tracked -> nothing of its own") == 2
    (change,) = numbers(r"output is the same: largest change (\S+)", output)
    assert change < 1e-5


def test_output_fits_a_terminal_of_a_hundred_columns(output: str) -> None:
    assert max(map(len, output.splitlines())) <= 100


def test_committed_picture_is_what_the_tour_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tour.py", "--picture", str(tmp_path / "drawn.svg")])
    runpy.run_path(str(ROOT / "examples/tour.py"), run_name="__main__")
    drawn, committed = (ElementTree.parse(path).getroot() for path in (tmp_path / "drawn.svg", PICTURE))
    for tag in ("text", "rect"):
        assert len(drawn.findall(SVG + tag)) == len(committed.findall(SVG + tag))
    texts = [[element.text for element in root.findall(SVG + "text")] for root in (drawn, committed)]
    assert texts[0] == texts[1]
    for new, old in zip(colours(drawn), colours(committed), strict=True):
        assert max(abs(a - b) for a, b in zip(new, old, strict=True)) <= 1  # another machine may round otherwise


def colours(picture: ElementTree.Element) -> list[bytes]:
    fills = [element.get("fill", "") for element in picture.findall(SVG + "rect")]
    return [bytes.fromhex(fill[1:]) for fill in fills if fill.startswith("#")]
