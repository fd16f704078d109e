"""A connection of the worker's, opened again as often as it takes."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import set_json_loads

from . import borrowed
from .bodies import load_or_say
from .connections import Connections

log = logging.getLogger("taskq_pg")


def delays(longest: float = 10) -> Iterator[float]:
    """Yield how long to wait before each attempt: twice as long each time, with jitter."""
    delay = 0.1
    while True:
        yield delay * random.uniform(0.5, 1.5)  # noqa: S311
        delay = min(delay * 2, longest)


def is_lost(error: Exception) -> bool:
    """Tell whether another connection may help: this one is gone, or leads to a standby since a failover."""
    if not isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)):
        return isinstance(error, OSError)
    state = error.sqlstate or "08000"
    return state[:2] == "08" or state[:3] == "57P" or state in ("25006", "53300")


def is_transient(error: Exception) -> bool:
    """Tell whether the same call may work now: a deadlock or serialization failure, or a limit of the server's."""
    return is_limit(error) or (
        isinstance(error, psycopg.Error) and (error.sqlstate or "")[:2] in ("40", "53", "55", "57", "58")
    )


def is_limit(error: Exception) -> bool:
    """Tell whether a limit of the server's has ended the call: a time-out, or its memory. The call may be too large."""
    # 25P04 is the transaction_timeout, which ends the session as well: psycopg finds it closed.
    return isinstance(error, psycopg.Error) and error.sqlstate in ("57014", "25P04", "53200")


Meet = Callable[[psycopg.Connection[Any]], None]


class Link:
    """One connection. Its calls are made one at a time, by one thread."""

    def __init__(self, connections: Connections, name: str, meet: Meet | None = None) -> None:
        """Open nothing yet; ``meet`` is called with each connection that is opened."""
        self._meet = meet or (lambda _: None)
        self.give_up_at = float("inf")  # by time.monotonic()
        self._connections = connections
        self._name = name
        self._connection: psycopg.Connection[Any] | None = None
        self.answered_at = time.monotonic()
        self._calling = False
        self._heard = False
        self._ended = False
        self._woken = False
        self._waker: tuple[socket.socket, socket.socket] | None = None

    def call(self, query: LiteralString, arguments: Sequence[Any]) -> borrowed.Rows:
        """Return the rows of a statement in a transaction of its own. It may run twice if its answer gets lost."""
        self._calling = True
        try:
            for delay in delays():
                try:
                    if self._connection is None or self._connection.closed:
                        self._connection = self._connections.open(self._name)
                        if self._ended:
                            # Before or after this the other thread has closed what it has found.
                            self.close()
                            raise psycopg.OperationalError("the worker has ended")
                        set_json_loads(load_or_say, self._connection)
                        self._connection.add_notify_handler(self._hear)
                        self._meet(self._connection)
                    rows = self._execute(self._connection, query, arguments)
                    self.answered_at = time.monotonic()
                    return rows  # noqa: TRY300
                except Exception as error:
                    if not is_lost(error):
                        raise
                    self.close()
                    if time.monotonic() >= self.give_up_at:
                        raise
                    log.warning("no connection, again in %.1f s: %s", delay, str(error).strip())
                self._sleep(delay)
            raise AssertionError  # delays() has no end
        finally:
            self._calling = False

    @staticmethod
    def _execute(connection: psycopg.Connection[Any], query: LiteralString, arguments: Sequence[Any]) -> borrowed.Rows:
        # In binary: as text, what a time looks like depends on the DateStyle of the session.
        with borrowed.mended(), psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            return cursor.execute(query, arguments, binary=True).fetchall()

    def rest(self, seconds: float) -> bool:
        """Wait until the server says something that it was not asked for, for this time at most; tell whether it has.

        ``wake`` ends it. The connection is opened where there is none.
        """
        if self._connection is None or self._connection.closed:
            self.call("SELECT 1", [])
            return True
        if self._waker is None:
            self._waker = socket.socketpair()
        if not self._heard and not self._woken:
            with selectors.DefaultSelector() as selector:
                selector.register(self._waker[0], selectors.EVENT_READ)
                selector.register(self._connection.fileno(), selectors.EVENT_READ)
                ready = {key.fileobj for key, _ in selector.select(max(0.0, seconds))}
            if self._connection.fileno() in ready:
                self._heard = True
                try:
                    self._connection.pgconn.consume_input()
                    while self._connection.pgconn.notifies():
                        pass
                except psycopg.Error:
                    self.close()
        heard, self._heard = self._heard, False
        return heard

    def wake(self) -> None:
        """End ``rest``, from now on; called by another thread."""
        # In this order, and the other thread looks in the other order.
        self._woken = True
        if self._waker is not None:
            self._waker[1].send(b"x")

    def _hear(self, _: psycopg.Notify) -> None:
        self._heard = True

    def cancel(self) -> None:
        """Cancel the call that another thread is making. It may come too early: repeat it until the call is over."""
        connection = self._connection
        if self._calling and connection is not None and not connection.closed:
            try:
                connection.cancel_safe(timeout=5)
            except (psycopg.Error, OSError) as error:
                log.info("could not cancel the claim: %s", error)

    def cut(self) -> None:
        """Have the call that another thread is making fail, whatever its server does."""
        connection = self._connection
        if self._calling and connection is not None and not connection.closed:
            with (
                contextlib.suppress(psycopg.Error, OSError),
                socket.socket(fileno=os.dup(connection.fileno())) as copy,
            ):
                copy.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def end(self) -> None:
        """Close all, for good; a connection that another thread is just opening as well."""
        self._ended = True
        self.give_up_at = 0
        self.close()
        for one in self._waker or ():
            one.close()

    def _sleep(self, delay: float) -> None:
        until = time.monotonic() + delay
        while (left := min(until, self.give_up_at) - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
