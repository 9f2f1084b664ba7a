"""The notebooks run from top to bottom, and what they show is what they gave when they were last run."""

import json
import warnings
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parent.parent.parent / "notebooks"


def code_cells(name):
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def run_notebook(name):
    """Runs the code cells in one namespace, as a kernel does -> the namespace."""
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(name)):
        exec(compile("".join(cell["source"]), f"{name}.ipynb, cell {number}", "exec"), namespace)
    return namespace


@pytest.fixture(autouse=True)
def print_options():
    yield
    torch.set_printoptions(profile="default")


def test_the_layer_in_five_minutes_runs(capsys):
    run_notebook("layer")
    printed = capsys.readouterr().out
    shown = "".join("".join(output.get("text", "")) for cell in code_cells("layer") for output in cell["outputs"])
    assert printed.splitlines()[:3] == shown.splitlines()[:3]


@pytest.mark.slow
def test_your_own_pictures_are_served_by_the_end(monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("ITERATIONS", "40")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the ONNX exporter
        namespace = run_notebook("pictures")
    assert namespace["served"].size == (16, 16)


@pytest.mark.parametrize("name", ["layer", "pictures"])
def test_a_notebook_was_run_from_top_to_bottom_without_an_error(name):
    cells = code_cells(name)
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert "error" not in kinds
    assert kinds
