"""Participants and votes: one vote per pair and participant, which the database itself sees to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from wcgan.data.terminal import shown
from wcgan.web.study.config import SIDES
from wcgan.web.study.database import Database, DatabaseError
from wcgan.web.study.plan import CHOICES, Trial

_PARTICIPANTS, _VOTES = "study_participants", "study_votes"
_SCHEMA = (
    f"""CREATE TABLE IF NOT EXISTS {_PARTICIPANTS} (
        study TEXT NOT NULL,
        participant TEXT NOT NULL,
        joined TEXT NOT NULL,
        consented TEXT,
        PRIMARY KEY (study, participant)
    )""",
    f"""CREATE TABLE IF NOT EXISTS {_VOTES} (
        study TEXT NOT NULL,
        participant TEXT NOT NULL,
        pair INTEGER NOT NULL,
        side TEXT NOT NULL CHECK (side IN ('a', 'b')),
        number INTEGER NOT NULL,
        choice TEXT NOT NULL CHECK (choice IN ('1', '2')),
        time TEXT NOT NULL,
        PRIMARY KEY (study, participant, pair),
        FOREIGN KEY (study, participant) REFERENCES {_PARTICIPANTS} (study, participant)
    )""",
)


@dataclass(frozen=True)
class Vote:
    """What a participant chose of a pair."""

    participant: str
    pair: int
    side: str
    """The side of the study that was chosen: "a" or "b"."""
    number: int
    """The pair's place in the participant's order, from 1 on."""
    choice: str
    """What was chosen on the screen: "1" or "2"."""
    time: str


class FullError(ValueError):
    """As many have joined as may."""


class Store:
    """The participants and votes of one study; a database may hold several studies.

    Args:
        database: where they are kept.
        study: the study's key.
    """

    def __init__(self, database: Database, study: str) -> None:
        self.database, self.study = database, study
        database.run(*((sql, ()) for sql in _SCHEMA))

    def join(self, participant: str, most: int, consented: bool) -> None:
        """Adds a participant.

        Raises:
            FullError: if there are as many as may be.
        """
        now = _now()
        added = self.database.run(
            (
                f"INSERT INTO {_PARTICIPANTS} (study, participant, joined, consented) "
                f"SELECT CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT) "
                f"WHERE (SELECT count(*) FROM {_PARTICIPANTS} WHERE study = ?) < ? RETURNING participant",
                (self.study, participant, now, now if consented else None, self.study, most),
            ),
            alone_with=_PARTICIPANTS,
        )
        if not added:
            raise FullError(f"all {most} places of this study are taken")

    def has_consented(self, participant: str) -> bool | None:
        """Whether a participant has; None for nobody we know."""
        sql = f"SELECT consented FROM {_PARTICIPANTS} WHERE study = ? AND participant = ?"
        rows = self.database.run((sql, (self.study, participant)))
        return rows[0][0] is not None if rows else None

    def consent(self, participant: str) -> None:
        """A participant agrees to take part; the first time counts."""
        sql = f"UPDATE {_PARTICIPANTS} SET consented = ? WHERE study = ? AND participant = ? AND consented IS NULL"
        self.database.run((sql, (_now(), self.study, participant)))

    def vote(self, participant: str, trial: Trial, choice: str) -> bool:
        """Stores a vote, or leaves the one that is there -> whether it is new."""
        sql = (
            f"INSERT INTO {_VOTES} (study, participant, pair, side, number, choice, time) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (study, participant, pair) DO NOTHING RETURNING pair"
        )
        values = (self.study, participant, trial.pair, trial.side(choice), trial.number, choice, _now())
        return bool(self.database.run((sql, values)))

    def voted(self, participant: str) -> set[int]:
        """The pairs that a participant has voted on."""
        sql = f"SELECT pair FROM {_VOTES} WHERE study = ? AND participant = ?"
        return {pair for (pair,) in self.database.run((sql, (self.study, participant)))}

    def participants(self) -> list[str]:
        """All who joined, the earliest first."""
        sql = f"SELECT participant FROM {_PARTICIPANTS} WHERE study = ? ORDER BY joined, participant"
        return [participant for (participant,) in self.database.run((sql, (self.study,)))]

    def votes(self) -> list[Vote]:
        """All votes."""
        sql = (
            f"SELECT participant, pair, side, number, choice, time FROM {_VOTES} WHERE study = ? "
            "ORDER BY participant, number"
        )
        return [_to_vote(*row) for row in self.database.run((sql, (self.study,)))]


def _to_vote(participant: Any, pair: Any, side: Any, number: Any, choice: Any, time: Any) -> Vote:
    """A row as a vote; the file may come from somebody who wrote it without this program."""
    try:
        whole = type(pair) is int and type(number) is int and isinstance(participant, str)
        if whole and side in SIDES and choice in CHOICES and datetime.fromisoformat(time).tzinfo is not None:
            return Vote(participant, pair, side, number, choice, time)
    except (ValueError, TypeError):
        pass
    raise DatabaseError(f"the votes' database has a row that is no vote: {shown((pair, side, number, choice, time))}")


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
