"""The console in a real browser: keys, live updates, charts, barriers, narrow and dark; and without JavaScript."""

import contextlib
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

from conftest import Server, conninfo, state, until
from console import close_all, made
from taskq_pg import App
from taskq_pg.console import console, view

SCREENS = (
    "",
    "tasks",
    "task?id=bind",
    "inbox",
    "failures",
    "workflows",
    "graph?id=bind",
    "schedules",
    "limits",
    "workers",
)
MARKUP = '"><img src=x onerror=alert(1)>'


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a look takes long, and the next one would come a minute later."""
    monkeypatch.setattr(view, "_LATEST", 2)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    assert program, "the tests of the console take a browser: set CHROMIUM"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@contextlib.contextmanager
def served(where: str) -> Iterator[str]:
    """Serve a console; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        config = uvicorn.Config(made(console(where)), log_level="error", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([free],), daemon=True)
        thread.start()
        try:
            until(lambda: server.started)
            yield f"http://127.0.0.1:{free.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
            close_all()


@pytest.fixture
def address(taskq_app: App) -> Iterator[str]:
    with served(conninfo(taskq_app)) as where:
        yield where


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


def listen(page: Page) -> list[str]:
    """Note what goes wrong in a page: errors, and what the policy of the page refuses."""
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("dialog", lambda dialog: (heard.append(f"dialog {dialog.message}"), dialog.dismiss()))
    return heard


def fill(app: App) -> None:
    """One of everything that a screen shows."""
    app.query("SELECT taskq.schedule('nightly', '0 2 * * *', '{\"action\": \"report\"}')")
    app.query("SELECT taskq.set_action('print', max_concurrency => 1)")
    app.query("SELECT taskq.delay_workgroup('slow', '1 hour')")
    sheets = [{"id": f"sheet {n}", "action": "print", "group_id": "book", "body": {"n": n}} for n in range(30)]
    bind = {"id": "bind", "action": "bind", "group_id": "book", "depends_on": [sheet["id"] for sheet in sheets]}
    alarm = {"action": "alarm", "depends_on": [{"id": "bind", "condition": "aborted"}]}
    ask = {"id": "ask", "action": "ask", "signal": True, "metadata": {"title": "Paper?", "form": {"sheets": "number"}}}
    app.insert_tasks([*sheets, bind, alarm, ask, {"id": MARKUP, "action": MARKUP, "body": MARKUP}])
    app.insert("order", id="order")
    query = "SELECT task_id, token FROM taskq.own_tasks('ann', 1, %s)"
    [(task_id, token)] = app.query(query, [["order"]])
    app.query("SELECT taskq.save_step(%s, %s, 'paid', '1')", [task_id, token])
    app.query("SELECT taskq.return_task(%s, %s, 'pending', depends_on => '[\"ask\"]')", [task_id, token])
    for n in range(3):
        app.insert("fold", id=f"fold {n}")
        [(task_id, token)] = app.query(query, [["fold"]])
        app.query("SELECT taskq.return_task(%s, %s, 'aborted', %s)", [task_id, token, f"no paper {n}\n  File x"])
    app.query(query, [["print"]])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_each_screen(taskq_app: App, address: str, browser: Browser, scheme: str, width: int) -> None:
    fill(taskq_app)
    axe = Path(os.environ["AXE"]).read_text()
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    context.set_default_timeout(60_000)
    page = context.new_page()
    heard = listen(page)
    for screen in SCREENS:
        page.goto(f"{address}/{screen}")
        if screen == "":
            page.locator("[data-drawn]").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, screen
        for closed in page.locator("main > details").all():
            closed.locator("summary").first.click()
        page.evaluate(axe)
        found = page.evaluate("axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']})")
        problems = [f"{one['id']}: {one['nodes'][0]['html']}" for one in found["violations"]]
        assert not problems, f"{screen}: {problems}"
    assert heard == []
    context.close()


def test_keys(taskq_app: App, address: str, page: Page) -> None:
    taskq_app.insert_many("knit", [None] * 3, ids=["a", "b", "c"])
    heard = listen(page)
    page.goto(f"{address}/")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/tasks")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("x")
    assert [box.input_value() for box in page.locator("#live input[name=id]:checked").all()] == ["b"]
    page.keyboard.press("x")
    page.locator("body").evaluate("document.activeElement.blur()")
    page.keyboard.press("Enter")
    page.wait_for_url("**/task?id=b")
    page.keyboard.press("/")
    page.keyboard.type("c")
    page.keyboard.press("Enter")
    page.wait_for_url("**/task?id=c")
    assert heard == []


def test_a_list_is_live_and_leaves_alone_what_is_selected(taskq_app: App, address: str, page: Page) -> None:
    taskq_app.insert("knit", id="first")
    heard = listen(page)
    page.goto(f"{address}/tasks")
    taskq_app.insert("knit", id="second")
    expect(page.locator("#live")).to_contain_text("second", timeout=60_000)
    page.locator("input[value=first]").check()
    taskq_app.insert("knit", id="third")
    page.wait_for_timeout(5_000)
    assert page.locator("input[value=first]").is_checked()
    assert page.locator("input[value=third]").count() == 0
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator(".said")).to_have_text("Cancel: 1 task cancelled.")
    assert state(taskq_app, "first") == "aborted"
    assert state(taskq_app, "second") == "ready"
    assert heard == []


def test_all_of_a_filter_goes_on_without_a_hand(taskq_app: App, address: str, page: Page) -> None:
    taskq_app.insert_many("knit", [None] * 700)
    heard = listen(page)
    page.goto(f"{address}/tasks?action=knit")
    page.get_by_label("all that the filter finds").check()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel 700").click()
    expect(page.locator("#bulk")).to_contain_text("700 cancelled. Done.", timeout=60_000)
    assert taskq_app.query("SELECT state, count FROM taskq.count_tasks()") == [("aborted", 700)]
    assert heard == []


def test_without_javascript(taskq_app: App, address: str, browser: Browser) -> None:
    taskq_app.insert_many("knit", [None] * 450)
    taskq_app.insert_tasks([{"id": "ask", "action": "ask", "signal": True}])
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/tasks?action=knit")
    page.get_by_label("all that the filter finds").check()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete 450").click()
    while page.get_by_role("button", name="Go on").count():
        page.get_by_role("button", name="Go on").click()
    assert "Done." in page.locator("#bulk").inner_text()
    page.goto(f"{address}/inbox")
    page.get_by_label("Note").fill("fine")
    page.get_by_role("button", name="Approve").click()
    assert "is answered" in page.locator(".said").inner_text()
    assert state(taskq_app, "ask") == "completed"
    assert taskq_app.query("SELECT count(*) FROM taskq.tasks") == [(1,)]
    context.close()


def test_the_cause_of_a_stuck_queue_in_three_clicks(taskq_app: App, address: str, page: Page) -> None:
    """A chain whose root failed; a stranger follows what is red or linked."""
    taskq_app.insert_tasks(
        [
            {"id": "load", "action": "load"},
            {"id": "sort", "action": "sort", "depends_on": [{"id": "load"}]},
            {"id": "report", "action": "report", "depends_on": ["sort"]},
        ]
    )
    taskq_app.pause(action="load")
    page.goto(f"{address}/")
    page.locator("tr", has_text="report").get_by_role("link", name="1", exact=True).click()
    page.get_by_role("link", name="report", exact=True).first.click()
    assert "load" in page.locator(".why").inner_text()
    page.locator(".why").get_by_role("link", name="load").click()
    assert re.search("paused", page.locator(".why").inner_text())
    page.get_by_role("link", name="Limits").click()
    page.get_by_role("button", name="Resume load").click()
    expect(page.locator(".said")).to_contain_text("load goes on")
    assert taskq_app.query("SELECT paused FROM taskq.actions WHERE action = 'load'") == [(False,)]


def test_a_restart_of_the_server_under_an_open_page(own_app: App, server: Server, page: Page) -> None:
    own_app.insert("knit", id="first")
    with served(conninfo(own_app)) as address:
        page.goto(f"{address}/tasks")
        server.call("stop")
        try:
            expect(page.locator(".lost")).to_be_visible(timeout=60_000)
            assert "first" in page.locator("#live").inner_text()
        finally:
            server.call("start", "-c", "fsync=off")
        own_app.insert("knit", id="second")
        expect(page.locator("#live")).to_contain_text("second", timeout=90_000)
        expect(page.locator(".lost")).to_be_hidden()
