"""Workflows: what is suspended and for what, and how far groups are."""

from __future__ import annotations

from typing import LiteralString

from starlette.responses import Response

from ..acts import OF_NAMES
from ..view import View

_PAGE = 50
_WAITS: LiteralString = """SELECT w.task_id, w.action, w.group_id, w.since, w.until, w.waits_for[1:4] AS waits_for,
       cardinality(w.waits_for) AS number,
       ARRAY(SELECT s.step FROM taskq.steps AS s WHERE s.task_id = w.task_id ORDER BY s.position LIMIT 30) AS steps
  FROM (SELECT task_id, action, group_id, since, until, waits_for FROM taskq.waits ORDER BY until LIMIT %s) AS w"""
_RUNNING: LiteralString = """SELECT a.task_id, a.action, a.actor_id, a.owned_at, s.steps
  FROM (SELECT task_id, action, actor_id, owned_at FROM taskq.actors LIMIT 500) AS a
 CROSS JOIN LATERAL (SELECT array_agg(s.step ORDER BY s.position) AS steps FROM taskq.steps AS s
                      WHERE s.task_id = a.task_id) AS s
 WHERE s.steps IS NOT NULL ORDER BY a.owned_at LIMIT %s"""
_GROUPS: LiteralString = """SELECT group_id, paused, progress, tasks, completed, aborted, skipped,
       first_inserted_at, last_settled_at, estimated_end
  FROM taskq.groups WHERE %s::text IS NULL OR starts_with(group_id, %s)
 ORDER BY progress = 1, last_settled_at DESC NULLS LAST, group_id LIMIT %s"""
_OF_GROUPS = ("pause_group", "resume_group", "retry_group", "cancel_group", "reset_group")


def workflows(view: View) -> Response:
    """Show suspended tasks, running ones with steps, and groups."""
    group = view.asked("group")
    return view.page(
        "workflows.html",
        waits=view.session.rows(_WAITS, _PAGE),
        running=view.session.rows(_RUNNING, _PAGE),
        groups=view.session.rows(_GROUPS, group, group, _PAGE),
        group=group,
        most=_PAGE,
        acts={what: OF_NAMES[what] for what in _OF_GROUPS if OF_NAMES[what].needs in view.session.may},
    )
