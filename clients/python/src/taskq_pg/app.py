"""The app: a producer that has handlers by action, and performs their tasks."""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, LiteralString, TypeVar, Unpack

from .bodies import body_text, dumps
from .connections import Connect, ConnectAsync
from .durations import Duration
from .handlers import Handler
from .keys import ActionSettings, SharedKeys, plain
from .producer import Producer
from .running import run_in_new_loop, stopped_by_signals
from .worker import Worker

Function = TypeVar("Function", bound=Callable[..., Any])

_SCHEDULE = """SELECT taskq.schedule(%s, %s, %s::text::jsonb, timezone => %s, overlap => %s, backfill => %s)"""


class App(Producer):
    """The handlers of a program, and a queue: ``App("postgresql:///shop")``. It connects when first used."""

    def __init__(
        self,
        connect: str | Connect = "",
        *,
        connect_async: ConnectAsync | None = None,
        lease: Duration = "1 minute",
        max_connections: int = 8,
    ) -> None:
        """Take a conninfo, or a function that returns a connection; left out, PGHOST and the like count.

        ``connect_async`` is for coroutines, if ``connect`` returns a connection. ``lease`` is for the tasks of
        handlers that have none of their own. ``max_connections`` bounds the connections besides those of a worker:
        calls queue for them.
        """
        super().__init__(connect, connect_async, max_connections)
        self.handlers: dict[str, Handler] = {}
        self._lease = lease
        self._schedules: dict[str, Sequence[Any]] = {}
        # Weak, since the coroutine of ``work_async`` may be dropped before it has begun. A list, not a set: a copy of
        # it is made in one go, while other threads change it.
        self._workers: list[weakref.ref[Worker]] = []

    # Handlers.

    def task(
        self, action: str, *, lease: Duration | None = None, results: bool = False, **settings: Unpack[ActionSettings]
    ) -> Callable[[Function], Function]:
        """Register a function, or a coroutine function, for the tasks of an action; the function stays as it is.

        It is called with the body, as its annotation asks for, and with the ``Task`` where an argument asks for it by
        its annotation or its name. With ``results`` ``task.results`` has what the task's dependencies left.
        ``settings`` are those of ``taskq.set_action`` (``max_concurrency``, ``rate_limit``, ``max_tries``, ``backoff``,
        ...): see ``setup``.
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

    def declared(self) -> Iterator[tuple[LiteralString, Sequence[Any]]]:
        """Yield the statements of ``setup``."""
        for handler in self.handlers.values():
            if handler.settings:
                named = ", ".join([_SETTINGS[name] for name in handler.settings])
                values = [dumps(v) if isinstance(v, dict) else v for v in plain(handler.settings).values()]
                yield f"SELECT taskq.set_action(%s, {named})", [handler.action, *values]
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
        try:
            with stopped_by_signals(worker):
                run_in_new_loop(self._run_worker(worker), self.connections.close_async)
        finally:
            self._forget(worker)
        return worker

    def work_async(
        self,
        *,
        concurrency: int = 10,
        actions: Iterable[str] | None = None,
        until_idle: bool = False,
        grace: Duration = "30 seconds",
        actor: str | None = None,
    ) -> Coroutine[Any, Any, Worker]:
        """Perform tasks inside a running loop, like ``work``. It leaves signals alone: ``stop`` or cancel it."""
        # No coroutine function: ``stop`` is to find the worker before the loop comes to it.
        worker = self._worker(concurrency, actions, until_idle, grace, actor)
        coroutine = self._run_worker(worker)
        worker.coroutine = weakref.ref(coroutine)
        return coroutine

    def stop(self) -> int:
        """Stop the workers of this app in this process; called again: at once. Any thread may call it.

        Returns how many it has told. A worker counts from the call of ``work`` or ``work_async`` on: of a thread that
        was just started, and has not come to that, there is none yet.
        """
        references = list(self._workers)
        workers = [worker for reference in references if (worker := reference()) is not None and _may_run(worker)]
        for worker in workers:
            worker.stop()
        return len(workers)

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
        worker = Worker(self, handlers, concurrency=concurrency, until_idle=until_idle, grace=grace, actor=actor)
        self._workers.append(weakref.ref(worker, self._workers.remove))
        return worker

    def _forget(self, worker: Worker) -> None:
        with contextlib.suppress(ValueError):  # it was forgotten before
            self._workers.remove(weakref.ref(worker))

    async def _run_worker(self, worker: Worker) -> Worker:
        try:
            await worker.run()
        finally:
            self._forget(worker)
        return worker


def _may_run(worker: Worker) -> bool:
    """Tell whether the worker runs or may begin: a coroutine may end before its first step, since it is cancelled."""
    if worker.coroutine is None:
        return True
    coroutine = worker.coroutine()
    return coroutine is not None and inspect.getcoroutinestate(coroutine) != inspect.CORO_CLOSED


# The arguments of taskq.set_action, and what makes their type known.
_SETTINGS: dict[str, LiteralString] = {
    "max_tries": "max_tries => %s::int",
    "backoff": "backoff => %s::text::jsonb",
    "max_concurrency": "max_concurrency => %s::int",
    "rate_limit": "rate_limit => %s::int",
    "rate_period": "rate_period => %s::text::interval",
    "retention": "retention => %s::text::interval",
    "notify": "notify => %s::boolean",
    "on_timeout": "on_timeout => %s::text",
    "max_timeouts": "max_timeouts => %s::int",
    "retention_aborted": "retention_aborted => %s::text::interval",
    "fair": "fair => %s::boolean",
    "max_per_group": "max_per_group => %s::int",
    "expires_in": "expires_in => %s::text::interval",
    "max_run_time": "max_run_time => %s::text::interval",
}
