"""Tensors on disk and their fingerprint."""

import hashlib
from pathlib import Path

import pytest
import torch

from wcgan.core.tensor_files import fingerprint, load_cached, save_cached


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.bool])
def test_tensors_of_any_kind_and_shape_are_cached(tmp_path: Path, kind: torch.dtype) -> None:
    tensors = {str(shape): torch.ones(shape).to(kind) for shape in ((), (0,), (2, 3), (1, 2, 2, 2))}
    save_cached("classifiers", "a", tensors, {"images": 3}, tmp_path)
    found, facts = load_cached("classifiers", "a", tmp_path) or pytest.fail("it is not there")
    assert facts["images"] == 3
    assert {name: value.tolist() for name, value in found.items()} == {k: v.tolist() for k, v in tensors.items()}


def test_a_fingerprint_is_the_hash_of_names_kinds_shapes_and_values() -> None:
    value = torch.arange(24.0).view(1, 2, 3, 4).to(memory_format=torch.channels_last)
    expected = hashlib.sha256(b"a torch.float32 (1, 2, 3, 4)\n" + value.contiguous().numpy().tobytes())
    assert fingerprint({"a": value}) == expected.hexdigest()[:12]
