"""The app: a producer that has handlers by action, and performs their tasks."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Unpack

from .bodies import dumps
from .connections import Connect, ConnectAsync
from .declared import Declared, checked
from .durations import Duration, seconds
from .handlers import Handler
from .keys import ActionSettings, SharedKeys, plain
from .operate import set_action
from .producer import Action, Producer
from .registered import Registered, RegisterTask, RegisterWorkflow
from .running import run_in_new_loop, stopped_by_signals
from .worker import Worker

log = logging.getLogger("taskq_pg")

Around = TypeVar("Around", bound=Callable[..., Any])
Hook = TypeVar("Hook", bound=Callable[[], Any])


class App(Producer):
    """The handlers of a program, and a queue: ``App("postgresql:///shop")``. It connects when first used."""

    def __init__(
        self,
        connect: str | Connect = "",
        *,
        connect_async: ConnectAsync | None = None,
        lease: Duration = "1 minute",
        max_connections: int = 8,
        name: str | None = None,
        version: str | int | None = None,
    ) -> None:
        """Take a conninfo, or a function that returns a connection; left out, PGHOST and the like count.

        ``connect_async`` is for coroutines, if ``connect`` returns a connection. ``lease`` is for the tasks of
        handlers that have none of their own. ``max_connections`` bounds the connections besides those of a worker:
        calls queue for them. Settings and schedules that ``setup`` writes are those of the app of this ``name``, and of
        this ``version``, an integer or dotted numbers.
        """
        if version is not None and name is None:
            raise ValueError("an app with a version has a name: App(name=…, version=…)")
        self.name, self.version = name, checked(version)
        super().__init__(connect, connect_async, max_connections)
        self.handlers: dict[str, Handler] = {}
        self.arounds: list[Callable[..., Any]] = []
        self.starts: list[Callable[[], Any]] = []
        self.stops: list[Callable[[], Any]] = []
        self._unknown: set[str] = set()
        self._lease = lease
        self._schedules: dict[str, Sequence[Any]] = {}
        # Weak, since the coroutine of ``work_async`` may be dropped before it has begun. A list, not a set: a copy of
        # it is made in one go, while other threads change it.
        self._workers: list[weakref.ref[Worker]] = []

    # Handlers.

    def task(
        self,
        action: str,
        *,
        lease: Duration | None = None,
        results: bool = False,
        abort_on: type[Exception] | tuple[type[Exception], ...] = (),
        **settings: Unpack[ActionSettings],
    ) -> RegisterTask:
        """Register a function, or a coroutine function, for the tasks of an action.

        It is called with the body, as its annotation asks for, and with the ``Task`` where an argument asks for it by
        its annotation or its name. With ``results`` ``task.results`` has what the task's dependencies left. Exceptions
        of ``abort_on`` abort the task. ``settings`` are those of ``taskq.set_action`` (``max_concurrency``,
        ``rate_limit``, ``max_tries``, ``backoff``, ...): see ``setup``. What is returned is called as the function is,
        and inserts: ``mail.insert(body)``.
        """
        made: RegisterTask = self._register(action, settings, lease=lease, results=results, abort_on=abort_on)
        return made

    def batch(
        self,
        action: str,
        *,
        size: int = 100,
        lease: Duration | None = None,
        abort_on: type[Exception] | tuple[type[Exception], ...] = (),
        **settings: Unpack[ActionSettings],
    ) -> RegisterTask:
        """Register a function, or a coroutine function, for several tasks at once: it is called with a list of them.

        It returns a list of results in their order, or a dict from id to result; an exception in a result's place fails
        that task alone. A call gets what was granted together, ``size`` at most, so no more than the worker's
        ``concurrency``.
        """
        if size < 1:
            raise ValueError("the size of a batch is less than 1")
        made: RegisterTask = self._register(action, settings, lease=lease, batch=size, abort_on=abort_on)
        return made

    def workflow(
        self,
        action: str,
        *,
        lease: Duration | None = None,
        abort_on: type[Exception] | tuple[type[Exception], ...] = (),
        **settings: Unpack[ActionSettings],
    ) -> RegisterWorkflow:
        """Register a durable function: it is called with a context, ``Context`` or ``AsyncContext``, and the body."""
        made: RegisterWorkflow = self._register(action, settings, lease=lease, workflow=True, abort_on=abort_on)
        return made

    def around(self, function: Around) -> Around:
        """Call ``function(task, perform)`` around each performance: ``perform()`` performs it.

        A coroutine function is awaited around handlers that are coroutines, and awaits ``perform()``; a plain one is
        called around those that are functions. The first that was registered is the outermost.
        """
        self.arounds.append(function)
        return function

    def on_start(self, function: Hook) -> Hook:
        """Call a function, or await a coroutine function, before a worker claims anything."""
        self.starts.append(function)
        return function

    def on_stop(self, function: Hook) -> Hook:
        """Call a function, or await a coroutine function, when a worker has ended."""
        self.stops.append(function)
        return function

    def schedule(
        self,
        name: str,
        cron: str,
        action: Action,
        body: Any = None,
        *,
        timezone: str = "UTC",
        overlap: Literal["skip", "queue", "replace"] = "skip",
        backfill: Literal["one", "none", "all"] = "one",
        max_backfill: int | None = None,
        **keys: Unpack[SharedKeys],
    ) -> None:
        """Declare that a task is inserted at these times. ``setup`` writes it to the database."""
        task = dumps({**plain(keys), "action": str(action), "body": self.body_of(str(action), body)})
        self._schedules[name] = [cron, task, timezone, overlap, backfill, max_backfill]

    def setup(self, *, prune: bool = False, connection: Any = None) -> None:
        """Write the settings of the actions and the schedules, as they are declared, to the database.

        It takes the rights of an operator. With ``prune`` what an earlier version of the app of this name has written,
        and the code no longer has, is removed. A worker writes what the database lacks, and the rest if the ``version``
        of the app is higher than that which has written last; a worker without the rights goes on with what there is.
        """
        self.declared().write(lambda query, arguments: self._run(connection, query, arguments), prune=prune)

    def declared(self) -> Declared:
        """Return what is written by ``setup``."""
        actions = {name: handler.settings for name, handler in list(self.handlers.items()) if handler.settings}
        return Declared(self.name, self.version, actions, dict(self._schedules))

    def _register(self, action: str, settings: Mapping[str, Any], *, lease: Duration | None, **options: Any) -> Any:
        if not isinstance(action, str):
            raise TypeError('name the action: @app.task("mail")')
        set_action(action, settings)  # which refuses what is none
        lease = self._lease if lease is None else lease

        def register(function: Callable[..., Any]) -> Registered[Any, Any]:
            if isinstance(function, Registered):
                function = function.__wrapped__
            if action in self.handlers:
                raise ValueError(f'the action "{action}" has a handler already')
            self.handlers[action] = Handler(
                action, function, lease=lease, settings=settings, arounds=self.arounds, **options
            )
            return Registered(self, action, function)

        return register

    def body_of(self, action: str, body: Any) -> str | None:
        """Return the text of a body, after a look at whether the action takes it."""
        text = super().body_of(action, body)
        if handler := self.handlers.get(action):
            handler.check(text)
        elif self.handlers and action not in self._unknown:
            self._unknown.add(action)
            log.warning('no handler of this app is for the action "%s" (told once)', action)
        return text

    # Performing.

    def work(
        self,
        *,
        concurrency: int = 10,
        actions: Iterable[str] | None = None,
        until_idle: bool = False,
        grace: Duration = "30 seconds",
        exit_after: Duration | None = None,
        actor: str | None = None,
    ) -> Worker:
        """Perform tasks until SIGTERM, SIGINT or ``stop``: then claim no more, and give what is in hand its grace.

        What has not ended by then is given back without using up a try. A second signal ends at once, the same way.
        ``actions`` are those to perform, all that have a handler if left out. With ``until_idle`` it ends when there is
        nothing in hand and nothing to own. With ``exit_after`` the process ends, with 0, so long after this has
        returned if a handler still runs: a thread cannot be ended. Returns the worker.
        """
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("a loop runs in this thread: await app.work_async(…), or drain_async(app) in a test")
        after = None if exit_after is None else seconds(exit_after)
        worker = self._worker(concurrency, actions, until_idle, grace, actor)
        try:
            with stopped_by_signals(worker):
                run_in_new_loop(self._run_worker(worker), self.connections.close_async)
        finally:
            self._forget(worker)
        if after is not None and worker.left:
            worker.exit_after(after)
        return worker

    def healthy(self) -> bool:
        """Tell whether there is a worker in this process, and each one claims tasks and extends their leases."""
        workers = [worker for reference in list(self._workers) if (worker := reference()) is not None]
        return bool(workers) and all(worker.healthy() for worker in workers)

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
        wanted = None if actions is None else names
        worker = Worker(self, wanted, concurrency=concurrency, until_idle=until_idle, grace=grace, actor=actor)
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
