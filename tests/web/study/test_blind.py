"""Nothing that a participant gets says which side is which, but for the pixels."""

import re
import struct

import pytest
from tests.web.study.cases import Client, make_study, serving, write_side

from wcgan.web.study import create_study, read_study
from wcgan.web.study.config import new_token, picture_file, study_to_trials

MANY = 2000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One side is smooth and grey, the other noise in colour: whatever a file can give away, it would here."""
    place = tmp_path_factory.mktemp("blind")
    a = write_side(place / "smooth", classes=40, channels=1, smooth=True)
    b = write_side(place / "rough", classes=40, channels=3)
    create_study(a, b, place / "study", images=4)
    return place / "study"


@pytest.fixture(scope="module")
def study(folder):
    return read_study(folder)


def names(study):
    return [name for pair in study.pairs for name in (pair.a, pair.b)]


def chunks(content):
    """The kinds and lengths of a PNG's chunks, and its header."""
    found, place = [], 8
    while place < len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        kind = content[place + 4 : place + 8]
        found.append((kind, length, content[place + 8 : place + 8 + length] if kind == b"IHDR" else b""))
        place += 12 + length
    return tuple(found)


def five_sigma(share, count):
    return abs(share - 0.5) < 5 * 0.5 / count**0.5


def test_all_pictures_have_one_size_one_form_and_no_metadata(folder, study):
    contents = [picture_file(folder, name).read_bytes() for name in names(study)]
    forms = {chunks(content) for content in contents}
    assert len(contents) == 2 * (40 + 4)
    assert len(set(contents)) > 80
    assert len(forms) == 1
    assert {kind for kind, _, _ in forms.pop()} == {b"IHDR", b"IDAT", b"IEND"}


def test_names_are_random_and_their_order_is_no_hint(tmp_path, folder, study):
    assert len(set(names(study))) == len(names(study))
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names(study))
    create_study(folder.parent / "smooth", folder.parent / "rough", tmp_path / "again", images=4)
    again = read_study(tmp_path / "again")
    assert [pair.label for pair in again.pairs] == [pair.label for pair in study.pairs]
    assert not set(names(again)) & set(names(study))
    pairs = study.pairs + again.pairs
    assert five_sigma(sum(pair.a < pair.b for pair in pairs) / len(pairs), len(pairs))


def test_each_side_comes_first_half_of_the_time_for_every_pair_and_place(study):
    plans = [study_to_trials(study, new_token()) for _ in range(MANY)]
    for kind in ("pair", "number"):
        first = dict.fromkeys(range(len(study.pairs) + 1), 0)
        for plan in plans:
            for trial in plan:
                first[getattr(trial, kind)] += trial.first == "a"
        shares = [count / MANY for count in first.values() if count]
        assert len(shares) == len(study.pairs)
        assert all(five_sigma(share, MANY) for share in shares)


def test_the_seed_does_not_tell_the_sides_of_another_study_with_the_same_seed(tmp_path, folder, study):
    create_study(folder.parent / "smooth", folder.parent / "rough", tmp_path / "again", images=4)
    token = new_token()
    assert study_to_trials(study, token) != study_to_trials(read_study(tmp_path / "again"), token)


def test_pages_differ_in_nothing_but_number_and_pictures(folder, study):
    with serving(folder) as address:
        client = Client(address)
        shapes, heads = set(), set()
        for _ in range(3):
            path = client.post(f"/join/{study.join}").to
            for number in range(1, 9):
                page = client.get(path)
                for word in (study.a, study.b, study.key, study.join, *{pair.label for pair in study.pairs}):
                    assert word not in page.text
                shape = page.text.replace(path, "").replace(f'value="{number}"', "").replace(f"{number} of", "")
                shapes.add(re.sub(r'/image/[0-9a-f]{32}\.png|value="\d+"', "", shape))
                for picture in page.pictures:
                    headers = {name.lower(): value for name, value in client.get(picture).headers.items()}
                    heads.add(tuple(sorted((name, value) for name, value in headers.items() if name != "date")))
                client.post(path, number=number, choice=1)
        client.close()
    assert len(shapes) == 1
    assert len(heads) == 1
    assert not {"last-modified", "etag"} & set(dict(heads.pop()))


def test_the_page_of_a_check_looks_like_any_other(tmp_path):
    folder = make_study(tmp_path)
    study, shown = read_study(folder), []
    with serving(folder) as address:
        client = Client(address)
        path = client.post(f"/join/{study.join}").to
        for trial in study_to_trials(study, path.removeprefix("/p/")):
            shown.append((trial.pair in study.checks, len(client.get(path).body)))
            client.post(path, number=trial.number, choice=1)
        client.close()
    assert {check for check, _ in shown} == {True, False}
    assert len({size for _, size in shown}) == 1
