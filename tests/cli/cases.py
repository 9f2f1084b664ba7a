"""What tests of the commands share."""

from pathlib import Path

import numpy as np
from tests.data.cases import save


def everything(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in Path(folder).rglob("*")}


def assert_refused(result, *parts):
    code, out, err = result
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    assert err.startswith("wcgan: ")
    assert err.count("\n") == 1
    assert [part for part in parts if part not in err] == []


def images_of(folder, *shapes, classes=2):
    for number, (height, width) in enumerate(shapes):
        image = np.random.default_rng(number).integers(0, 256, (3, height, width), np.uint8)
        name = f"class {number % classes}" if classes else "."
        save(folder / name / f"{number}.png", image)
    return folder
