"""The statements with which a worker owns, returns and extends tasks, and what becomes of their rows."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
from psycopg import sql

from . import borrowed
from .bodies import Unreadable
from .link import is_lost
from .results import Result
from .task import Task

if TYPE_CHECKING:
    from .handlers import Handler
    from .producer import Producer

log = logging.getLogger("taskq_pg")

Statement = tuple[LiteralString, list[Any]]

# How long the deadline is away is asked of the queue's own clock.
_COLUMNS = """task_id, token::text, action, body, num_tries, num_failures, action_deadline, checkpoint, priority,
              metadata, extract(epoch FROM action_deadline - taskq.clock())::float8, results"""
# The limit is set by the statement that it is for, in its transaction: PgBouncer may stand in between.
_ACTOR = "CASE WHEN set_config('lock_timeout', %s, true) IS NOT NULL THEN %s END"
# What there is at the other end of a connection. A transaction_timeout, which PostgreSQL has from version 17 on, would
# end a session that sleeps for longer.
_ABOUT: LiteralString = """
    SELECT extract(epoch FROM current_setting('transaction_timeout', true)::interval)::float8"""
# How long one claim sleeps in the server. It holds a snapshot meanwhile, so not for long.
_SLEEP = 10.0
_EXTEND = f"""SELECT owned, extract(epoch FROM action_deadline - taskq.clock())::float8
                FROM taskq.extend_tasks_ownership({_ACTOR}, %s::text[], %s::text[]::uuid[],
                                                             %s::text::interval)"""

# What a grant has no room for, row by row.
RESULTS: LiteralString = """SELECT task_id, action, status_code::text, status, result
                              FROM taskq.dependency_results(%s)"""
STEPS: LiteralString = "SELECT step, result FROM taskq.steps WHERE task_id = %s"

_TRIES: LiteralString = """
    SELECT t.id, t.state, coalesce(t.max_tries, a.max_tries, nullif(current_setting('taskq.max_tries', true), '')::int),
           extract(epoch FROM t.not_before - taskq.clock())::float8
      FROM taskq.tasks AS t LEFT JOIN taskq.actions AS a USING (action) WHERE t.id = ANY (%s::text[])"""


class Calls:
    """Statements of one worker. ``patience`` is in seconds: for so long the statement waits for a lock."""

    def __init__(self, app: Producer, actor: str, handlers: Iterable[Handler]) -> None:
        """Build the statements."""
        self._app = app
        self._actor = actor
        self._sleep = _SLEEP
        self._know(list(handlers))

    def knowing(self, handlers: Iterable[Handler]) -> Calls:
        """Return the statements for these handlers."""
        made = copy.copy(self)
        made._know(list(handlers))
        return made

    def _know(self, handlers: list[Handler]) -> None:
        self.actions = [handler.action for handler in handlers]
        # One claim is for all actions, so it takes the shortest lease; the first heartbeat makes it a task's own.
        self.lease = min(handler.lease for handler in handlers)
        self._with_results = any(handler.results for handler in handlers)
        self._with_steps = any(handler.workflow for handler in handlers)
        steps, argument = ("steps", ", with_steps => true") if self._with_steps else ("NULL", "")
        # A claim does no more than to pass its rows on: only such a one sees to what is due, such as schedules.
        self._own: LiteralString = f"""SELECT {_COLUMNS}, {steps}
                          FROM taskq.own_tasks(%s, %s, %s::text[], %s::text::interval,
                                               wait => %s::text::interval, with_results => %s{argument})"""
        self._give: LiteralString = f"""SELECT {_COLUMNS}, {steps}, sqlstate
                           FROM taskq.return_and_own_tasks({_ACTOR}, %s::text::jsonb, %s, %s::text[],
                                                           %s::text::interval, with_results => %s{argument})"""

    def meet(self, connection: psycopg.Connection[Any]) -> None:
        """Look at what a connection leads to."""
        [[timeout]] = borrowed.execute(connection, _ABOUT, [])
        self._sleep = min(_SLEEP, timeout / 2) if timeout else _SLEEP

    def own(self, number: int, actions: Sequence[str], *, sleeps: bool) -> Statement:
        """Own so many tasks; a claim that sleeps waits for one."""
        wait = f"{self._sleep} seconds" if sleeps else None
        return self._own, [self._actor, number, list(actions), f"{self.lease} seconds", wait, self._with_results]

    def give(self, returns: str, number: int, patience: float) -> Statement:
        """Return tasks, and own so many others. The last column of a row tells why a return was refused."""
        claim = [number, self.actions, f"{self.lease} seconds", self._with_results]
        return self._give, [_limit(patience), self._actor, returns, *claim]

    def extend(self, tasks: Sequence[Task], lease: float, patience: float) -> Statement:
        """Extend the leases, and tell for each task whether it is still owned, and for how many seconds."""
        ids, tokens = [task.id for task in tasks], [task.token for task in tasks]
        return _EXTEND, [_limit(patience), self._actor, ids, tokens, f"{lease} seconds"]

    def listen(self, connection: psycopg.Connection[Any]) -> None:
        """Have a connection told at once what is taken from the worker; without that heartbeats tell of it."""
        try:
            [[channel]] = borrowed.execute(connection, "SELECT taskq.lost_channel(%s)", [self._actor])
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        except psycopg.DatabaseError as error:
            if is_lost(error):
                raise
            log.info("cancelled tasks are found by heartbeats alone: %s", error)

    def tries(self, ids: Sequence[str]) -> Statement:
        """Tell of tasks how they go on: state, how many tries there are, seconds until the next."""
        return _TRIES, [ids]

    def stop_waiting(self) -> Statement:
        """End the claims of this worker that sleep."""
        return "SELECT taskq.stop_waiting(%s)", [self._actor]

    def tasks(self, rows: Iterable[Sequence[Any]]) -> list[Task]:
        """Return the tasks that were granted."""
        return [self._task(*row[:13]) for row in rows]

    def _task(self, *columns: Any) -> Task:
        unreadable = next((column.problem for column in columns if isinstance(column, Unreadable)), None)
        # A column that was asked for is NULL where there is too much for one row: never nothing.
        incomplete = (self._with_results and columns[-2] is None) or (self._with_steps and columns[-1] is None)
        *plain, results, steps = (None if isinstance(column, Unreadable) else column for column in columns)
        given: list[Any] = [*plain, [_result(row) for row in results or ()], steps or {}]
        task = Task(self._app, *given)
        task.unreadable, task.incomplete = unreadable, incomplete
        return task


def _limit(patience: float) -> str:
    return f"{max(1, round(patience * 1000))}ms"


def _result(row: Mapping[str, Any]) -> Result:
    return Result(row["task_id"], row["action"], row["status_code"], row["status"], row["result"])
