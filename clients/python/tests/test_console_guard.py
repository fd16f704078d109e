"""Ways around: forged forms, other sites, no token, addresses of others, names of markup."""

import re
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from conftest import conninfo, state
from console import HERE, Visitor, made
from taskq_pg import App
from taskq_pg.console import console
from taskq_pg.console.render import coded

pytestmark = pytest.mark.usefixtures("consoles")
SCREENS = ("", "tasks", "inbox", "failures", "workflows", "graph", "schedules", "limits", "workers")


def cancel(mark: str) -> list[tuple[str, str]]:
    return [("mark", mark), ("do", "cancel"), ("id", "a"), ("sure", "1"), ("back", "tasks")]


def test_forms_of_others(taskq_app: App) -> None:
    where = conninfo(taskq_app)
    taskq_app.insert("knit", id="a")
    visitor, other = Visitor(where), Visitor(where)
    mark = visitor.mark()
    for forged in ("", "0" * 64, mark[:-1] + ("0" if mark[-1] != "0" else "1"), other.mark(), mark.upper()):
        answer = visitor.send("act", cancel(forged))
        assert answer.status_code == 403, forged
        assert "Nothing was changed" in answer.text
    for header in (
        {"origin": "https://evil.test"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert visitor.send("act", cancel(mark), **header).status_code == 403, header
        assert visitor.send("bulk", cancel(mark), **header).status_code == 403, header
    for kind in ("text/plain", "application/json", "multipart/form-data; boundary=x"):
        assert visitor.send("act", cancel(mark), **{"content-type": kind}).status_code == 415
    # Without the cookie that the mark is made of.
    naked = TestClient(visitor.client.app, base_url=HERE, follow_redirects=False)
    content = "mark=" + mark + "&do=cancel&id=a&sure=1"
    answer = naked.post("/act", content=content, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 403
    # Nor does a look act.
    assert visitor.client.get("/act", params=dict(cancel(mark))).status_code == 405
    assert state(taskq_app, "a") == "ready"
    assert visitor.send("act", cancel(mark), origin=HERE).status_code == 303
    assert state(taskq_app, "a") == "aborted"


def test_processes_that_share_a_secret_take_each_others_forms(taskq_app: App) -> None:
    taskq_app.insert("knit", id="a")
    one, same, other = (Visitor(conninfo(taskq_app), secret=secret) for secret in ("s", "s", None))
    pairs = cancel(one.mark())
    for visitor, status in ((other, 403), (same, 303)):
        visitor.client.cookies = one.client.cookies
        assert visitor.send("act", pairs).status_code == status


def test_cookies_and_headers(taskq_app: App) -> None:
    visitor = Visitor(conninfo(taskq_app))
    answer = visitor.client.get("/tasks")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    for path in (*SCREENS, "static/console.css", "no such page"):
        headers = visitor.client.get(f"/{path}").headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    for path in SCREENS:
        page = visitor.open(path)
        assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|javascript:", page), path
        assert not re.search(r'(src|href|action)="(https?:)?//', page), path


def test_the_token_of_a_console_that_stands_alone(taskq_app: App) -> None:
    where = conninfo(taskq_app)
    taskq_app.insert("knit", id="a")
    visitor = Visitor(where, token="s3cret")
    for path in (*SCREENS, "series", "static/console.css", "?token=wrong", "?token="):
        assert visitor.client.get(f"/{path}").status_code == 401, path
    assert visitor.client.post("/act", content="do=cancel&id=a&sure=1").status_code == 401
    for forged in ("s3cret", "0" * 64, ""):
        assert visitor.client.get("/", headers={"cookie": f"taskq_console={forged}"}).status_code == 401
    answer = visitor.client.get("/tasks?state=ready&token=s3cret")
    assert answer.headers["location"] == "/tasks?state=ready"
    assert "s3cret" not in answer.headers["set-cookie"]
    assert "a</bdi>" in visitor.open("tasks")
    assert state(taskq_app, "a") == "ready"


def test_where_a_form_leads_back_to(taskq_app: App) -> None:
    visitor = Visitor(conninfo(taskq_app))
    mark = visitor.mark()
    evil = (
        "https://evil.test/",
        "//evil.test",
        "/evil",
        "\\\\evil.test",
        "tasks/../../x",
        "tasks\r\nx: y",
        "javascript:1",
    )
    for back in evil:
        answer = visitor.send("act", [("mark", mark), ("do", "cancel"), ("id", "x"), ("sure", "1"), ("back", back)])
        assert answer.headers["location"] == "/", back
    form = [("mark", mark), ("do", "cancel"), ("id", "x"), ("sure", "1")]
    answer = visitor.send("act", [*form, ("back", "tasks?state=ready")])
    assert answer.headers["location"] == "/tasks?state=ready"


NAMES = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; DROP SCHEMA taskq CASCADE; --",
    "\u202egnp.exe",
    "a/../../b?c=d&e#f%00%2e",
    "line\nbreak\r\n\x1b[31m",
    "{{ 6543 * 2 }} {% raw %}",
    "ü" * 300,
    " ",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_markup(taskq_app: App, name: str) -> None:
    where = conninfo(taskq_app)
    body = {"text": name, name: 1}
    waits = [{"id": f"w{name}", "action": name, "depends_on": [name]}]
    taskq_app.insert_tasks([{"id": name, "action": name, "group_id": name, "body": body, "metadata": body}, *waits])
    taskq_app.insert_tasks(
        [{"id": f"s{name}", "action": name, "signal": True, "metadata": {"title": name, "form": {name: name}}}]
    )
    [(task_id, token)] = taskq_app.query("SELECT task_id, token FROM taskq.own_tasks(%s, 1, %s)", [name, [name]])
    taskq_app.query("SELECT taskq.save_step(%s, %s, %s, %s)", [task_id, token, name, '"' + "x" * 90 + '"'])
    visitor = Visitor(where, title=name)
    for path in (*SCREENS, f"task?id={quote(name)}", f"graph?id={quote(name)}", f"graph?group={quote(name)}"):
        # What a form sends back is as it is.
        page = re.sub(r' value="[^"]*"', "", visitor.open(path))
        for raw in ("<script>alert", "<img src=x", "\u202e", "\x1b", "13086"):
            assert raw not in page, path
    taskq_app.query("SELECT taskq.return_task(%s, %s, 'aborted', %s)", [task_id, token, name])
    assert "2 tasks" in visitor.press("retry", name)
    assert state(taskq_app, name) == "ready"
    assert visitor.press("signal", f"s{name}", **{f"text:{coded(name)}": name}) != ""
    [(result,)] = taskq_app.query("SELECT result FROM taskq.tasks WHERE id = %s", [f"s{name}"])
    assert result[name] == name


def test_bodies_are_hidden(taskq_app: App) -> None:
    where = conninfo(taskq_app)
    for action in ("pay", "mail"):
        taskq_app.insert(action, {"card": f"4111-{action}"}, id=action, metadata={"m": f"meta-{action}"})
        [(task_id, token)] = taskq_app.query("SELECT task_id, token FROM taskq.own_tasks('a', 1, %s)", [[action]])
        taskq_app.query("SELECT taskq.save_step(%s, %s, 'step', %s)", [task_id, token, f'"step-{action}"'])
        taskq_app.query("SELECT taskq.return_task(%s, %s, result => %s)", [task_id, token, f'"left-{action}"'])
    secrets = ("4111-{}", "meta-{}", "step-{}", "left-{}")
    for hide, hidden in ((False, ()), (True, ("pay", "mail")), (["pay"], ("pay",))):
        visitor = Visitor(where, hide_bodies=hide)
        for action in ("pay", "mail"):
            page = visitor.open(f"task?id={action}")
            for secret in secrets:
                assert (secret.format(action) in page) != (action in hidden), (hide, secret, action)
        # Nor is it found out by a filter.
        for path in ("tasks?body=%22a%22", "tasks?metadata=%7B%7D"):
            visitor.open(path, status=403 if hide else 200)


def test_mounted_below_a_path(taskq_app: App) -> None:
    taskq_app.insert("knit", id="a")
    app = Starlette(routes=[Mount("/ops/queue", made(console(conninfo(taskq_app))))])
    client = TestClient(app, base_url=HERE, follow_redirects=False)
    page = client.get("/ops/queue/tasks").text
    links = re.findall(r'(?:href|src|action|hx-get)="(/[^"]*)"', page)
    assert links
    assert all(link.startswith("/ops/queue/") for link in links), links
    for link in set(links):
        assert client.get(link.replace("&amp;", "&")).status_code in (200, 405), link
    [mark] = set(re.findall(r'name="mark" value="(\w+)"', page))
    headers = {"content-type": "application/x-www-form-urlencoded"}
    content = f"mark={mark}&do=cancel&id=a&sure=1&back=tasks"
    answer = client.post("/ops/queue/act", content=content, headers=headers)
    assert answer.headers["location"] == "/ops/queue/tasks"
    assert "1 task cancelled" in client.get("/ops/queue/tasks").text
    assert state(taskq_app, "a") == "aborted"
