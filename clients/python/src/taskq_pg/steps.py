"""Durable functions: what a workflow has done is saved as steps, and while it waits its task holds nothing.

A workflow is entered from the top after each wait, crash and failure. What has a saved step is not done again: it
returns what it returned before. Each promise is kept by a SQL call: ``taskq.save_step`` keeps the first result of a
name and refuses a token that is void, and ``taskq.return_task`` suspends.

What both flavours of contexts do is written here once, as coroutines, which in ``Context`` wait for nothing: see
``driven``.
"""

from __future__ import annotations

import hashlib
import json
import logging
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar

import psycopg

from . import borrowed, tracing
from .bodies import bounded, convert, dumps, dumps_again, unalias
from .durations import Duration, interval
from .errors import Aborted, Lost, Suspend, TimedOut
from .keys import SharedKeys, plain
from .link import delays, is_limit, is_lost, is_transient
from .results import Result

if TYPE_CHECKING:
    from .task import Task

log = logging.getLogger("taskq_pg")

# A call that meets a limit of the server's so often is too large; and so often a call is made when the worker stops.
_TRIES = 5
# Before the next entry of a workflow whose call had no answer: it may get none that time either.
_PAUSE = "1 second"

T = TypeVar("T")
Statement = tuple[LiteralString, Sequence[Any]]
Function = Callable[..., Any]

_SAVE = "SELECT taskq.save_step(%s, %s::text::uuid, %s, %s::text::jsonb, %s::text::interval)"
# Until when a wait lasts is saved once, by the queue's own clock: a later try waits for the rest of it.
_LEFT = """SELECT (until::timestamptz - taskq.clock())::text, until::timestamptz <= taskq.clock(), until
             FROM (SELECT taskq.save_step(%s, %s::text::uuid, %s, to_jsonb(taskq.clock() + %s::text::interval))
                          #>> '{}' AS until) AS saved"""
# By that time. A suspension tells the next entry of what has ended; but that there was one is not sure: a worker may
# die before, and what brings a task back from an abort drops what is open.
_ENDED = """SELECT id, NULL, status_code::text, status, result
              FROM unnest(%s::text[]) AS id, taskq.wait_for_task(id, '0') WHERE settled_at <= %s::text::timestamptz"""
# In one transaction with a step that says which they are: the tasks are inserted once, even if retention has removed
# them since. Where a unique key has kept one out, the task that holds the key does its work.
_INSERT = """SELECT taskq.save_step(%s, %s::text::uuid, %s, (
                        SELECT coalesce(jsonb_agg(task_id ORDER BY n), '[]')
                          FROM taskq.insert_tasks_report(%s::text::jsonb)
                               WITH ORDINALITY AS report (task_id, outcome, existing_id, n)))"""


class Steps:
    """What a task has done as a workflow, and what it does next."""

    def __init__(self, task: Task, lease: float) -> None:
        """Take the steps that the task has come with; ``lease`` is in seconds."""
        self.task = task
        """The task that performs the workflow."""
        self._lease = f"{lease} seconds"
        self._steps = task.steps
        self._results = {result.task_id: result for result in task.results}
        self._used: dict[str, int] = {}

    @property
    def id(self) -> str:
        """The id of the workflow's task."""
        return self.task.id

    # What differs between the flavours.

    async def _query(self, statement: Statement) -> borrowed.Rows:
        raise NotImplementedError

    async def _execute(self, connection: Any, statement: Statement) -> borrowed.Rows:
        raise NotImplementedError

    async def _pause(self, delay: float) -> None:
        raise NotImplementedError

    async def _call(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def _lend(self) -> AbstractAsyncContextManager[Any]:
        """Lend a connection with an open transaction."""
        raise NotImplementedError

    # Steps.

    async def _do_step(
        self, name: str, unique: bool, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        name = self._use(name, unique)
        if name not in self._steps:
            with tracing.step(name):
                await self._save(name, await self._call(function, args, kwargs), function)
        return read(self._steps[name], function, name)

    async def _do_transaction(
        self, name: str, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if name not in self._steps:
            async with self._transaction(name) as connection:
                value = await self._call(function, [connection, *args], kwargs)
                await self._save_in(connection, name, value, function)
        return read(self._steps[name], function, name)

    @asynccontextmanager
    async def _statements(self, name: str, kind: Callable[[Any], T]) -> AsyncIterator[T]:
        if name in self._steps:
            yield kind(None)
            return
        async with self._transaction(name) as connection:
            yield kind(connection)
            await self._save_in(connection, name, None, None)

    @asynccontextmanager
    async def _transaction(self, name: str) -> AsyncIterator[Any]:
        with tracing.step(name):
            async with self._lend() as connection:
                yield connection

    async def _save_in(self, connection: Any, name: str, value: Any, function: Function | None) -> None:
        statement = self._saving(name, value, function)
        with _losing():
            self._steps[name] = (await self._execute(connection, statement))[0][0]

    def _use(self, name: str, unique: bool = True) -> str:
        self.task.go_on()
        if self.task.lost.is_set():
            raise Lost(f'lost before "{name}"')
        uses = self._used[name] = self._used.get(name, 0) + 1
        if uses == 1:
            return name
        if unique:
            raise ValueError(f'a second step is named "{name}"; in a loop, say step(..., unique=False)')
        return self._use(f"{name}#{uses}")

    async def _run(self, *statement: Any) -> borrowed.Rows:
        failures = 0
        for delay in delays():
            try:
                return await self._query((statement[0], statement[1]))
            except (psycopg.Error, OSError) as error:
                failures = self._again(statement[0], error, failures, delay)
            await self._pause(delay)
        raise AssertionError  # delays() has no end

    async def _save(self, name: str, value: Any, function: Function | None = None) -> Any:
        rows = await self._run(*self._saving(name, value, function))
        self._steps[name] = rows[0][0]
        return rows[0][0]

    def _suspend(self, name: str, **returns: Any) -> Suspend:
        if self.task.suspended is None:
            self.task.suspended = Suspend(name, **returns)
        return self.task.suspended

    def _saving(self, name: str, value: Any, function: Function | None) -> Statement:
        self.task.go_on()
        try:
            text = dumps_again(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(f'the result of step "{name}" is no JSON: {error}') from error
        bounded(text, f'the result of step "{name}"')
        if function is not None:
            # Once it is saved, each entry reads it, and none would get further.
            read(json.loads(text), function, name)
        return _SAVE, [self.task.id, self.task.token, name, text, self._lease]

    async def _left(self, name: str, duration: Duration) -> tuple[str | None, str]:
        """Return what is left of a duration that began when this was asked first, None if nothing is; and its end."""
        rows = await self._run(_LEFT, [self.task.id, self.task.token, name, interval(duration)])
        left, over, until = rows[0]
        return None if over else left, until

    async def _wait(self, name: str, elements: list[Any], timeout: Duration | None) -> Any:
        """Suspend until the tasks have settled, and return how, as it was saved first."""
        until = f"{name}:until"
        if timeout is not None:
            self._use(until)
        if name in self._steps:
            return self._steps[name]
        ids = [element if isinstance(element, str) else element["id"] for element in elements]
        if not all(task_id in self._results for task_id in ids):
            if timeout is None:
                raise self._suspend(name, depends_on=elements)
            left, end = await self._left(until, timeout)
            if left is not None:
                raise self._suspend(name, depends_on=elements, wait_at_most=left)
            try:
                rows = await self._run(_ENDED, [ids, end])
            except psycopg.Error as error:
                # One of them is not there. What is not for this role to look at may have ended: that fails the try.
                if error.sqlstate != "TQ003":
                    raise
            else:
                self._results |= {row[0]: Result(*row) for row in rows}
        over: Any = {"timed_out": True}
        if all(task_id in self._results for task_id in ids):
            over = [self._ending(task_id) for task_id in ids]
        return await self._save(name, over)

    def _ending(self, task_id: str) -> dict[str, Any]:
        result = self._results[task_id]
        if result.completed:
            return {"task_id": task_id, "result": result.result}
        return {"task_id": task_id, "aborted": result.status}

    async def _wait_for(
        self,
        name: str,
        signal: str | None,
        tasks: Iterable[str] | None,
        timeout: Duration | None,
        expires_in: Duration | None,
    ) -> Any:
        if (signal is None) == (tasks is None) or (signal is None and expires_in is not None):
            raise TypeError("wait_for takes a signal, which may expire, or tasks")
        elements: list[Any] = [{"id": signal, "signal": True}] if tasks is None else list(tasks)
        if expires_in is not None:
            elements[0]["expires_in"] = interval(expires_in)
        ended = await self._wait(self._use(name), elements, timeout)
        if isinstance(ended, dict):
            raise TimedOut(f'"{name}" has not ended within {timeout}')
        values = _values(ended, False)
        return values[0] if tasks is None else values

    async def _map(
        self,
        name: str,
        action: Any,
        bodies: Iterable[Any],
        return_aborted: bool,
        timeout: Duration | None,
        keys: SharedKeys,
    ) -> list[Any]:
        name, inserted = self._use(name), self._use(f"{name}:tasks")
        if name not in self._steps and inserted not in self._steps:
            texts = [self.task.app.body_of(str(action), body) for body in bodies]
            shared = {**plain(keys), "action": str(action), "metadata": tracing.inject(keys.get("metadata"))}
            self._steps[inserted] = await self._insert(name, inserted, shared, texts)
        # Those that were inserted, whatever the code asks for by now.
        ended = await self._wait(name, self._steps.get(inserted) or [], timeout)
        if isinstance(ended, dict):
            raise TimedOut(f'"{name}" has not ended within {timeout}')
        return _values(ended, return_aborted)

    async def _insert(self, name: str, step: str, shared: dict[str, Any], texts: Sequence[str | None]) -> Any:
        """Insert children, and return their ids."""
        # Of an earlier task with the id of this one there may be children left: the token tells this one's apart.
        for end in ("", f"/x{hashlib.sha256(self.task.token.encode()).hexdigest()[:8]}"):
            ids = [f"{self.id}/{name}/{n}{end}" for n in range(len(texts))]
            children = [{**shared, "id": i, "body": text} for i, text in zip(ids, texts, strict=True)]
            text = bounded(dumps(children), f'what "{name}" inserts')
            try:
                rows = await self._run(_INSERT, [self.task.id, self.task.token, step, text])
            except psycopg.Error as error:
                if error.sqlstate != "TQ002" or end:
                    raise
            else:
                return rows[0][0]
        raise AssertionError  # the second one returns or raises

    async def _sleep(self, name: str, duration: Duration) -> None:
        name, until = self._use(name), self._use(f"{name}:until")
        if name in self._steps:
            return
        left, _ = await self._left(until, duration)
        if left is not None:
            # Nothing to wait for but the time.
            raise self._suspend(name, depends_on=[], retry_after=left)
        await self._save(name, None)

    def _again(self, query: str, error: Exception, failures: int, delay: float) -> int:
        """Return how many failures of the call count by now, if it may be made again; else raise."""
        if isinstance(error, psycopg.Error) and error.sqlstate == "TQ001":
            raise Lost(str(error)) from error
        if not (is_lost(error) or is_transient(error)):
            raise error
        if self.task.lost.is_set():
            raise Lost(str(error)) from error
        if is_lost(error) and query == _INSERT:
            # It may have been committed. Where retention has removed a child since, a second call would insert that
            # again; the next entry finds the step, or that there is no child.
            status = "the answer was lost that tells of its children"
            raise self._suspend("its tasks", status=status, count_try=False, retry_after=_PAUSE) from error
        # A call that is too large never fits. And what is given back while it is repeated would go on for ever.
        stopping = self.task.stopping.is_set()
        failures += stopping or is_limit(error)
        if failures >= _TRIES:
            if stopping:
                status = "given back by a worker that stops"
                raise self._suspend("a call", status=status, count_try=False) from error
            raise error
        log.warning("%s: a call of the workflow has failed, again in %.1f s: %s", self.id, delay, str(error).strip())
        return failures


@contextmanager
def _losing() -> Iterator[None]:
    """Tell that the workflow is lost. A void token in a statement of the program's may be another task's."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate == "TQ001":
            raise Lost(str(error)) from error
        raise


def _values(ended: list[dict[str, Any]], return_aborted: bool) -> list[Any]:
    """Return the results; raise the first abort unless it is to be returned in its place."""
    values: list[Any] = []
    for one in ended:
        if "aborted" in one:
            error = Aborted(one["task_id"], one["aborted"])
            if not return_aborted:
                raise error
            values.append(error)
        else:
            values.append(one["result"])
    return values


def read(value: Any, function: Callable[..., Any], name: str) -> Any:
    """Return a saved result as what the function's annotation asks for."""
    try:
        kind = typing.get_type_hints(function, include_extras=True).get("return", Any)
    except (TypeError, NameError, AttributeError):
        kind = Any  # a built-in, or an annotation that cannot be looked up
    kind = unalias(kind)
    origin = typing.get_origin(kind) or kind
    if isinstance(origin, type) and issubclass(origin, Awaitable):
        # What is saved is what it was awaited for: of Awaitable[T] and Coroutine[..., ..., T] that is the last one.
        kind = unalias((typing.get_args(kind) or [Any])[-1])
    if kind is int and isinstance(value, bool):
        return value  # which is an int in Python
    return convert(value, kind, f'the result of step "{name}"')
