"""The counting of attacks: what is wrong in a case is counted, and the cases after it run."""

import time

from tests.attack.tally import LIMIT, Attack, table_lines


def test_each_kind_of_finding_is_counted_and_the_rest_runs():
    attack = Attack()
    with attack.case():
        pass
    with attack.case():
        raise KeyError("x")
    with attack.case():
        assert attack.cases == 0
    attack.limit = 0.1
    with attack.case():
        try:
            time.sleep(30)
        except Exception:  # does not swallow the interruption
            raise AssertionError from None
    attack.limit = LIMIT
    with attack.case(count=5):
        pass
    assert attack.counts()[:4] == [9, 1, 1, 1]
    assert attack.seconds >= 0.1
    assert "KeyError: 'x'" in attack.findings[0]


def test_the_table_adds_up():
    rows = [["b: x", 1000, 0, 1, 0, 2.0], ["a: y", 5, 0, 0, 0, 1.0], ["b: x", 500, 2, 0, 0, 0.6]]
    assert [line.split() for line in table_lines(rows)][1:] == [
        ["a:", "y", "5", "0", "0", "0", "1"],
        ["b:", "x", "1,500", "2", "1", "0", "3"],
        ["all", "1,505", "2", "1", "0", "4"],
    ]
