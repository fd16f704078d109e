"""Tasks: what a filter finds, the newest first, and what to do with it."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from ..acts import OF_TASKS
from ..search import find, rows_of
from ..view import View

_PAGE = 50


def tasks(view: View) -> Response:
    """Show a page of tasks."""
    searched = view.asked("q")
    if searched is not None:
        if view.session.row("SELECT id FROM taskq.tasks WHERE id = %s", searched):
            return RedirectResponse(view.url("task", id=searched), 303)
        return RedirectResponse(view.url("tasks", id=searched), 303)
    filter = view.filter(view.request.query_params.multi_items())
    before = view.asked("before")
    found = find(view.session, filter, before, _PAGE)
    acts = {what: act for what, act in OF_TASKS.items() if act.needs in view.session.may}
    asked = filter.all("state")
    if asked:
        acts = {what: act for what, act in acts.items() if set(act.states) & set(asked)}
    return view.page(
        "tasks.html",
        filter=filter,
        rows=rows_of(view.session, found.ids),
        found=found,
        acts=acts,
        before=before,
        actions=[row["action"] for row in view.session.rows("SELECT action FROM taskq.actions ORDER BY 1 LIMIT 300")],
    )
