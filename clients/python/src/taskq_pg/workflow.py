"""What workflows are given: a context, for functions and for coroutines. What they do with it is in ``steps``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any, TypeVar, Unpack, overload

import psycopg
from psycopg import sql

from . import borrowed
from .driven import entered, now
from .durations import Duration
from .keys import SharedKeys
from .producer import Action
from .steps import Statement, Steps
from .threads import in_thread

T = TypeVar("T")


class Context(Steps):
    """What a workflow that is a plain function is given."""

    def step(self, name: str, function: Callable[..., T], *args: Any, unique: bool = True, **kwargs: Any) -> T:
        """Call the function, save its result, and return the saved one from then on.

        If the worker dies before it is saved, the next run calls the function again. The result is JSON, or what the
        function's own annotation reads from JSON. With ``unique=False`` the second use of a name is ``name#2``, for
        loops.
        """
        result: T = now(self._do_step(name, unique, function, args, kwargs))
        return result

    @overload
    def transaction(self, name: str) -> AbstractContextManager[Statements]: ...
    @overload
    def transaction(self, name: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T: ...
    def transaction(self, name: str, function: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Call ``function(connection, ...)`` in a transaction that commits with this step's record: exactly once.

        Without a function it is a context manager, for statements alone: the block is entered each time, and its
        statements take effect once.
        """
        name = self._use(name)
        if function is None:
            return entered(self._statements(name, Statements))
        return now(self._do_transaction(name, function, args, kwargs))

    def wait_for(
        self,
        name: str,
        *,
        signal: str | None = None,
        tasks: Iterable[str] | None = None,
        timeout: Duration | None = None,
        expires_in: Duration | None = None,
    ) -> Any:
        """Suspend until the signal has come, or the tasks have ended, and return the result, or the list of them.

        Raises ``TimedOut`` after the timeout, counted from the first time that this was reached, and ``Aborted`` if
        the signal (cancelled or expired) or one of the tasks has aborted. A signal that was waited for
        stays after a timeout; with ``expires_in`` it aborts, and is removed in time.
        """
        return now(self._wait_for(name, signal, tasks, timeout, expires_in))

    def map(
        self,
        name: str,
        action: Action,
        bodies: Iterable[Any],
        *,
        return_aborted: bool = False,
        timeout: Duration | None = None,
        **keys: Unpack[SharedKeys],
    ) -> list[Any]:
        """Insert a task for each body, suspend until all have ended, and return their results in order.

        Raises ``Aborted`` if one has aborted; with ``return_aborted`` the ``Aborted`` stands in its place instead.
        Raises ``TimedOut`` after the timeout; the tasks go on.
        """
        return now(self._map(name, action, bodies, return_aborted, timeout, keys))

    def call(self, name: str, action: Action, body: Any = None, **keys: Unpack[SharedKeys]) -> Any:
        """Insert one task, suspend until it has ended, and return its result; raises ``Aborted`` if it aborts."""
        return now(self._map(name, action, [body], False, None, keys))[0]

    def sleep(self, name: str, duration: Duration) -> None:
        """Suspend for this time."""
        now(self._sleep(name, duration))

    async def _query(self, statement: Statement) -> borrowed.Rows:
        return self.task.app.query(*statement)

    async def _execute(self, connection: Any, statement: Statement) -> borrowed.Rows:
        return borrowed.execute(connection, *statement)

    async def _pause(self, delay: float) -> None:
        self.task.lost.wait(delay)

    async def _call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return function(*args, **kwargs)

    @asynccontextmanager
    async def _lend(self) -> AsyncIterator[psycopg.Connection[Any]]:
        with self.task.app.connections.lend() as connection, connection.transaction():
            yield connection


class AsyncContext(Steps):
    """What a workflow that is a coroutine is given: the same as ``Context``, awaited."""

    async def step(
        self, name: str, function: Callable[..., Any], *args: Any, unique: bool = True, **kwargs: Any
    ) -> Any:
        """Call the function, save its result, and return the saved one from then on; a plain one runs in a thread."""
        return await self._do_step(name, unique, function, args, kwargs)

    @overload
    def transaction(self, name: str) -> AbstractAsyncContextManager[AsyncStatements]: ...
    @overload
    def transaction(
        self, name: str, function: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, T]: ...
    def transaction(self, name: str, function: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Any:
        """Await ``function(connection, ...)`` in a transaction that commits with this step's record: exactly once.

        Without a function it is a context manager, for statements alone, as in ``Context``.
        """
        name = self._use(name)
        if function is None:
            return self._statements(name, AsyncStatements)
        return self._do_transaction(name, function, args, kwargs)

    async def wait_for(
        self,
        name: str,
        *,
        signal: str | None = None,
        tasks: Iterable[str] | None = None,
        timeout: Duration | None = None,
        expires_in: Duration | None = None,
    ) -> Any:
        """Suspend until the signal has come, or the tasks have ended; see ``Context.wait_for``."""
        return await self._wait_for(name, signal, tasks, timeout, expires_in)

    async def map(
        self,
        name: str,
        action: Action,
        bodies: Iterable[Any],
        *,
        return_aborted: bool = False,
        timeout: Duration | None = None,
        **keys: Unpack[SharedKeys],
    ) -> list[Any]:
        """Insert a task for each body and suspend until all have ended; see ``Context.map``."""
        return await self._map(name, action, bodies, return_aborted, timeout, keys)

    async def call(self, name: str, action: Action, body: Any = None, **keys: Unpack[SharedKeys]) -> Any:
        """Insert one task and suspend until it has ended; see ``Context.call``."""
        return (await self._map(name, action, [body], False, None, keys))[0]

    async def sleep(self, name: str, duration: Duration) -> None:
        """Suspend for this time."""
        await self._sleep(name, duration)

    async def _query(self, statement: Statement) -> borrowed.Rows:
        return await self.task.app.query_async(*statement)

    async def _execute(self, connection: Any, statement: Statement) -> borrowed.Rows:
        return await borrowed.execute_async(connection, *statement)

    async def _pause(self, delay: float) -> None:
        await asyncio.sleep(delay)

    async def _call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        value = await in_thread(function, *args, **kwargs)
        return await value if inspect.isawaitable(value) else value

    @asynccontextmanager
    async def _lend(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with self.task.app.connections.lend_async() as connection, connection.transaction():
            yield connection


class Statements:
    """The statements of a transactional step. They return nothing: when the step is passed over, there is nothing."""

    def __init__(self, connection: psycopg.Connection[Any] | None) -> None:
        """Take the connection, or None if the step has been saved."""
        self._connection = connection

    def execute(self, query: str | sql.Composable, arguments: Any = None) -> None:
        """Run a statement, unless the step has been saved."""
        if self._connection is not None:
            self._connection.execute(_text(query), arguments)


class AsyncStatements:
    """The statements of a transactional step, awaited."""

    def __init__(self, connection: psycopg.AsyncConnection[Any] | None) -> None:
        """Take the connection, or None if the step has been saved."""
        self._connection = connection

    async def execute(self, query: str | sql.Composable, arguments: Any = None) -> None:
        """Run a statement, unless the step has been saved."""
        if self._connection is not None:
            await self._connection.execute(_text(query), arguments)


def _text(query: str | sql.Composable) -> bytes | sql.Composed | sql.SQL:
    # psycopg's types demand a literal of a str; the workflow's author knows what the text is made of.
    return query.encode() if isinstance(query, str) else sql.Composed([query])
