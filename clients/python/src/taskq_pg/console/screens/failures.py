"""Failures: what has aborted, alike ones together."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from ..acts import OF_TASKS
from ..render import told
from ..view import View

_WITHIN = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
_LOOKED = 50_000


def failures(view: View) -> Response:
    """Show failures by action and text."""
    within = view.asked("within") or "day"
    within = within if within in _WITHIN else "day"
    rows = view.session.rows("SELECT * FROM taskq.failures(%s, %s)", _WITHIN[within], _LOOKED)
    for row in rows:
        row["told"] = told(row["status"]) or "nothing was said"
    acts = {what: OF_TASKS[what] for what in ("retry", "delete") if OF_TASKS[what].needs in view.session.may}
    return view.page("failures.html", rows=rows, within=within, withins=list(_WITHIN), acts=acts, looked=_LOOKED)
