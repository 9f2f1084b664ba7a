"""`wcgan export`: what it prints, and one sentence with exit code 2 for what a user can mend."""

import pytest


def test_it_says_where_how_large_and_how_exact(command, plain_run, tmp_path):
    code, out, _ = command("export", plain_run.folder, "--format", "torch-export", "--out", tmp_path / "out")
    assert code == 0
    first, size, check = out.splitlines()
    assert first == f"torch-export: {tmp_path / 'out'}"
    assert size == f"generator.pt2: {(tmp_path / 'out' / 'generator.pt2').stat().st_size:,} bytes"
    assert check.startswith("checked: largest difference ")


def test_a_generator_of_the_package_is_exported_by_its_name(command, tmp_path):
    code, out, _ = command("export", "digits-cWC_sa", "--format", "safetensors", "--out", tmp_path / "out")
    assert code == 0
    assert "checked: largest difference " in out
    code, _, err = command("export", "nobody", "--format", "safetensors", "--out", tmp_path / "none")
    assert code == 2
    assert "nobody is not there" in err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--format", "tflite"), "unknown format 'tflite'"),
        (("--format", "onnx", "--checkpoint", "99"), "has no checkpoint 99"),
        (("--format", "hub", "--classes", "1"), "leave out the class 1"),
    ],
    ids=["format", "checkpoint", "label"],
)
def test_what_cannot_be_done_is_one_sentence(command, plain_run, tmp_path, options, sentence):
    code, out, err = command("export", plain_run.folder, *options, "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    assert err.startswith("wcgan: ")
    assert sentence in err.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_there_is_not_written_over(command, plain_run, tmp_path):
    (tmp_path / "mine").write_text("mine")
    code, _, err = command("export", plain_run.folder, "--format", "safetensors", "--out", tmp_path)
    assert code == 2
    assert "exists already" in err


def test_a_name_of_a_file_is_refused_before_a_folder_of_that_name_is_made(command, plain_run, tmp_path):
    code, _, err = command("export", plain_run.folder, "--format", "onnx", "--out", tmp_path / "model.onnx")
    assert code == 2
    assert "an export is a folder with several files: name one without .onnx" in err
    assert not (tmp_path / "model.onnx").exists()


def test_several_classes_are_refused_for_the_number_of_them(command, tmp_path):
    code, _, err = command("export", "digits-cWC_sa", "--format=onnx", "--classes=3,4", "--out", tmp_path / "out")
    assert code == 2
    assert "an export keeps one class or all: name one, not '3,4', or leave --classes out" in err
