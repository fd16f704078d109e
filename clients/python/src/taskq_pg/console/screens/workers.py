"""Workers: who waits for what, and who holds what."""

from __future__ import annotations

from typing import LiteralString

from starlette.responses import Response

from ..view import View

_SESSIONS: LiteralString = """SELECT role, application_name, actions, count(*) AS number, min(asleep_since) AS since
  FROM taskq.workers WHERE pid IS NOT NULL GROUP BY role, application_name, actions
 ORDER BY application_name, role LIMIT 200"""
_ACTORS: LiteralString = """SELECT actor_id, array_agg(DISTINCT action ORDER BY action) AS actions, count(*) AS held,
       count(*) FILTER (WHERE overdue) AS overdue, min(owned_at) AS oldest, min(action_deadline) AS deadline,
       (array_agg(task_id ORDER BY owned_at))[1] AS task_id
  FROM (SELECT actor_id, task_id, action, overdue, owned_at, action_deadline FROM taskq.actors LIMIT 20000) AS a
 GROUP BY actor_id ORDER BY overdue DESC, oldest LIMIT 200"""


def workers(view: View) -> Response:
    """Show sessions that wait, and actors that hold tasks."""
    return view.page("workers.html", sessions=view.session.rows(_SESSIONS), actors=view.session.rows(_ACTORS))
