"""What acts do when the queue goes on meanwhile; many at once; returns by HTTP."""

import json
import re
import threading
import uuid
from urllib.parse import unquote

import psycopg
import pytest

from conftest import Server, column, conninfo, state
from console import Visitor, roles
from taskq_pg import App
from taskq_pg.console.render import coded

pytestmark = pytest.mark.usefixtures("consoles")


def insert(app: App, action: str, number: int, **keys: object) -> list[str]:
    return app.insert_many(
        action, [{"n": n} for n in range(number)], ids=[f"{action} {n}" for n in range(number)], **keys
    )


def finish(app: App, action: str, number: int, code: str = "completed", status: str | None = None) -> None:
    query = "SELECT taskq.return_task(task_id, token, %s, %s) FROM taskq.own_tasks('w', %s, %s)"
    app.query(query, [code, status, number, [action]])


def test_a_task_that_ends_while_the_form_is_open(taskq_app: App) -> None:
    taskq_app.insert("knit", id="a")
    visitor = Visitor(conninfo(taskq_app))
    assert 'value="cancel"' in visitor.open("task?id=a")
    finish(taskq_app, "knit", 1)
    assert visitor.press("cancel", "a") == "Cancel: nothing was changed: a is completed."
    assert visitor.press("now", "a") == "Run now: nothing was changed: a is completed."
    assert visitor.press("release", "a") == "Release: nothing was changed: a is completed."
    assert (
        "has settled" in (said := visitor.press("edit", "a", **{"was:priority": "0", "priority": "5"}))
        or "409 " in said
    )
    assert column(taskq_app, "a", "priority") == 0
    assert visitor.press("delete", "a") == "Delete: 1 task deleted, dependents included."
    assert "it is gone" in visitor.press("cancel", "a")
    assert "There is no task" in visitor.open("task?id=a", status=404)


def test_two_who_edit_the_same_task(taskq_app: App) -> None:
    taskq_app.insert("knit", "old", id="a")
    one, two = Visitor(conninfo(taskq_app)), Visitor(conninfo(taskq_app))
    form = {"was:priority": "0", "priority": "0", "was:not_before": "", "not_before": "", "was:body": "old"}
    assert one.press("edit", "a", **form, body="line 1\r\nline 2") == "Save: a is changed."
    assert column(taskq_app, "a", "body") == "line 1\nline 2"
    assert "Another has changed the body" in two.press("edit", "a", **form, body="mine")
    assert column(taskq_app, "a", "body") == "line 1\nline 2"
    for name, value in (("priority", "high"), ("not_before", "soon")):
        assert two.press("edit", "a", **{f"was:{name}": "0" if name == "priority" else "", name: value}).startswith(
            "400 "
        )
    assert "nothing was changed" in two.press("edit", "a", **{"was:priority": "0", "priority": "0"})


def test_two_who_act_at_once(taskq_app: App) -> None:
    taskq_app.insert("knit", id="a")
    visitors = [Visitor(conninfo(taskq_app)) for _ in range(4)]
    said: list[str] = []
    threads = [threading.Thread(target=lambda v=v: said.append(v.press("cancel", "a"))) for v in visitors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said)[0] == "Cancel: 1 task cancelled."
    assert said.count("Cancel: 1 task cancelled.") == 1
    assert state(taskq_app, "a") == "aborted"


def test_what_is_risky_is_asked_first(taskq_app: App) -> None:
    insert(taskq_app, "knit", 3)
    visitor = Visitor(conninfo(taskq_app))
    asked = visitor.press("delete", "knit 0", "knit 1", sure=False)
    assert asked.startswith("200 ")
    assert "They go for good" in asked
    assert len(taskq_app.query("SELECT FROM taskq.tasks")) == 3
    assert visitor.press("delete", "knit 0", "knit 1") == "Delete: 2 tasks deleted, dependents included."


def test_all_that_a_filter_finds(taskq_app: App) -> None:
    insert(taskq_app, "knit", 450)
    insert(taskq_app, "sew", 3)
    visitor = Visitor(conninfo(taskq_app))
    counted, page = visitor.bulk("cancel", action="knit", body='{"n": 7}')
    assert counted == 1
    assert "1 cancelled." in page
    counted, page = visitor.bulk("cancel", action="knit")
    assert counted == 449
    assert "449 cancelled." in page
    assert "in another state" not in page
    assert visitor.bulk("cancel", action="knit")[0] == 0
    # A state in which the button means nothing is no reason to take tasks of others.
    pairs = [("mark", visitor.mark()), ("do", "cancel"), ("all", "1"), ("action", "sew"), ("state", "completed")]
    for step in ("count", "do"):
        assert visitor.send("bulk", [*pairs, ("step", step), ("top", "999")]).status_code == 400
    counts = dict(taskq_app.query("SELECT action || ' ' || state, count FROM taskq.count_tasks()"))
    assert counts == {"knit aborted": 450, "sew ready": 3}
    assert visitor.bulk("retry", action="nothing")[0] == 0
    # What comes after they were counted is left alone.
    taskq_app.query("SELECT taskq.delete_tasks(actions => '{knit}')")
    insert(taskq_app, "purl", 5)
    pairs = [("mark", visitor.mark()), ("do", "delete"), ("all", "1"), ("action", "purl"), ("back", "tasks")]
    page = visitor.send("act", pairs).text
    taskq_app.insert("purl", id="late")
    assert "5 deleted, dependents included." in visitor._step(page)
    assert state(taskq_app, "late") == "ready"


def test_those_that_are_refused_are_named(taskq_app: App) -> None:
    taskq_app.insert_tasks(
        [
            {"id": "stays", "action": "lost"},
            *({"id": f"after {n}", "action": "knit", "depends_on": ["stays"]} for n in range(3)),
            *({"id": f"free {n}", "action": "knit"} for n in range(300)),
        ]
    )
    taskq_app.cancel("stays")
    taskq_app.query("SELECT taskq.cancel_tasks(actions => '{knit}')")
    counted, page = Visitor(conninfo(taskq_app)).bulk("retry", action="knit", state="aborted")
    assert counted == 303
    assert "300 came back" in page
    assert "3 left out" in page
    assert "after 1" in page
    assert "stays" in page
    assert state(taskq_app, "free 299") == "ready"
    assert state(taskq_app, "after 0") == "aborted"


def test_bulk_by_each_role(taskq_app: App) -> None:
    where = conninfo(taskq_app)
    insert(taskq_app, "knit", 3)
    with roles(where, "monitor", "producer") as made:
        monitor = Visitor(where, role_of=lambda request: made["monitor"])
        pairs = [("mark", monitor.mark()), ("do", "cancel"), ("all", "1"), ("action", "knit")]
        for path in ("act", "bulk"):
            assert monitor.send(path, [*pairs, ("step", "do"), ("top", "9")]).status_code == 403
        assert {row[0] for row in taskq_app.query("SELECT state FROM taskq.tasks")} == {"ready"}
        producer = Visitor(where, role_of=lambda request: made["producer"])
        assert producer.bulk("cancel", action="knit")[0] == 3


def test_filters_that_mean_nothing(taskq_app: App) -> None:
    insert(taskq_app, "knit", 2)
    visitor = Visitor(conninfo(taskq_app))
    for query in ("state=asleep", "body={", "metadata=a", "before=x", "since=sometimes", "cause=no", "within=ever"):
        page = visitor.open(f"tasks?{query}", status=200 if query == "within=ever" else 400)
        assert "Traceback" not in page
    for what in ("", "no such", "__class__"):
        assert visitor.press(what, "knit 0").startswith("400 ")
    assert visitor.press("cancel") == "Nothing was selected."
    assert visitor.open("tasks?q=knit+1").count("Why it is not running") == 1
    assert "knit 0" in visitor.open("tasks?q=knit")
    assert visitor.client.post("/act", content=b"x" * 10).status_code == 415


def test_answers_of_the_inbox(taskq_app: App) -> None:
    form = {"amount": "number", "ok": "boolean", "why": ["damaged", "late"], "note": "text"}
    signals = [{"id": "plain", "action": "ask", "signal": True}]
    signals += [{"id": "form", "action": "ask", "signal": True, "metadata": {"title": "Refund?", "form": form}}]
    taskq_app.insert_tasks([*signals, {"id": "order", "action": "pay", "depends_on": ["plain"]}])
    visitor = Visitor(conninfo(taskq_app), user_of=lambda request: "ann")
    page = visitor.open("inbox")
    assert page.index("plain") < page.index("Refund?")
    assert "order" in page
    assert visitor.press("signal", "plain", back="inbox", **{"boolean:approved": "false", "text:note": "no"})
    assert column(taskq_app, "plain", "result") == {"approved": False, "note": "no", "by": "ann"}
    assert state(taskq_app, "order") == "ready"
    bad = visitor.press("signal", "form", back="inbox", **{"number:amount": "much"})
    assert "is a number" in bad
    fields = {"number:amount": "12.5", "boolean:ok": "true", "text:why": "late", "text:note": ""}
    visitor.press("signal", "form", back="inbox", **fields)
    assert column(taskq_app, "form", "result") == {"amount": 12.5, "ok": True, "why": "late", "note": None, "by": "ann"}
    # The first answer counts.
    assert "nothing was changed" in visitor.press("signal", "form", back="inbox", **{"boolean:ok": "false"})
    assert "Nothing waits for an answer" in visitor.open("inbox")


def test_returns_by_http(taskq_app: App) -> None:
    taskq_app.insert("resize", id="a/b c")
    [(token,)] = taskq_app.query("SELECT token::text FROM taskq.own_tasks('hook', 1, '{resize}')")
    visitor = Visitor(conninfo(taskq_app), token="closed")

    def give(body: object, task: str = "a%2Fb%20c", **headers: str) -> tuple[int, dict]:
        content = body if isinstance(body, bytes) else json.dumps(body)
        answer = visitor.client.post(f"/tasks/{task}/return", content=content, headers=headers)
        return answer.status_code, answer.json()

    other = str(uuid.uuid4())
    for status, body in (
        (400, b"{"),
        (400, b"[]"),
        (401, {}),
        (401, {"token": 7}),
        (400, {"token": token, "priority": 1}),
        (400, {"token": token, "children_block": "yes"}),
        (400, {"token": "no uuid"}),
        (400, {"token": token, "status_code": "done"}),
        (409, {"token": other}),
    ):
        assert give(body)[0] == status, body
    # Nor is told whether there is such a task.
    assert give({"token": token}, task="unknown") == give({"token": other})
    assert state(taskq_app, "a/b c") == "in-progress"
    child = {"action": "next", "id": "child"}
    done = {"status": "well", "result": {"width": 3}, "children": [child]}
    assert give(done, authorization=f"Bearer {token}") == (200, {"status_code": "completed"})
    assert column(taskq_app, "a/b c", "result") == {"width": 3}
    assert state(taskq_app, "child") == "ready"
    assert give(done, authorization=f"Bearer {token}")[0] == 409


def test_a_worker_role_returns_and_a_monitor_does_not(taskq_app: App) -> None:
    taskq_app.insert("resize", id="a")
    [(token,)] = taskq_app.query("SELECT token::text FROM taskq.own_tasks('hook', 1, '{resize}')")
    where = conninfo(taskq_app)
    with roles(where, "monitor", "worker") as made:
        for part, status in (("monitor", 403), ("worker", 200)):
            visitor = Visitor(psycopg.conninfo.make_conninfo(where, user=made[part]))
            assert visitor.client.post("/tasks/a/return", json={"token": token}).status_code == status
            visitor.close()


def test_names_go_through_forms_as_they_are() -> None:
    for name in ("a\nb\r\nc", "100%25", "\u202ex", " ü", "+"):
        assert unquote(coded(name)) == name
        assert "\n" not in coded(name)


def test_the_series_and_a_short_look(taskq_app: App) -> None:
    insert(taskq_app, "knit", 4)
    finish(taskq_app, "knit", 3)
    finish(taskq_app, "knit", 1, "aborted", "no wool 17\nin the shop")
    visitor = Visitor(conninfo(taskq_app))
    hour = visitor.client.get("/series").json()
    assert (sum(hour["completed"]), sum(hour["aborted"]), len(hour["at"])) == (3, 1, 60)
    assert len(visitor.client.get("/series?within=day").json()["at"]) == 48
    page = visitor.open("failures")
    assert "no wool N" in page
    [like] = re.findall(r'name="status" value="([^"]*)"', page)
    counted, _ = visitor.bulk("retry", state="aborted", action="knit", cause="returned", status=unquote(like))
    assert counted == 1


def test_the_database_goes_and_comes_back(own_app: App, server: Server) -> None:
    own_app.insert("knit", id="a")
    visitor = Visitor(conninfo(own_app))
    assert "a</bdi>" in visitor.open("tasks")
    server.call("stop")
    try:
        page = visitor.open("tasks", status=503)
        assert "The database does not answer" in page
    finally:
        server.call("start", "-c", "fsync=off")
    assert "a</bdi>" in visitor.open("tasks")
    visitor.close()


@pytest.mark.parametrize("path", ["", "tasks", "failures", "workers"])
def test_a_database_without_the_extension(taskq_conninfo: str, path: str) -> None:
    from taskq_pg.testing import database

    with database(taskq_conninfo) as where:
        visitor = Visitor(where)
        assert "CREATE EXTENSION taskq" in visitor.open(path, status=400)
        visitor.close()
