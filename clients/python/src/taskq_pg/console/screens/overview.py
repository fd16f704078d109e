"""Overview: what is wrong, four numbers, how things go, and the actions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, LiteralString

from starlette.responses import JSONResponse, Response

from ..database import Row
from ..view import View

_HEALTH: LiteralString = "SELECT severity, problem, advice, kind, subject, since FROM taskq.health()"
_ACTIONS: LiteralString = """SELECT COALESCE(s.action, a.action) AS action, a.paused, a.max_concurrency,
       a.slots_held, a.rate_limit, a.rate_period,
       COALESCE(s.ready, 0) AS ready, COALESCE(s.in_progress, 0) AS in_progress, COALESCE(s.blocked, 0) AS blocked,
       COALESCE(s.scheduled, 0) AS scheduled, COALESCE(s.aborted, 0) AS aborted, COALESCE(s.completed, 0) AS completed,
       COALESCE(s.settled_last_minute, 0) AS settled_last_minute, s.oldest_ready
  FROM (SELECT action, ready, in_progress, blocked, scheduled, aborted, completed, settled_last_minute, oldest_ready
          FROM taskq.stats) AS s
  FULL JOIN taskq.actions AS a ON a.action = s.action
 ORDER BY s.ready + s.in_progress DESC NULLS LAST, 1 LIMIT 500"""
# Waiting, running, waiting for others, waiting for their time.
_PARTS = ("in_progress", "ready", "blocked", "scheduled")
# Below so many an action's numbers were counted.
_COUNTED = 180_000
_WIDTH = 240


def overview(view: View) -> Response:
    """Show the overview."""
    may = view.session.may
    health = view.session.rows(_HEALTH) if "health" in may else None
    actions = view.session.rows(_ACTIONS)
    most = max((sum(row[part] for part in _PARTS) for row in actions), default=0)
    for row in actions:
        row["bar"] = _bar(row, most)
    sums = {part: sum(row[part] for row in actions) for part in (*_PARTS, "aborted", "settled_last_minute")}
    return view.page(
        "overview.html",
        health=health,
        actions=actions,
        sums=sums,
        estimated=sums["ready"] + sums["in_progress"] > _COUNTED,
        within="day" if view.asked("within") == "day" else "hour",
    )


def _bar(row: Row, most: int) -> list[tuple[str, float, float]]:
    """Return the parts of a bar as long as the action is large: name, place and width. What is there can be seen."""
    place, parts = 0.0, []
    for part in _PARTS:
        if row[part] and most:
            width = max(2.0, _WIDTH * row[part] / most)
            parts.append((part.replace("_", "-"), round(place, 1), round(width, 1)))
            place += width
    return parts


def series(view: View) -> Response:
    """Return what the charts show."""
    within = timedelta(days=1) if view.asked("within") == "day" else timedelta(hours=1)
    rows = view.session.rows("SELECT * FROM taskq.series(%s, %s::text[])", within, view.asked_all("action") or None)
    columns: dict[str, list[Any]] = {"at": [row["at"].timestamp() for row in rows]}
    for name in ("completed", "aborted", "skipped"):
        columns[name] = [row[name] for row in rows]
    for name in ("waiting_p50", "waiting_p99", "running_p50", "running_p99"):
        columns[name] = [row[name].total_seconds() if isinstance(row[name], timedelta) else None for row in rows]
    return JSONResponse(columns)
