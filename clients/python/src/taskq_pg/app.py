"""The app: handlers by action, and what producers call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar, Unpack

from . import borrowed, tracing
from .bodies import body_text, dumps
from .connections import Connect, ConnectAsync, Connections
from .durations import Duration, interval
from .errors import TimedOut
from .handlers import Handler
from .keys import ActionSettings, SharedKeys, TaskKeys, plain
from .running import run_in_new_loop, stopped_by_signals
from .task import Result, task_array
from .threads import in_thread
from .worker import Worker

Function = TypeVar("Function", bound=Callable[..., Any])
OnConflict = Literal["error", "skip"]
IfMissing = Literal["error", "ignore"]

_INSERT_ONE = """SELECT task_id FROM taskq.insert_tasks_report(%s::text::jsonb, on_conflict => %s, if_missing => %s)"""
_INSERT = "SELECT taskq.insert_tasks(%s::text::jsonb, on_conflict => %s, if_missing => %s)"
_SIGNAL = """SELECT taskq.signal(%s, result => %s::text::jsonb, status => %s, action => %s,
                                 retention => %s::text::interval)"""
_WAIT = "SELECT task_id, NULL, status_code::text, status, result FROM taskq.wait_for_task(%s, %s::text::interval)"
_SCHEDULE = """SELECT taskq.schedule(%s, %s, %s::text::jsonb, timezone => %s, overlap => %s, backfill => %s)"""


class App:
    """The handlers of a program, and a queue: ``App("postgresql:///shop")``. It connects when first used."""

    def __init__(
        self,
        connect: str | Connect = "",
        *,
        connect_async: ConnectAsync | None = None,
        lease: Duration = "1 minute",
    ) -> None:
        """Take a conninfo, or a function that returns a connection; left out, PGHOST and the like count.

        ``connect_async`` is for coroutines, if ``connect`` returns a connection. ``lease`` is for the tasks of
        handlers that have none of their own.
        """
        self.connections = Connections(connect, connect_async)
        self.handlers: dict[str, Handler] = {}
        self._lease = lease
        self._schedules: dict[str, Sequence[Any]] = {}
        self._workers: list[Worker] = []

    # Handlers.

    def task(
        self, action: str, *, lease: Duration | None = None, results: bool = False, **settings: Unpack[ActionSettings]
    ) -> Callable[[Function], Function]:
        """Register a function, or a coroutine function, for the tasks of an action; the function stays as it is.

        It is called with the body, as its annotation asks for, and with the ``Task`` if it has a second argument.
        With ``results`` ``task.results`` has what the task's dependencies left. ``settings`` are those of
        ``taskq.set_action`` (``max_concurrency``, ``rate_limit``, ``max_tries``, ``backoff``, ...): see ``setup``.
        """
        return self._register(action, lease, results, False, settings)

    def workflow(
        self, action: str, *, lease: Duration | None = None, **settings: Unpack[ActionSettings]
    ) -> Callable[[Function], Function]:
        """Register a durable function: it is called with a context, ``Context`` or ``AsyncContext``, and the body."""
        return self._register(action, lease, False, True, settings)

    def schedule(
        self,
        name: str,
        cron: str,
        action: str,
        body: Any = None,
        *,
        timezone: str = "UTC",
        overlap: Literal["skip", "queue", "replace"] = "skip",
        backfill: Literal["one", "none", "all"] = "one",
        **keys: Unpack[SharedKeys],
    ) -> None:
        """Declare that a task is inserted at these times. ``setup`` writes it to the database."""
        task = dumps({**plain(keys), "action": action, "body": body_text(body)})
        self._schedules[name] = [name, cron, task, timezone, overlap, backfill]

    def setup(self, *, connection: Any = None) -> None:
        """Write the settings of the actions and the schedules, as they are declared, to the database.

        A worker does this when it starts. It takes the rights of an operator; a worker without them says so, and goes
        on with what the database has.
        """
        for query, arguments in self.declared():
            self._run(connection, query, arguments)

    def declared(self) -> Iterator[tuple[str, Sequence[Any]]]:
        """Yield the statements of ``setup``."""
        for handler in self.handlers.values():
            if handler.settings:
                names = ", ".join(f"{name} => %s{_SETTINGS[name]}" for name in handler.settings)
                values = [_setting(value) for value in handler.settings.values()]
                yield f"SELECT taskq.set_action(%s, {names})", [handler.action, *values]
        for schedule in self._schedules.values():
            yield _SCHEDULE, schedule

    def _register(
        self, action: str, lease: Duration | None, results: bool, workflow: bool, settings: Mapping[str, Any]
    ) -> Callable[[Function], Function]:
        if unknown := settings.keys() - _SETTINGS.keys():
            raise TypeError(f"no setting of an action: {', '.join(sorted(unknown))}; there are {', '.join(_SETTINGS)}")

        def register(function: Function) -> Function:
            if action in self.handlers:
                raise ValueError(f'the action "{action}" has a handler already')
            self.handlers[action] = Handler(
                action,
                function,
                lease=self._lease if lease is None else lease,
                results=results,
                workflow=workflow,
                settings=settings,
            )
            return function

        return register

    # Insertion.

    def insert(
        self,
        action: str,
        body: Any = None,
        *,
        connection: Any = None,
        on_conflict: OnConflict = "error",
        if_missing: IfMissing = "error",
        **keys: Unpack[TaskKeys],
    ) -> str:
        """Insert a task, in the transaction of ``connection`` if there is one, else committed at once.

        Returns the id of the task that does the work: with ``on_conflict="skip"`` and with ``unique_by`` that may be
        one which was there.
        """
        tasks = self._alike(action, [body], keys)
        return str(self._run(connection, _INSERT_ONE, [dumps(tasks), on_conflict, if_missing])[0][0])

    async def insert_async(
        self,
        action: str,
        body: Any = None,
        *,
        connection: Any = None,
        on_conflict: OnConflict = "error",
        if_missing: IfMissing = "error",
        **keys: Unpack[TaskKeys],
    ) -> str:
        """Do what ``insert`` does, on a connection of asyncio."""
        tasks = self._alike(action, [body], keys)
        rows = await self._run_async(connection, _INSERT_ONE, [dumps(tasks), on_conflict, if_missing])
        return str(rows[0][0])

    def insert_many(
        self,
        action: str,
        bodies: Iterable[Any],
        *,
        ids: Sequence[str | None] | None = None,
        connection: Any = None,
        on_conflict: OnConflict = "error",
        if_missing: IfMissing = "error",
        **keys: Unpack[SharedKeys],
    ) -> list[str]:
        """Insert a task for each body, all or none; returns the ids of those inserted, in order."""
        tasks = self._alike(action, bodies, keys, ids)
        return _ids(self._run(connection, _INSERT, [dumps(tasks), on_conflict, if_missing]))

    async def insert_many_async(
        self,
        action: str,
        bodies: Iterable[Any],
        *,
        ids: Sequence[str | None] | None = None,
        connection: Any = None,
        on_conflict: OnConflict = "error",
        if_missing: IfMissing = "error",
        **keys: Unpack[SharedKeys],
    ) -> list[str]:
        """Do what ``insert_many`` does, on a connection of asyncio."""
        tasks = self._alike(action, bodies, keys, ids)
        return _ids(await self._run_async(connection, _INSERT, [dumps(tasks), on_conflict, if_missing]))

    def insert_tasks(
        self,
        tasks: Iterable[Mapping[str, Any]],
        *,
        connection: Any = None,
        on_conflict: OnConflict = "error",
        if_missing: IfMissing = "error",
    ) -> list[str]:
        """Insert tasks, each a dict of its keys, all or none; returns the ids of those inserted, in order."""
        return _ids(self._run(connection, _INSERT, [dumps(self._each(tasks)), on_conflict, if_missing]))

    async def insert_tasks_async(
        self,
        tasks: Iterable[Mapping[str, Any]],
        *,
        connection: Any = None,
        on_conflict: OnConflict = "error",
        if_missing: IfMissing = "error",
    ) -> list[str]:
        """Do what ``insert_tasks`` does, on a connection of asyncio."""
        return _ids(await self._run_async(connection, _INSERT, [dumps(self._each(tasks)), on_conflict, if_missing]))

    @staticmethod
    def _alike(
        action: str, bodies: Iterable[Any], keys: Mapping[str, Any], ids: Sequence[str | None] | None = None
    ) -> list[dict[str, Any]]:
        shared = {**plain(keys), "action": action, "metadata": tracing.inject(keys.get("metadata"))}
        tasks = [{**shared, "body": body_text(body)} for body in bodies]
        if ids is not None:
            for task, task_id in zip(tasks, ids, strict=True):
                task["id"] = task_id
        return tasks

    @staticmethod
    def _each(tasks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [task | {"metadata": tracing.inject(task.get("metadata"))} for task in task_array(list(tasks))]

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

        It has one of the app's connections for itself meanwhile. A workflow does not wait like this, but suspends.
        """
        return _settled(self.query(_WAIT, [task_id, interval(timeout)]), task_id, timeout)

    async def wait_async(self, task_id: str, timeout: Duration = "10 seconds") -> Result:
        """Do what ``wait`` does, in a coroutine."""
        return _settled(await self.query_async(_WAIT, [task_id, interval(timeout)]), task_id, timeout)

    # Performing.

    def work(
        self,
        *,
        concurrency: int = 10,
        actions: Iterable[str] | None = None,
        until_idle: bool = False,
        grace: Duration = "30 seconds",
        actor: str | None = None,
    ) -> Worker:
        """Perform tasks until SIGTERM, SIGINT or ``stop``: then claim no more, and give what is in hand its grace.

        What has not ended by then is given back without using up a try. A second signal ends at once, the same way.
        ``actions`` are those to perform, all that have a handler if left out. With ``until_idle`` it ends when there is
        nothing in hand and nothing to own. Returns the worker.
        """
        worker = self._worker(concurrency, actions, until_idle, grace, actor)
        with stopped_by_signals(worker):
            run_in_new_loop(self._run_worker(worker), self.connections.close_async)
        return worker

    async def work_async(
        self,
        *,
        concurrency: int = 10,
        actions: Iterable[str] | None = None,
        until_idle: bool = False,
        grace: Duration = "30 seconds",
        actor: str | None = None,
    ) -> Worker:
        """Perform tasks inside a running loop, like ``work``. It leaves signals alone: ``stop`` or cancel it."""
        worker = self._worker(concurrency, actions, until_idle, grace, actor)
        await self._run_worker(worker)
        return worker

    def stop(self) -> None:
        """Stop the workers of this app that run in this process; called again: at once. Any thread may call it."""
        for worker in list(self._workers):
            worker.stop()

    def _worker(
        self,
        concurrency: int,
        actions: Iterable[str] | None,
        until_idle: bool,
        grace: Duration,
        actor: str | None,
    ) -> Worker:
        names = list(self.handlers) if actions is None else list(dict.fromkeys(actions))
        if unknown := [name for name in names if name not in self.handlers]:
            raise ValueError(f"no handler for {', '.join(unknown)}; there are {', '.join(self.handlers) or 'none'}")
        handlers = [self.handlers[name] for name in names]
        return Worker(self, handlers, concurrency=concurrency, until_idle=until_idle, grace=grace, actor=actor)

    async def _run_worker(self, worker: Worker) -> None:
        self._workers.append(worker)
        try:
            await worker.run()
        finally:
            self._workers.remove(worker)

    # Statements.

    def query(self, query: str, arguments: Sequence[Any] = ()) -> borrowed.Rows:
        """Return the rows of a statement with ``%s`` in it, on one of the app's own connections, committed at once."""
        with self.connections.use() as connection:
            return borrowed.execute(connection, query, arguments)

    async def query_async(self, query: str, arguments: Sequence[Any] = ()) -> borrowed.Rows:
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
        """Close those of the running loop as well."""
        self.connections.close()
        await self.connections.close_async()

    def _run(self, connection: Any, query: str, arguments: Sequence[Any]) -> borrowed.Rows:
        if connection is None:
            return self.query(query, arguments)
        return borrowed.execute(connection, query, arguments)

    async def _run_async(self, connection: Any, query: str, arguments: Sequence[Any]) -> borrowed.Rows:
        if connection is None:
            return await self.query_async(query, arguments)
        return await borrowed.execute_async(connection, query, arguments)


# The arguments of taskq.set_action, and what makes their type known.
_SETTINGS = {
    "max_tries": "::int",
    "max_duration": "::text::interval",
    "backoff": "::text::jsonb",
    "max_concurrency": "::int",
    "rate_limit": "::int",
    "rate_period": "::text::interval",
    "retention": "::text::interval",
    "notify": "::boolean",
    "on_timeout": "::text",
    "max_timeouts": "::int",
    "retention_aborted": "::text::interval",
    "fair": "::boolean",
    "max_per_group": "::int",
    "expires_in": "::text::interval",
    "max_run_time": "::text::interval",
}


def _setting(value: Any) -> Any:
    value = plain(value)
    return dumps(value) if isinstance(value, dict) else value


def _ids(rows: borrowed.Rows) -> list[str]:
    return [row[0] for row in rows]


def _settled(rows: borrowed.Rows, task_id: str, timeout: Duration) -> Result:
    if not rows:
        raise TimedOut(f"{task_id} has not settled within {timeout}")
    return Result(*rows[0])
