"""The cases of clients/conformance, which every client has in common."""

import json
import re
import threading
from datetime import datetime
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import sql

import taskq_pg as taskq
from conftest import REPOSITORY, column, until, working
from taskq_pg import App, Complete, Context, Task, borrowed, link
from taskq_pg.calls import Calls
from taskq_pg.durations import seconds
from taskq_pg.testing import inserted, travel


def cases(name: str) -> Any:
    return json.loads((REPOSITORY / "clients" / "conformance" / f"{name}.json").read_text())


class Absent(Exception):
    """Python has no such value."""


def meant(value: Any) -> Any:
    """Return what a case means by a value."""
    if isinstance(value, list):
        return [meant(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "$" not in value:
        return {key: meant(one) for key, one in value.items()}
    special = {
        "NaN": float("nan"),
        "Infinity": float("inf"),
        "function": meant,
        "time without a zone": datetime(2040, 1, 1),
    }
    if value["$"] not in special:
        raise Absent
    return special[value["$"]]


def refused(given: list[dict[str, Any]]) -> list[tuple[Any, str]]:
    """Return the values that are to be refused, each with the text that the error says."""
    values = []
    for case in given:
        try:
            values.append((meant(case["value"]), re.escape(case.get("says", {}).get("seconds", "")) or "."))
        except Absent:
            pass
    return values


def fits(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and wanted.get("$") == "any":
        return True
    if isinstance(wanted, dict) and wanted.get("$") == "like":
        return re.search(wanted["pattern"], found) is not None
    if isinstance(wanted, dict) and isinstance(found, dict):
        return found.keys() == wanted.keys() and all(fits(found[key], one) for key, one in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(fits, found, wanted))
    # A number is a number; a boolean is none.
    return isinstance(found, bool) == isinstance(wanted, bool) and found == wanted


def is_stored(found: str | None, case: dict[str, Any]) -> bool:
    return json.loads(found or "") == case["json"] if "json" in case else found == case["stored"]


def test_bodies_that_are_inserted(taskq_app: App) -> None:
    seen: dict[str, Any] = {}
    taskq_app.task("any")(lambda body, task: seen.update({task.id: body}))

    @taskq_app.task("text")
    def text(body: str, task: Task) -> None:
        seen[task.id] = body

    given = cases("bodies")["insert"]
    for n, case in enumerate(given):
        taskq_app.insert("any", case["value"], id=f"any {n}")
        if isinstance(case["value"], str):
            taskq_app.insert("text", case["value"], id=f"text {n}")
    for n, case in enumerate(given):
        assert is_stored(column(taskq_app, f"any {n}", "body"), case), case
    taskq_app.work(until_idle=True)
    for n, case in enumerate(given):
        assert fits(seen[f"any {n}"], case["value"]), case
        assert not isinstance(case["value"], str) or seen[f"text {n}"] == case["value"]


def test_bodies_of_others(taskq_app: App) -> None:
    seen: dict[str, Any] = {}
    taskq_app.task("any")(lambda body, task: seen.update({task.id: body}))

    @taskq_app.task("text")
    def text(body: str, task: Task) -> None:
        seen[task.id] = body

    given = cases("bodies")["read"]
    for n, case in enumerate(given):
        for action in ("any", "text"):
            taskq_app.query("SELECT taskq.insert_task(%s, %s, %s::text)", [f"{action} {n}", action, case["stored"]])
    taskq_app.work(until_idle=True)
    for n, case in enumerate(given):
        assert fits(seen[f"any {n}"], case["any"]), case
        assert "text" not in case or seen[f"text {n}"] == case["text"], case


def test_bodies_that_are_refused(taskq_app: App) -> None:
    for value, _ in refused(cases("bodies")["refused"]):
        with pytest.raises((TypeError, ValueError)):
            taskq_app.insert("any", value)
    assert inserted(taskq_app) == []


def test_results(taskq_app: App) -> None:
    given = cases("results")["returned"]
    made = [meant(case["returns"]) for case in given]
    taskq_app.task("returns")(lambda n: made[n])
    for n in range(len(given)):
        taskq_app.insert("returns", n, id=f"{n}")
    taskq_app.work(until_idle=True)
    for n, case in enumerate(given):
        task = taskq_app.get(f"{n}")
        assert task is not None
        assert task.state == case["code"], case
        assert fits(task.result, case.get("result")), case
        assert case.get("status", "") in (task.status or ""), task.status


def complete(keys: dict[str, Any], _: Any) -> Complete:
    return Complete(**keys)


def test_what_a_handler_returns_to_say_more(taskq_app: App) -> None:
    for n, case in enumerate(cases("results")["complete"]):
        taskq_app.task(f"completes {n}")(partial(complete, case["complete"]))
        taskq_app.insert(f"completes {n}", id=f"{n}")
    taskq_app.work(until_idle=True)
    for n, case in enumerate(cases("results")["complete"]):
        task = taskq_app.get(f"{n}")
        assert task is not None
        assert (task.state, task.result) == (case["code"], case.get("result"))
        assert "status" not in case or task.status == case["status"]
        for child, wanted in case.get("children", {}).items():
            assert column(taskq_app, child, "state") == wanted["state"]
            assert is_stored(column(taskq_app, child, "body"), {"stored": wanted.get("body"), **wanted})


def fail(case: dict[str, Any], _: Any) -> None:
    keys = {key: case[key] for key in ("after", "count_try") if key in case}
    kinds = {"reject": taskq.Reject, "retry": taskq.Retry, "leave": taskq.Leave, "error": ValueError}
    raise kinds[case["kind"]](case["text"], **keys)


def test_errors_of_handlers(taskq_app: App) -> None:
    given = cases("errors")["raised"]
    for n, case in enumerate(given):
        abort_on = ValueError if case.get("abort_on") else ()
        taskq_app.task(f"raises {n}", abort_on=abort_on)(partial(fail, case["raises"]))
        taskq_app.insert(f"raises {n}", id=f"{n}")
    taskq_app.work(until_idle=True)
    for n, case in enumerate(given):
        [[state, status, num_tries, left]] = taskq_app.query(
            """SELECT state, status, num_tries, extract(epoch FROM not_before - taskq.clock())::float8
                 FROM taskq.tasks WHERE id = %s""",
            [f"{n}"],
        )
        assert (state, num_tries) == (case["state"], case["num_tries"]), case
        assert "status" not in case or status == case["status"]
        assert (status or "").endswith(case.get("status_ends", ""))
        assert "within" not in case or 0 < left <= case["within"]


@pytest.mark.parametrize("case", cases("errors")["refused"], ids=lambda case: case["error"])
def test_errors_by_name(taskq_app: App, case: dict[str, Any]) -> None:
    if "signal" in case:
        taskq_app.signal(case["signal"])
    with pytest.raises(getattr(taskq, case["error"])) as raised:
        taskq_app.insert_tasks(case["tasks"])
    assert raised.value.sqlstate == case["sqlstate"]
    assert isinstance(raised.value, psycopg.Error)


def test_errors_say_what_mends_them(taskq_app: App) -> None:
    role = f"conformance_{taskq_app.query('SELECT current_database()')[0][0]}"
    said = {case["lacks"]: case["says"] for case in cases("errors")["mended"]}
    with taskq_app.connections.use() as connection, connection.transaction(force_rollback=True):
        connection.execute(sql.SQL("CREATE ROLE {0}; SET LOCAL ROLE {0}").format(sql.Identifier(role)))
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as raised:
            taskq_app.insert("x", connection=connection)
    assert said["a right"] in str(raised.value.__notes__)
    with taskq_app.connections.use() as connection:
        connection.execute("DROP EXTENSION taskq")
        with pytest.raises(psycopg.errors.InvalidSchemaName) as lacking:
            taskq_app.insert("x", connection=connection)
    assert said["the extension"] in str(lacking.value.__notes__)


def test_durations(taskq_app: App) -> None:
    given = cases("durations")
    for case in given["taken"]:
        assert seconds(case["text"]) == case["seconds"]
        for key in given["keys"]:
            task_id = taskq_app.insert("x", **{key: case["text"]})
            if key in ("lease", "max_run_time"):
                [[found]] = taskq_app.query(
                    f"SELECT extract(epoch FROM {key})::float8 FROM taskq.tasks WHERE id = %s", [task_id]
                )
                assert found == case["seconds"]
    before = len(inserted(taskq_app))
    for value, says in refused(given["refused"]):
        for key in given["keys"]:
            with pytest.raises((TypeError, ValueError), match=says):
                taskq_app.insert("x", **{key: value})
        with pytest.raises((TypeError, ValueError), match=says):
            taskq.Retry(after=value)
        with pytest.raises((TypeError, ValueError), match=says):
            taskq_app.task("leased", lease=value)(lambda: None)
    for key in given["times"]["keys"]:
        for text in given["times"]["taken"]:
            taskq_app.insert("x", **{key: text})
            taskq_app.insert("x", **{key: datetime.fromisoformat(text)})
            before += 2
        for value, says in refused(given["times"]["refused"]):
            with pytest.raises((TypeError, ValueError), match=says):
                taskq_app.insert("x", **{key: value})
    for key in given["numbers"]["keys"]:
        for value, says in refused(given["numbers"]["refused"]):
            with pytest.raises((TypeError, ValueError), match=says):
                taskq_app.insert("x", **{key: value})
    assert len(inserted(taskq_app)) == before


def perform(ctx: Context, call: dict[str, Any]) -> Any:
    name = call["name"]
    if call["call"] == "step":
        return ctx.step(name, lambda: call["returns"], unique=call.get("unique", True))
    if call["call"] == "transaction":
        return ctx.transaction(name, lambda _: call["returns"])
    if call["call"] == "sleep":
        return ctx.sleep(name, call["duration"])
    if call["call"] == "map":
        return ctx.map(name, call["action"], call["bodies"])
    if call["call"] == "call":
        return ctx.call(name, call["action"], call["body"])
    keys = {key: call[key] for key in ("signal", "tasks", "timeout") if key in call}
    return ctx.wait_for(name, **keys)


@pytest.mark.parametrize("case", cases("names"), ids=lambda case: case["name"])
def test_names(taskq_app: App, case: dict[str, Any]) -> None:
    taskq_app.task("echo")(lambda body: body)

    @taskq_app.workflow("w")
    def workflow(ctx: Context) -> Any:
        return [perform(ctx, call) for call in case["calls"]][-1]

    taskq_app.insert_tasks(case.get("before", []))
    taskq_app.insert("w", id="W")
    for entry in case["entries"]:
        if "travel" in entry:
            travel(taskq_app, entry["travel"])
        if "signal" in entry:
            taskq_app.signal(entry["signal"]["id"], entry["signal"]["result"])
        if "cancel" in entry:
            taskq_app.cancel(entry["cancel"]["id"], status=entry["cancel"]["status"])
        taskq_app.work(until_idle=True)
        task = taskq_app.get("W")
        assert task is not None
        assert task.state == entry["state"], task.status
        rows = taskq_app.query("SELECT step, result FROM taskq.steps WHERE task_id = 'W'")
        assert fits({row[0]: row[1] for row in rows}, entry["steps"]), rows
        assert entry.get("status", "") in (task.status or "")
        assert fits(task.result, entry.get("gives", {"$": "any"}))
        children = [row[0] for row in taskq_app.query("SELECT id FROM taskq.tasks WHERE id LIKE 'W/%%' ORDER BY id")]
        assert fits(children, entry.get("children", children))
        for signal in entry.get("signals", ()):
            assert column(taskq_app, signal, "signal") is True


def arguments(statement: str, function: str, signature: list[str]) -> set[str] | None:
    """Return the names of the arguments that a statement gives to a function; None if it does not call it."""
    start = statement.find(f"taskq.{function}(")
    if start == -1:
        return None
    depth, parts = 0, [""]
    for sign in statement[start + len(f"taskq.{function}(") :]:
        depth += (sign in "([") - (sign in ")]")
        if depth < 0:
            break
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    # What stands in the place of an argument, and what has its name.
    named = [re.match(r"\s*(\w+)\s*=>", part) for part in parts]
    return {match[1] if match else signature[n] for n, match in enumerate(named)}


def test_statements(taskq_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    for where, name in ((borrowed, "_execute"), (link.Link, "_execute")):
        real = getattr(where, name)

        def execute(connection: Any, query: Any, given: Any, real: Any = real) -> Any:
            sent.append(query)
            return real(connection, query, given)

        monkeypatch.setattr(where, name, execute if where is borrowed else staticmethod(execute))
    app = taskq_app
    done = threading.Event()

    @app.workflow("work", lease="9 seconds")
    def work(ctx: Context) -> None:
        ctx.step("s", lambda: 1)
        ctx.task.report("half", progress=0.5, checkpoint=1)
        done.wait(30)

    @app.task("complete")
    def complete(_: None, task: Task) -> None:
        with app.connections.use() as connection:
            task.complete(connection=connection, result=1)

    app.insert_tasks([{"id": "given", "action": "x"}, {"id": "settled", "action": "complete"}, {"action": "work"}])
    app.schedule("nightly", "0 3 * * *", "x")
    app.setup()
    sent.clear()
    app.set_group("g", weight=1)
    app.insert("x", group_id="g")
    with working(app):
        until(lambda: any("extend_tasks_ownership" in one for one in sent))
        done.set()
        until(lambda: column(app, "settled", "state") == "completed")
        assert app.wait("settled").result == 1
    app.task("echo")(lambda: None)
    given = cases("statements")
    for case in given["calls"]:
        if "with" in case:
            keys = dict(case["with"])
            before = [keys.pop(key) for key in ("id", "action", "name", "step", "tasks", "body", "bodies")
                      if key in keys and case["call"] not in ("pause", "resume")]  # fmt: skip
            before += keys.pop("ids", [])
            if case["call"] == "set_group":
                before.append(keys.pop("group"))
            if case["call"] == "signal":
                before.append(keys.pop("result"))
            try:
                getattr(app, case["call"])(*before, **keys)
            except psycopg.Error as error:
                assert error.sqlstate == case.get("fails"), error
        signature = given["signatures"][case["sends"]]
        found = [names for one in sent if (names := arguments(one, case["sends"], signature)) is not None]
        assert found, case
        for names in found:
            assert set(case["always"]) <= names <= {*case["always"], *case.get("may", ())}, (case, names)


def test_signatures_are_those_of_the_server(taskq_app: App) -> None:
    for function, names in cases("statements")["signatures"].items():
        rows = taskq_app.query(
            """SELECT proargnames FROM pg_catalog.pg_proc
                WHERE pronamespace = 'taskq'::regnamespace AND proname = %s""",
            [function],
        )
        assert any(row[0][: len(names)] == names for row in rows), function


@pytest.mark.parametrize("case", cases("answers")["granted"], ids=lambda case: case["task"]["id"])
def test_answers_that_grant(case: dict[str, Any]) -> None:
    app = App()
    app.task("echo", results=True)(lambda body: body)
    app.workflow("flow")(lambda ctx, body: None)
    calls = Calls(app, "me", app.handlers.values())
    row = case["row"] | {"action_deadline": None, "left": None}
    names = ["task_id", "token", "action", "body", "num_tries", "num_failures", "action_deadline", "checkpoint",
             "priority", "metadata", "left", "results", "steps"]  # fmt: skip
    [task] = calls.tasks([[row[name] for name in names]])
    for name, wanted in case["task"].items():
        found = getattr(task, name)
        assert ([vars(one) for one in found] if name == "results" else found) == wanted, name


@pytest.mark.parametrize("case", cases("answers")["returned"], ids=lambda case: case["says"])
def test_answers_to_returns(taskq_app: App, case: dict[str, Any]) -> None:
    began, go = threading.Event(), threading.Event()

    @taskq_app.task("held")
    def held(_: None, task: Task) -> Any:
        if task.num_tries == 1 and not began.is_set():
            began.set()
            go.wait(30)
        return case["result"]

    taskq_app.task("after")(lambda: None)
    taskq_app.insert("held", id="held")
    with working(taskq_app, concurrency=1):
        assert began.wait(30)
        taskq_app.pause(action="held")
        taskq_app.query(case["while"])
        go.set()
        # A second task tells that the worker goes on.
        after = taskq_app.insert("after")
        until(lambda: column(taskq_app, after, "state") == "completed")
    task = taskq_app.get("held")
    assert (None if task is None else task.state) == case["state"]
    assert task is None or task.result == case["stored"]


@pytest.mark.long
def test_answers_that_do_not_fit(taskq_app: App) -> None:
    large = cases("answers")["large"]
    size = large["megabytes_each"] * 10**6
    seen: list[list[int]] = []

    @taskq_app.task("sums", results=True)
    def sums(_: None, task: Task) -> int:
        seen.append([len(result.result) for result in task.results])
        return sum(seen[-1])

    ids = [f"part {n}" for n in range(large["dependencies"])]
    for task_id in ids:
        taskq_app.query("SELECT taskq.signal(%s, result => to_jsonb(repeat('x', %s)))", [task_id, size])
    taskq_app.insert("sums", id="sums", depends_on=ids)
    taskq_app.work(until_idle=True)
    assert seen == [[size] * len(ids)]
    assert column(taskq_app, "sums", "result") == size * len(ids)
