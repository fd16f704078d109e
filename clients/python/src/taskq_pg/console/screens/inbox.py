"""Inbox: all that waits for a person, the oldest first, and the answer."""

from __future__ import annotations

from typing import Any, LiteralString

from starlette.responses import Response

from ..database import Row
from ..view import View

_PAGE = 25
_INBOX: LiteralString = """SELECT task_id, action, group_id, left(body, 4000) AS body, metadata, inserted_at,
       expires_at, waited_by, position
  FROM taskq.inbox WHERE position > %s ORDER BY position LIMIT %s"""
_KINDS = ("text", "number", "boolean")


def inbox(view: View) -> Response:
    """Show what waits to be answered."""
    after = view.asked("after") or "0"
    rows = view.session.rows(_INBOX, int(after) if after.isdecimal() and len(after) < 19 else 0, _PAGE + 1)
    for row in rows:
        row["title"], row["fields"] = _told(row)
    more = rows[_PAGE - 1]["position"] if len(rows) > _PAGE else None
    return view.page("inbox.html", rows=rows[:_PAGE], more=more, after=after)


def _told(row: Row) -> tuple[str | None, list[tuple[str, str, list[str]]]]:
    """Return what the metadata say of the signal: its title, and its form: name, kind, choices."""
    metadata: Any = row["metadata"]
    if not isinstance(metadata, dict):
        return None, []
    title = metadata.get("title")
    form = metadata.get("form")
    fields: list[tuple[str, str, list[str]]] = []
    if isinstance(form, dict):
        for name, kind in form.items():
            if isinstance(kind, list):
                fields.append((str(name), "choice", [str(one) for one in kind]))
            else:
                fields.append((str(name), kind if kind in _KINDS else "text", []))
    return title if isinstance(title, str) else None, fields
