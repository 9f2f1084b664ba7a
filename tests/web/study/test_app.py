"""The server as a participant meets it, and as somebody meets it who means no good."""

import re
import socket
import time
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.web.study.cases import Client, make_study, open_store, serving

from wcgan.web.study import app, read_study
from wcgan.web.study.config import new_token, study_to_trials, token_to_id


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("app"), most_participants=60)


@pytest.fixture(scope="module")
def study(folder):
    return read_study(folder)


@pytest.fixture(scope="module")
def address(folder):
    with serving(folder) as found:
        yield found


@pytest.fixture
def client(address):
    opened = Client(address)
    yield opened
    opened.close()


@pytest.fixture
def path(client, study):
    """The page of somebody who has just joined."""
    return client.post(f"/join/{study.join}").to


def assert_refused(answer, status, *parts):
    assert answer.status == status
    assert "Traceback" not in answer.text
    assert re.fullmatch(r"[A-Z].+\.", answer.sentence)
    assert [part for part in parts if part not in answer.sentence] == []


def test_joining_shows_the_consent_text_and_makes_nobody_before_the_button_is_pressed(client, study, folder):
    before = len(open_store(folder).participants())
    page = client.get(f"/join/{study.join}")
    assert page.status == 200
    assert "Taking part is voluntary" in page.text
    assert len(open_store(folder).participants()) == before
    assert re.fullmatch(r"/p/[\w-]{32}", client.post(f"/join/{study.join}").to)
    assert len(open_store(folder).participants()) == before + 1


def test_every_pair_is_shown_once_with_progress_and_then_thanks(client, study, path):
    total, seen = len(study.pairs), []
    for number in range(1, total + 1):
        page = client.get(path)
        assert (page.status, page.number) == (200, number)
        assert f"Pair {number} of {total}" in page.text
        assert f'<progress max="{total}" value="{number - 1}"' in page.text
        seen += page.pictures
        assert client.post(path, number=number, choice=1).status == 303
    assert sorted(seen) == sorted(f"/image/{name}.png" for pair in study.pairs for name in (pair.a, pair.b))
    assert "Thank you" in client.get(path).text


def test_a_vote_is_for_the_side_behind_the_picture_that_was_chosen(client, study, path, folder):
    expected = []
    for number, choice in enumerate("1221", 1):
        chosen = client.get(path).pictures[int(choice) - 1].removeprefix("/image/").removesuffix(".png")
        place, side = next(
            (place, side) for place, pair in enumerate(study.pairs) for side in "ab" if getattr(pair, side) == chosen
        )
        expected.append((place, side, number, choice))
        client.post(path, number=number, choice=choice)
    own = [v for v in open_store(folder).votes() if v.participant == token_to_id(path.removeprefix("/p/"))]
    assert [(v.pair, v.side, v.number, v.choice) for v in own] == expected


def test_a_second_vote_for_a_pair_changes_nothing_and_shows_the_next_pair(client, path, folder):
    first = client.post(path, number=1, choice=1)
    again = client.post(path, number=1, choice=2)
    assert (first.status, again.status, again.to) == (303, 303, path)
    own = [v.choice for v in open_store(folder).votes() if v.participant == token_to_id(path.removeprefix("/p/"))]
    assert own == ["1"]
    assert client.get(path).number == 2


def test_a_pair_that_is_not_due_yet_is_refused(client, path):
    assert_refused(client.post(path, number=3, choice=1), 409, "Pair 1 comes first")


BAD_VOTES = [
    {},
    {"number": 1},
    {"number": 1, "choice": 3},
    {"number": 1, "choice": "a"},
    {"number": 0, "choice": 1},
    {"number": 7, "choice": 1},
    {"number": "1e0", "choice": 1},
    {"number": "' OR 1=1 --", "choice": 1},
    {"number": "9" * 500, "choice": 1},
]


def test_a_bad_vote_is_a_sentence_and_is_not_stored(client, path, folder):
    for fields in BAD_VOTES:
        assert_refused(client.post(path, **fields), 400)
    assert token_to_id(path.removeprefix("/p/")) not in {vote.participant for vote in open_store(folder).votes()}


def test_what_is_not_a_form_is_refused(client, path):
    for body in (b"\xff\xfe\xfd", b"a=1&" * 20):
        assert_refused(client.ask("POST", path, body), 400, "not a form")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused(client, path, chunked):
    body = b"x" * (app.MOST_BODY + 1)
    answer = client.ask("POST", path, iter([body]) if chunked else body)
    assert_refused(answer, 413, str(app.MOST_BODY))


def test_a_body_that_never_comes_is_given_up(address, path, monkeypatch):
    monkeypatch.setattr(app, "SLOWEST_BODY", 0.3)
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\nnumber=1".encode())
        began = time.monotonic()
        assert b" 408 " in connection.recv(100)
    assert time.monotonic() - began < 5


def test_other_methods_are_refused(client, path):
    for method in ("PUT", "DELETE", "PATCH"):
        assert_refused(client.ask(method, path), 405)


NOT_SERVED = [
    "/",
    "/docs",
    "/openapi.json",
    "/study.yaml",
    "/votes.sqlite",
    "/image/study.png",
    "/image/../study.yaml",
    "/image/..%2fstudy.yaml",
    "/image/..%2f..%2fstudy.yaml%00.png",
    "/image/%2e%2e/study.yaml",
    "/image/%2fetc%2fpasswd.png",
    "/image//etc/passwd",
    "/image/" + "a" * 32 + ".png",
    "/image/" + "a" * 9000 + ".png",
    "/images/",
    "/join/",
    "/join/wrong",
    "/join/%E2%82%AC",
    "/p/",
    "/p/wrong",
    "/p/" + "A" * 32,
    "/p/%00",
    "/p/" + "A" * 5000,
]


def test_nothing_but_the_study_is_served(client):
    for wanted in NOT_SERVED:
        assert_refused(client.get(wanted), 404)
        assert client.post(wanted).status in (404, 405), wanted


def test_a_vote_by_nobody_is_refused(client):
    assert_refused(client.post(f"/p/{new_token()}", number=1, choice=1), 404, "This link is not known")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS"]),
    start=st.sampled_from(["/", "/p/", "/p/{own}/", "/join/", "/join/{key}", "/image/", "{own}"]),
    rest=st.binary(max_size=40),
    body=st.binary(max_size=2000),
)
def test_whatever_is_sent_is_answered_with_a_page_and_never_an_error_of_the_server(
    client, path, study, method, start, rest, body
):
    wanted = start.format(own=path, key=study.join).replace("//", "/") + quote(rest, safe="/")
    answer = client.ask(method, wanted, body)
    assert answer.status in (200, 303, 400, 403, 404, 405, 413)
    assert "Traceback" not in answer.text


def test_what_is_not_http_is_answered_with_400(address):
    host, port = address.removeprefix("http://").split(":")
    for sent in (b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(sent)
            assert b" 400 " in connection.recv(1000)


def test_nobody_can_join_once_the_places_are_taken(tmp_path):
    with serving(make_study(tmp_path, most_participants=2)) as address:
        client = Client(address)
        join = f"/join/{read_study(tmp_path / 'study').join}"
        assert [client.post(join).status for _ in range(2)] == [303, 303]
        assert_refused(client.post(join), 403, "all 2 places")
        client.close()


def test_a_link_made_beforehand_asks_for_consent_before_anything_else(tmp_path):
    folder, token = make_study(tmp_path), new_token()
    open_store(folder).join(token_to_id(token), 10, consented=False)
    with serving(folder, open_to_all=False) as address:
        client, path = Client(address), f"/p/{token}"
        assert "I agree" in client.get(path).text
        assert_refused(client.post(path, number=1, choice=1), 403, "Agree")
        assert client.post(f"{path}/consent").to == path
        assert client.get(path).number == 1
        assert_refused(client.get(f"/join/{read_study(folder).join}"), 404)
        client.close()
    assert open_store(folder).votes() == []


def test_a_participant_goes_on_where_they_left_off_on_another_server(tmp_path):
    folder = make_study(tmp_path)
    with serving(folder) as address:
        client = Client(address)
        path = client.post(f"/join/{read_study(folder).join}").to
        for number in (1, 2):
            client.post(path, number=number, choice=2)
        due = client.get(path)
        client.close()
    with serving(folder) as address:
        client = Client(address)
        again = client.get(path)
        client.close()
    assert (again.number, again.pictures) == (3, due.pictures)


def test_pages_are_not_kept_and_send_no_address_on(client, path):
    page = client.get(path)
    headers = {name.lower(): value for name, value in page.headers.items()}
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "set-cookie" not in headers
    assert re.findall(r'(?:src|href|action)="(?!/[a-z]|data:,")', page.text) == []


def test_without_a_database_the_answer_is_a_sentence(tmp_path):
    folder = make_study(tmp_path)
    with serving(folder) as address:
        client = Client(address)
        path = client.post(f"/join/{read_study(folder).join}").to
        other = open_store(folder).database
        other.run(("DROP TABLE study_votes", ()))
        other.close()
        assert_refused(client.post(path, number=1, choice=1), 503, "try again")
        client.close()


def test_the_order_is_each_participants_own_and_the_same_every_time(study):
    tokens = [new_token() for _ in range(50)]
    plans = [study_to_trials(study, token) for token in tokens]
    assert plans == [study_to_trials(study, token) for token in tokens]
    assert len({tuple(trial.pair for trial in plan) for plan in plans}) > 40
    for plan in plans:
        assert sorted(trial.pair for trial in plan) == list(range(len(study.pairs)))
        assert [trial.number for trial in plan] == list(range(1, len(plan) + 1))
