"""Schedules: when what runs, and what kept it from that."""

from __future__ import annotations

from typing import LiteralString

from starlette.responses import Response

from ..acts import OF_NAMES
from ..view import View

_ROWS: LiteralString = """SELECT name, cron, timezone, overlap, backfill, task ->> 'action' AS action, next_at, last_at,
       last_task_id, problem, paused, ARRAY(SELECT t FROM taskq.next_times(cron, timezone, 10) AS t) AS times
  FROM (SELECT * FROM taskq.schedules ORDER BY problem IS NULL, paused, next_at, name LIMIT 200) AS s
 ORDER BY problem IS NULL, paused, next_at, name"""
_OF_SCHEDULES = ("run_schedule", "pause_schedule", "resume_schedule", "unschedule")


def schedules(view: View) -> Response:
    """Show schedules."""
    rows = view.session.rows(_ROWS)
    acts = {what: OF_NAMES[what] for what in _OF_SCHEDULES if OF_NAMES[what].needs in view.session.may}
    return view.page("schedules.html", rows=rows, acts=acts)
