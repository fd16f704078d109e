"""Task: all that is known of one, why it does not run, and what to do about it."""

from __future__ import annotations

import re
from typing import LiteralString

from starlette.responses import Response

from ..acts import OF_TASKS
from ..database import Row
from ..view import View
from .graph import drawing

_TASK: LiteralString = """SELECT t.*, length(t.body) AS body_length, left(t.body, 20001) AS body_text,
       left(jsonb_pretty(t.metadata), 20001) AS metadata_text, left(jsonb_pretty(t.result), 20001) AS result_text,
       left(jsonb_pretty(t.checkpoint), 20001) AS checkpoint_text
  FROM (SELECT id, action, state, body, status, num_tries, max_tries, num_signals, total_dependencies, num_failures,
               actor_id, action_deadline, result, priority, lease, not_before, retention, spontaneous, signal, seed,
               group_id, workgroup, merge_key, metadata, progress, inserted_at, owned_at, settled_at, unique_key,
               merged_into, cause, num_releases, expires_at, max_run_time, num_required, checkpoint
          FROM taskq.tasks WHERE id = %s) AS t"""
_TRIES: LiteralString = """SELECT num_try, actor_id, started_at, ended_at, outcome, left(status, 20001) AS status,
       COALESCE(ended_at, taskq.clock()) - started_at AS took
  FROM taskq.attempts WHERE task_id = %s ORDER BY started_at DESC NULLS LAST LIMIT 100"""
_STEPS: LiteralString = """SELECT position, step, num_try, left(jsonb_pretty(result), 5001) AS result, saved_at
  FROM taskq.steps WHERE task_id = %s ORDER BY position LIMIT 200"""
_AFTER: LiteralString = """SELECT d.after AS id, d.condition, d.settled, t.action, t.state
  FROM (SELECT after, condition, settled FROM taskq.dependencies WHERE run = %s LIMIT 50) AS d
  JOIN taskq.tasks AS t ON t.id = d.after ORDER BY d.settled, d.after"""
_RUN: LiteralString = """SELECT d.run AS id, d.condition, t.action, t.state
  FROM (SELECT run, condition FROM taskq.dependencies WHERE after = %s LIMIT 50) AS d
  JOIN taskq.tasks AS t ON t.id = d.run ORDER BY d.run"""
_WAIT: LiteralString = "SELECT since, until, waits_for FROM taskq.waits WHERE task_id = %s"
# What stands in quotes, an id perhaps.
_QUOTED = re.compile(r'(?<=")([^"]{1,1000})(?=")')


def task(view: View) -> Response:
    """Show a task."""
    task_id = view.asked("id") or ""
    row = view.session.row(_TASK, task_id)
    if row is None:
        return view.page("gone.html", 404, id=task_id)
    hides = view.hides(row["action"])
    acts = {what: act for what, act in OF_TASKS.items() if act.needs in view.session.may and row["state"] in act.states}
    return view.page(
        "task.html",
        task=row,
        facts=_facts(row),
        hides=hides,
        why=_why(view, task_id),
        tries=view.session.rows(_TRIES, task_id),
        steps=view.session.rows(_STEPS, task_id),
        after=view.session.rows(_AFTER, task_id),
        run=view.session.rows(_RUN, task_id),
        wait=view.session.row(_WAIT, task_id),
        acts=acts,
        drawing=drawing(view, task_id, 60) if row["total_dependencies"] or _has_dependents(view, task_id) else None,
    )


def _why(view: View, task_id: str) -> list[list[tuple[str, bool]]]:
    """Return the reasons, each in pieces: a text, and whether it is the id of a task, to be a link."""
    # A status of several lines stands in full below.
    reasons = [row["why"].partition("\n")[0] for row in view.session.rows("SELECT taskq.why(%s)", task_id)]
    pieces = [_QUOTED.split(reason) for reason in reasons]
    quoted = list({piece for reason in pieces for piece in reason[1::2]})
    query: LiteralString = "SELECT id FROM taskq.tasks WHERE id = ANY (%s::text[]) AND id <> %s"
    ids = {row["id"] for row in view.session.rows(query, quoted, task_id)} if quoted else set()
    return [[(piece, n % 2 == 1 and piece in ids) for n, piece in enumerate(reason)] for reason in pieces]


def _has_dependents(view: View, task_id: str) -> bool:
    return view.session.row("SELECT run FROM taskq.dependencies WHERE after = %s LIMIT 1", task_id) is not None


def _facts(row: Row) -> list[tuple[str, object]]:
    """Return what is set, with its name; what is as always is left out."""
    usual = {"priority": 0, "num_failures": 0, "num_releases": 0, "spontaneous": False, "signal": False, "seed": False}
    names = (
        "cause", "inserted_at", "owned_at", "settled_at", "not_before", "action_deadline", "expires_at", "actor_id",
             "priority",
        "num_failures", "num_releases", "lease", "max_run_time", "retention", "group_id", "workgroup", "merge_key",
             "merged_into",
        "unique_key", "num_required", "spontaneous", "signal", "seed",
    )  # fmt: skip
    return [(name, row[name]) for name in names if row[name] is not None and usual.get(name) != row[name]]
