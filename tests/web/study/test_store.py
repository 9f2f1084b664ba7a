"""Votes in SQLite and in a real PostgreSQL server."""

import sqlite3
import threading
import time

import pytest
from tests.web.study.cases import Client, Participant, logged, make_study, open_store, serving, stored
from tests.web.study.postgres import PASSWORD

from wcgan.web.study import read_study
from wcgan.web.study.config import Trial
from wcgan.web.study.store import Database, DatabaseError, FullError, Store

TRIAL = Trial(number=1, pair=0, first="b")


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path):
    """A database of each kind."""
    return request.getfixturevalue("postgres") if request.param == "postgresql" else str(tmp_path / "votes.sqlite")


@pytest.fixture
def store(where, request):
    made = Store(Database(where), request.node.name)  # a study of its own for each test
    yield made
    made.database.close()


def at_once(count, work):
    """Runs `work(number)` in so many threads -> what they raised."""
    raised, ready = [], threading.Barrier(count)

    def run(number):
        ready.wait()
        try:
            work(number)
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_a_vote_is_kept_with_its_side_and_place(store):
    store.join("p", 5, consented=True)
    assert store.vote("p", TRIAL, "2")
    (vote,) = store.votes()
    assert (vote.participant, vote.pair, vote.side, vote.number, vote.choice) == ("p", 0, "a", 1, "2")
    assert store.voted("p") == {0}


def test_the_database_refuses_a_second_vote_for_a_pair(store):
    store.join("p", 5, consented=True)
    assert [store.vote("p", TRIAL, choice) for choice in "121"] == [True, False, False]
    assert [vote.choice for vote in store.votes()] == ["1"]
    columns = "study, participant, pair, side, number, choice, time"
    again = f"INSERT INTO study_votes ({columns}) SELECT {columns} FROM study_votes WHERE study = ?"
    with pytest.raises(Exception, match=r"(?i)unique"):
        store.database.run((again, (store.study,)))
    assert len(store.votes()) == 1


def test_one_of_many_votes_at_once_is_kept_from_as_many_connections(where, request, store):
    store.join("p", 5, consented=True)
    others = [Store(Database(where), store.study) for _ in range(8)]
    new = []
    raised = at_once(8, lambda number: new.append(others[number].vote("p", TRIAL, "12"[number % 2])))
    for other in others:
        other.database.close()
    assert raised == []
    assert sorted(new) == [False] * 7 + [True]
    assert len(store.votes()) == 1


def test_threads_share_one_connection_without_a_mishap(store):
    for number in range(8):
        store.join(str(number), 8, consented=True)
    raised = at_once(8, lambda number: [store.vote(str(number), Trial(pair + 1, pair, "a"), "1") for pair in range(30)])
    assert raised == []
    found = sorted((vote.participant, vote.pair) for vote in store.votes())
    assert found == [(str(number), pair) for number in range(8) for pair in range(30)]


def test_no_more_join_than_may_from_several_connections_at_once(where, store):
    others = [Store(Database(where), store.study) for _ in range(8)]
    raised = at_once(8, lambda number: others[number].join(f"p{number}", 3, consented=True))
    for other in others:
        other.database.close()
    assert [type(error) for error in raised] == [FullError] * 5
    assert len(store.participants()) == 3


def test_a_vote_needs_a_participant_and_a_side_that_exist(store):
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        store.vote("nobody", TRIAL, "1")
    assert store.votes() == []
    store.join("p", 5, consented=True)
    assert store.vote("p", TRIAL, "1")


def test_consent_is_given_once_and_nobody_unknown_has_given_it(store):
    store.join("p", 5, consented=False)
    assert (store.has_consented("p"), store.has_consented("q")) == (False, None)
    times = []
    for _ in range(2):
        store.consent("p")
        times += store.database.run(("SELECT consented FROM study_participants WHERE study = ?", (store.study,)))
        time.sleep(0.01)
    assert store.has_consented("p") is True
    assert times[0] == times[1]


def test_studies_in_one_database_do_not_see_each_other(where, store):
    other = Store(Database(where), f"{store.study} too")
    for each in (store, other):
        each.join("p", 1, consented=True)
    store.vote("p", TRIAL, "1")
    assert (other.votes(), other.participants()) == ([], ["p"])
    other.database.close()


def test_what_a_value_holds_is_never_run(store):
    name = "x'); DROP TABLE study_votes; -- ? %s"
    store.join(name, 5, consented=True)
    store.vote(name, TRIAL, "1")
    assert [vote.participant for vote in store.votes()] == [name]


def test_a_whole_study_is_voted_on_in_either_database(where, tmp_path):
    folder = make_study(tmp_path)
    database = where if where.startswith("postgresql") else None
    with serving(folder, database) as address:
        join = f"/join/{read_study(folder).join}"
        people = [Participant(address, join, lambda number: "12"[number % 2], doubled=True) for _ in range(5)]
        assert at_once(5, lambda number: people[number].take_part()) == []
    store = open_store(folder, database)
    assert len(store.votes()) == 5 * len(read_study(folder).pairs)
    assert stored(store) == logged(people)
    store.database.close()


def test_sqlite_keeps_a_log_ahead_and_writes_it_out_before_it_answers(tmp_path):
    database = Database(str(tmp_path / "votes.sqlite"))
    assert database.run(("PRAGMA journal_mode", ())) == [("wal",)]
    assert database.run(("PRAGMA synchronous", ())) == [(2,)]
    database.close()


def test_a_postgresql_server_that_dropped_the_connection_is_asked_again(postgres):
    store = Store(Database(postgres), "dropped")
    other = Database(postgres)
    other.run(("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()", ()))
    other.close()
    store.join("p", 5, consented=True)
    assert store.participants() == ["p"]
    store.database.close()


def test_a_postgresql_table_that_stays_locked_is_a_sentence_before_long(postgres, monkeypatch):
    import psycopg

    monkeypatch.setattr("wcgan.web.study.store.PATIENCE", 1)
    store = Store(Database(postgres), "locked")
    with psycopg.connect(postgres) as holder:
        holder.execute("LOCK TABLE study_participants")
        began = time.monotonic()
        with pytest.raises(DatabaseError, match="timeout"):
            store.join("p", 5, consented=True)
        assert time.monotonic() - began < 10
    store.join("p", 5, consented=True)
    assert store.participants() == ["p"]
    store.database.close()


@pytest.mark.parametrize("change", [("word@", "wrong@"), ("/postgres", "/nowhere"), ("postgresql:", "postgres://x:")])
def test_a_postgresql_database_that_cannot_be_used_is_a_sentence_without_the_password(postgres, change):
    with pytest.raises(DatabaseError) as raised:
        Database(postgres.replace(*change)).run(("SELECT 1", ()))
    assert "cannot be used" in str(raised.value)
    assert [secret for secret in (PASSWORD, "s3cret") if secret in str(raised.value)] == []
    assert "\n" not in str(raised.value)


def test_other_databases_are_refused_without_saying_the_url():
    with pytest.raises(DatabaseError, match=r"postgresql://USER@HOST:PORT/NAME, not as mysql://") as raised:
        Database("mysql://me:s3cret@host/name")
    assert "s3cret" not in str(raised.value)


def test_a_file_that_is_no_database_and_one_that_is_locked_are_sentences(tmp_path, monkeypatch):
    (tmp_path / "text").write_text("no database at all, but long enough to be looked at" * 20)
    with pytest.raises(DatabaseError, match="not a database"):
        Store(Database(str(tmp_path / "text")), "s")
    monkeypatch.setattr("wcgan.web.study.store.PATIENCE", 0.1)
    store = Store(Database(str(tmp_path / "votes.sqlite")), "s")
    holder = sqlite3.connect(tmp_path / "votes.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseError, match="locked"):
        store.join("p", 5, consented=True)
    holder.execute("ROLLBACK")
    holder.close()
    store.join("p", 5, consented=True)
    assert store.participants() == ["p"]
    store.database.close()


def test_a_server_whose_database_went_away_says_so_and_goes_on_when_it_is_back(tmp_path, monkeypatch):
    monkeypatch.setattr("wcgan.web.study.store.PATIENCE", 0.1)
    folder = make_study(tmp_path)
    with serving(folder) as address:
        client = Client(address)
        path = client.post(f"/join/{read_study(folder).join}").to
        holder = sqlite3.connect(folder / "votes.sqlite", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        answer = client.post(path, number=1, choice=1)
        holder.execute("ROLLBACK")
        holder.close()
        assert (answer.status, "try again" in answer.sentence) == (503, True)
        assert client.post(path, number=1, choice=1).status == 303
        client.close()
    assert len(open_store(folder).votes()) == 1
