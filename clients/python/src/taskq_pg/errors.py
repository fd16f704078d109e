"""What a handler raises to say how its task goes on, and what the package raises."""

from __future__ import annotations

from typing import Any

import psycopg

from .durations import Duration, interval


class TaskqError(Exception):
    """Base class of the errors of this package. The server's errors are psycopg's, with their SQLSTATE."""


class Reject(TaskqError):
    """Raised by a handler: the task aborts with this text as its status. No further try would help."""


class Retry(TaskqError):
    """Raised by a handler: the task is tried again, ``after`` that time, else after its back-off.

    The try counts unless ``count_try`` is false. ``delay_workgroup`` holds back the whole workgroup of the
    task, which is the answer to a remote side that says "too many requests".
    """

    def __init__(
        self,
        text: str = "",
        *,
        after: Duration | None = None,
        delay_workgroup: Duration | None = None,
        count_try: bool = True,
    ) -> None:
        """Keep what to tell the queue."""
        super().__init__(text)
        self.after = None if after is None else interval(after)
        self.delay_workgroup = None if delay_workgroup is None else interval(delay_workgroup)
        self.count_try = count_try


class Leave(TaskqError):
    """Raised by a handler: the worker forgets the task. It is returned by the holder of its id and token."""


class Lost(TaskqError):
    """The task is no longer held: it was cancelled or taken over. The handler should end."""


class BodyError(TaskqError):
    """A body, or a saved result, does not fit the annotation that it is to be read as."""


class TimedOut(TaskqError):
    """What a workflow, or ``App.wait``, waited for has not ended in time."""


class Aborted(TaskqError):
    """A task that a workflow waited for has aborted. ``task_id`` and ``status`` tell which, and why."""

    def __init__(self, task_id: str, status: str | None) -> None:
        """Name the task, and its status as the text."""
        super().__init__(task_id, status)
        self.task_id = task_id
        self.status = status

    def __str__(self) -> str:
        """Return the text that becomes the status of the workflow, if the workflow does not catch it."""
        return f"{self.task_id}: {self.status}" if self.status else f"{self.task_id} has aborted"


# psycopg raises these by their SQLSTATE, on whatever connection.


class AlreadyExists(psycopg.DatabaseError, code="TQ002", name="TaskqAlreadyExists"):
    """A task with this id exists."""


class NotFound(psycopg.DatabaseError, code="TQ003", name="TaskqNotFound"):
    """There is no such task."""


class Cycle(psycopg.DatabaseError, code="TQ004", name="TaskqCycle"):
    """Dependencies in a circle; the detail shows it."""


class WrongState(psycopg.DatabaseError, code="TQ005", name="TaskqWrongState"):
    """The task's state forbids this."""


class Malformed(psycopg.DatabaseError, code="TQ006", name="TaskqMalformed"):
    """A task with a key that is none, or a value that does not fit."""


class Suspend(BaseException):
    """Leaves a workflow in the middle: its task waits, and is entered again from the top.

    No ``Exception``, so that an ``except Exception`` in a workflow lets it through. Where code swallows it all the
    same, each call of the context raises it again, and the end of the function is that of the wait.
    """

    def __init__(self, name: str, **returns: Any) -> None:
        """Name the wait; keep the keys of the return: ``depends_on``, ``wait_at_most``, ``retry_after``."""
        super().__init__(f'the workflow waits in "{name}"')
        self.name = name
        self.returns = returns
