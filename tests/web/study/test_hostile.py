"""Studies from somebody who means no good."""

import os
import sqlite3
from pathlib import Path

import pytest
import yaml
from tests.web.study.cases import Client, make_study, open_store, serving

from wcgan.web.study import read_study, write_study_report
from wcgan.web.study.config import picture_file
from wcgan.web.study.server import serve_study

SECRET = "-----BEGIN PRIVATE KEY-----"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "secret").write_text(SECRET)
    return make_study(tmp_path)


@pytest.fixture
def picture(folder):
    """One of the study's, that may be replaced by something else."""
    return picture_file(folder, read_study(folder).pairs[0].b)


def replace_by_link(picture, folder):
    picture.unlink()
    picture.symlink_to(folder.parent / "secret")


def replace_by_link_to_png(picture, folder):
    """Of the right kind, and not in the folder."""
    picture.rename(folder.parent / "elsewhere.png")
    picture.symlink_to(folder.parent / "elsewhere.png")


def replace_folder_by_link(picture, folder):
    (folder / "images").rename(folder.parent / "elsewhere")
    (folder / "images").symlink_to(folder.parent / "elsewhere")


def replace_by_pipe(picture, folder):
    picture.unlink()
    os.mkfifo(picture)


def replace_by_zeros(picture, folder):
    picture.unlink()
    picture.symlink_to("/dev/zero")


def replace_by_folder(picture, folder):
    picture.unlink()
    picture.mkdir()


def replace_by_a_huge_file(picture, folder):
    os.truncate(picture, 1 << 40)


REPLACED = [
    replace_by_link,
    replace_by_link_to_png,
    replace_folder_by_link,
    replace_by_pipe,
    replace_by_zeros,
    replace_by_folder,
    replace_by_a_huge_file,
]


@pytest.mark.parametrize("replace", REPLACED)
def test_what_is_not_in_the_folder_is_refused_before_it_is_served(folder, picture, replace):
    replace(picture, folder)
    with pytest.raises(
        ValueError, match=rf"{picture.name} cannot be used: |/images/\w+\.png cannot be used: "
    ) as refusal:
        read_study(folder)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("replace", REPLACED)
def test_what_is_put_there_later_is_not_served(folder, picture, replace):
    with serving(folder) as address:
        client = Client(address)
        assert client.get(f"/image/{picture.name}").status == 200
        replace(picture, folder)
        answer = client.get(f"/image/{picture.name}")
        client.close()
    assert answer.status == 404
    assert SECRET not in answer.text


def test_a_picture_that_is_no_png_is_refused(folder, picture):
    picture.write_text(SECRET)
    with pytest.raises(ValueError, match="cannot be used: it is not a PNG"):
        read_study(folder)


def test_a_study_that_is_a_link_or_a_pipe_is_refused(folder):
    file = folder / "study.yaml"
    file.rename(folder / "aside.yaml")
    file.symlink_to("aside.yaml")
    with pytest.raises(ValueError, match=r"study\.yaml: it is a link, not a file"):
        read_study(folder)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ValueError, match=r"study\.yaml: it is a named pipe, not a file"):
        read_study(folder)


def change(folder, **changed):
    file = folder / "study.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | changed))


HOSTILE = {
    "a billion": ("a: &a [x, x]\nb: &b [*a, *a]\n", "it has an alias"),
    "depth": ("[" * 100_000, "nested more than 32 deep"),
    "a tag": ("!!python/object/apply:os.system [true]", "it has a tag"),
    "length": ("#" * 2_000_000, "2,000,000 bytes, and at most 1,048,576 are read"),
    "other letters": ("\udcff", "can't decode byte"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_study_file_is_a_sentence(folder, name):
    text, said = HOSTILE[name]
    (folder / "study.yaml").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match=said) as refusal:
        read_study(folder)
    assert "study.yaml" in str(refusal.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"images": 10**400}, r"the number 100000000000\.\.\. of 401 characters is too large"),
        ({"seed": 10**23}, "too large"),
        ({"most_participants": 10**9}, "from 1 to 100000, got 1000000000"),
        ({"images": float("nan")}, "got nan"),
        ({"a": "x" * 30_000}, r"1 to 20000 characters, got 'xxx"),
        ({"join": "../../etc/passwd/........"}, "join must be 16 to 64 letters"),
        ({"key": "\x1b]0;x\x07" * 4}, r"key must be .* got '\\x1b\]0;x"),
        ({"pairs": [{"label": "x", "a": "a" * 32, "b": "b" * 32}] * 2}, "it has an alias"),
        ({"pairs": [[[[[[]]]]]]}, r"pairs must be a mapping of fields, got \[\[\[\[\[\]"),
        (
            {"pairs": [{"label": "x", "a": "../../secret", "b": "b" * 32}]},
            "must be 32 hexadecimal digits, got '../../secret'",
        ),
        (
            {"pairs": [{"label": "x", "a": "a" * 32, "b": "a" * 32}]},
            "every picture of the pairs must be different, got 'aaa",
        ),
        (
            {"pairs": [{"label": "x", "a": f"{i:032x}", "b": f"{i + 9999:032x}"} for i in range(2)]},
            "every label of the pairs",
        ),
        (
            {"pairs": [{"label": str(i), "a": f"{i:032x}", "b": f"{i + 9999:032x}"} for i in range(1051)]},
            "at most 1050, got 1051",
        ),
    ],
)
def test_a_hostile_field_is_a_short_sentence(folder, changed, said):
    change(folder, **changed)
    with pytest.raises(ValueError, match=said) as refusal:
        read_study(folder)
    assert len(str(refusal.value)) < 400 + len(str(folder))


def test_the_largest_study_that_may_be_is_read(tmp_path):
    """The limits on files leave room for what `create` can make."""
    from wcgan.core.reading import parse_yaml
    from wcgan.web.study.config import MOST_CHECKS, MOST_CLASSES, MOST_TEXT, Pair, Study, study_to_yaml

    pairs = tuple(
        Pair(f"a class with a long name, {i}", f"{i:032x}", f"{i + 9999:032x}", i >= MOST_CLASSES)
        for i in range(MOST_CLASSES + MOST_CHECKS)
    )
    texts = dict.fromkeys(("title", "question", "consent"), "ä" * MOST_TEXT)
    study = Study(key="k" * 32, join="j" * 22, seed=0, a="a", b="b", images=1, pairs=pairs, **texts)
    assert len(parse_yaml(study_to_yaml(study))["pairs"]) == len(pairs)


def test_votes_are_not_written_through_a_link(folder):
    target = folder.parent / "precious.sqlite"
    sqlite3.connect(target).close()
    for name in ("votes.sqlite", "votes.sqlite-wal", "votes.sqlite-journal"):
        (folder / name).symlink_to(target)
        with pytest.raises(ValueError, match=f"{name} is a link, not a file"):
            open_store(folder)
        (folder / name).unlink()
    assert target.read_bytes() == b""


ENDLESS = "CREATE VIEW study_votes AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
TRIGGER = "CREATE TABLE t (a); CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT load_extension('x'); END"


@pytest.mark.parametrize("schema", [ENDLESS, TRIGGER])
def test_a_database_with_code_in_it_is_refused(folder, schema):
    database = sqlite3.connect(folder / "votes.sqlite")
    database.executescript(schema)
    database.close()
    with pytest.raises(ValueError, match="has views or triggers that wcgan did not make"):
        write_study_report(folder)


LOOSE = "CREATE TABLE study_votes (study, participant, pair, side, number, choice, time)"
GOOD_VOTE = ("x", 0, "a", 1, "1", "2020-01-01T00:00:00.000+00:00")


@pytest.mark.parametrize(
    ("vote", "said"),
    [
        (("x", "0", "a", 1, "1", GOOD_VOTE[5]), "a row that is no vote"),
        (("x", 0, "c", 1, "1", GOOD_VOTE[5]), "a row that is no vote"),
        (("x", 0, "a", None, "1", GOOD_VOTE[5]), "a row that is no vote"),
        (("x", 0, "a", 1, "3", GOOD_VOTE[5]), "a row that is no vote"),
        (("x", 0, "a", 1, "1", "yesterday"), "a row that is no vote"),
        (("x", 0, "a", 1, "1", None), "a row that is no vote"),
        (("x", 0, "a", 1, "1", "2020-01-01"), "a row that is no vote"),
        ((b"\xff", 0, "a", 1, "1", GOOD_VOTE[5]), "a row that is no vote"),
        (("x", 99, "a", 1, "1", GOOD_VOTE[5]), "vote on pair 99 that nobody can have cast"),
        (("nobody", 0, "a", 1, "1", GOOD_VOTE[5]), "vote on pair 0 that nobody can have cast"),
    ],
)
def test_votes_that_nobody_cast_are_refused(folder, vote, said):
    key = read_study(folder).key
    database = sqlite3.connect(folder / "votes.sqlite")
    database.executescript(f"{LOOSE}; CREATE TABLE study_participants (study, participant, joined, consented)")
    database.execute("INSERT INTO study_participants VALUES (?, 'x', '', '')", (key,))
    database.execute("INSERT INTO study_votes VALUES (?, ?, ?, ?, ?, ?, ?)", (key, *vote))
    database.commit()
    database.close()
    with pytest.raises(ValueError, match=said):
        write_study_report(folder)


def test_serving_a_hostile_study_ends_in_a_sentence(folder, picture):
    replace_by_link(picture, folder)
    with pytest.raises(ValueError, match="it is a link, not a file"):
        serve_study(Path(folder), port=0, say=lambda line: None)
