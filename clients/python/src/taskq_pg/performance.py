"""One performance of a task: the handler is called, and how that ended becomes what the queue is told."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from . import tracing
from .bodies import dumps
from .durations import interval
from .errors import Leave, Lost, Reject, Retry, Suspend
from .handlers import Handler
from .task import Outcome, Task
from .workflow import AsyncContext, Context

log = logging.getLogger("taskq_pg")

# It has not failed: it uses up no try, and need not wait for its back-off.
GIVEN_BACK = {"status_code": "pending", "status": "given back by a worker that stops", "count_try": False}

_LONGEST_STATUS = 4000


class Performance:
    """A task in hand, from its grant until its return."""

    def __init__(self, task: Task, handler: Handler, ended: Callable[[Performance], None]) -> None:
        """Begin nothing yet; ``ended`` is told once, by any thread, when the performance is over."""
        self.task = task
        self.handler = handler
        self.extended_at = time.monotonic()
        self.running = True
        self.over = False
        self.returns: str | None = None
        """What the queue is told, as JSON; None if it is over and there is nothing to tell."""
        self.refusals = 0
        self._outcome: dict[str, Any] = {}
        self.error: BaseException | None = None
        self._ended = ended
        self._lock = threading.Lock()
        self._future: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def is_due(self, slack: float) -> bool:
        """Tell whether a third of the lease has passed, or will have in less than this time.

        A task that its handler has completed is not: its transaction is open, and an extension would wait for that.
        """
        return not self.task.completed and time.monotonic() - self.extended_at >= self.handler.lease / 3 - slack

    def run(self) -> None:
        """Perform the task in this thread."""
        outcome = None
        try:
            with tracing.performance(self.task) as span:
                try:
                    context = Context(self.task, self.handler.lease) if self.handler.workflow else None
                    outcome = self._completed(self.handler(self.task, context))
                except BaseException as error:  # whatever a handler raises ends its task, not the worker
                    outcome = self._raised(error)
                span.ended(outcome, self.error)
        finally:
            self.running = False
            self.end(outcome)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Perform the task on the loop; called by another thread."""
        self._loop = loop
        loop.call_soon_threadsafe(self._start)

    def interrupt(self) -> None:
        """Cancel the coroutine, if it is one; called by another thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def lose(self) -> None:
        """Take note that the task is no longer held."""
        log.warning("%s: lost, it was cancelled or taken over", self.task.id)
        self.task.lost.set()
        self.interrupt()

    def end(self, outcome: dict[str, Any] | None) -> None:
        """End the performance with what the queue is told. The first outcome counts."""
        with self._lock:
            if self.over:
                return
            if outcome is not None and not self.task.lost.is_set():
                self._outcome = dict(outcome)
                self.returns = self._json(outcome)
            self.over = True
        self._ended(self)

    def refused(self, error: psycopg.Error) -> None:
        """Change what the queue is told, since it has refused that."""
        text = error.diag.message_primary or str(error)
        if "delay_workgroup" in self._outcome:
            # A task without a workgroup: what holds for that holds for nothing.
            log.warning("%s: without delay_workgroup, since %s", self.task.id, text)
            del self._outcome["delay_workgroup"]
        else:
            # A result that the server cannot store, with a \u0000 for one: the next try would have no other.
            code = "aborted" if (error.sqlstate or "").startswith("22P") else "pending"
            log.error("%s: its return was refused: %s", self.task.id, text)
            self._outcome = {"status_code": code, "status": printable(f"its return was refused: {text}")}
            self.refusals += 1
        self.returns = self._json(self._outcome)

    def _start(self) -> None:
        self._future = asyncio.ensure_future(self._run_async())
        if self.task.lost.is_set():
            self._future.cancel()

    def _cancel(self) -> None:
        if self._future is not None:
            self._future.cancel()

    async def _run_async(self) -> None:
        outcome = None
        try:
            with tracing.performance(self.task) as span:
                try:
                    context = AsyncContext(self.task, self.handler.lease) if self.handler.workflow else None
                    outcome = self._completed(await self.handler(self.task, context))
                except BaseException as error:
                    outcome = self._raised(error)
                span.ended(outcome, self.error)
        finally:
            self.running = False
            self.end(outcome)

    def _completed(self, value: Any) -> dict[str, Any] | None:
        if self.task.completed:
            return None
        outcome = value.returns() if isinstance(value, Outcome) else {"status_code": "completed", "result": value}
        try:
            dumps(outcome)
        except (TypeError, ValueError, RecursionError) as error:
            raise Reject(f"its result is no JSON: {error}") from error
        return outcome

    def _raised(self, error: BaseException) -> dict[str, Any] | None:
        task = self.task
        text = _text(error)
        if isinstance(error, Suspend):
            return {"status_code": "pending", **error.returns}
        if isinstance(error, (Leave, Lost)) or task.lost.is_set():
            log.info("%s: %s", task.id, text or "left to the holder of its token")
            return None
        self.error = error
        if isinstance(error, Reject):
            log.warning("%s: rejected: %s", task.id, text)
            return {"status_code": "aborted", "status": text}
        if isinstance(error, Retry):
            log.info("%s: to be tried again: %s", task.id, text)
            outcome: dict[str, Any] = {"status_code": "pending", "status": text, "count_try": error.count_try}
            if error.after is not None:
                outcome["retry_after"] = interval(error.after)
            if error.delay_workgroup is not None:
                outcome["delay_workgroup"] = interval(error.delay_workgroup)
            return outcome
        if isinstance(error, asyncio.CancelledError) and task.stopping.is_set():
            return GIVEN_BACK
        log.error("%s: failed on try %d", task.id, task.num_tries, exc_info=error)
        # When it is tried again is the queue's business: the back-off of the task, of its action, or of all.
        name = type(error).__name__
        return {"status_code": "pending", "status": printable(f"{name}: {text}" if text else name)}

    def _json(self, outcome: dict[str, Any]) -> str:
        return dumps({"task_id": self.task.id, "token": self.task.token, **outcome})


def _text(error: BaseException) -> str:
    try:
        return printable(str(error))
    except Exception:  # an error that cannot even be shown
        return ""


def printable(text: str) -> str:
    """Return what a text of PostgreSQL can hold, and people read."""
    return text[:_LONGEST_STATUS].replace("\0", "").encode(errors="replace").decode()
