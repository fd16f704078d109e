"""What producers call: insertion, signals and results, on a connection of the caller's or of the package's own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, LiteralString, Self, Unpack

from . import borrowed, tracing
from .bodies import body_text, dumps
from .connections import Connect, ConnectAsync, Connections
from .durations import Duration, interval
from .handles import Handle
from .keys import IfMissing, OnConflict, SharedKeys, TaskKeys, plain
from .operate import Operator
from .results import Result
from .threads import in_thread
from .waits import Waits

# A name, or what a decorator has returned, whose text is its name.
Action = Any

_INSERT: LiteralString = """SELECT task_id, outcome <> 'skipped'
                              FROM taskq.insert_tasks_report(%s::text::jsonb, on_conflict => %s, if_missing => %s)"""
_SIGNAL = """SELECT taskq.signal(%s, result => %s::text::jsonb, status => %s, action => %s,
                                 retention => %s::text::interval)"""


class Producer(Operator):
    """A queue, and the connections to it."""

    def __init__(self, connect: str | Connect, connect_async: ConnectAsync | None, max_connections: int) -> None:
        """Connect nothing yet."""
        self.connections = Connections(connect, connect_async, max_connections)
        self._waits = Waits()

    @property
    def producer(self) -> Producer:
        """This, as a queue to insert into."""
        return self

    # Insertion.

    def insert(
        self,
        action: Action,
        body: Any = None,
        *,
        connection: Any = None,
        on_conflict: OnConflict = "error",
        if_missing: IfMissing = "error",
        **keys: Unpack[TaskKeys],
    ) -> Handle:
        """Insert a task, in the transaction of ``connection`` if there is one, else committed at once.

        ``action`` is a name, or what a decorator has returned. The handle is the id of the task that does the work:
        with ``on_conflict="skip"`` and with ``unique_by`` that may be one which was there.
        """
        rows = self._run(connection, _INSERT, [self._alike(action, [body], keys), on_conflict, if_missing])
        return self._handles(rows)[0]

    async def insert_async(
        self,
        action: Action,
        body: Any = None,
        *,
        connection: Any = None,
        on_conflict: OnConflict = "error",
        if_missing: IfMissing = "error",
        **keys: Unpack[TaskKeys],
    ) -> Handle:
        """Do what ``insert`` does, on a connection of asyncio."""
        rows = await self._run_async(connection, _INSERT, [self._alike(action, [body], keys), on_conflict, if_missing])
        return self._handles(rows)[0]

    def insert_many(
        self,
        action: Action,
        bodies: Iterable[Any],
        *,
        ids: Sequence[str | None] | None = None,
        connection: Any = None,
        on_conflict: OnConflict = "error",
        if_missing: IfMissing = "error",
        **keys: Unpack[SharedKeys],
    ) -> list[Handle]:
        """Insert a task for each body, all or none; returns a handle for each, in order."""
        rows = self._run(connection, _INSERT, [self._alike(action, bodies, keys, ids), on_conflict, if_missing])
        return self._handles(rows)

    async def insert_many_async(
        self,
        action: Action,
        bodies: Iterable[Any],
        *,
        ids: Sequence[str | None] | None = None,
        connection: Any = None,
        on_conflict: OnConflict = "error",
        if_missing: IfMissing = "error",
        **keys: Unpack[SharedKeys],
    ) -> list[Handle]:
        """Do what ``insert_many`` does, on a connection of asyncio."""
        rows = await self._run_async(
            connection, _INSERT, [self._alike(action, bodies, keys, ids), on_conflict, if_missing]
        )
        return self._handles(rows)

    def insert_tasks(
        self,
        tasks: Iterable[Mapping[str, Any]],
        *,
        connection: Any = None,
        on_conflict: OnConflict = "error",
        if_missing: IfMissing = "error",
    ) -> list[Handle]:
        """Insert tasks, each a dict of its keys, all or none; returns a handle for each, in order."""
        rows = self._run(connection, _INSERT, [self._each(tasks), on_conflict, if_missing])
        return self._handles(rows)

    async def insert_tasks_async(
        self,
        tasks: Iterable[Mapping[str, Any]],
        *,
        connection: Any = None,
        on_conflict: OnConflict = "error",
        if_missing: IfMissing = "error",
    ) -> list[Handle]:
        """Do what ``insert_tasks`` does, on a connection of asyncio."""
        rows = await self._run_async(connection, _INSERT, [self._each(tasks), on_conflict, if_missing])
        return self._handles(rows)

    def _alike(
        self, action: Action, bodies: Iterable[Any], keys: Mapping[str, Any], ids: Sequence[str | None] | None = None
    ) -> str:
        name = str(action)
        shared = {**plain(keys), "action": name, "metadata": tracing.inject(keys.get("metadata"))}
        tasks = [{**shared, "body": self.body_of(name, body)} for body in bodies]
        if ids is not None:
            for task, task_id in zip(tasks, ids, strict=True):
                task["id"] = task_id
        return dumps(tasks)

    def _each(self, tasks: Iterable[Mapping[str, Any]]) -> str:
        made = []
        for task in tasks:
            keys = {key: value for key, value in plain(task).items() if key != "body"}
            if "action" in keys:
                keys["action"] = str(keys["action"])
            if "body" in task:
                keys["body"] = self.body_of(keys.get("action", ""), task["body"])
            made.append(keys | {"metadata": tracing.inject(task.get("metadata"))})
        return dumps(made)

    def body_of(self, action: str, body: Any) -> str | None:
        """Return the text of a body, after a look at whether the action takes it."""
        return body_text(body)

    def _handles(self, rows: borrowed.Rows) -> list[Handle]:
        return [Handle(task_id, self, inserted) for task_id, inserted in rows]

    # Signals and results.

    def signal(
        self,
        signal_id: str,
        result: Any = None,
        *,
        status: str | None = None,
        action: str = "signal",
        retention: Duration | None = None,
        connection: Any = None,
    ) -> bool:
        """Complete a signal, with a result for those that wait for it. It may come before anything waits.

        Returns false if it has come before: the first one counts.
        """
        arguments = self._signal(signal_id, result, status, action, retention)
        return bool(self._run(connection, _SIGNAL, arguments)[0][0])

    async def signal_async(
        self,
        signal_id: str,
        result: Any = None,
        *,
        status: str | None = None,
        action: str = "signal",
        retention: Duration | None = None,
        connection: Any = None,
    ) -> bool:
        """Do what ``signal`` does, on a connection of asyncio."""
        arguments = self._signal(signal_id, result, status, action, retention)
        return bool((await self._run_async(connection, _SIGNAL, arguments))[0][0])

    @staticmethod
    def _signal(
        signal_id: str, result: Any, status: str | None, action: str, retention: Duration | None
    ) -> Sequence[Any]:
        kept = None if retention is None else interval(retention)
        return [signal_id, None if result is None else dumps(result), status, action, kept]

    def wait(self, task_id: str, timeout: Duration = "10 seconds") -> Result:
        """Sleep until the task has settled, and return how; ``TimedOut`` if it has not in time.

        One connection waits for all waits of the app. A workflow does not wait like this, but suspends.
        """
        return self._waits.begin(self.connections, task_id, timeout).result()

    async def wait_async(self, task_id: str, timeout: Duration = "10 seconds") -> Result:
        """Do what ``wait`` does, in a coroutine."""
        return await asyncio.wrap_future(self._waits.begin(self.connections, task_id, timeout))

    # Statements.

    def query(self, query: LiteralString, arguments: Sequence[Any] = ()) -> borrowed.Rows:
        """Return the rows of a statement with ``%s`` in it, on one of the app's own connections, committed at once."""
        with self.connections.use() as connection:
            return borrowed.execute(connection, query, arguments)

    async def query_async(self, query: LiteralString, arguments: Sequence[Any] = ()) -> borrowed.Rows:
        """Do what ``query`` does, in a coroutine. Without a connection of asyncio's it uses a thread."""
        if not self.connections.has_async:
            return await in_thread(self.query, query, arguments)
        async with self.connections.use_async() as connection:
            return await borrowed.execute_async(connection, query, arguments)

    def __enter__(self) -> Self:
        """Return the app, to be closed in the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections that the app keeps."""
        self.close()

    def close(self) -> None:
        """Close the connections that the app keeps. It opens others if it is used again."""
        self.connections.close()

    async def close_async(self) -> None:
        """Do what ``close`` does, in a coroutine."""
        await self.connections.close_async()
        self.connections.close()

    def _run(self, connection: Any, query: LiteralString, arguments: Sequence[Any]) -> borrowed.Rows:
        if connection is None:
            return self.query(query, arguments)
        return borrowed.execute(connection, query, arguments)

    async def _run_async(self, connection: Any, query: LiteralString, arguments: Sequence[Any]) -> borrowed.Rows:
        if connection is None:
            return await self.query_async(query, arguments)
        return await borrowed.execute_async(connection, query, arguments)
