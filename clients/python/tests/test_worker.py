"""Performing: what handlers are given, and how what they do ends their tasks."""

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

import psycopg
import pytest

import taskq_pg as taskq
from conftest import column, register_raising, state, until, working
from taskq_pg import App
from taskq_pg.testing import drain, inserted


@dataclass
class Resize:
    file: str


def end(app: App, task_id: str) -> tuple:
    return app.query("SELECT state, status, result FROM taskq.tasks WHERE id = %s", [task_id])[0]


def test_functions_and_coroutines(taskq_app: App) -> None:
    threads = {}

    @taskq_app.task("function")
    def function(body: Resize, task: taskq.Task) -> dict:
        threads["function"] = threading.current_thread()
        return {"file": body.file, "try": task.num_tries, "id": task.id}

    @taskq_app.task("coroutine")
    async def coroutine(body: Resize, task: taskq.Task) -> Resize:
        threads["coroutine"] = threading.current_thread()
        await asyncio.sleep(0)
        return Resize(body.file.upper())

    @taskq_app.task("nothing")
    def nothing() -> None:
        threads["nothing"] = threading.current_thread()

    @taskq_app.task("method")
    class Method:
        def __new__(cls, body: str) -> str:
            return body + "!"

    taskq_app.insert("function", Resize("a"), id="1")
    taskq_app.insert("coroutine", Resize("b"), id="2")
    taskq_app.insert("nothing", id="3")
    taskq_app.insert("method", "c", id="4")
    drain(taskq_app)
    assert end(taskq_app, "1") == ("completed", None, {"file": "a", "try": 1, "id": "1"})
    assert end(taskq_app, "2") == ("completed", None, {"file": "B"})
    assert end(taskq_app, "3") == ("completed", None, None)
    assert end(taskq_app, "4") == ("completed", None, "c!")
    assert threads["coroutine"] is threading.main_thread()
    assert threads["function"] is not threading.main_thread()


def test_a_handler_that_takes_something_else_is_refused_at_once() -> None:
    app = App()
    with pytest.raises(TypeError, match="takes 'third'"):

        @app.task("a")
        def wrong(body, task, third) -> None: ...

    with pytest.raises(ValueError, match="has a handler already"):
        app.task("b")(print)
        app.task("b")(print)
    with pytest.raises(ValueError, match="no handler for c"):
        app.work(actions=["c"])
    with pytest.raises(ValueError, match="has no handler"):
        App().work()


def test_results_of_dependencies(taskq_app: App) -> None:
    @taskq_app.task("part")
    def part(n: int) -> int:
        if n == 3:
            raise taskq.Reject("three")
        return n

    @taskq_app.task("whole", results=True)
    def whole(body: None, task: taskq.Task) -> dict:
        return {result.task_id: result.result if result.completed else result.status for result in task.results}

    taskq_app.insert_many("part", [1, 2, 3], ids=["a", "b", "c"])
    taskq_app.insert("whole", id="w", depends_on=[{"id": i, "condition": "settled"} for i in "abc"])
    drain(taskq_app)
    assert end(taskq_app, "w") == ("completed", None, {"a": 1, "b": 2, "c": "three"})


def test_reject_and_retry(taskq_app: App) -> None:
    calls = Counter()

    @taskq_app.task("reject")
    def reject() -> None:
        raise taskq.Reject("never")

    @taskq_app.task("retry")
    def retry(body: None, task: taskq.Task) -> int:
        calls["retry"] += 1
        if task.num_tries < 3:
            raise taskq.Retry("not yet", after="0 seconds")
        return task.num_tries

    @taskq_app.task("later")
    async def later() -> None:
        raise taskq.Retry("in a while", after="5 minutes")

    @taskq_app.task("free")
    def free(body: None, task: taskq.Task) -> None:
        calls["free"] += 1
        if calls["free"] < 3:
            raise taskq.Retry("costs nothing", count_try=False)

    for action in ("reject", "retry", "later", "free"):
        taskq_app.insert(action, id=action, max_tries=5)
    drain(taskq_app)
    assert end(taskq_app, "reject") == ("aborted", "never", None)
    assert end(taskq_app, "retry") == ("completed", None, 3)
    assert end(taskq_app, "later") == ("scheduled", "in a while", None)
    wait = taskq_app.query("SELECT extract(epoch FROM not_before - now()) FROM taskq.tasks WHERE id = 'later'")[0][0]
    assert 200 < wait <= 300
    assert column(taskq_app, "free", "num_tries") == 1
    assert calls["free"] == 3


def test_a_delay_of_a_workgroup_that_is_none(taskq_app: App) -> None:
    @taskq_app.task("busy")
    def busy() -> None:
        raise taskq.Retry("slowly", after="1 hour", delay_workgroup="1 hour")

    taskq_app.insert("busy", id="without")
    taskq_app.insert("busy", id="with", workgroup="w")
    drain(taskq_app)
    assert end(taskq_app, "without") == end(taskq_app, "with") == ("scheduled", "slowly", None)
    assert taskq_app.query("SELECT workgroup, not_before > now() FROM taskq.workgroups") == [("w", True)]


def test_an_exception_leaves_it_to_the_back_off(taskq_app: App) -> None:
    @taskq_app.task("fail", backoff={"kind": "fixed", "initial": "1 hour"})
    def fail() -> None:
        raise LookupError("no such row")

    taskq_app.insert("fail", id="f")
    with pytest.raises(LookupError, match="no such row"):
        drain(taskq_app)
    assert end(taskq_app, "f") == ("scheduled", "LookupError: no such row", None)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


RAISED = [
    ValueError("a \0 and a \ud800 in it"),
    Unprintable(),
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError(),
    StopIteration(1),
    MemoryError(),
    RecursionError(),
    BaseExceptionGroup("several", [ValueError(), KeyboardInterrupt()]),
    ValueError("x" * 5_000),
    AssertionError(),
    BaseException("base"),
]


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_whatever_a_handler_raises_ends_its_task_and_not_the_worker(taskq_app: App, kind: str) -> None:
    register_raising(taskq_app, kind, RAISED)
    taskq_app.insert_many("raise", range(len(RAISED)), ids=[str(n) for n in range(len(RAISED))], max_tries=1)
    taskq_app.work(until_idle=True, concurrency=3)
    for n, error in enumerate(RAISED):
        ended, status, _ = end(taskq_app, str(n))
        assert ended == "aborted"
        # A coroutine cannot raise StopIteration; Python makes another error of it.
        name = "RuntimeError" if isinstance(error, StopIteration) and kind == "coroutine" else type(error).__name__
        assert status.startswith(name), status
        assert len(status) < 5000


def test_a_body_that_does_not_fit_aborts(taskq_app: App) -> None:
    @taskq_app.task("resize")
    def resize(body: Resize) -> None: ...

    taskq_app.insert("resize", {"flie": "a"}, id="x")
    taskq_app.insert("resize", "nonsense", id="y")
    with pytest.raises(BaseExceptionGroup):
        drain(taskq_app)
    assert end(taskq_app, "x") == ("aborted", "the body lacks 'file'", None)
    assert end(taskq_app, "y")[1].startswith("the body is no JSON")


def test_a_result_that_cannot_be_kept_aborts(taskq_app: App) -> None:
    results = {"object": object(), "nul": "a\0b", "nan": float("nan"), "surrogate": "\ud800"}
    nested: list = []
    nested.append(nested)
    results["cycle"] = nested

    @taskq_app.task("give")
    def give(name: str) -> object:
        return results[name]

    @taskq_app.task("fine")
    def fine() -> str:
        return "fine"

    for name in results:
        taskq_app.insert("give", name, id=name)
    taskq_app.insert_many("fine", [None] * 5, ids=[f"fine {n}" for n in range(5)])
    taskq_app.work(until_idle=True, concurrency=20)
    for name in ("object", "nan", "cycle"):
        assert end(taskq_app, name)[0] == "aborted"
        assert end(taskq_app, name)[1].startswith("its result is no JSON")
    for name in ("nul", "surrogate"):
        assert end(taskq_app, name)[0] == "aborted"
        assert end(taskq_app, name)[1].startswith("its return was refused")
    assert all(end(taskq_app, f"fine {n}") == ("completed", None, "fine") for n in range(5))


def test_a_result_that_json_writes_in_its_own_way_is_kept(taskq_app: App) -> None:
    results = {
        "time": (datetime(2030, 1, 2, tzinfo=UTC), "2030-01-02T00:00:00+00:00"),
        "set": ({"a"}, ["a"]),
        "empty": ("", ""),
        "zero": (0, 0),
    }

    @taskq_app.task("give")
    def give(name: str) -> object:
        return results[name][0]

    for name in results:
        taskq_app.insert("give", name, id=name)
    drain(taskq_app)
    for name, (_, kept) in results.items():
        assert end(taskq_app, name) == ("completed", None, kept)


def test_children(taskq_app: App) -> None:
    @taskq_app.task("split")
    def split() -> taskq.Complete:
        children = [{"id": f"part {n}", "action": "part", "body": Resize(str(n))} for n in range(3)]
        return taskq.Complete({"parts": 3}, status="split", children=children, children_block=True)

    @taskq_app.task("part")
    def part(body: Resize) -> None: ...

    taskq_app.insert("split", id="s")
    taskq_app.insert("part", Resize("after"), id="after", depends_on=["s"])
    drain(taskq_app)
    assert end(taskq_app, "s") == ("completed", "split", {"parts": 3})
    order = [row[0] for row in taskq_app.query("SELECT id FROM taskq.tasks ORDER BY settled_at")]
    assert order[-1] == "after"
    assert len(order) == 5


def test_a_return_that_is_refused_spoils_no_other(taskq_app: App) -> None:
    @taskq_app.task("split")
    def split() -> taskq.Complete:
        return taskq.Complete(children=[{"id": "there", "action": "part"}])

    @taskq_app.task("fine")
    def fine() -> None: ...

    taskq_app.insert("part", id="there")
    taskq_app.insert("split", id="s", max_tries=1)
    taskq_app.insert_many("fine", [None] * 3, ids=["1", "2", "3"])
    taskq_app.work(until_idle=True)
    assert end(taskq_app, "s")[0] == "aborted"
    assert end(taskq_app, "s")[1].startswith("its return was refused")
    assert [state(taskq_app, i) for i in "123"] == ["completed"] * 3


@pytest.mark.parametrize("fails", [False, True])
def test_complete(taskq_app: App, fails: bool) -> None:
    with taskq_app.connections.use() as connection:
        connection.execute("CREATE TABLE stock AS SELECT 10 AS n")

    @taskq_app.task("book")
    def book(n: int, task: taskq.Task) -> str:
        with taskq_app.connections.use() as connection, connection.transaction():
            connection.execute("UPDATE stock SET n = n - %s", [n])
            task.complete(connection=connection, result={"booked": n}, children=[{"id": "child", "action": "x"}])
            if fails:
                raise LookupError("after all")
        return "ignored"

    taskq_app.insert("book", 3, id="b", max_tries=1)
    taskq_app.work(until_idle=True)
    left = taskq_app.query("SELECT n FROM stock")[0][0]
    if fails:
        assert (left, end(taskq_app, "b")) == (10, ("aborted", "LookupError: after all", None))
        assert inserted(taskq_app, "x") == []
    else:
        assert (left, end(taskq_app, "b")) == (7, ("completed", None, {"booked": 3}))
        assert [task.id for task in inserted(taskq_app, "x")] == ["child"]


def test_complete_in_a_coroutine(taskq_app: App) -> None:
    @taskq_app.task("book")
    async def book(body: None, task: taskq.Task) -> None:
        async with taskq_app.connections.use_async() as connection, connection.transaction():
            await task.complete_async(connection=connection, result=1)

    taskq_app.insert("book", id="b")
    drain(taskq_app)
    assert end(taskq_app, "b") == ("completed", None, 1)


def test_a_task_that_is_left_is_returned_by_the_holder_of_its_token(taskq_app: App) -> None:
    tokens = {}

    @taskq_app.task("detach")
    def detach(body: None, task: taskq.Task) -> None:
        tokens[task.id] = task.token
        raise taskq.Leave

    taskq_app.insert("detach", id="d")
    drain(taskq_app)
    assert state(taskq_app, "d") == "in-progress"
    taskq_app.query("SELECT taskq.return_task('d', %s::text::uuid)", [tokens["d"]])
    assert state(taskq_app, "d") == "completed"


def test_reports_and_checkpoints(taskq_app: App) -> None:
    seen = []

    @taskq_app.task("import")
    def load(body: None, task: taskq.Task) -> None:
        seen.append((task.checkpoint, column(taskq_app, "i", "progress")))
        if task.checkpoint is None:
            task.report("half", progress=0.5, checkpoint={"line": 40})
            raise taskq.Retry("go on", after="0 seconds")

    @taskq_app.task("import async")
    async def load_async(body: None, task: taskq.Task) -> None:
        await task.report_async("half", checkpoint={"line": task.num_tries})

    taskq_app.insert("import", id="i")
    taskq_app.insert("import async")
    drain(taskq_app)
    assert seen == [(None, None), ({"line": 40}, 0.5)]


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_no_more_at_once_than_asked_for(taskq_app: App, kind: str) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def count(by: int) -> None:
        nonlocal running, most
        with lock:
            running += by
            most = max(most, running)

    if kind == "threads":

        @taskq_app.task("count")
        def handler() -> None:
            count(1)
            time.sleep(0.01)
            count(-1)

    else:

        @taskq_app.task("count")
        async def handler() -> None:
            count(1)
            await asyncio.sleep(0.01)
            count(-1)

    taskq_app.insert_many("count", [None] * 60)
    drain(taskq_app, concurrency=4)
    assert 2 <= most <= 4
    assert {task.state for task in inserted(taskq_app)} == {"completed"}


@pytest.mark.parametrize(("concurrency", "number"), [(1, 1000), (50, 10_000)])
def test_ten_thousand_tasks(taskq_app: App, concurrency: int, number: int) -> None:
    calls = Counter()

    @taskq_app.task("noop")
    def noop(n: int) -> None:
        calls[n] += 1

    taskq_app.insert_many("noop", range(number))
    drain(taskq_app, concurrency=concurrency)
    assert sorted(calls.items()) == [(n, 1) for n in range(number)]
    assert taskq_app.query("SELECT state, count FROM taskq.count_tasks()") == [("completed", number)]


def test_one_round_trip_a_task_or_fewer(taskq_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    from taskq_pg.link import Link

    calls = Counter()
    call = Link.call

    def counted(self, query, arguments):
        calls["claims"] += "taskq.own_tasks" in query
        calls["returns"] += "taskq.return_and_own_tasks" in query
        return call(self, query, arguments)

    monkeypatch.setattr(Link, "call", counted)
    taskq_app.task("noop")(lambda: None)
    taskq_app.insert_many("noop", [None] * 300)
    drain(taskq_app, concurrency=1)
    assert calls["returns"] <= 300
    assert calls["claims"] <= 3
    calls.clear()
    taskq_app.insert_many("noop", [None] * 300)
    drain(taskq_app, concurrency=50)
    assert calls["returns"] + calls["claims"] < 200


def test_a_worker_without_the_extension_says_so(taskq_app: App) -> None:
    taskq_app.query("SELECT 1")
    with taskq_app.connections.use() as connection:
        connection.execute("DROP EXTENSION taskq")
    taskq_app.task("noop")(lambda: None)
    with pytest.raises(psycopg.errors.InvalidSchemaName):
        taskq_app.work()


def test_a_worker_in_a_running_loop(taskq_app: App) -> None:
    done = []

    @taskq_app.task("noop")
    async def noop() -> None:
        done.append(asyncio.get_running_loop())

    async def main() -> None:
        work = asyncio.create_task(taskq_app.work_async())
        await asyncio.to_thread(taskq_app.insert, "noop")
        while not done:
            await asyncio.sleep(0.01)
        assert done == [asyncio.get_running_loop()]
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(main())


def test_many_workers_share_the_tasks(taskq_app: App) -> None:
    calls = Counter()
    lock = threading.Lock()

    def noop(n: int) -> None:
        with lock:
            calls[n] += 1

    taskq_app.task("noop")(noop)
    taskq_app.insert_many("noop", range(1000))
    with working(taskq_app, concurrency=5), working(taskq_app, concurrency=5), working(taskq_app, concurrency=1):
        until(lambda: taskq_app.query("SELECT count FROM taskq.count_tasks(states => '{completed}')") == [(1000,)])
    assert set(calls.values()) == {1}
