"""Damaged studies: each is read as it says, or refused with a sentence that names the file."""

import random
import shutil
from dataclasses import MISSING, asdict, fields

import pytest
import yaml
from tests.attack.tally import quick_and_long, require_named
from tests.mutations import mutated
from tests.web.study.cases import make_study, open_store

from wcgan.web.study import Study, read_study, write_study_report
from wcgan.web.study.config import new_token, picture_file, study_to_trials, token_to_id

counts = quick_and_long(200, 4_000)

DEFAULTS = {field.name: field.default for field in fields(Study) if field.default is not MISSING}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A study with votes."""
    folder = make_study(tmp_path_factory.mktemp("fuzz"))
    study, store = read_study(folder), open_store(folder)
    for _ in range(3):
        token = new_token()
        store.join(token_to_id(token), 10, consented=True)
        for trial in study_to_trials(study, token):
            store.vote(token_to_id(token), trial, "1" if trial.first == "a" else "2")
    store.database.close()
    return folder


@counts
def test_study_files(original, attack, cases):
    """What is read is what PyYAML finds in the file."""
    file, chance, taken = original / "study.yaml", random.Random(0), 0
    content = file.read_bytes()
    try:
        for _ in range(cases):
            file.write_bytes(mutated(content, chance))
            with attack.case():
                try:
                    study = read_study(original)
                except ValueError as error:  # anything else is a bug
                    require_named(error, original)
                    continue
                taken += 1
                expected = yaml.safe_load(file.read_text(encoding="utf-8"))
                expected["pairs"] = [{"check": False} | pair for pair in expected["pairs"]]
                assert asdict(study) | {"pairs": [asdict(pair) for pair in study.pairs]} == DEFAULTS | expected
    finally:
        file.write_bytes(content)
    assert 0 < taken < cases


@counts
def test_pictures(original, attack, cases):
    """A picture is used while it begins as a PNG does."""
    file, chance, seen = picture_file(original, read_study(original).pairs[0].a), random.Random(1), set()
    content = file.read_bytes()
    try:
        for _ in range(cases):
            data = mutated(content, chance)
            file.write_bytes(data)
            whole = len(data) >= 24 and data[:8] == content[:8] and data[12:16] == b"IHDR"
            with attack.case():
                try:
                    read_study(original)
                    used = True
                except ValueError as error:
                    used = False
                    require_named(error, file.name)
                assert used == whole
                seen.add(used)
    finally:
        file.write_bytes(content)
    assert seen == {True, False}


@counts
def test_databases(original, tmp_path, attack, cases):
    """A damaged file of votes gives a report or a sentence."""
    chance, refused = random.Random(2), 0
    content = (original / "votes.sqlite").read_bytes()
    folder = tmp_path / "study"
    shutil.copytree(original, folder)
    for _ in range(cases // 4):
        for left in folder.glob("votes.sqlite-*"):
            left.unlink()
        (folder / "votes.sqlite").write_bytes(mutated(content, chance))
        with attack.case():
            try:
                write_study_report(folder, most_failed=2)
            except ValueError:  # anything else is a bug
                refused += 1
    assert 0 < refused < cases // 4
