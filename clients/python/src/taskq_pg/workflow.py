"""What workflows are given: a context, for functions and for coroutines. What they do with it is in ``steps``."""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, TypeVar, Unpack, overload

import psycopg
from psycopg import sql

from . import borrowed, tracing
from .durations import Duration
from .errors import Lost
from .keys import SharedKeys
from .link import delays
from .producer import Action
from .steps import Calls, Statement, Steps, read
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
        name = self._use(name, unique)
        if name not in self._steps:
            with tracing.step(name):
                self._drive(self._save(name, function(*args, **kwargs), function))
        return typing.cast(T, read(self._steps[name], function, name))

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
            return self._statements(name)
        if name not in self._steps:
            with self._transaction(name) as connection:
                self._save_in(connection, name, function(connection, *args, **kwargs), function)
        return read(self._steps[name], function, name)

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
        return self._drive(self._wait_for(name, signal, tasks, timeout, expires_in))

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
        return self._drive(self._map(name, action, bodies, return_aborted, timeout, keys))

    def call(self, name: str, action: Action, body: Any = None, **keys: Unpack[SharedKeys]) -> Any:
        """Insert one task, suspend until it has ended, and return its result; raises ``Aborted`` if it aborts."""
        return self._drive(self._map(name, action, [body], False, None, keys))[0]

    def sleep(self, name: str, duration: Duration) -> None:
        """Suspend for this time."""
        self._drive(self._sleep(name, duration))

    @contextmanager
    def _statements(self, name: str) -> Iterator[Statements]:
        if name in self._steps:
            yield Statements(None)
            return
        with self._transaction(name) as connection:
            yield Statements(connection)
            self._save_in(connection, name, None)

    @contextmanager
    def _transaction(self, name: str) -> Iterator[psycopg.Connection[Any]]:
        with tracing.step(name), self.task.app.connections.lend() as connection, connection.transaction():
            yield connection

    def _save_in(
        self, connection: psycopg.Connection[Any], name: str, value: Any, function: Callable[..., Any] | None = None
    ) -> None:
        statement = self._saving(name, value, function)
        with _losing():
            self._steps[name] = borrowed.execute(connection, *statement)[0][0]

    def _drive(self, calls: Calls[T]) -> T:
        try:
            statement = next(calls)
            while True:
                try:
                    rows = self._run(statement)
                except psycopg.Error as error:
                    statement = calls.throw(error)
                else:
                    statement = calls.send(rows)
        except StopIteration as end:
            return typing.cast(T, end.value)

    def _run(self, statement: Statement) -> borrowed.Rows:
        failures = 0
        for delay in delays():
            try:
                return self.task.app.query(*statement)
            except (psycopg.Error, OSError) as error:
                failures = self._again(statement, error, failures, delay)
            self.task.lost.wait(delay)
        raise AssertionError  # delays() has no end


class AsyncContext(Steps):
    """What a workflow that is a coroutine is given: the same as ``Context``, awaited."""

    async def step(
        self, name: str, function: Callable[..., Any], *args: Any, unique: bool = True, **kwargs: Any
    ) -> Any:
        """Call the function, save its result, and return the saved one from then on; a plain one runs in a thread."""
        name = self._use(name, unique)
        if name not in self._steps:
            with tracing.step(name):
                if inspect.iscoroutinefunction(function):
                    value = await function(*args, **kwargs)
                else:
                    value = await in_thread(function, *args, **kwargs)
                    if inspect.isawaitable(value):
                        value = await value
                await self._drive(self._save(name, value, function))
        return read(self._steps[name], function, name)

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
            return self._statements(name)
        return self._call_in_transaction(name, function, args, kwargs)

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
        return await self._drive(self._wait_for(name, signal, tasks, timeout, expires_in))

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
        return await self._drive(self._map(name, action, bodies, return_aborted, timeout, keys))

    async def call(self, name: str, action: Action, body: Any = None, **keys: Unpack[SharedKeys]) -> Any:
        """Insert one task and suspend until it has ended; see ``Context.call``."""
        return (await self._drive(self._map(name, action, [body], False, None, keys)))[0]

    async def sleep(self, name: str, duration: Duration) -> None:
        """Suspend for this time."""
        await self._drive(self._sleep(name, duration))

    async def _call_in_transaction(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        if name not in self._steps:
            async with self._transaction(name) as connection:
                await self._save_in(connection, name, await function(connection, *args, **kwargs), function)
        return read(self._steps[name], function, name)

    @asynccontextmanager
    async def _statements(self, name: str) -> AsyncIterator[AsyncStatements]:
        if name in self._steps:
            yield AsyncStatements(None)
            return
        async with self._transaction(name) as connection:
            yield AsyncStatements(connection)
            await self._save_in(connection, name, None)

    @asynccontextmanager
    async def _transaction(self, name: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        with tracing.step(name):
            async with self.task.app.connections.lend_async() as connection, connection.transaction():
                yield connection

    async def _save_in(
        self,
        connection: psycopg.AsyncConnection[Any],
        name: str,
        value: Any,
        function: Callable[..., Any] | None = None,
    ) -> None:
        statement = self._saving(name, value, function)
        with _losing():
            self._steps[name] = (await borrowed.execute_async(connection, *statement))[0][0]

    async def _drive(self, calls: Calls[T]) -> T:
        try:
            statement = next(calls)
            while True:
                try:
                    rows = await self._run(statement)
                except psycopg.Error as error:
                    statement = calls.throw(error)
                else:
                    statement = calls.send(rows)
        except StopIteration as end:
            return typing.cast(T, end.value)

    async def _run(self, statement: Statement) -> borrowed.Rows:
        failures = 0
        for delay in delays():
            try:
                return await self.task.app.query_async(*statement)
            except (psycopg.Error, OSError) as error:
                failures = self._again(statement, error, failures, delay)
            await asyncio.sleep(delay)
        raise AssertionError  # delays() has no end


class Statements:
    """The statements of a transactional step. They return nothing: when the step is passed over, there is nothing."""

    def __init__(self, connection: psycopg.Connection[Any] | None) -> None:
        """Take the connection, or None if the step has been saved."""
        self._connection = connection

    def execute(self, query: str | sql.Composable, arguments: Any = None) -> None:
        """Run a statement, unless the step has been saved."""
        if self._connection is not None:
            self._connection.execute(_query(query), arguments)


class AsyncStatements:
    """The statements of a transactional step, awaited."""

    def __init__(self, connection: psycopg.AsyncConnection[Any] | None) -> None:
        """Take the connection, or None if the step has been saved."""
        self._connection = connection

    async def execute(self, query: str | sql.Composable, arguments: Any = None) -> None:
        """Run a statement, unless the step has been saved."""
        if self._connection is not None:
            await self._connection.execute(_query(query), arguments)


@contextmanager
def _losing() -> Iterator[None]:
    """Tell that the workflow is lost. A void token in a statement of the program's may be another task's."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate == "TQ001":
            raise Lost(str(error)) from error
        raise


def _query(query: str | sql.Composable) -> bytes | sql.Composed | sql.SQL:
    # psycopg's types demand a literal of a str; the workflow's author knows what the text is made of.
    return query.encode() if isinstance(query, str) else sql.Composed([query])
