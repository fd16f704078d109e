"""What an app offers besides workers: handles, typed insertion, operators' calls, hooks, errors by name."""

import asyncio
import contextvars
import json
import logging
import pickle
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pydantic
import pytest

import taskq_pg as taskq
from conftest import column, conninfo, state, until, working
from taskq_pg import App
from taskq_pg.calls import Calls
from taskq_pg.testing import drain, inserted

AT_ONCE = {"kind": "fixed", "initial": "0 seconds"}


def test_a_handle_is_the_id(taskq_app: App) -> None:
    taskq_app.task("a")(lambda n: n)
    first = taskq_app.insert("a", 1, id="one")
    again = taskq_app.insert("a", 1, id="one", on_conflict="skip")
    assert (first, first.inserted, again, again.inserted) == ("one", True, "one", False)
    many = taskq_app.insert_many("a", [1, 2], unique_by={"key": "k"})
    assert [(one == many[0], one.inserted) for one in many] == [(True, True), (True, False)]
    [last] = taskq_app.insert_tasks([{"id": "last", "action": "a", "body": 7, "depends_on": [first, *many]}])
    assert (first.state(), last.state()) == ("ready", "blocked")
    assert json.dumps([first]) == '["one"]'
    assert type(pickle.loads(pickle.dumps(first))) is str
    drain(taskq_app)
    assert last.wait().result == 7

    async def in_a_coroutine() -> None:
        handle = await taskq_app.insert_async("a", 8, delay="1 hour")
        assert await handle.state_async() == "scheduled"
        assert await handle.cancel_async("not needed") is True
        assert (await handle.wait_async()).status == "not needed"
        assert await handle.cancel_async() is False
        await taskq_app.close_async()

    asyncio.run(in_a_coroutine())
    assert taskq_app.insert("a", delay="1 hour").cancel()
    taskq_app.delete("one")
    assert first.state() is None


class Mail(pydantic.BaseModel):
    to: str


def test_what_a_decorator_returns_inserts(taskq_app: App) -> None:
    @taskq_app.task("mail")
    def mail(body: Mail) -> str:
        """Send one."""
        return f"to {body.to}"

    @taskq_app.workflow("w")
    def workflow(ctx: taskq.Context, body: str) -> list[str]:
        return [ctx.call("one", mail, Mail(to=body)), *ctx.map("more", mail, [{"to": "bob"}])]

    assert (mail(Mail(to="x")), mail.__name__, mail.__doc__) == ("to x", "mail", "Send one.")
    ids = [mail.insert(Mail(to="ann")), *mail.insert_many([Mail(to="ann")] * 2), taskq_app.insert(mail, {"to": "ann"})]
    ids += taskq_app.insert_tasks([{"action": mail, "body": {"to": "ann"}}])
    flow = workflow.insert("ann")
    taskq_app.schedule("s", "0 0 1 1 *", mail, {"to": "all"})
    drain(taskq_app)
    assert [task_id.wait().result for task_id in ids] == ["to ann"] * 5
    assert flow.wait().result == ["to ann", "to bob"]
    # A model is asked before anything is stored.
    for call in (lambda: mail.insert({"too": "ann"}), lambda: taskq_app.insert("mail", {"too": "ann"})):
        with pytest.raises(taskq.BodyError, match="to"):
            call()


def test_a_decorator_names_its_action(taskq_app: App) -> None:
    with pytest.raises(TypeError, match="name the action"):
        taskq_app.task(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no setting of an action: max_trys"):
        taskq_app.task("a", max_trys=3)  # type: ignore[call-arg]


def test_an_action_that_no_handler_is_for_is_told_once(taskq_app: App, caplog: pytest.LogCaptureFixture) -> None:
    taskq_app.insert("elsewhere")
    assert not caplog.text
    taskq_app.task("charge")(lambda: None)
    taskq_app.insert_many("chrage", [1, 2])
    taskq_app.insert("chrage")
    assert caplog.text.count('no handler of this app is for the action "chrage"') == 1


def test_errors_by_name(taskq_app: App) -> None:
    taskq_app.insert("a", id="a")
    with pytest.raises(taskq.AlreadyExists) as caught:
        taskq_app.insert("a", id="a")
    assert isinstance(caught.value, psycopg.Error)
    assert caught.value.sqlstate == "TQ002"
    with pytest.raises(taskq.NotFound):
        taskq_app.insert("a", depends_on=["nothing"])
    with pytest.raises(taskq.Cycle):
        taskq_app.insert_tasks([{"id": n, "action": "a", "depends_on": [m]} for n, m in ("xy", "yx")])
    with pytest.raises(taskq.Malformed):
        taskq_app.insert("a", max_tries=0)
    taskq_app.cancel("a")
    with pytest.raises(taskq.WrongState):
        taskq_app.insert("b", to_signal_after=["a"])
    with psycopg.connect(conninfo(taskq_app)) as connection, pytest.raises(taskq.AlreadyExists):
        taskq_app.insert("a", id="a", connection=connection)


def test_operators_calls(taskq_app: App) -> None:
    app = taskq_app
    app.task("a", max_tries=1)(lambda: 1 / 0)
    app.setup()
    app.insert("a", {"n": 1}, id="t")
    stored = app.get("t")
    assert stored is not None
    assert (stored.body, stored.state, stored.row["max_tries"]) == ({"n": 1}, "ready", None)
    assert app.get("nothing") is None
    assert app.why("t")
    assert "t" in app.graph("t", format="mermaid")
    app.pause(action="a")
    app.work(until_idle=True)
    assert state(app, "t") == "ready"
    app.resume(action="a")
    with pytest.raises(ZeroDivisionError):
        drain(app)
    assert app.retry("t") == 1
    assert app.cancel("t", status="no") == 1
    assert app.rerun("t", downstream=False) == 1
    assert app.delete("t") == 1
    app.set_action("a", max_concurrency=3, backoff=AT_ONCE)
    assert app.query("SELECT max_concurrency FROM taskq.actions WHERE action = 'a'") == [(3,)]
    app.insert("b", id="g", group_id="g")
    app.set_group("g", max_concurrency=2)
    app.pause(group="g")
    app.resume(group="g")
    app.schedule("s", "0 0 1 1 *", "b", max_backfill=3, backfill="all")
    app.setup()
    app.pause(schedule="s")
    app.resume(schedule="s")
    assert app.get(app.run_schedule("s")).action == "b"
    app.unschedule("s")
    assert app.query("SELECT FROM taskq.schedules") == []
    app.query("SELECT taskq.own_tasks('dead', 9, '{b}')")
    assert app.release("g", status="it is dead") == 1
    with pytest.raises(TypeError, match="name an action, a group or a schedule"):
        app.pause()


def test_a_handler_that_is_registered_later(taskq_app: App) -> None:
    taskq_app.task("first")(lambda: None)
    with working(taskq_app):
        until(lambda: taskq_app.query("SELECT FROM taskq.workers"))
        taskq_app.workflow("later", max_concurrency=7)(lambda ctx: ctx.step("s", lambda: "done"))
        taskq_app.insert("later", id="l")
        taskq_app.insert("first")  # which ends the sleep of the claim
        until(lambda: state(taskq_app, "l") == "completed")
    assert taskq_app.query("SELECT max_concurrency FROM taskq.actions WHERE action = 'later'") == [(7,)]


@pytest.mark.parametrize("sqlstate", ["54000", "XX000"])
def test_a_task_that_cannot_be_sent_stops_no_other(
    taskq_app: App, sqlstate: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named, and tasks of other actions go on."""
    own = Calls.own

    def claim(self: Calls, number: int, actions: list[str], *, sleeps: bool) -> tuple[str, list[Any]]:
        if "large" in actions:
            return f"DO $$BEGIN RAISE 'too large' USING ERRCODE = '{sqlstate}'; END$$", []
        return own(self, number, actions, sleeps=sleeps)

    monkeypatch.setattr(Calls, "own", claim)
    for action in ("large", "small"):
        taskq_app.task(action)(lambda: None)
    taskq_app.insert("large")
    with working(taskq_app):
        for _ in range(3):
            assert taskq_app.insert("small").wait("1 minute").completed
    assert caplog.text.count('a task of "large" cannot be sent') >= 1


def test_hooks(taskq_app: App) -> None:
    seen: list[str] = []
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="unset")

    @taskq_app.on_start
    def begin() -> None:
        seen.append("start")

    @taskq_app.on_start
    async def begin_too() -> None:
        seen.append("start, awaited")

    @taskq_app.on_stop
    async def end() -> None:
        seen.append("stop")

    @taskq_app.around
    def outer(task: taskq.Task, perform: Callable[[], Any]) -> Any:
        seen.append(f"outer {task.action}")
        return perform()

    @taskq_app.around
    async def inner(task: taskq.Task, perform: Callable[[], Awaitable[Any]]) -> Any:
        user.set("ann")
        value = await perform()
        return f"{value} around"

    @taskq_app.task("function")
    def function() -> str:
        assert threading.current_thread() is not threading.main_thread()
        return user.get()

    @taskq_app.task("coroutine")
    async def coroutine() -> str:
        return user.get()

    ids = [taskq_app.insert("function"), taskq_app.insert("coroutine")]
    drain(taskq_app)
    assert [task_id.wait().result for task_id in ids] == ["ann around"] * 2
    assert seen == ["start", "start, awaited", "outer function", "outer coroutine", "stop"]


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_each_handler_has_a_context_of_its_own(taskq_app: App, kind: str) -> None:
    user: contextvars.ContextVar[int] = contextvars.ContextVar("user", default=-1)
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")
    tenant.set("of the program")
    seen = []

    def note(n: int) -> None:
        seen.append((user.get(), tenant.get()))
        user.set(n)

    if kind == "function":
        taskq_app.task("t")(note)
    else:

        @taskq_app.task("t")
        async def coroutine(n: int) -> None:
            note(n)

    taskq_app.insert_many("t", range(4))
    drain(taskq_app)
    assert seen == [(-1, "of the program")] * 4


def test_abort_on(taskq_app: App) -> None:
    @taskq_app.task("t", abort_on=(ValueError, KeyError))
    def fail(name: str) -> None:
        raise {"value": UnicodeError("no text"), "key": KeyError("k"), "other": OSError("again")}[name]

    for name in ("value", "key", "other"):
        taskq_app.insert("t", name, id=name)
    taskq_app.work(until_idle=True)
    ends = {name: (state(taskq_app, name), column(taskq_app, name, "status")) for name in ("value", "key", "other")}
    assert ends == {
        "value": ("aborted", "UnicodeError: no text"),
        "key": ("aborted", "KeyError: 'k'"),
        "other": ("scheduled", "OSError: again"),
    }


def test_the_log_tells_of_each_try_that_fails(taskq_app: App, caplog: pytest.LogCaptureFixture) -> None:
    @taskq_app.task("t", max_tries=2, backoff={"kind": "fixed", "initial": "30 seconds", "jitter": 0})
    def fail(body: dict[str, Any], task: taskq.Task) -> None:
        if body["how"] == "raises":
            try:
                raise LookupError("the cause")
            except LookupError as error:
                raise ValueError("bad luck") from error
        if body["how"] == "retries":
            raise taskq.Retry("busy", after="90 seconds")
        if body["how"] == "rejects":
            raise taskq.Reject("never")

    taskq_app.setup()
    for how in ("raises", "retries", "rejects", "returns"):
        taskq_app.insert("t", {"how": how}, id=f"100% {how}")
    taskq_app.insert("t", {"how": "raises"}, id="last", max_tries=1)
    with caplog.at_level(logging.DEBUG, "taskq_pg"):
        taskq_app.work(until_idle=True, concurrency=1)
    told = {(r.task_id, r.levelname, r.getMessage()): r for r in caplog.records if "try" in r.getMessage()}
    assert set(told) == {
        ("100% raises", "WARNING", "t 100% raises: try 1 of 2 has failed, the next is in 30 seconds: bad luck"),
        ("100% retries", "WARNING", "t 100% retries: try 1 of 2 has failed, the next is in 90 seconds: busy"),
        ("100% rejects", "ERROR", "t 100% rejects: try 1 of 2 has failed, it aborts: never"),
        ("100% returns", "DEBUG", "t 100% returns: try 1 has ended"),
        ("last", "ERROR", "t last: try 1 of 1 has failed, it was the last: bad luck"),
    }
    for record in told.values():
        assert (record.action, record.num_try) == ("t", 1)
    [begins] = [text for text in caplog.messages if " works on " in text]
    assert f" works on t, 1 at once, in {taskq_app.query('SELECT current_database()')[0][0]} at " in begins
    assert caplog.text.count("the cause") == caplog.text.count('raise LookupError("the cause")') * 2 == 4


def test_a_clean_stop_leaves_no_error_in_the_servers_log(own_app: App, server: Any) -> None:
    def errors() -> int:
        return (server.folder / "log").read_text().count("ERROR")

    own_app.task("a")(lambda: None)
    with working(own_app):
        until(lambda: own_app.query("SELECT FROM taskq.workers WHERE asleep_since IS NOT NULL"))
        own_app.insert("a").wait()
        until(lambda: own_app.query("SELECT FROM taskq.workers WHERE asleep_since IS NOT NULL"))
        before = errors()
    assert errors() == before
    assert not inserted(own_app, state="ready")


def test_work_inside_of_a_loop_says_what_to_call(taskq_app: App) -> None:
    taskq_app.task("a")(lambda: None)

    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"await app\.work_async"):
            drain(taskq_app)

    asyncio.run(main())


TYPED = """
import taskq_pg as taskq
app = taskq.App()

@app.task("mail")
def mail(body: dict[str, int], task: taskq.Task) -> int:
    return 1

@app.workflow("order")
async def order(ctx: taskq.AsyncContext, body: str) -> int:
    return 2

mail.insert({"a": 1}, id="m", delay="1 day").wait()
order.insert_many(["a"], on_conflict="skip")
mail.insert("text")
mail.insert({"a": 1}, max_trys=3)
order.insert(5)
order.insert_many([5])
"""


def test_type_checkers_know_the_body(tmp_path: Any) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "typed.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    lines = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    wrong = ('"text"', "trys", "(5", "[5")
    wanted = {n for n, line in enumerate(TYPED.splitlines(), 1) if any(one in line for one in wrong)}
    assert lines == wanted, done.stdout
