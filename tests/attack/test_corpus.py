"""The inputs that fuzzing kept, and what counts as a finding."""

import sys
from pathlib import Path

import pytest
from tests.attack.fuzz import CORPUS, LOADERS, may_refuse, memory_folder, start_atheris


@pytest.mark.parametrize("name", LOADERS)
def test_every_input_of_the_corpus_is_read_or_refused(name, attack):
    with memory_folder() as folder:
        load = LOADERS[name].prepare(Path(folder))
        for file in sorted((CORPUS / name).iterdir()):
            with attack.case():
                load(file.read_bytes())


def test_a_refusal_is_one_short_sentence_that_names_its_file():
    with may_refuse("a.yaml"):
        raise ValueError("a.yaml has no fields")
    for wrong in (ValueError("no fields"), ValueError("a.yaml\nno fields"), OSError("a.yaml" * 1000)):
        with pytest.raises(AssertionError), may_refuse("a.yaml"):
            raise wrong
    with pytest.raises(KeyError), may_refuse("a.yaml"):
        raise KeyError("a.yaml")


def test_without_atheris_a_sentence_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "atheris", None)
    with pytest.raises(SystemExit, match="pip install atheris"):
        start_atheris("config", tmp_path, [])
