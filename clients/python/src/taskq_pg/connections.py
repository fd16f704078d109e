"""The app's own connections: opened when first used, kept while idle, left behind when the server has gone."""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row

from .slots import Slots

C = TypeVar("C", "psycopg.Connection[Any]", "psycopg.AsyncConnection[Any]")
Connect = Callable[[], "psycopg.Connection[Any]"]
ConnectAsync = Callable[[], "Awaitable[psycopg.AsyncConnection[Any]]"]

# How many idle connections an app keeps, of threads and of each loop.
_KEPT = 4
# How long a call queues for a connection, in seconds.
_PATIENCE = 30.0
# So many are kept from code of the program's, which may call the app while it holds one.
_FOR_CALLS = 2

# PgBouncer may stand in between, so nothing is prepared. A server that has vanished is noticed within half a minute.
# In another encoding, that the database or the role has set, some texts could not be read.
_SETTINGS: dict[str, Any] = {
    "client_encoding": "utf8",
    "autocommit": True,
    "prepare_threshold": None,
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,
}


# DISCARD ALL without DEALLOCATE: psycopg knows which statements it has prepared, and that is no setting. The last row
# tells whether the program has prepared some on its own.
_RESET = """CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all();
            DISCARD TEMP; DISCARD SEQUENCES; SELECT EXISTS (SELECT FROM pg_prepared_statements WHERE from_sql)"""

# Those of this process, for a process that is forked from it.
_all: weakref.WeakSet[Connections] = weakref.WeakSet()


class Connections:
    """Opens connections of one database, and keeps some that are idle."""

    def __init__(self, source: str | Connect, source_async: ConnectAsync | None = None, most: int = 8) -> None:
        """Take a conninfo, or a function that returns a connection, and how many there may be. None is opened yet."""
        self.source = source
        self.most = most
        self._new_slots()
        self._source_async = source_async
        self._lock = threading.Lock()
        self._idle: list[psycopg.Connection[Any]] = []
        self._process = os.getpid()
        _all.add(self)
        self._closes = 0  # how many there were: what was lent before one of them is not kept
        # Those of the process that this one was forked from, which goes on to use them: not even closed here.
        self._of_parent: list[Any] = []
        # A connection of asyncio belongs to its event loop.
        self._idle_async: weakref.WeakKeyDictionary[Any, list[psycopg.AsyncConnection[Any]]] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def has_async(self) -> bool:
        """Whether a connection of asyncio can be had: not from a function that returns a plain one."""
        return self._source_async is not None or isinstance(self.source, str)

    def open(self, name: str = "taskq") -> psycopg.Connection[Any]:
        """Open a connection in autocommit mode."""
        if isinstance(self.source, str):
            return psycopg.connect(self.source, **_settings(self.source, name))
        connection = self.source()
        if not isinstance(connection, psycopg.Connection):
            raise TypeError(f"the function that connects has returned a {type(connection).__name__}, no connection")
        connection.autocommit = True
        return connection

    async def open_async(self, name: str = "taskq") -> psycopg.AsyncConnection[Any]:
        """Open a connection of asyncio in autocommit mode."""
        if self._source_async is not None:
            connection = await self._source_async()
            await connection.set_autocommit(True)
            return connection
        if not isinstance(self.source, str):
            raise TypeError("give App(connect_async=...) as well: its connect function makes plain connections")
        return await psycopg.AsyncConnection.connect(self.source, **_settings(self.source, name))

    @contextmanager
    def use(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend a connection, in autocommit mode; with ``most`` in use it queues for one."""
        slots = self._slots
        with _told(self.most):
            slots.take(_PATIENCE)
        try:
            closes = self._closes
            connection = self._take() or self.open()
            try:
                yield connection
            finally:
                self._put(connection, closes)
        finally:
            slots.give()

    @asynccontextmanager
    async def use_async(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Lend a connection of asyncio, in autocommit mode."""
        slots = self._slots
        with _told(self.most):
            await slots.take_async(_PATIENCE)
        try:
            closes = self._closes
            connection = await self._take_async() or await self.open_async()
            try:
                yield connection
            finally:
                await self._put_async(connection, closes)
        finally:
            slots.give()

    @contextmanager
    def lend(self) -> Iterator[psycopg.Connection[Any]]:
        """Lend a connection to code of the program's, whose settings for the session end with that."""
        lendable = self._lendable
        with _told(self.most):
            lendable.take(_PATIENCE)
        try:
            with self.use() as connection:
                try:
                    yield connection
                finally:
                    if self._resets(connection):
                        connection.cursor_factory = psycopg.Cursor
                        with _closed_by_errors(connection.pgconn):
                            cursor = connection.execute(_RESET)
                            while cursor.nextset():
                                pass
                            _check_prepared(cursor.fetchone())
                    else:
                        connection.close()
        finally:
            lendable.give()

    @asynccontextmanager
    async def lend_async(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Do what ``lend`` does, with a connection of asyncio."""
        lendable = self._lendable
        with _told(self.most):
            await lendable.take_async(_PATIENCE)
        try:
            async with self.use_async() as connection:
                try:
                    yield connection
                finally:
                    if self._resets(connection):
                        connection.cursor_factory = psycopg.AsyncCursor
                        with _closed_by_errors(connection.pgconn):
                            cursor = await connection.execute(_RESET)
                            while cursor.nextset():
                                pass
                            _check_prepared(await cursor.fetchone())
                    else:
                        await connection.close()
        finally:
            lendable.give()

    def _resets(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
        """Tell whether the session may be reset, and reset what psycopg keeps for it."""
        # Of one that the program has opened, only the program knows what it is to be reset to.
        if not isinstance(self.source, str) or self._source_async is not None or not _reusable(connection):
            return False
        connection.row_factory = tuple_row
        connection.prepare_threshold = None
        # psycopg has no public way to forget these; the adapters are made anew when needed.
        connection._adapters = None
        connection._notice_handlers.clear()
        connection._notify_handlers.clear()
        return True

    def close(self) -> None:
        """Close those that are idle, of all loops; those that are lent are closed when they come back."""
        with self._lock:
            self._leave_to_parent()
            self._closes += 1
            idle, self._idle = self._idle, []
            idle_async = [connection for each in self._idle_async.values() for connection in each]
            self._idle_async.clear()
        for connection in idle:
            connection.close()
        for connection_async in idle_async:
            # Its loop may not run, and belong to another thread.
            connection_async.pgconn.finish()

    async def close_async(self) -> None:
        """Close those of the running loop that are idle."""
        with self._lock:
            idle = self._idle_async.pop(asyncio.get_running_loop(), [])
        for connection in idle:
            await connection.close()

    def _take(self) -> psycopg.Connection[Any] | None:
        while (connection := self._pop(lambda: self._idle)) is not None:
            if _quiet(connection):
                return connection
            connection.close()
        return None

    async def _take_async(self) -> psycopg.AsyncConnection[Any] | None:
        loop = asyncio.get_running_loop()
        while (connection := self._pop(lambda: self._idle_async.get(loop))) is not None:
            if _quiet(connection):
                return connection
            await connection.close()
        return None

    def _pop(self, find: Callable[[], list[C] | None]) -> C | None:
        """Take an idle connection; where there is none, another is opened, and what is too many then is closed."""
        with self._lock:
            self._leave_to_parent()
            idle = find()
            if idle:
                return idle.pop()
            lists: list[list[Any]] = [self._idle, *self._idle_async.values()]
            others = [one for one in lists if one]
            if others and self._slots.taken + sum(map(len, others)) > self.most:
                # Its loop may not run, and belong to another thread.
                other = others[0].pop(0)
                other.pgconn.finish()
        return None

    def _put(self, connection: psycopg.Connection[Any], closes: int) -> None:
        if not self._keeps(connection, closes, lambda: self._idle):
            connection.close()

    async def _put_async(self, connection: psycopg.AsyncConnection[Any], closes: int) -> None:
        loop = asyncio.get_running_loop()
        if not self._keeps(connection, closes, lambda: self._idle_async.setdefault(loop, [])):
            await connection.close()

    def _keeps(self, connection: C, closes: int, find: Callable[[], list[C]]) -> bool:
        if not _reusable(connection):
            return False
        with self._lock:
            idle = find()
            if closes != self._closes or len(idle) >= _KEPT:
                return False
            idle.append(connection)
        return True

    def _new_slots(self) -> None:
        self._slots = Slots(self.most)
        self._lendable = Slots(max(1, self.most - _FOR_CALLS))

    def _leave_to_parent(self) -> None:
        if self._process != os.getpid():
            self._process = os.getpid()
            self._of_parent += [*self._idle, *(one for each in self._idle_async.values() for one in each)]
            self._idle = []
            self._idle_async.clear()


def _forked() -> None:
    # A thread that had a lock in the moment of the fork is not there to release it.
    for connections in _all:
        connections._lock = threading.Lock()
        connections._new_slots()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@contextmanager
def _told(most: int) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        text = (
            f"none of {most} connections has become free in {_PATIENCE:g} seconds: App(max_connections=…) allows more"
        )
        raise TimeoutError(text) from None


class _Prepared(psycopg.Error):
    """The program has prepared statements on its own, which no reset forgets."""


def _check_prepared(row: Any) -> None:
    if row != (False,):
        raise _Prepared


@contextmanager
def _closed_by_errors(connection: psycopg.pq.abc.PGconn) -> Iterator[None]:
    try:
        yield
    except psycopg.Error:
        connection.finish()
    except BaseException:
        connection.finish()
        raise


def _settings(conninfo: str, name: str) -> dict[str, Any]:
    # What the conninfo says goes first.
    given = conninfo_to_dict(conninfo)
    settings = {key: value for key, value in _SETTINGS.items() if key not in given}
    if "application_name" not in given:
        settings["application_name"] = name
    return settings


def _reusable(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    # An interrupt may have come between a statement and its answer, or its caller has left a transaction open.
    idle = psycopg.pq.TransactionStatus.IDLE
    return not connection.closed and connection.info.transaction_status == idle


def _quiet(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the server has said nothing since the last answer. A server that ends a session says so, or hangs up."""
    if connection.closed:
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        return not selector.select(0)
