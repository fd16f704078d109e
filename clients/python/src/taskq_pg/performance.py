"""One performance of a task: the handler is called, and how that ended becomes what the queue is told."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import json
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import psycopg

from . import forks, tracing
from .bodies import bounded, dumps
from .calls import RESULTS, STEPS
from .driven import now
from .errors import Leave, Lost, Reject, Retry, Suspend
from .handlers import Handler
from .link import is_transient
from .results import Result
from .task import Complete, Task
from .threads import in_thread
from .workflow import AsyncContext, Context

log = logging.getLogger("taskq_pg")

# It has not failed: it uses up no try, and need not wait for its back-off.
_GIVEN_BACK = {"status_code": "pending", "count_try": False}
_STOPPED = "given back by a worker that stops"
# The queue refuses this if that transaction has committed.
_ROLLED_BACK = {"status_code": "pending", "status": "the transaction that completed it was rolled back"}

_LONGEST_STATUS = 4000

# Whose handlers run in this process, by database and task.
_performing: dict[tuple[Any, str], Performance] = {}


class TaskLog(logging.LoggerAdapter[logging.Logger]):
    """Names the task in each line, and in fields for logs that have such."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        """Put the task before the message."""
        assert self.extra is not None  # noqa: S101
        # Not as an argument: the message has its own.
        name = f"{self.extra['action']} {self.extra['task_id']}".replace("%", "%%")
        return f"{name}: {msg}", {**kwargs, "extra": self.extra}


class Performance:
    """A task in hand, from its grant until its return."""

    def __init__(
        self, task: Task, handler: Handler, ended: Callable[[Performance], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Begin nothing yet; ``ended`` is told once, by any thread, when the performance is over."""
        self.task = task
        self.handler = handler
        self.granted_at = self.extended_at = time.monotonic()
        self.ends_at = float("inf")
        """When the time of the try is over, however often its lease is extended, by time.monotonic()."""
        self.lost_at = float("inf")
        self.running = True
        self.over = False
        self.returns: str | None = None
        """What the queue is told, as JSON; None if it is over and there is nothing to tell."""
        self.failures = 0
        """How many calls that were to return it have failed."""
        self.refusals = 0
        self.again_at = 0.0
        """When the next such call is made, by time.monotonic()."""
        self.error: BaseException | None = None
        self.failed: BaseException | None = None
        """The error, until the log has it."""
        self.log = TaskLog(log, {"task_id": task.id, "action": task.action, "num_try": task.num_tries})
        self._ended = ended
        self.process = os.getpid()
        self._key = (task.app.connections.source, task.id)
        self._lock = threading.Lock()
        self._future: asyncio.Task[Any] | None = None
        self._loop = loop

    def is_due(self, slack: float) -> bool:
        """Tell whether a third of the lease has passed, or will have in less than this time."""
        return time.monotonic() - self.extended_at >= self.handler.lease / 3 - slack

    def begins(self) -> bool:
        """Take the task for this process, unless a handler of an earlier try still runs here."""
        return _performing.setdefault(self._key, self) is self

    def run(self) -> None:
        """Perform the task in this thread."""
        if self.is_too_late():
            self.finish(None)
        else:
            now(self._perform(False))

    async def run_async(self) -> None:
        """Perform the task in this coroutine."""
        await self._perform(True)

    async def _perform(self, in_loop: bool) -> None:
        text = None
        try:
            with tracing.performance(self.task) as span:
                value = error = None
                try:
                    if self.task.incomplete and self.handler.results:
                        await self._complete_grant(in_loop)
                    value = self._around(self._handle)()
                    if inspect.isawaitable(value):
                        value = await value if in_loop else self.wait_for(value)
                except BaseException as raised:  # whatever a handler raises ends its task, not the worker
                    error = raised
                forks.end_child(self.process, error)
                outcome, text = self._tell(value, error)
                span.ended(outcome, self.error)
        except BaseException as problem:
            self.log.error("its trace has failed: %s", _named(problem))
            if text is None and self.error is None:
                text = self._tell(None, problem)[1]
        self.finish(text)

    def conclude(self, value: Any, error: BaseException | None) -> None:
        """End with what the handler has made of this task in a batch."""
        self.finish(self._tell(value, error)[1])

    def start(self, context: contextvars.Context) -> None:
        """Perform the task on the loop; called by another thread."""
        self._loop.call_soon_threadsafe(self._start, context)

    def interrupt(self) -> None:
        """Cancel the coroutine, if it is one; called by another thread."""
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._cancel)

    def lose(self, why: str) -> None:
        """Take note that the task is no longer held."""
        with self._lock:
            if self.over or self.task.lost.is_set():
                return
            self.lost_at = time.monotonic()
            self.task.lost.set()
        self.log.warning("lost, %s", why)
        self.interrupt()

    def give_back(self, why: str = _STOPPED, **keys: Any) -> None:
        """End the performance, whether its handler has ended or not; no try is used up."""
        self._end(self._json({**_GIVEN_BACK, "status": why, **keys}))

    def give_up(self) -> None:
        """End the performance of a task that is lost, whose handler goes on."""
        self.log.error("its handler goes on though the task is lost; another takes its place")
        self._end(None)

    def refused(self, error: psycopg.Error) -> None:
        """Change what the queue is told, since it has refused that."""
        text = error.diag.message_primary or str(error)
        told = {} if self.returns is None or is_transient(error) else json.loads(self.returns)
        if "delay_workgroup" in told:
            # A task without a workgroup: what holds for that holds for nothing.
            self.log.warning("without delay_workgroup, since %s", text)
            del told["delay_workgroup"]
            self.returns = self._json(told)
            return
        # A result that the server cannot store, with a \u0000 for one, or too large: the next try would have no other.
        code = "aborted" if (error.sqlstate or "").startswith(("22P", "54")) else "pending"
        self.log.error("its return was refused: %s", text)
        self.returns = self._json({"status_code": code, "status": printable(f"its return was refused: {text}")})
        self.refusals += 1

    def _end(self, text: str | None) -> None:
        """End the performance with what the queue is told. The first end counts."""
        with self._lock:
            if self.over:
                return
            if not self.task.lost.is_set():
                self.returns = text
            self.over = True
        self._ended(self)

    def finish(self, text: str | None) -> None:
        """Take note that the handler has ended, or is not begun; called once or twice."""
        self.running = False
        if _performing.get(self._key) is self:
            del _performing[self._key]
        self._end(text)

    def is_too_late(self) -> bool:
        """Give the task back if less than half of its time is left, since it has waited for its turn here."""
        now = time.monotonic()
        if now < self.ends_at and now - self.granted_at <= self.ends_at - now:
            return self.over
        self.give_back("given back, most of its max_run_time was over before it began")
        return True

    def _start(self, context: contextvars.Context) -> None:
        if self.task.lost.is_set() or self.is_too_late():
            return self.finish(None)
        self._future = self._loop.create_task(self.run_async(), context=context)
        # One that is cancelled before its first step runs nothing.
        return self._future.add_done_callback(lambda _: self.finish(None))

    def _cancel(self) -> None:
        if self._future is not None:
            self._future.cancel()

    def wait_for(self, value: Awaitable[Any]) -> Any:
        """Await on the loop what a plain function has returned, as a decorator around a coroutine function does."""

        async def settle() -> tuple[Any, BaseException | None]:
            future = asyncio.current_task()
            assert future is not None  # noqa: S101
            if self.task.lost.is_set():
                # Once: the second time would cut its clean-up.
                future.cancel()
            else:
                self._future = future
            try:
                return await value, None
            except BaseException as raised:
                return None, raised

        result, error = asyncio.run_coroutine_threadsafe(settle(), self._loop).result()
        if error is not None:
            raise error
        return result

    def _handle(self) -> Any:
        return self.handler(self.task, self._context())

    def _around(self, perform: Callable[[], Any]) -> Callable[[], Any]:
        """Return a call with what the program has put around each performance."""
        for around in reversed(self.handler.arounds):
            # A coroutine around a function awaits it in a thread.
            in_loop = inspect.iscoroutinefunction(around) and not self.handler.is_async
            inner = functools.partial(in_thread, perform) if in_loop else perform
            perform = functools.partial(around, self.task, inner)
        return perform

    async def _complete_grant(self, in_loop: bool) -> None:
        app, arguments = self.task.app, [self.task.id]
        results, steps = [
            await app.query_async(query, arguments) if in_loop else app.query(query, arguments)
            for query in (RESULTS, STEPS)
        ]
        self.task.results[:] = [Result(*row) for row in results]
        self.task.steps.update({row[0]: row[1] for row in steps})

    def _context(self) -> Context | AsyncContext | None:
        if self.task.unreadable is not None:
            raise Reject(f"what the queue has of it cannot be read: {self.task.unreadable}")
        if not self.handler.workflow:
            return None
        kind = AsyncContext if self.handler.wants_async else Context
        return kind(self.task, self.handler.lease)

    def _tell(self, value: Any, error: BaseException | None) -> tuple[dict[str, Any] | None, str | None]:
        """Make a return of whatever the handler has returned or raised. This raises nothing."""
        suspended = self.task.suspended
        if suspended is not None and error is not suspended:
            self.log.warning('the wait "%s" was swallowed, by an except: perhaps; it waits', suspended.name)
            error = suspended
        try:
            if error is None and self.task.completed:
                return None, self._json(_ROLLED_BACK)
            outcome = self._completed(value) if error is None else self._raised(error)
            return outcome, None if outcome is None else self._json(outcome)
        except BaseException as problem:
            return self._untold(error, problem)

    def _untold(self, error: BaseException | None, problem: BaseException) -> tuple[dict[str, Any], str]:
        if error is not None:
            outcome = {"status_code": "pending", "status": f"{_named(error)}: cannot be told: {_text(problem)}"}
        else:
            # The next try would have no other result, unless it is the memory that has run out.
            fits = not isinstance(problem, (TypeError, ValueError, RecursionError))
            error = Reject(f"its result is no JSON: {_text(problem)}")
            error.__cause__ = problem
            outcome = {"status_code": "pending" if fits else "aborted", "status": str(error)}
        self.failed = self.error = error
        return outcome, self._json(outcome)

    @staticmethod
    def _completed(value: Any) -> dict[str, Any]:
        return value.returns() if isinstance(value, Complete) else {"status_code": "completed", "result": value}

    def _raised(self, error: BaseException) -> dict[str, Any] | None:
        task = self.task
        text = _text(error)
        if isinstance(error, Suspend):
            return {"status_code": "pending", **error.returns}
        if isinstance(error, (Leave, Lost)) or task.lost.is_set():
            self.log.info("%s", text or "left to the holder of its token")
            return None
        if isinstance(error, asyncio.CancelledError) and task.stopping.is_set():
            return {**_GIVEN_BACK, "status": _STOPPED}
        self.failed = self.error = error
        if isinstance(error, Reject):
            return {"status_code": "aborted", "status": text}
        if isinstance(error, Retry):
            outcome: dict[str, Any] = {"status_code": "pending", "status": text, "count_try": error.count_try}
            if error.after is not None:
                outcome["retry_after"] = error.after
            if error.delay_workgroup is not None:
                outcome["delay_workgroup"] = error.delay_workgroup
            return outcome
        # When it is tried again is the queue's business: the back-off of the task, of its action, or of all.
        code = "aborted" if isinstance(error, self.handler.abort_on) else "pending"
        return {"status_code": code, "status": _named(error)}

    def tell_of_try(self, row: Sequence[Any] | None) -> None:
        """Log how the try has ended, of which the queue has this to say: state, number of tries, until the next."""
        state, most, delay = row or (None, None, None)
        error, self.failed = self.failed, None
        if error is None:
            self.log.debug("try %d has ended", self.task.num_tries)
            return
        tries = f"{self.task.num_tries} of {most}" if most is not None and most > 0 else str(self.task.num_tries)
        if state == "aborted":
            decided = isinstance(error, (Reject, self.handler.abort_on))
            end = "it aborts" if decided else "it was the last"
        else:
            end = f"the next is in {delay:.0f} seconds" if delay is not None and delay > 0 else "the next is due"
        # Of what the handler says by intention no stack is told.
        trace = None if isinstance(error, (Reject, Retry)) and error.__cause__ is None else error
        level = logging.ERROR if state == "aborted" else logging.WARNING
        self.log.log(level, "try %s has failed, %s: %s", tries, end, _text(error) or _named(error), exc_info=trace)

    def _json(self, outcome: dict[str, Any]) -> str:
        return bounded(dumps({"task_id": self.task.id, "token": self.task.token, **outcome}))


def _text(error: BaseException) -> str:
    try:
        return printable(str(error))
    except BaseException:  # an error that cannot even be shown
        return ""


def _named(error: BaseException) -> str:
    text = _text(error)
    return printable(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def printable(text: str) -> str:
    """Return what a text of PostgreSQL can hold, and people read."""
    return str(text)[:_LONGEST_STATUS].replace("\0", "").encode(errors="replace").decode()
