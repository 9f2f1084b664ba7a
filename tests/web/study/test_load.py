"""Many participants at once, the server killed in their midst: every vote is there once."""

import random
import signal
import threading
import time

import pytest
from tests.web.study.cases import (
    Participant,
    begin_server,
    free_port,
    logged,
    make_study,
    open_store,
    stored,
    write_side,
)

from wcgan.web.study import create_study, read_study
from wcgan.web.study.config import token_to_id


def run_study(folder, count, kills, patience, database=None):
    """Lets participants vote on the real command, killed a few times at random moments -> the participants."""
    study, port, chance = read_study(folder), free_port(), random.Random(0)
    process = begin_server(folder, port, database=database)
    address, total = f"http://127.0.0.1:{port}", count * len(study.pairs)
    assert process.link == f"{address}/join/{study.join}"
    people = [
        Participant(address, f"/join/{study.join}", lambda _: chance.choice("12"), number % 3 == 0, patience)
        for number in range(count)
    ]
    threads = [threading.Thread(target=each.take_part) for each in people]
    try:
        for thread in threads:
            thread.start()
        for kill in range(1, kills + 1):
            while sum(len(each.log) for each in people) < total * kill // (kills + 1):
                assert any(thread.is_alive() for thread in threads)
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            assert surely_answered(people) <= set(votes_of(folder, database))
            process = begin_server(folder, port, database=database)
        for thread in threads:
            thread.join(patience)
        assert not any(thread.is_alive() for thread in threads)
    finally:
        process.kill()
        process.communicate()
    return people


def surely_answered(people):
    """All but the last choice of each, which the server may have had no time for."""
    copies = [(each.token, dict(each.log)) for each in people]
    return {
        (token_to_id(token), number, choice)
        for token, log in copies
        for number, choice in log.items()
        if number < max(log)
    }


def votes_of(folder, database):
    store = open_store(folder, database)
    votes = stored(store)
    store.database.close()
    return votes


def assert_none_lost_or_doubled(folder, people, database=None):
    votes = votes_of(folder, database)
    assert len(votes) == len(set(votes)) == len(people) * len(read_study(folder).pairs)
    assert votes == logged(people)


@pytest.mark.slow
def test_20_participants_at_once_and_a_killed_server_lose_and_double_no_vote(tmp_path):
    folder = make_study(tmp_path, classes=6, checks=2)
    people = run_study(folder, count=20, kills=1, patience=120)
    assert_none_lost_or_doubled(folder, people)
    assert sum(each.repeats for each in people) > 0  # the kill was felt


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_200_participants_at_once_and_a_server_killed_twice_lose_and_double_no_vote(tmp_path, request, kind):
    database = request.getfixturevalue("postgres") if kind == "postgresql" else None
    a, b = (write_side(tmp_path / name, classes=50, images=1, side=4, seed=seed) for seed, name in enumerate("ab"))
    create_study(a, b, tmp_path / "study", images=1)
    people = run_study(tmp_path / "study", count=200, kills=2, patience=900, database=database)
    assert_none_lost_or_doubled(tmp_path / "study", people, database)
    assert sum(each.repeats for each in people) > 0
