"""Stores participants and votes in SQLite or PostgreSQL; the database enforces one vote per pair and participant."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from wcgan.core.terminal import shown
from wcgan.web.study.config import CHOICES, SIDES, Trial

PATIENCE = 5  # seconds to wait for a lock or an answer
Statement = tuple[str, Sequence[object]]
"""SQL with `?` for each value, and the values."""
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
    """The choice of a participant between the two sets of a pair."""

    participant: str
    pair: int
    side: str
    """The chosen side of the study: "a" or "b"."""
    number: int
    """The place of the pair in the participant's order, from 1."""
    choice: str
    """The chosen set on the screen: "1" or "2"."""
    time: str


class DatabaseError(ValueError):
    """The database cannot be used."""


class FullError(ValueError):
    """No more participants can join."""


def sqlite_file(folder: Path) -> str:
    """The default database of a study."""
    return str(folder / "votes.sqlite")


class Store:
    """The participants and votes of one study. A database may have several studies.

    Args:
        database: the database.
        study: the key of the study.
    """

    def __init__(self, database: Database, study: str) -> None:
        self.database, self.study = database, study
        database.run(*((sql, ()) for sql in _SCHEMA))

    def join(self, participant: str, most: int, consented: bool) -> None:
        """Adds a participant.

        Raises:
            FullError: if `most` participants have joined.
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
        """Whether a participant has consented; None if there is no such participant."""
        sql = f"SELECT consented FROM {_PARTICIPANTS} WHERE study = ? AND participant = ?"
        rows = self.database.run((sql, (self.study, participant)))
        return rows[0][0] is not None if rows else None

    def consent(self, participant: str) -> None:
        """Records that a participant agreed to take part; only the first time counts."""
        sql = f"UPDATE {_PARTICIPANTS} SET consented = ? WHERE study = ? AND participant = ? AND consented IS NULL"
        self.database.run((sql, (_now(), self.study, participant)))

    def vote(self, participant: str, trial: Trial, choice: str) -> bool:
        """Stores a vote, unless there is one for this pair -> whether it was stored."""
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
        """The ids of all who joined, the earliest first."""
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
    """A row as a vote; checked, since another program may have written the file."""
    try:
        whole = type(pair) is int and type(number) is int and isinstance(participant, str)
        if whole and side in SIDES and choice in CHOICES and datetime.fromisoformat(time).tzinfo is not None:
            return Vote(participant, pair, side, number, choice, time)
    except (ValueError, TypeError):
        pass
    raise DatabaseError(f"the votes' database has a row that is no vote: {shown((pair, side, number, choice, time))}")


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Dialect:
    """What differs between SQLite and PostgreSQL."""

    connect: Callable[[str], Any]
    mark: str
    """The placeholder for a value."""
    begin: tuple[str, ...]
    """Statements that begin a transaction; those after the first keep others from writing to a table meanwhile."""
    broken: Callable[[], tuple[type[Exception], ...]]
    """The exceptions for a database that is missing, locked or full."""


class Database:
    """A connection that threads share in turns; a transaction is on disk before `run` returns.

    Args:
        where: the path of an SQLite file, or the URL of a PostgreSQL database.
    """

    def __init__(self, where: str) -> None:
        scheme = urlsplit(where).scheme if "://" in where else "file"
        if scheme not in _DIALECTS:
            raise DatabaseError(f"a database is given as postgresql://USER@HOST:PORT/NAME, not as {scheme}://")
        self._where, self._dialect = where, _DIALECTS[scheme]
        self._lock = threading.Lock()
        self._connection: Any = None

    def run(self, *statements: Statement, alone_with: str | None = None) -> list[tuple[Any, ...]]:
        """Runs statements as one transaction and commits it -> the rows of the last statement.

        Args:
            *statements: pairs of SQL, with `?` for each value, and the values.
            alone_with: a table that nobody else may write to meanwhile.

        Raises:
            DatabaseError: if the database cannot be reached or written. Then nothing has been stored or, if the
                connection broke during the commit, everything.
        """
        broken = self._dialect.broken()
        with self._lock:
            while True:
                idle = self._connection is not None  # if it broke while idle, try once more
                try:
                    return self._transaction(statements, alone_with)
                except broken as error:
                    self._close()
                    if not idle:
                        raise DatabaseError(self._sentence(error)) from None

    def close(self) -> None:
        """Closes the connection; the next transaction opens another."""
        with self._lock:
            self._close()

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self._close()

    def _transaction(self, statements: Sequence[Statement], alone_with: str | None) -> list[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = self._dialect.connect(self._where)
        cursor = self._connection.cursor()
        try:
            for begin in self._dialect.begin[: None if alone_with else 1]:
                cursor.execute(begin.format(table=alone_with))
            for sql, values in statements:
                cursor.execute(sql.replace("?", self._dialect.mark), tuple(values))
            rows = cursor.fetchall() if cursor.description else []
            cursor.execute("COMMIT")
        except Exception as error:
            if not isinstance(error, self._dialect.broken()):
                cursor.execute("ROLLBACK")
            raise
        return rows

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _sentence(self, error: Exception) -> str:
        """What went wrong, without the password."""
        what = " ".join(str(error).split()) or type(error).__name__
        password = urlsplit(self._where).password if "://" in self._where else None
        for secret in filter(None, (password, unquote(password or ""))):
            what = what.replace(secret, "***")
        return f"the votes' database cannot be used: {what}"


def _connect_sqlite(where: str) -> sqlite3.Connection:
    for name in (where, *(f"{where}-{part}" for part in ("wal", "shm", "journal"))):
        if os.path.islink(name):  # SQLite would follow it
            raise DatabaseError(f"the votes' database cannot be used: {name} is a link, not a file")
    connection = sqlite3.connect(where, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        for pragma in ("trusted_schema = OFF", "journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")
        own = connection.execute("SELECT count(*) FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone()
        if own != (0,):  # a view can pose as a table, and never end
            raise DatabaseError(
                f"the votes' database cannot be used: {where} has views or triggers that wcgan did not make"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_postgresql(where: str) -> Any:
    connection = _psycopg().connect(where, autocommit=True, connect_timeout=PATIENCE)
    connection.execute(f"SET statement_timeout = {1000 * PATIENCE}")
    return connection


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise ImportError(f"PostgreSQL needs psycopg: pip install 'wcgan[web]' ({error})") from error
    return psycopg


def _postgresql_errors() -> tuple[type[Exception], ...]:
    psycopg = _psycopg()
    return psycopg.OperationalError, psycopg.InterfaceError, psycopg.ProgrammingError


_SQLITE = Dialect(_connect_sqlite, "?", ("BEGIN IMMEDIATE",), lambda: (sqlite3.DatabaseError,))
_POSTGRESQL = Dialect(
    _connect_postgresql, "%s", ("BEGIN", "LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"), _postgresql_errors
)
_DIALECTS = {"file": _SQLITE, "postgresql": _POSTGRESQL, "postgres": _POSTGRESQL}
