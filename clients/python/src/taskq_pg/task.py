"""A task in the hands of a handler."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from . import borrowed
from .bodies import body_text, dumps, read_body
from .durations import Duration, interval
from .errors import Suspend
from .keys import plain
from .results import Result

if TYPE_CHECKING:
    from .producer import Producer

_REPORT = (
    "SELECT taskq.report_status(%s, %s::text::uuid, %s, progress => %s::double precision,"
    " checkpoint => %s::text::jsonb)"
)
_RETURN_TASK = """SELECT taskq.return_task(%s, %s::text::uuid, 'completed', %s, result => %s::text::jsonb,
                                           children => %s::text::jsonb, children_block => %s)"""


@dataclass
class Complete:
    """What a handler may return instead of a plain result: the result, and what else its return tells the queue.

    ``children`` are tasks, as ``App.insert_tasks`` takes them, inserted in the transaction that completes this one;
    with ``children_block`` the dependents of this task wait for them as well.
    """

    result: Any = None
    status: str | None = None
    children: Sequence[Mapping[str, Any]] = ()
    children_block: bool = False
    delay_children: Duration | None = None
    delay_workgroup: Duration | None = None

    def returns(self) -> dict[str, Any]:
        """Return the keys of the return."""
        keys: dict[str, Any] = {"status_code": "completed", "result": self.result, "status": self.status}
        if self.children:
            keys |= {"children": task_array(self.children), "children_block": self.children_block}
        for name in ("delay_children", "delay_workgroup"):
            if (delay := getattr(self, name)) is not None:
                keys[name] = interval(delay)
        return keys


def task_array(tasks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return tasks as JSON has them, their bodies as the text that is stored."""
    return [{key: body_text(value) if key == "body" else value for key, value in plain(task).items()} for task in tasks]


@dataclass
class Task:
    """A task that a worker holds. Its id and token are all that another process needs to report or to return it."""

    app: Producer = field(repr=False)
    id: str
    token: str = field(repr=False)
    action: str
    text: str | None = field(repr=False)
    num_tries: int
    num_failures: int
    deadline: datetime | None
    checkpoint: Any = field(repr=False)
    priority: int
    metadata: dict[str, Any] | None = field(repr=False)
    seconds_left: float | None = field(repr=False)
    """How far the deadline was away when it was granted; None if it has none."""
    results: list[Result] = field(repr=False)
    """What its dependencies left, if its handler was registered with ``results=True``; else empty."""
    steps: dict[str, Any] = field(repr=False)
    lost: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set when the task is lost: its ``max_run_time`` is over, it was cancelled, or another has it. A coroutine is
    cancelled as well."""
    stopping: threading.Event = field(default_factory=threading.Event, repr=False)
    """Set when the worker begins to stop: what can end early, with its checkpoint saved, should."""
    incomplete: bool = field(default=False, repr=False)
    """Whether there is more in its results or steps than comes with a grant: views have it."""
    suspended: Suspend | None = field(default=None, repr=False)
    """The wait that the handler has come to, whatever it has made of that."""
    unreadable: str | None = field(default=None, repr=False)
    """Why its checkpoint, metadata, results or steps cannot be read, which aborts it."""
    completed: bool = field(default=False, repr=False)
    """Whether the handler has called ``complete``."""

    @property
    def body(self) -> Any:
        """The body, as a handler without an annotation gets it."""
        return read_body(self.text)

    def go_on(self) -> None:
        """Raise the wait that was swallowed, if one was."""
        if self.suspended is not None:
            raise self.suspended

    def report(self, status: str | None = None, progress: float | None = None, checkpoint: Any = None) -> None:
        """Say how far it is (``progress`` from 0 to 1), and save a checkpoint for the next try."""
        self.app.query(_REPORT, self._report(status, progress, checkpoint))

    async def report_async(
        self, status: str | None = None, progress: float | None = None, checkpoint: Any = None
    ) -> None:
        """Do what ``report`` does, in a coroutine."""
        await self.app.query_async(_REPORT, self._report(status, progress, checkpoint))

    def complete(
        self,
        *,
        connection: Any,
        result: Any = None,
        status: str | None = None,
        children: Sequence[Mapping[str, Any]] = (),
        children_block: bool = False,
    ) -> None:
        """Complete the task in the transaction of this connection: it has completed if, and when, that commits.

        What the handler returns afterwards is ignored. If the handler raises afterwards, the worker gives the task
        back, which the queue refuses if the transaction has committed.
        """
        arguments = self._complete(result, status, children, children_block)
        borrowed.execute(connection, _RETURN_TASK, arguments)
        self.completed = True

    async def complete_async(
        self,
        *,
        connection: Any,
        result: Any = None,
        status: str | None = None,
        children: Sequence[Mapping[str, Any]] = (),
        children_block: bool = False,
    ) -> None:
        """Do what ``complete`` does, on a connection of asyncio."""
        arguments = self._complete(result, status, children, children_block)
        await borrowed.execute_async(connection, _RETURN_TASK, arguments)
        self.completed = True

    def _report(self, status: str | None, progress: float | None, checkpoint: Any) -> list[Any]:
        self.go_on()
        return [self.id, self.token, status, progress, None if checkpoint is None else dumps(checkpoint)]

    def _complete(
        self, result: Any, status: str | None, children: Sequence[Mapping[str, Any]], children_block: bool
    ) -> list[Any]:
        self.go_on()
        inserted = dumps(task_array(children)) if children else None
        return [
            self.id,
            self.token,
            status,
            None if result is None else dumps(result),
            inserted,
            children_block,
        ]
