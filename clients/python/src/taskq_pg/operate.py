"""What looks after a queue: each call is one of the SQL functions of the same purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, Unpack

import psycopg
from psycopg.rows import dict_row

from . import borrowed
from .bodies import dumps, read_body
from .connections import Connections
from .errors import BodyError
from .keys import ActionSettings, plain

# The arguments of taskq.set_action, and what makes their type known.
SETTINGS: dict[str, LiteralString] = {
    "max_tries": "max_tries => %s::int",
    "lease": "lease => %s::text::interval",
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
Statement = tuple[LiteralString, Sequence[Any]]


@dataclass(frozen=True)
class Stored:
    """A task that is in the queue, as the view ``taskq.tasks`` shows it."""

    id: str
    action: str
    body: Any
    state: str
    status: str | None
    num_tries: int
    result: Any
    row: dict[str, Any]
    """All columns of the view."""

    @classmethod
    def read(cls, row: dict[str, Any]) -> Stored:
        """Read a row of the view."""
        try:
            body = read_body(row["body"])
        except BodyError:
            body = row["body"]
        names = ("id", "action", "state", "status", "num_tries", "result")
        return cls(**{name: row[name] for name in names}, body=body, row=row)


def set_action(action: str, settings: Mapping[str, Any]) -> Statement:
    """Return the statement that writes settings of an action."""
    if unknown := settings.keys() - SETTINGS.keys():
        raise TypeError(f"no setting of an action: {', '.join(sorted(unknown))}; there are {', '.join(SETTINGS)}")
    named = ", ".join([SETTINGS[name] for name in settings])
    values = [dumps(value) if isinstance(value, dict) else value for value in plain(settings).values()]
    return f"SELECT taskq.set_action(%s{', ' if named else ''}{named})", [action, *values]


class Operator:
    """The calls of those who look after a queue. In a coroutine: ``await asyncio.to_thread(app.retry, id)``."""

    connections: Connections

    def query(self, query: LiteralString, arguments: Sequence[Any] = ()) -> borrowed.Rows:
        """Return the rows of a statement."""
        raise NotImplementedError

    def _one(self, query: LiteralString, *arguments: Any) -> Any:
        return self.query(query, arguments)[0][0]

    def cancel(self, *task_ids: str, status: str | None = None) -> int:
        """Abort tasks that have not ended, and count them. A handler that has one in hand is told at once."""
        return int(self._one("SELECT taskq.cancel_tasks(%s, status => %s)", list(task_ids), status))

    def retry(self, *task_ids: str) -> int:
        """Give aborted tasks new tries, and count them."""
        return int(self._one("SELECT taskq.retry_tasks(%s)", list(task_ids)))

    def rerun(self, *task_ids: str, downstream: bool = True) -> int:
        """Start settled tasks over, and count them; what depends on them starts over as well."""
        return int(self._one("SELECT taskq.rerun_tasks(%s, downstream => %s)", list(task_ids), downstream))

    def rewind(self, task_id: str, step: str) -> int:
        """Have a workflow forget this step and all that were saved after it, and count them."""
        return int(self._one("SELECT taskq.rewind_task(%s, %s)", task_id, step))

    def delete(self, *task_ids: str) -> int:
        """Remove tasks, and what is left without a dependency then; counts all."""
        return int(self._one("SELECT taskq.delete_tasks(%s)", list(task_ids)))

    def release(self, *task_ids: str, status: str | None = None) -> int:
        """Take tasks back from workers that are known to be dead, and count them."""
        return int(self._one("SELECT taskq.release_tasks(%s, status => %s)", list(task_ids), status))

    def get(self, task_id: str) -> Stored | None:
        """Return a task as the queue has it; None if there is none."""
        query = "SELECT * FROM taskq.tasks WHERE id = %s"
        with self.connections.use() as connection, psycopg.Cursor(connection, row_factory=dict_row) as cursor:
            row = cursor.execute(query, [task_id]).fetchone()
        return None if row is None else Stored.read(row)

    def why(self, task_id: str) -> list[str]:
        """Tell why a task is not running, a reason each."""
        return [row[0] for row in self.query("SELECT taskq.why(%s)", [task_id])]

    def graph(self, task_id: str, format: str = "text") -> str:
        """Return the graph of a task, or of a group: as ``text``, ``dot`` or ``mermaid``."""
        return str(self._one("SELECT taskq.graph(%s, format => %s)", task_id, format))

    def pause(self, *, action: str | None = None, group: str | None = None, schedule: str | None = None) -> None:
        """Grant no task of an action or of a group, or let no run of a schedule come, until it is resumed."""
        self._pause(action, group, schedule, ("pause_action", "pause_group", "pause_schedule"))

    def resume(self, *, action: str | None = None, group: str | None = None, schedule: str | None = None) -> None:
        """End a pause."""
        self._pause(action, group, schedule, ("resume_action", "resume_group", "resume_schedule"))

    def _pause(
        self, action: str | None, group: str | None, schedule: str | None, calls: Sequence[LiteralString]
    ) -> None:
        named = [(call, name) for call, name in zip(calls, (action, group, schedule), strict=True) if name is not None]
        if len(named) != 1:
            raise TypeError("name an action, a group or a schedule")
        [(call, name)] = named
        self._one(f"SELECT taskq.{call}(%s)", name)  # pyright: ignore[reportArgumentType]

    def unschedule(self, name: str) -> None:
        """Remove a schedule; tasks that it has inserted stay."""
        self._one("SELECT taskq.unschedule(%s)", name)

    def run_schedule(self, name: str) -> str:
        """Insert a run of a schedule now, and return its id."""
        return str(self._one("SELECT taskq.run_schedule(%s)", name))

    def set_action(self, action: str, **settings: Unpack[ActionSettings]) -> None:
        """Write settings of an action; those that are left out stay."""
        self.query(*set_action(action, settings))

    def set_group(self, group_id: str, *, max_concurrency: int | None = None, weight: int | None = None) -> None:
        """Write settings of a group; those that are left out stay."""
        query: LiteralString = "SELECT taskq.set_group(%s, max_concurrency => %s::int, weight => %s::int)"
        self._one(query, group_id, max_concurrency, weight)
