"""What the console asks of the database: each request in one transaction, as one role, for a bounded time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row
from psycopg.types.datetime import IntervalLoader, TimestamptzLoader

from ..connections import Connections

# A look that takes longer is given up; an act may wait for locks.
_LOOK = "5s"
_ACT = "30s"
Row = dict[str, Any]
_BEGIN: LiteralString = """SELECT set_config('transaction_read_only', %s, true),
    set_config('statement_timeout', %s, true), set_config('jit', 'off', true), set_config('TimeZone', 'UTC', true),
    set_config('role', %s, true)"""
_MAY: LiteralString = """SELECT p.proname FROM pg_catalog.pg_proc AS p
    JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
    WHERE n.nspname = 'taskq' AND p.proname !~ '^_' AND has_function_privilege(p.oid, 'EXECUTE')"""


class _Times(TimestamptzLoader):
    """A time that Python has no value for, such as one of the year 20000, is a text."""

    def load(self, data: Any) -> Any:
        try:
            return super().load(data)
        except psycopg.DataError:
            return bytes(data).decode()


class _Intervals(IntervalLoader):
    def load(self, data: Any) -> Any:
        try:
            return super().load(data)
        except (psycopg.DataError, OverflowError):
            return bytes(data).decode()


class Session:
    """A transaction of one request."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        """Take a connection that is in a transaction."""
        self._connection = connection
        self._may: frozenset[str] | None = None

    def rows(self, query: LiteralString, *arguments: Any) -> list[Row]:
        """Return the rows of a statement."""
        with psycopg.Cursor(self._connection, row_factory=dict_row) as cursor:
            cursor.adapters.register_loader("timestamptz", _Times)
            cursor.adapters.register_loader("interval", _Intervals)
            return cursor.execute(query, arguments).fetchall()

    def row(self, query: LiteralString, *arguments: Any) -> Row | None:
        """Return the first row; None if there is none."""
        rows = self.rows(query, *arguments)
        return rows[0] if rows else None

    def value(self, query: LiteralString, *arguments: Any) -> Any:
        """Return the only value of a statement."""
        [row] = self.rows(query, *arguments)
        [value] = row.values()
        return value

    @property
    def may(self) -> frozenset[str]:
        """The names of the functions that the role may call."""
        if self._may is None:
            self._may = frozenset(row["proname"] for row in self.rows(_MAY))
        return self._may

    @property
    def role(self) -> str:
        """The role that all this is done as."""
        return str(self.value("SELECT current_user::text"))

    @contextlib.contextmanager
    def part(self) -> Iterator[None]:
        """Do something that may be refused without the end of the whole transaction."""
        with self._connection.transaction():
            yield


class Database:
    """Where the queue is. A role may be given for each request: it holds for the transaction."""

    def __init__(self, conninfo: str) -> None:
        """Take a conninfo of the console's own; nothing is opened yet."""
        self.connections = Connections(conninfo, most=8)

    @contextlib.contextmanager
    def reading(self, role: str | None) -> Iterator[Session]:
        """Look; nothing can be changed."""
        with self._transaction(role, ("on", _LOOK)) as session:
            yield session

    @contextlib.contextmanager
    def writing(self, role: str | None) -> Iterator[Session]:
        """Act; committed at the end, unless something was raised."""
        with self._transaction(role, ("off", _ACT)) as session:
            yield session

    @contextlib.contextmanager
    def _transaction(self, role: str | None, settings: Sequence[str]) -> Iterator[Session]:
        with self.connections.use() as connection, connection.transaction():
            connection.execute(_BEGIN, [*settings, "none" if role is None else role])
            yield Session(connection)
