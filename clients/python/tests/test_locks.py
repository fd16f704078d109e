"""A task that another session has locked, or that cannot be returned, costs the others nothing."""

import threading
import time
from datetime import datetime

import psycopg
import pytest

import taskq_pg as taskq
from conftest import TransactionTimeout, column, conninfo, register_open, state, until, working
from taskq_pg import App
from taskq_pg.link import Link


def deadline(app: App, task_id: str) -> datetime:
    return app.query("SELECT action_deadline FROM taskq.tasks WHERE id = %s", [task_id])[0][0]


def begun(app: App, *ids: str) -> bool:
    return all(state(app, task_id) == "in-progress" for task_id in ids)


def test_a_locked_task_holds_up_no_other_heartbeat(taskq_app: App) -> None:
    go = threading.Event()
    taskq_app.task("slow", lease="3 seconds")(lambda: go.wait() and None)
    taskq_app.insert_many("slow", [None] * 3, ids=["x", "y", "z"])
    with working(taskq_app), psycopg.connect(conninfo(taskq_app)) as other:
        until(lambda: begun(taskq_app, "x", "y", "z"))
        first = deadline(taskq_app, "y")
        other.execute("SELECT taskq.cancel_tasks('{x}')")
        until(lambda: (deadline(taskq_app, "y") - first).total_seconds() > 4, 30)
        other.rollback()
        go.set()
        until(lambda: all(state(taskq_app, i) == "completed" for i in "xyz"))
    assert [column(taskq_app, i, "num_tries") for i in "yz"] == [1, 1]


def test_a_locked_task_holds_up_no_other_return(taskq_app: App) -> None:
    go = threading.Event()
    taskq_app.task("slow")(lambda: go.wait() and None)
    taskq_app.task("fine")(lambda: None)
    taskq_app.insert("slow", id="x")
    with working(taskq_app, concurrency=3), psycopg.connect(conninfo(taskq_app)) as other:
        until(lambda: begun(taskq_app, "x"))
        other.execute("SELECT taskq.cancel_tasks('{x}')")
        go.set()
        ids = [f"f{n}" for n in range(20)]
        taskq_app.insert_many("fine", [None] * 20, ids=ids)
        until(lambda: all(state(taskq_app, i) == "completed" for i in ids), 30)
        assert state(taskq_app, "x") == "in-progress"
        other.rollback()
        until(lambda: state(taskq_app, "x") == "completed", 30)


@pytest.mark.parametrize(
    ("error", "always", "ended"),
    [
        (psycopg.errors.QueryCanceled("canceling statement due to statement timeout"), False, "scheduled"),
        (psycopg.errors.QueryCanceled("canceling statement due to statement timeout"), True, "in-progress"),
        (TransactionTimeout("terminating connection due to transaction timeout"), False, "scheduled"),
        (psycopg.errors.ProgramLimitExceeded("string too long to represent as jsonb string"), False, "aborted"),
    ],
)
def test_a_return_that_always_fails_is_given_up(
    taskq_app: App, monkeypatch: pytest.MonkeyPatch, error: psycopg.Error, always: bool, ended: str
) -> None:
    call = Link.call

    def limited(self, query, arguments):
        if any(isinstance(a, str) and '"big"' in a and (always or "too much" in a) for a in arguments):
            raise error
        return call(self, query, arguments)

    monkeypatch.setattr(Link, "call", limited)
    taskq_app.task("big", backoff={"kind": "fixed", "initial": "1 hour"})(lambda: "too much")
    taskq_app.task("fine")(lambda: None)
    taskq_app.insert("big", id="big", priority=1)
    taskq_app.insert_many("fine", [None] * 5, ids=list("12345"))
    taskq_app.work(until_idle=True, concurrency=2)
    assert [state(taskq_app, i) for i in "12345"] == ["completed"] * 5
    assert state(taskq_app, "big") == ended
    if ended != "in-progress":
        assert str(column(taskq_app, "big", "status")).startswith("its return was refused: ")


@pytest.mark.parametrize(
    ("text", "times", "ended"),
    [
        ("could not open relation with OID 16384", 3, "completed"),
        ("could not open relation with OID 16384", 5, "scheduled"),
        ("invalid memory alloc request size 1073741824", 1, "scheduled"),
    ],
)
def test_a_return_that_meets_an_internal_error(
    taskq_app: App, monkeypatch: pytest.MonkeyPatch, text: str, times: int, ended: str
) -> None:
    """It is made again with its result, which may go through then."""
    call, failed = Link.call, []

    def fail(self, query, arguments):
        if any(isinstance(a, str) and "the result" in a for a in arguments) and len(failed) < times:
            failed.append(query)
            raise psycopg.errors.InternalError_(text)
        return call(self, query, arguments)

    monkeypatch.setattr(Link, "call", fail)
    taskq_app.task("work", backoff={"kind": "fixed", "initial": "1 hour"})(lambda: "the result")
    taskq_app.insert("work", id="w", max_tries=2)
    taskq_app.work(until_idle=True)
    assert len(failed) == times
    assert state(taskq_app, "w") == ended


@pytest.mark.parametrize("kind", ["short", "long"])
def test_complete_in_a_transaction_that_is_rolled_back(taskq_app: App, kind: str) -> None:
    go = threading.Event()

    @taskq_app.task("book", lease="1.5 seconds", backoff={"kind": "fixed", "initial": "1 hour"})
    def book(body: str, task: taskq.Task) -> str:
        with taskq_app.connections.use() as connection, connection.transaction(force_rollback=True):
            task.complete(connection=connection, result=1)
        if body == "long":
            go.wait()
        return "ignored"

    taskq_app.insert("book", kind, id="b")
    with working(taskq_app):
        until(lambda: begun(taskq_app, "b") or state(taskq_app, "b") == "scheduled")
        if kind == "long":
            first = deadline(taskq_app, "b")
            until(lambda: (deadline(taskq_app, "b") - first).total_seconds() > 3, 30)
            go.set()
        until(lambda: state(taskq_app, "b") == "scheduled", 30)
    assert column(taskq_app, "b", "num_tries") == 1
    assert column(taskq_app, "b", "status") == "the transaction that completed it was rolled back"


def test_stopping_while_the_transaction_of_a_complete_is_open(taskq_app: App) -> None:
    began, go = register_open(taskq_app)
    taskq_app.insert("open", id="o")
    with working(taskq_app, grace="0.1 seconds") as worker:
        began.wait()
        stopped = time.monotonic()
        taskq_app.stop()
        worker.join(60)
        assert time.monotonic() - stopped < 9
    go.set()
    until(lambda: state(taskq_app, "o") == "completed")


def test_dates_that_look_otherwise(taskq_app: App) -> None:
    with taskq_app.connections.use() as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET datestyle = 'SQL, DMY'")
    taskq_app.close()
    left = []

    @taskq_app.task("when", lease="1 hour")
    def when(body: None, task: taskq.Task) -> None:
        assert task.deadline is not None
        left.append(task.deadline.timestamp() - time.time())

    taskq_app.insert("when", id="w")
    taskq_app.work(until_idle=True)
    assert state(taskq_app, "w") == "completed"
    assert 3000 < left[0] <= 3660
