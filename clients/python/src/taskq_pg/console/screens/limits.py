"""Limits: what holds tasks back on purpose, and how full it is."""

from __future__ import annotations

from typing import LiteralString

from starlette.responses import Response

from ..view import View

_ACTIONS: LiteralString = """SELECT action, paused, max_concurrency, slots_held, rate_limit, rate_period,
       max_per_group, fair
  FROM taskq.actions ORDER BY max_concurrency IS NULL AND rate_limit IS NULL AND max_per_group IS NULL AND NOT paused,
       action LIMIT 300"""
_WORKGROUPS: LiteralString = (
    """SELECT workgroup, not_before, held_back FROM taskq.workgroups WHERE held_back ORDER BY not_before LIMIT 200"""
)
_KEYS: LiteralString = """SELECT name, key, slots_held, max_concurrency, tokens_left, held_back, next_at
  FROM taskq.limit_keys ORDER BY held_back DESC, name, key LIMIT 200"""


def limits(view: View) -> Response:
    """Show limits."""
    keys = None
    if view.session.value("SELECT to_regclass('taskq.limit_keys') IS NOT NULL"):
        keys = view.session.rows(_KEYS)
    return view.page(
        "limits.html",
        actions=view.session.rows(_ACTIONS),
        workgroups=view.session.rows(_WORKGROUPS),
        keys=keys,
        edited=view.asked("action"),
    )
