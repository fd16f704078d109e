"""Each button by each role: what the page shows, what the database lets through, and what is there before and after."""

import re

import pytest

from conftest import conninfo, state
from console import Visitor, roles
from taskq_pg import App

pytestmark = pytest.mark.usefixtures("consoles")
PARTS = ("monitor", "operator", "producer", "worker")
# Of what has a row of buttons: the state that it is prepared in, and the one that the button leads to.
CHANGES = {
    "retry": ("aborted", "ready"),
    "now": ("scheduled", "ready"),
    "rerun": ("completed", "ready"),
    "release": ("in-progress", "ready"),
    "cancel": ("ready", "aborted"),
    "delete": ("ready", None),
}
MAY = {
    "monitor": set(),
    "operator": set(CHANGES),
    "producer": set(CHANGES) - {"release"},
    "worker": set(CHANGES) - {"release"},
}


def prepare(app: App, wanted: str, task_id: str) -> None:
    keys = {"delay": "1 day"} if wanted == "scheduled" else {}
    app.insert("knit", id=task_id, **keys)
    if wanted in ("in-progress", "completed"):
        [row] = app.query("SELECT task_id, token FROM taskq.own_tasks('ann', 1, '{knit}')")
        if wanted == "completed":
            app.query("SELECT taskq.return_task(%s, %s)", row)
    elif wanted == "aborted":
        app.cancel(task_id)
    assert state(app, task_id) == wanted


def states(app: App) -> dict[str, str]:
    return dict(app.query("SELECT id, state FROM taskq.tasks"))


@pytest.mark.parametrize("part", PARTS)
def test_each_act_by_each_role(taskq_app: App, part: str) -> None:
    where = conninfo(taskq_app)
    with roles(where, part) as made:
        visitor = Visitor(where, role_of=lambda request: made[part])
        for what, (before, after) in CHANGES.items():
            task_id = f"{what} me"
            prepare(taskq_app, before, task_id)
            page = visitor.open(f"task?id={task_id}")
            assert (f'value="{what}"' in page) == (what in MAY[part]), f"{part} {what}"
            said = visitor.press(what, task_id)
            if what in MAY[part]:
                assert "1 task " in said
                assert states(taskq_app).get(task_id) == after
            else:
                assert said.startswith("403 ")
                assert states(taskq_app)[task_id] == before
            if task_id in states(taskq_app):
                taskq_app.query("SELECT taskq.cancel_tasks(%s)", [[task_id]])


NAMED = {
    "pause_action": ("knit", "SELECT paused FROM taskq.actions WHERE action = 'knit'", {"operator"}),
    "resume_action": ("knit", "SELECT NOT paused FROM taskq.actions WHERE action = 'knit'", {"operator"}),
    "set_action": ("knit", "SELECT max_concurrency = 3 FROM taskq.actions WHERE action = 'knit'", {"operator"}),
    "pause_group": ("g", "SELECT paused FROM taskq.groups WHERE group_id = 'g'", {"operator", "producer", "worker"}),
    "resume_group": (
        "g",
        "SELECT NOT paused FROM taskq.groups WHERE group_id = 'g'",
        {"operator", "producer", "worker"},
    ),
    "pause_schedule": ("nightly", "SELECT paused FROM taskq.schedules", {"operator"}),
    "resume_schedule": ("nightly", "SELECT NOT paused FROM taskq.schedules", {"operator"}),
    "run_schedule": ("nightly", "SELECT count(*) = 1 FROM taskq.tasks WHERE action = 'report'", {"operator"}),
    "delay_workgroup": ("w", "SELECT held_back FROM taskq.workgroups WHERE workgroup = 'w'", {"operator"}),
    "signal": (
        "approve",
        "SELECT state = 'completed' FROM taskq.tasks WHERE id = 'approve'",
        {"operator", "producer", "worker"},
    ),
    "rewind": (
        "durable",
        "SELECT count(*) = 0 FROM taskq.steps WHERE task_id = 'durable'",
        {"operator", "producer", "worker"},
    ),
    "edit": ("plain", "SELECT priority = 7 FROM taskq.tasks WHERE id = 'plain'", {"operator", "producer", "worker"}),
    "cancel_group": (
        "g",
        "SELECT aborted = 1 FROM taskq.groups WHERE group_id = 'g'",
        {"operator", "producer", "worker"},
    ),
    "unschedule": ("nightly", "SELECT count(*) = 0 FROM taskq.schedules", {"operator"}),
}
FIELDS = {
    "set_action": {"max_concurrency": "3"},
    "delay_workgroup": {"delay": "1 hour"},
    "signal": {"boolean:approved": "true"},
    "rewind": {"step": "one"},
    "edit": {"was:priority": "0", "priority": "7"},
}


@pytest.mark.parametrize("part", PARTS)
def test_what_has_a_name(taskq_app: App, part: str) -> None:
    where = conninfo(taskq_app)
    taskq_app.query("SELECT taskq.schedule('nightly', '0 2 * * *', '{\"action\": \"report\"}')")
    taskq_app.insert("sew", id="in group", group_id="g", workgroup="w")
    taskq_app.insert("order", id="durable")
    taskq_app.insert("wash", id="plain")
    taskq_app.insert_tasks([{"id": "approve", "action": "signal", "signal": True}])
    [(task_id, token)] = taskq_app.query("SELECT task_id, token FROM taskq.own_tasks('ann', 1, '{order}')")
    taskq_app.query("SELECT taskq.save_step(%s, %s, 'one')", [task_id, token])
    taskq_app.query("SELECT taskq.return_task(%s, %s, 'pending', count_try => false)", [task_id, token])
    with roles(where, part) as made:
        visitor = Visitor(where, role_of=lambda request: made[part])
        taskq_app.insert("knit", id="k")
        for what, (name, query, allowed) in NAMED.items():
            [(held,)] = taskq_app.query(query) or [(False,)]
            said = visitor.press(what, name, **FIELDS.get(what, {}))
            [(holds,)] = taskq_app.query(query) or [(False,)]
            if part in allowed:
                assert holds, f"{part} {what}: {said}"
            else:
                assert said.startswith("403 "), f"{part} {what}: {said}"
                assert holds == held, f"{part} {what}"


@pytest.mark.parametrize("part", PARTS)
def test_pages_show_no_button_that_is_refused(taskq_app: App, part: str) -> None:
    where = conninfo(taskq_app)
    taskq_app.insert("knit", id="a", group_id="g")
    taskq_app.insert_tasks([{"id": "approve", "action": "signal", "signal": True}])
    taskq_app.query("SELECT taskq.schedule('nightly', '0 2 * * *', '{\"action\": \"report\"}')")
    taskq_app.query("SELECT taskq.own_tasks('ann', 1, '{knit}')")
    with roles(where, part) as made:
        visitor = Visitor(where, role_of=lambda request: made[part])
        for path in ("", "tasks", "task?id=a", "inbox", "failures", "workflows", "schedules", "limits", "workers"):
            page = visitor.open(path)
            shown = set(re.findall(r'<button name="do" value="(\w+)"', page))
            assert not shown or part != "monitor", f"{part} {path}: {shown}"
        assert ("read only" in visitor.open("")) == (part == "monitor")
        assert ("Health is told" in visitor.open("")) == (part in ("producer", "worker"))


def test_roles_without_a_part_see_nothing(taskq_app: App) -> None:
    where = conninfo(taskq_app)
    taskq_app.insert("knit", id="secret stocking")
    with roles(where, "none", "inserter") as made:
        for part in made:
            visitor = Visitor(where, role_of=lambda request, part=part: made[part])
            for path in ("", "tasks", "task?id=secret+stocking", "inbox", "failures", "workers", "series"):
                assert "secret stocking" not in visitor.open(path, status=403)
    assert "no role" in Visitor(where, role_of=lambda request: None).open("", status=403)
    # A name that does not exist, or is none of the console's, changes nothing either.
    for role in ("no such role", '"; RESET ROLE; --'):
        assert "knit" not in Visitor(where, role_of=lambda request, role=role: role).open("tasks", status=400)


def test_a_role_of_one_request_is_not_that_of_the_next(taskq_app: App) -> None:
    where = conninfo(taskq_app)
    taskq_app.insert("knit", id="a")
    with roles(where, "monitor", "operator") as made:
        visitor = Visitor(where, role_of=lambda request: made[request.headers.get("x-part", "monitor")])
        pairs = [("mark", visitor.mark()), ("do", "cancel"), ("id", "a"), ("sure", "1"), ("back", "tasks")]
        assert visitor.send("act", pairs).status_code == 403
        assert state(taskq_app, "a") == "ready"
        assert visitor.send("act", pairs, **{"x-part": "operator"}).status_code == 303
        assert state(taskq_app, "a") == "aborted"
        assert visitor.send("act", pairs).status_code == 403
