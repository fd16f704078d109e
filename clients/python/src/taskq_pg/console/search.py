"""What a filter is, and what it finds: some of it, in a bounded time, and where to go on."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

from .database import Row, Session
from .guard import Refused
from .render import CAUSES, STATES

# A search goes on for so long, in seconds; then one presses a button, or the page does.
_PATIENCE = 0.3
_FIND: LiteralString = """SELECT cursor, task_id FROM taskq.find_tasks(
    actions => %s::text[], groups => %s::text[], states => %s::text[], causes => %s::text[], status_like => %s::text,
    body => %s::text::jsonb, metadata => %s::text::jsonb, inserted_since => %s::text::timestamptz,
    inserted_until => %s::text::timestamptz, id_prefix => %s::text, before => %s::text, max_tasks => %s,
    max_looked => %s)"""
_ROWS: LiteralString = """SELECT t.id, t.action, t.state, t.cause, t.num_tries, t.max_tries, t.priority, t.group_id,
       t.actor_id,
       CASE WHEN length(t.status) > 600 THEN left(t.status, 300) || chr(10) || right(t.status, 300)
            ELSE t.status END AS status,
       t.progress, t.inserted_at, t.not_before, t.owned_at, t.settled_at, t.action_deadline
  FROM unnest(%s::text[]) WITH ORDINALITY AS u(id, place) JOIN taskq.tasks AS t ON t.id = u.id ORDER BY u.place"""
NAMES = ("id", "action", "group", "state", "cause", "status", "body", "metadata", "since", "until")
_SEVERAL = ("action", "group", "state", "cause")


@dataclass(frozen=True)
class Filter:
    """What tasks are asked for."""

    given: Mapping[str, list[str]]

    @classmethod
    def read(cls, pairs: list[tuple[str, str]]) -> Filter:
        """Read it from an address or a form, where each name may stand several times."""
        given: dict[str, list[str]] = {}
        for name, value in pairs:
            if name in NAMES and value:
                given.setdefault(name, []).append(value)
        for name, known in (("state", STATES), ("cause", CAUSES)):
            if unknown := [value for value in given.get(name, []) if value not in known]:
                raise Refused(400, f"There is no {name} {unknown[0][:100]!r}. There are {', '.join(known)}.")
        for name in ("body", "metadata"):
            for text in given.get(name, []):
                try:
                    json.loads(text)
                except (ValueError, RecursionError):
                    raise Refused(
                        400, f'What {name} contains is written as JSON, such as {{"customer": 42}}.'
                    ) from None
        return cls(given)

    def one(self, name: str) -> str | None:
        """Return the value of a name, the first of several."""
        return next(iter(self.given.get(name, [])), None)

    def all(self, name: str) -> list[str] | None:
        """Return the values of a name; None if there is none."""
        return self.given.get(name)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """What stands in a form."""
        return [(name, value) for name, values in self.given.items() for value in values]

    @property
    def query(self) -> dict[str, Any]:
        """What stands in an address."""
        return {name: list(values) for name, values in self.given.items()}

    @property
    def goes_on(self) -> bool:
        """Tell whether it asks for more than most do."""
        return not self.given.keys() <= {"state", "action", "group", "status"}

    @property
    def words(self) -> str:
        """What it is in words."""
        return ", ".join(f"{name} {' or '.join(values)}" for name, values in self.given.items()) or "all tasks"

    def arguments(self) -> list[Any]:
        """Return the arguments of `find_tasks`."""
        status = self.one("status")
        if status is not None and "%" not in status:
            escaped = status.replace("\\", "\\\\").replace("_", "\\_")
            status = f"%{escaped}%"
        return [
            *(self.all(name) for name in _SEVERAL),
            status,
            *(self.one(name) for name in ("body", "metadata", "since", "until", "id")),
        ]


@dataclass(frozen=True)
class Found:
    """Ids, the newest first; and where to go on, None where there is no more."""

    ids: list[str]
    cursor: str | None
    first: str | None
    full: bool


def find(session: Session, filter: Filter, before: str | None, most: int, patience: float = _PATIENCE) -> Found:
    """Look for tasks, at most so many and for so long."""
    ends = time.monotonic() + patience
    ids: list[str] = []
    first = cursor = None
    while True:
        rows = session.rows(_FIND, *filter.arguments(), before, most - len(ids), 20_000)
        ids += [row["task_id"] for row in rows if row["task_id"] is not None]
        cursor = rows[-1]["cursor"] if rows else None
        first = first or (rows[0]["cursor"] if rows else None)
        unfinished = bool(rows) and rows[-1]["task_id"] is None
        if len(ids) >= most:
            return Found(ids, cursor, first, full=True)
        if not unfinished:
            return Found(ids, None, first, full=False)
        if time.monotonic() > ends:
            return Found(ids, cursor, first, full=False)
        before = cursor


def rows_of(session: Session, ids: list[str]) -> list[Row]:
    """Return what a list shows of tasks."""
    return session.rows(_ROWS, ids) if ids else []
