"""What an insertion gives: the id of the task that does the work, which can be asked what has become of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString, Protocol

from .borrowed import Rows
from .durations import Duration
from .results import Result

STATE: LiteralString = "SELECT state FROM taskq.tasks WHERE id = %s"
CANCEL: LiteralString = "SELECT taskq.cancel_tasks(%s, status => %s)"


class Queue(Protocol):
    """What a handle asks."""

    def query(self, query: LiteralString, arguments: Sequence[Any] = ()) -> Rows: ...  # noqa: D102
    async def query_async(self, query: LiteralString, arguments: Sequence[Any] = ()) -> Rows: ...  # noqa: D102
    def wait(self, task_id: str, timeout: Duration = ...) -> Result: ...  # noqa: D102
    async def wait_async(self, task_id: str, timeout: Duration = ...) -> Result: ...  # noqa: D102


class Handle(str):
    """A text that is the id of a task, and is taken wherever an id is."""

    __slots__ = ("_app", "inserted")

    def __new__(cls, task_id: str, app: Queue, inserted: bool = True) -> Handle:
        """Make a handle of an id."""
        handle = super().__new__(cls, task_id)
        handle._app = app
        handle.inserted = inserted
        return handle

    _app: Queue
    inserted: bool
    """False if another task was there, which does the work."""

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Be copied and pickled as the id alone: an app does not travel."""
        return str, (str(self),)

    def wait(self, timeout: Duration = "10 seconds") -> Result:
        """Do what ``App.wait`` does."""
        return self._app.wait(self, timeout)

    async def wait_async(self, timeout: Duration = "10 seconds") -> Result:
        """Do what ``App.wait_async`` does."""
        return await self._app.wait_async(self, timeout)

    def state(self) -> str | None:
        """Return its state, as ``taskq.tasks`` has it; None if it is not there any more."""
        rows = self._app.query(STATE, [str(self)])
        return rows[0][0] if rows else None

    async def state_async(self) -> str | None:
        """Do what ``state`` does, in a coroutine."""
        rows = await self._app.query_async(STATE, [str(self)])
        return rows[0][0] if rows else None

    def cancel(self, status: str | None = None) -> bool:
        """Abort the task unless it has ended; tells whether it has not."""
        return bool(self._app.query(CANCEL, [[str(self)], status])[0][0])

    async def cancel_async(self, status: str | None = None) -> bool:
        """Do what ``cancel`` does, in a coroutine."""
        return bool((await self._app.query_async(CANCEL, [[str(self)], status]))[0][0])
