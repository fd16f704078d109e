"""All waits of an app for results, over one of its connections, however many there are.

A thread sleeps in the server on the oldest wait, for moments, and looks at all others in between.
"""

from __future__ import annotations

import collections
import logging
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, LiteralString

import psycopg

from . import borrowed
from .connections import Connections
from .durations import Duration, interval, seconds
from .errors import TimedOut
from .link import delays, is_lost, is_transient
from .results import Result

log = logging.getLogger("taskq_pg")

_COLUMNS: LiteralString = "task_id, NULL, status_code::text, status, result"
_SLEEP: LiteralString = f"SELECT {_COLUMNS} FROM taskq.wait_for_task(%s, %s::text::interval)"
_LOOK: LiteralString = f"""SELECT w.{_COLUMNS} FROM unnest(%s::text[]) AS id, taskq.wait_for_task(id, '0') AS w"""
# For how long the thread sleeps before it looks at what others have begun to wait for: for longer where more wait.
_MOMENT = 0.05
_MOMENT_EACH = 0.0002


class _Wait:
    def __init__(self, task_id: str, timeout: Duration, left: float) -> None:
        self.task_id = task_id
        self.timeout = timeout
        self.ends_at = time.monotonic() + left
        self.future: Future[Result] = Future()


class Waits:
    """Waits for results, side by side."""

    def __init__(self) -> None:
        """Begin no thread yet."""
        self._lock = threading.Lock()
        self._waits: collections.deque[_Wait] = collections.deque()
        self._process = os.getpid()
        self._is_running = False

    def begin(self, connections: Connections, task_id: str, timeout: Duration) -> Future[Result]:
        """Wait for a task: the future has its result, or ``TimedOut``."""
        text = interval(timeout)
        try:
            left = seconds(timeout)
        except ValueError:
            # PostgreSQL reads more than this module does.
            with connections.use() as connection:
                asked = borrowed.execute(connection, "SELECT extract(epoch FROM %s::text::interval)::float8", [text])
            left = asked[0][0]
        wait = _Wait(task_id, timeout, left)
        if self._process != os.getpid():
            self.__init__()  # type: ignore[misc]  # in a forked process, which has none of the threads
        with self._lock:
            self._waits.append(wait)
            begins, self._is_running = not self._is_running, True
        if begins:
            threading.Thread(target=self._run, args=[connections], name="taskq waits", daemon=True).start()
        return wait.future

    def _run(self, connections: Connections) -> None:
        again = delays(1)
        while self._open(last=True):
            try:
                with connections.use() as connection:
                    while waits := self._open():
                        self._look(connection, waits)
                        self._expire(waits)
            except Exception as error:
                waits = self._open()
                if not (is_lost(error) or is_transient(error)):
                    for wait in waits:
                        _settle(wait, error)
                self._expire(waits, error)
                delay = next(again)
                log.info("no look at what is waited for, again in %.1f s: %s", delay, str(error).strip())
                time.sleep(delay)

    def _open(self, last: bool = False) -> list[_Wait]:
        """Return what is still waited for; with ``last`` the thread ends if there is nothing."""
        with self._lock:
            self._waits = collections.deque(wait for wait in self._waits if not wait.future.done())
            self._is_running = bool(self._waits) or not last
            return list(self._waits)

    def _look(self, connection: psycopg.Connection[Any], waits: Sequence[_Wait]) -> None:
        by_id: dict[str, list[_Wait]] = {}
        for wait in waits:
            by_id.setdefault(wait.task_id, []).append(wait)
        left = min(wait.ends_at for wait in waits) - time.monotonic()
        moment = max(0.0, min(_MOMENT + _MOMENT_EACH * len(waits), left))
        try:
            rows = list(borrowed.execute(connection, _SLEEP, [waits[0].task_id, f"{moment} seconds"]))
            if len(by_id) > 1:
                rows += borrowed.execute(connection, _LOOK, [list(by_id)])
        except psycopg.errors.QueryCanceled:
            return  # by a statement_timeout, which is shorter than that
        except psycopg.Error as error:
            if is_lost(error) or is_transient(error):
                raise
            rows = list(self._each(connection, by_id))
        for row in rows:
            for wait in by_id.pop(row[0], ()):
                _settle(wait, Result(*row))

    def _each(self, connection: psycopg.Connection[Any], by_id: dict[str, list[_Wait]]) -> borrowed.Rows:
        """Look at each alone: one that is not there, or not for this role, is told to those that wait for it."""
        rows: list[Sequence[Any]] = []
        for task_id in list(by_id):
            try:
                rows += borrowed.execute(connection, _SLEEP, [task_id, "0"])
            except psycopg.Error as error:
                if is_lost(error):
                    raise
                for wait in by_id.pop(task_id):
                    _settle(wait, error)
        return rows

    def _expire(self, waits: Sequence[_Wait], cause: Exception | None = None) -> None:
        for wait in waits:
            if not wait.future.done() and wait.ends_at <= time.monotonic():
                error = TimedOut(f"{wait.task_id} has not settled within {wait.timeout}")
                error.__cause__ = cause
                _settle(wait, error)


def _settle(wait: _Wait, result: Result | Exception) -> None:
    # The caller may have given up meanwhile.
    if wait.future.set_running_or_notify_cancel():
        if isinstance(result, Exception):
            wait.future.set_exception(result)
        else:
            wait.future.set_result(result)
