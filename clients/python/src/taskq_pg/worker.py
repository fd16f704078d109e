"""The worker: it claims tasks, has handlers perform them, extends their leases, and returns them.

Three threads talk to the server, each over a connection of its own, so that none of them ever waits for another or
for a handler:

* *claims* sleeps in ``own_tasks(wait =>)`` while there is room for more tasks;
* *returns* gives back what has ended, all that has in one call, and takes as many others with the same call;
* *heartbeats* extends the leases, and hears what is taken from the worker.

Handlers that are functions run in threads of their own, coroutines on the loop. A handler that blocks the loop
delays other coroutines, but no heartbeat.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import functools
import inspect
import itertools
import logging
import os
import queue
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import psycopg

from .batches import Batch
from .calls import Calls
from .connections import Connections
from .declared import Declared
from .durations import Duration, seconds
from .handlers import Handler
from .link import Link, Meet, delays, is_transient
from .performance import Performance
from .producer import Producer
from .returns import Returns
from .task import Task
from .threads import Threads

log = logging.getLogger("taskq_pg")

# For how long cancelled coroutines may clean up, and the last returns be tried, when the grace is over.
_CLEAN_UP = 2.0
_LAST_RETURNS = 10.0
# For so long a stop waits for the end of the claim before handlers are told.
_END_OF_CLAIM = 1.0
# For how long a heartbeat waits for a lock at most: another session may have locked a task, and not go on.
_PATIENCE = 1.0
# What is left until the end of a try is less than this share of the lease. The server may take a moment to say what is
# left: the next heartbeat, a third of the lease later, sets right what was taken for the end of a try, and tells the
# end of one that was not.
_SHORTER = 0.9
# For so many seconds no task is asked for of an action whose tasks cannot be sent.
_UNSENDABLE = 30.0
# A worker with room that has had no answer to a claim for so many seconds is not well.
_LONGEST_SILENCE = 30.0
# A task whose handler of an earlier try still runs here is not granted again before that.
_STILL_RUNS = "1 second"


class Program(Protocol):
    """What a worker needs of an app."""

    connections: Connections
    handlers: dict[str, Handler]
    starts: list[Callable[[], Any]]
    stops: list[Callable[[], Any]]

    @property
    def producer(self) -> Producer: ...  # noqa: D102
    def declared(self) -> Declared: ...  # noqa: D102


class Worker:
    """Performs tasks of an app until it is stopped. ``App.work`` and ``App.work_async`` make one and run it."""

    def __init__(
        self,
        app: Program,
        actions: Sequence[str] | None = None,
        *,
        concurrency: int = 10,
        until_idle: bool = False,
        grace: Duration = "30 seconds",
        actor: str | None = None,
    ) -> None:
        """Connect nothing yet. Without ``actions`` it asks for all that have a handler, by then."""
        self._takes_all = actions is None
        self._handlers = {name: app.handlers[name] for name in (app.handlers if actions is None else actions)}
        if not self._handlers:
            raise ValueError("the worker has no handler: register one with @app.task")
        if concurrency < 1:
            raise ValueError("concurrency is less than 1")
        self._app = app
        self._concurrency = concurrency
        self._until_idle = until_idle
        self._grace = seconds(grace)
        self._actor = actor or f"{socket.gethostname()}:{os.getpid()}"
        self._calls = Calls(app.producer, self._actor, self._handlers.values())
        meet: dict[str, Meet] = {
            "claims": self._meet,
            "heartbeats": lambda connection: self._calls.listen(connection),
        }
        self._links = {
            name: Link(app.connections, f"taskq {name}", meet.get(name))
            for name in ("claims", "returns", "heartbeats", "stop")
        }
        self._returns = Returns(self._links["returns"], self._calls)
        self._threads = Threads(concurrency)
        self._loop: asyncio.AbstractEventLoop | None = None

        # What follows changes under this lock only; each condition wakes the threads that it concerns. A performance
        # that begins in the moment of the stop ends while the lock is held.
        lock = threading.RLock()
        self._claimable = threading.Condition(lock)
        self._returnable = threading.Condition(lock)
        self._changed = threading.Condition(lock)
        self._hand: set[Performance] = set()
        self._ended: list[Performance] = []
        self._again: list[Performance] = []  # to be returned once more, when their time has come
        self._asked = 0  # for so many tasks there is a claim under way
        self._changes = 0  # of the hand
        self._has_begun = False
        self._stopping = False
        self._hurry = False
        self._closing = threading.Event()
        self._broken = False  # nothing can be returned any more
        self._failure: BaseException | None = None
        self._commands: queue.SimpleQueue[bool | None] = queue.SimpleQueue()  # to stop; to end; None: look again
        self._given_up: list[Performance] = []
        self._unsendable: dict[str, float] = {}  # until when no task of an action is asked for
        self.coroutine: weakref.ref[Coroutine[Any, Any, Worker]] | None = None
        """What runs the worker, if the program has a loop of its own."""
        self.unblock: Callable[[], None] = lambda: None
        """Called again and again while a handler blocks the loop though the worker has ended."""
        self._late: list[Performance] = []
        self.errors: collections.deque[BaseException] = collections.deque(maxlen=1000)
        """What handlers have raised, the latest thousand, if the worker ends when it is idle."""

    async def run(self) -> None:
        """Work until stopped; if this is cancelled, stop and wait for the end of that."""
        self._context = contextvars.copy_context()
        await _call(self._app.starts)
        try:
            await self._work()
        finally:
            await _call(self._app.stops)

    async def _work(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        over, finished = loop.create_future(), threading.Event()

        def finish() -> None:
            if not over.done():
                over.set_result(None)
            finished.set()

        def run() -> None:
            try:
                self._run()
            except BaseException as error:
                self._failure = error
            with contextlib.suppress(RuntimeError):  # the program has closed the loop
                loop.call_soon_threadsafe(finish)
                while not finished.wait(1):
                    self.unblock()
                    loop.call_soon_threadsafe(finish)

        threading.Thread(target=run, name="taskq worker", daemon=True).start()
        cancelled = False
        while not over.done():
            try:
                await asyncio.shield(over)
            except asyncio.CancelledError:
                # The first one stops, the second one ends the grace; none leaves threads behind.
                cancelled = True
                self.stop()
        if cancelled:
            raise asyncio.CancelledError
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Claim no more, and end when the tasks in hand have, or the grace is over. Again: end at once.

        May be called by any thread and by a signal handler.
        """
        self._commands.put(True)

    @property
    def left(self) -> int:
        """How many handlers still run though the worker has ended, their tasks given back: a thread cannot be ended."""
        return sum(performance.running for performance in [*self._late, *self._given_up])

    def exit_after(self, delay: float) -> None:
        """End the process with 0 after so many seconds, if a handler still runs then; does not wait for that."""

        def leave() -> None:
            time.sleep(delay)
            if self.left:
                log.warning("%d handlers still run: the process ends", self.left)
                for stream in (sys.stdout, sys.stderr):
                    with contextlib.suppress(Exception):
                        stream.flush()
                os._exit(0)

        threading.Thread(target=leave, name="taskq exit", daemon=True).start()

    def healthy(self) -> bool:
        """Tell whether it has claimed of late, or has no room, and the leases of what it has in hand are extended."""
        now = time.monotonic()
        with self._changed:
            held = [p for p in self._hand if not (p.over or p.task.lost.is_set() or p.task.completed)]
            has_room = len(self._hand) < self._concurrency and not self._stopping
            extended = all(now - max(p.extended_at, p.granted_at) < self._calls.lease for p in held)
        claimed = now - self._links["claims"].answered_at < _LONGEST_SILENCE
        return not self._broken and self._failure is None and extended and (claimed or not has_room)

    # The engine, and its threads.

    def _run(self) -> None:
        threads = {name: self._thread(name, loop) for name, loop in (
            ("commands", self._obey), ("claims", self._claim), ("returns", self._return), ("heartbeats", self._beat)
        )}  # fmt: skip
        with self._changed:
            self._changed.wait_for(lambda: self._stopping)
        grace_ends = time.monotonic() + self._grace
        log.info("stopping, %d tasks in hand", len(self._hand))
        ending = self._thread("ending", lambda: self._end_claims(threads["claims"]))
        # A claim that still sleeps would be granted what the handlers give back. But its server may not answer.
        ending.join(_END_OF_CLAIM)
        with self._changed:
            for performance in self._hand:
                performance.task.stopping.set()
        self._end_hand(grace_ends, ending)
        self._closing.set()
        self._links["heartbeats"].wake()
        with self._returnable:
            self._returnable.notify()
        self._commands.put(False)
        for link in self._links.values():
            link.give_up_at = 0
        for name, thread in threads.items():
            thread.join(1)
            if thread.is_alive() and name in self._links:
                self._links[name].cut()
                thread.join(1)
        self._threads.close()
        for name, link in self._links.items():
            if name not in threads or not threads[name].is_alive():
                link.end()
        log.info("stopped")

    def _thread(self, name: str, loop: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                loop()
            except BaseException as error:  # ends the worker, which raises it
                self._fail(name, error)

        thread = threading.Thread(target=run, name=f"taskq {name}", daemon=True)
        thread.start()
        return thread

    def _fail(self, name: str, error: BaseException) -> None:
        with self._changed:
            if not self._stopping:
                self._failure = error
            else:
                log.error("while stopping: %s", error)
            self._broken = self._broken or name == "returns"
            self._stop()

    def _stop(self) -> None:
        self._stopping = self._returns.is_stopping = True
        for condition in (self._claimable, self._returnable, self._changed):
            condition.notify_all()

    def _obey(self) -> None:
        """Stop when told to, and end in time what has none left. Here no server is waited for."""
        command: bool | None = None
        while command is not False:
            with self._changed:
                if command:
                    self._hurry = self._stopping
                    self._stop()
                left = self._end_overdue()
            try:
                command = self._commands.get(timeout=None if left is None else max(0.0, left))
            except queue.Empty:
                command = None

    def _end_overdue(self) -> float | None:
        """Tell handlers whose time is over, and give up those that went on for the grace; when is the next, if any?"""
        now, nearest = time.monotonic(), float("inf")
        for performance in list(self._hand):
            if performance.over:
                continue
            if performance.ends_at <= now:
                performance.lose("its max_run_time is over")
            if performance.lost_at + self._grace <= now:
                self._given_up.append(performance)
                if not performance.handler.is_async:
                    self._threads.allow_another()
                performance.give_up()
            else:
                lost = performance.task.lost.is_set()
                nearest = min(nearest, performance.lost_at + self._grace if lost else performance.ends_at)
        return None if nearest == float("inf") else nearest - now

    # Claims.

    def _meet(self, connection: psycopg.Connection[Any]) -> None:
        self._calls.meet(connection)
        if not self._has_begun:
            self._has_begun = True
            actions, info = ", ".join(self._calls.actions), connection.info
            where = f"{info.dbname} at {info.host}:{info.port}"
            log.info("%s works on %s, %d at once, in %s", self._actor, actions, self._concurrency, where)

    def _claim(self) -> None:
        self._set_up()
        while True:
            if self._takes_all and len(self._app.handlers) != len(self._handlers):
                self._take_all()
            with self._claimable:
                self._claimable.wait_for(lambda: self._stopping or len(self._hand) < self._concurrency)
                if self._stopping:
                    return
                self._asked = self._concurrency - len(self._hand)
                idle, changes = not self._hand, self._changes
            tasks = self._own(self._asked)
            with self._claimable:
                self._asked = 0
                self._begin(tasks)
                if tasks or not self._until_idle:
                    continue
                if idle and changes == self._changes:
                    # Nothing was in hand, and there was nothing to own.
                    self._stop()
                self._await_change(changes)

    def _take_all(self) -> None:
        """Ask for what was registered since the last claim, too."""
        with self._changed:
            self._handlers = dict(self._app.handlers)
            self._returns.calls = self._calls = self._calls.knowing(self._handlers.values())
        log.info("%s works on %s", self._actor, ", ".join(self._calls.actions))
        self._set_up()

    def _await_change(self, changes: int) -> None:
        self._claimable.wait_for(lambda: self._stopping or changes != self._changes)

    def _set_up(self) -> None:
        for delay in delays():
            try:
                self._app.declared().begin(self._links["claims"].call)
            except psycopg.errors.InsufficientPrivilege as error:
                log.warning("settings and schedules stay as the database has them: %s", error.diag.message_primary)
                return
            except psycopg.Error as error:
                if self._stopping:
                    return
                if not is_transient(error):
                    raise
                log.warning("settings not made, again in %.1f s: %s", delay, error)
            else:
                return
            with self._claimable:
                self._claimable.wait_for(lambda: self._stopping, delay)

    def _own(self, number: int) -> list[Task]:
        link, calls = self._links["claims"], self._calls
        actions = self._sendable(calls.actions)
        for delay in delays():
            try:
                return calls.tasks(link.call(*calls.own(number, actions, sleeps=not self._until_idle)))
            except psycopg.Error as error:
                # Ended by stop(), or a sleep by a statement_timeout: nothing was granted. A claim that does not sleep
                # has not seen then whether there is nothing.
                if self._stopping or (isinstance(error, psycopg.errors.QueryCanceled) and not self._until_idle):
                    return []
                if error.sqlstate in ("54000", "XX000"):
                    # What comes to too much for one answer. Fewer may not, and else some actions have none such.
                    if number == 1:
                        return self._own_each(link, calls, actions)
                    number = 1
                    continue
                if not is_transient(error):
                    raise
                log.warning("no claim, again in %.1f s: %s", delay, error)
            with self._claimable:
                self._claimable.wait_for(lambda: self._stopping, delay)
        raise AssertionError  # delays() has no end

    def _own_each(self, link: Link, calls: Calls, actions: Sequence[str]) -> list[Task]:
        """Own a task of one action, and leave out for a while those whose tasks cannot be sent."""
        for action in actions:
            try:
                tasks = calls.tasks(link.call(*calls.own(1, [action], sleeps=False)))
            except psycopg.Error as error:
                if error.sqlstate not in ("54000", "XX000"):
                    raise
                log.error('a task of "%s" cannot be sent, it is left out for a while: %s', action, error)
                self._unsendable[action] = time.monotonic() + _UNSENDABLE
            else:
                if tasks:
                    return tasks
        return []

    def _sendable(self, actions: Sequence[str]) -> Sequence[str]:
        now = time.monotonic()
        self._unsendable = {action: until for action, until in self._unsendable.items() if until > now}
        return [action for action in actions if action not in self._unsendable]

    def _end_claims(self, thread: threading.Thread) -> None:
        link = self._links["claims"]
        link.give_up_at = 0
        began, cancelling = time.monotonic(), None
        # One that ends in time needs no more.
        thread.join(0.01)
        while thread.is_alive():
            waited, patience = time.monotonic() - began, _CLEAN_UP if self._hurry else _LAST_RETURNS
            if waited > 2 * patience:
                log.error("the claim does not end")
                return
            if waited > patience:
                link.cut()
            elif cancelling is None or not cancelling.is_alive():
                # In a thread, since a server that does not answer may hold up this request as well.
                cancelling = threading.Thread(target=self._end_sleep, name="taskq cancel", daemon=True)
                cancelling.start()
            thread.join(0.05)
        if cancelling is not None:
            cancelling.join(1)  # its connection is closed then

    def _end_sleep(self) -> None:
        """End the claim that sleeps. It may come too early: repeat it until the claim is over."""
        stop = self._links["stop"]
        stop.give_up_at = 0
        try:
            stop.call(*self._calls.stop_waiting())
        except (psycopg.Error, OSError) as error:
            log.info("could not end the claim: %s", error)
            self._links["claims"].cancel()

    def _begin(self, tasks: Iterable[Task]) -> None:
        batches: dict[str, list[Performance]] = {}
        for task in tasks:
            assert self._loop is not None  # noqa: S101
            performance = Performance(task, self._handlers[task.action], self._on_end, self._loop)
            if performance.handler.lease > self._calls.lease:
                performance.extended_at = float("-inf")
            self._ends_in(performance, task.seconds_left, self._calls.lease)
            self._hand.add(performance)
            self._changes += 1
            if self._stopping:
                # Granted in the moment of the stop.
                performance.give_back()
            elif not performance.begins():
                performance.give_back("given back, its handler still runs here", retry_after=_STILL_RUNS)
            elif performance.handler.batch:
                batches.setdefault(task.action, []).append(performance)
            elif performance.handler.is_async:
                performance.start(self._context.copy())
            else:
                self._threads.submit(functools.partial(self._context.copy().run, performance.run))

        for together in batches.values():
            size = together[0].handler.batch
            for n in range(0, len(together), size):
                self._begin_batch(Batch(together[n : n + size]), together[0].handler.is_async)

    def _begin_batch(self, batch: Batch, is_async: bool) -> None:
        context, loop = self._context.copy(), self._loop
        assert loop is not None  # noqa: S101
        if is_async:
            loop.call_soon_threadsafe(lambda: batch.keep(loop.create_task(batch.run_async(), context=context)))
        else:
            self._threads.submit(functools.partial(context.run, batch.run))

    def _ends_in(self, performance: Performance, left: float | None, lease: float) -> None:
        """Take note of a deadline: one that comes before the end of the lease that was asked for is that of the try."""
        if left is not None and left < lease * _SHORTER:
            performance.ends_at = time.monotonic() + left
            self._commands.put(None)
        else:
            performance.ends_at = float("inf")

    # Returns.

    def _on_end(self, performance: Performance) -> None:
        with self._returnable:
            self._ended.append(performance)
            # For those that drain a queue. The frames of an error keep what its handler had in hand.
            if performance.error is not None and self._until_idle:
                self.errors.append(performance.error)
            self._returnable.notify()

    def _return(self) -> None:
        while True:
            with self._returnable:
                while not (batch := self._due_returns()) and not self._closing.is_set():
                    times = [performance.again_at for performance in self._again]
                    self._returnable.wait(max(0.0, min(times) - time.monotonic()) if times else None)
            if not batch:
                return
            tasks, again = self._returns.give(batch)
            with self._claimable:
                self._again += again
                self._hand.difference_update(set(batch).difference(again) if again else batch)
                self._changes += 1
                self._begin(tasks)
                self._claimable.notify()
                self._changed.notify()

    def _due_returns(self) -> list[Performance]:
        batch, self._ended = self._ended, []
        if self._again:
            now = time.monotonic()
            batch += [performance for performance in self._again if performance.again_at <= now]
            self._again = [performance for performance in self._again if performance.again_at > now]
        return batch

    # Heartbeats.

    def _beat(self) -> None:
        beats_at = time.monotonic() + self._calls.lease / 3
        while not self._closing.is_set():
            every = self._calls.lease / 3
            is_told = self._links["heartbeats"].rest(beats_at - time.monotonic())
            with self._changed:
                held = [performance for performance in self._hand if not performance.task.lost.is_set()]
                due = [performance for performance in held if is_told or performance.is_due(every / 2)]
            if time.monotonic() >= beats_at:
                beats_at = time.monotonic() + every
            for (lease, _), group in itertools.groupby(sorted(due, key=_beats_with), _beats_with):
                self._extend(lease, list(group), min(lease / 30, _PATIENCE))

    def _extend(self, lease: float, performances: Sequence[Performance], patience: float) -> None:
        extended_at = time.monotonic()
        try:
            tasks = [performance.task for performance in performances]
            rows = self._links["heartbeats"].call(*self._calls.extend(tasks, lease, patience))
        except psycopg.Error as error:
            if len(performances) > 1 and is_transient(error):
                # One of them may be locked: that is to cost the others nothing.
                for performance in performances:
                    self._extend(lease, [performance], patience / len(performances))
            elif not performances[0].task.completed:
                log.warning("%s: no heartbeat: %s", performances[0].task.id, error)
            return
        for performance, (owned, left) in zip(performances, rows, strict=True):
            performance.extended_at = extended_at
            if owned:
                self._ends_in(performance, left, lease)
            if owned or performance.over:
                continue
            if performance.task.completed:
                performance.extended_at = float("inf")  # the transaction of its handler has committed
            else:
                performance.lose("it was cancelled or taken over")
                self._commands.put(None)

    # The end.

    def _end_hand(self, grace_ends: float, ending: threading.Thread) -> None:
        with self._changed:
            left = max(0.0, grace_ends - time.monotonic())
            self._changed.wait_for(lambda: not self._hand or self._hurry or self._broken, left)
            late = [performance for performance in self._hand if not performance.over]
        self._returns.is_late = True
        for performance in late:
            log.warning("%s: given back, its handler has not ended in time", performance.task.id)
            performance.interrupt()
        until = time.monotonic() + _CLEAN_UP
        while time.monotonic() < until and any(p.running for p in late if p.handler.is_async):
            time.sleep(0.01)
        for performance in late:
            performance.give_back()
        self._late = late
        given_back = time.monotonic()
        self._links["returns"].give_up_at = given_back + _LAST_RETURNS / 2
        with self._returnable:
            for performance in self._again:
                performance.again_at = 0
            self._returnable.notify()
        # What its claim has brought last is given back as well.
        ending.join()
        with self._changed:
            left = max(_CLEAN_UP, given_back + _LAST_RETURNS - time.monotonic())
            self._changed.wait_for(lambda: not self._hand or self._broken, left)
            if self._hand:
                log.error("%d tasks could not be returned, and are left to their leases", len(self._hand))


async def _call(hooks: Iterable[Callable[[], Any]]) -> None:
    for hook in hooks:
        made = hook()
        if inspect.isawaitable(made):
            await made


def _beats_with(performance: Performance) -> tuple[float, bool]:
    # The transaction in which a handler has completed its task may be open: that task is not to hold up others.
    return performance.handler.lease, performance.task.completed
