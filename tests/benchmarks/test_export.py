"""The benchmark of served generators runs, and gives a row for each."""

import pytest
from tests.benchmarks.scripts import load_script

pytest.importorskip("onnxruntime")
export = load_script("export")


@pytest.mark.slow
def test_every_generator_has_a_size_and_three_times():
    rows = export.measure("dcgan", width=4, batch=2, rounds=1)
    sizes = {name: size for name, size, _ in rows}
    assert list(sizes) == list(export.ROWS)
    assert all(len(seconds) == 3 and min(seconds) > 0 for _, _, seconds in rows)
    assert sizes["cWC, one"] < sizes["cWC, all"]
