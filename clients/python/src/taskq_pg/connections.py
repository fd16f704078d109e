"""The app's own connections: opened when first used, kept while idle, left behind when the server has gone."""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row

from .driven import entered
from .slots import Slots

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
        self._idle: list[Any] = []
        self._process = os.getpid()
        _all.add(self)
        self._closes = 0  # how many there were: what was lent before one of them is not kept
        # Those of the process that this one was forked from, which goes on to use them: not even closed here.
        self._of_parent: list[Any] = []
        # A connection of asyncio belongs to its event loop.
        self._idle_async: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()

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

    def use(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """Lend a connection, in autocommit mode; with ``most`` in use it queues for one."""
        return entered(self._use(False))

    def use_async(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Lend a connection of asyncio, in autocommit mode."""
        return self._use(True)

    def lend(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """Lend a connection to code of the program's, whose settings for the session end with that."""
        return entered(self._lend(False))

    def lend_async(self) -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        """Do what ``lend`` does, with a connection of asyncio."""
        return self._lend(True)

    @asynccontextmanager
    async def _use(self, in_loop: bool) -> AsyncIterator[Any]:
        slots = self._slots
        await self._place(slots, in_loop)
        try:
            closes = self._closes
            connection: Any = self._take(in_loop)
            if connection is None:
                connection = await self.open_async() if in_loop else self.open()
            try:
                yield connection
            finally:
                self._put(connection, closes, in_loop)
        finally:
            slots.give()

    @asynccontextmanager
    async def _lend(self, in_loop: bool) -> AsyncIterator[Any]:
        lendable = self._lendable
        await self._place(lendable, in_loop)
        try:
            async with self._use(in_loop) as connection:
                try:
                    yield connection
                finally:
                    await self._reset(connection, in_loop)
        finally:
            lendable.give()

    async def _reset(self, connection: Any, in_loop: bool) -> None:
        if not self._resets(connection):
            connection.pgconn.finish()
            return
        connection.cursor_factory = psycopg.AsyncCursor if in_loop else psycopg.Cursor
        with _closed_by_errors(connection.pgconn):
            made = connection.execute(_RESET)
            cursor = await made if in_loop else made
            while cursor.nextset():
                pass
            row = cursor.fetchone()
            _check_prepared(await row if in_loop else row)

    async def _place(self, slots: Slots, in_loop: bool) -> None:
        try:
            if in_loop:
                await slots.take_async(_PATIENCE)
            else:
                slots.take(_PATIENCE)
        except TimeoutError:
            text = f"none of {self.most} connections has become free in {_PATIENCE:g} seconds"
            raise TimeoutError(f"{text}: App(max_connections=…) allows more") from None

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
            idle = [connection for each in (self._idle, *self._idle_async.values()) for connection in each]
            self._idle = []
            self._idle_async.clear()
        for connection in idle:
            # Also one of a loop that does not run, and belongs to another thread.
            connection.pgconn.finish()

    async def close_async(self) -> None:
        """Close those of the running loop that are idle."""
        with self._lock:
            idle = self._idle_async.pop(asyncio.get_running_loop(), [])
        for connection in idle:
            await connection.close()

    def _shelf(self, in_loop: bool) -> list[Any]:
        return self._idle_async.setdefault(asyncio.get_running_loop(), []) if in_loop else self._idle

    def _take(self, in_loop: bool) -> Any:
        """Take an idle connection; where there is none, another is opened, and what is too many then is closed."""
        with self._lock:
            self._leave_to_parent()
            shelf = self._shelf(in_loop)
            while shelf:
                connection = shelf.pop()
                if _quiet(connection):
                    return connection
                connection.pgconn.finish()
            others = [each for each in (self._idle, *self._idle_async.values()) if each]
            if others and self._slots.taken + sum(map(len, others)) > self.most:
                connection = others[0].pop(0)  # which is to be there when it is closed
                connection.pgconn.finish()
        return None

    def _put(self, connection: Any, closes: int, in_loop: bool) -> None:
        with self._lock:
            shelf = self._shelf(in_loop)
            if _reusable(connection) and closes == self._closes and len(shelf) < _KEPT:
                shelf.append(connection)
                return
        connection.pgconn.finish()

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
