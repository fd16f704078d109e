"""Graph: what a task runs after, and what runs after it; or the tasks of a group."""

from __future__ import annotations

from typing import LiteralString

from starlette.responses import Response

from ..drawing import Drawing, Node, draw
from ..search import Filter, find, rows_of
from ..view import View

_MOST = 200
_AROUND: LiteralString = """SELECT x.task_id AS id, x.action, x.state FROM taskq.ancestors(%s, %s) AS x
 UNION SELECT x.task_id, x.action, x.state FROM taskq.descendants(%s, %s) AS x"""
_SELF: LiteralString = "SELECT id, action, state FROM taskq.tasks WHERE id = %s"
_EDGES: LiteralString = (
    """SELECT after, run, condition FROM taskq.dependencies WHERE run = ANY (%s::text[]) LIMIT 2000"""
)


def graph(view: View) -> Response:
    """Show the graph of a task or a group."""
    asked = view.asked("id")
    group = view.asked("group")
    made = drawing(view, asked, _MOST) if asked else _of_group(view, group) if group else None
    return view.page("graph.html", asked=asked, group=group, drawing=made, most=_MOST)


def drawing(view: View, task_id: str, most: int) -> Drawing | None:
    """Draw what is around a task; None if there is no such task."""
    rows = view.session.rows(_SELF, task_id)
    if not rows:
        return None
    rows += view.session.rows(_AROUND, task_id, most // 2, task_id, most // 2)
    return _drawn(view, [Node(**row) for row in rows], task_id)


def _of_group(view: View, group: str) -> Drawing | None:
    rows = rows_of(view.session, find(view.session, Filter({"group": [group]}), None, _MOST).ids)
    nodes = [Node(row["id"], row["action"], row["state"]) for row in rows]
    return _drawn(view, nodes, None) if nodes else None


def _drawn(view: View, nodes: list[Node], focus: str | None) -> Drawing:
    edges = view.session.rows(_EDGES, [node.id for node in nodes])
    return draw(nodes, [(edge["after"], edge["run"], edge["condition"]) for edge in edges], focus)
