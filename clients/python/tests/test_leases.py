"""Leases: heartbeats keep the tasks of slow handlers, and what is lost is told and dropped."""

import asyncio
import logging
import threading
import time

import pytest

import taskq_pg as taskq
from conftest import column, conninfo, register_open, state, until, working
from taskq_pg import App
from taskq_pg.calls import Calls


def test_a_heartbeat_waits_for_no_open_transaction(taskq_app: App) -> None:
    """One handler has completed its task and does not commit; the task of the other is extended meanwhile."""
    began, go = register_open(taskq_app)
    taskq_app.task("slow")(lambda: go.wait() and None)
    for handler in taskq_app.handlers.values():
        handler.lease = 0.6
    taskq_app.insert("open", id="o")
    taskq_app.insert("slow", id="s")
    with working(taskq_app):
        began.wait()
        extended = "SELECT action_deadline FROM taskq.tasks WHERE id = 's'"
        until(lambda: taskq_app.query(extended)[0][0] is not None)
        deadline = taskq_app.query(extended)[0][0]
        until(lambda: (taskq_app.query(extended)[0][0] - deadline).total_seconds() > 2)
        go.set()
        until(lambda: state(taskq_app, "o") == state(taskq_app, "s") == "completed")


def test_a_task_that_is_cancelled_is_lost_to_its_handler(taskq_app: App, caplog: pytest.LogCaptureFixture) -> None:
    ended = []

    @taskq_app.task("coroutine", lease="0.3 seconds")
    async def coroutine() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("coroutine")

    @taskq_app.task("function", lease="0.3 seconds")
    def function(body: None, task: taskq.Task) -> None:
        task.lost.wait()
        ended.append("function")

    taskq_app.insert("coroutine", id="c")
    taskq_app.insert("function", id="f")
    with working(taskq_app):
        until(lambda: state(taskq_app, "c") == state(taskq_app, "f") == "in-progress")
        taskq_app.query("SELECT taskq.cancel_tasks('{c,f}')")
        until(lambda: sorted(ended) == ["coroutine", "function"])
    assert [column(taskq_app, i, "status") for i in "cf"] == ["cancelled"] * 2


@pytest.mark.parametrize("kind", ["coroutine", "awaitable"])
def test_a_lost_coroutine_is_cancelled_once(taskq_app: App, kind: str) -> None:
    """What it does about that takes longer than it is from heartbeat to heartbeat."""
    ended = []

    async def work(task: taskq.Task) -> None:
        try:
            taskq_app.query("SELECT taskq.cancel_tasks(ARRAY[%s])", [task.id])
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(1)
            ended.append("cleaned up")

    if kind == "coroutine":

        @taskq_app.task("work", lease="0.6 seconds")
        async def coroutine(body: None, task: taskq.Task) -> None:
            await work(task)

    else:
        taskq_app.task("work", lease="0.6 seconds")(lambda body, task: work(task))
    taskq_app.insert("work")
    taskq_app.work(until_idle=True)
    assert ended == ["cleaned up"]


def test_a_function_that_is_lost_before_it_returns_an_awaitable(taskq_app: App) -> None:
    ended = []

    async def rest() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
            ended.append("cleaned up")

    @taskq_app.task("work", lease="0.6 seconds")
    def function(body: None, task: taskq.Task) -> object:
        taskq_app.query("SELECT taskq.cancel_tasks(ARRAY[%s])", [task.id])
        task.lost.wait()
        time.sleep(0.1)  # the loop has been told by then
        return rest()

    taskq_app.insert("work")
    taskq_app.work(until_idle=True)
    assert ended == ["cleaned up"]


def test_a_return_that_comes_too_late_is_logged(
    taskq_app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Calls, "listen", lambda *_: None)
    go = threading.Event()

    @taskq_app.task("slow")
    def slow() -> str:
        go.wait()
        return "late"

    taskq_app.insert("slow", id="cancelled")
    taskq_app.insert("slow", id="deleted")
    with caplog.at_level(logging.INFO, "taskq_pg"), working(taskq_app):
        until(lambda: state(taskq_app, "cancelled") == state(taskq_app, "deleted") == "in-progress")
        taskq_app.query("SELECT taskq.cancel_tasks('{cancelled,deleted}')")
        taskq_app.query("SELECT taskq.delete_tasks('{deleted}')")
        go.set()
        until(lambda: "cancelled: dropped, it is not held any more (TQ001)" in caplog.text)
        until(lambda: "deleted: dropped, it is not held any more (TQ003)" in caplog.text)
    assert state(taskq_app, "cancelled") == "aborted"


def test_a_task_that_is_taken_over(taskq_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeats of one worker do not get through; another one takes its task, and its own return is refused."""
    began, go, ended = threading.Event(), threading.Event(), []
    monkeypatch.setattr(taskq.Worker, "_extend", lambda *_: None)

    @taskq_app.task("slow", lease="0.5 seconds")
    def slow(body: None, task: taskq.Task) -> str:
        if task.num_tries == 1:
            began.set()
            go.wait()
        ended.append(task.num_tries)
        return f"by try {task.num_tries}"

    taskq_app.insert("slow", id="s")
    # As though it were another process: one never performs a task twice at once.
    other = App(f"{conninfo(taskq_app)} application_name=other")
    other.task("slow", lease="0.5 seconds")(slow)
    with working(taskq_app, concurrency=1), other:
        began.wait()
        with working(other, concurrency=1):
            until(lambda: state(taskq_app, "s") == "completed")
        go.set()
        until(lambda: len(ended) == 2)
    assert ended == [2, 1]
    assert column(taskq_app, "s", "result") == "by try 2"


@pytest.mark.parametrize("kind", ["thread", "coroutine", "coroutine that blocks the loop"])
def test_a_slow_handler_keeps_its_task(taskq_app: App, kind: str) -> None:
    tries = []
    if kind == "thread":

        @taskq_app.task("slow", lease="0.6 seconds")
        def slow(body: None, task: taskq.Task) -> None:
            tries.append(task.num_tries)
            time.sleep(2.5)

    else:

        @taskq_app.task("slow", lease="0.6 seconds")
        async def slow(body: None, task: taskq.Task) -> None:
            tries.append(task.num_tries)
            if kind == "coroutine":
                await asyncio.sleep(2.5)
            else:
                time.sleep(2.5)

    taskq_app.insert("slow", id="s")
    # A second worker would take the task as soon as its deadline passed.
    other = App(conninfo(taskq_app))
    other.task("slow", lease="0.6 seconds")(lambda: tries.append("taken over"))
    with working(taskq_app):
        until(lambda: tries)
        with working(other):
            until(lambda: state(taskq_app, "s") == "completed")
    other.close()
    assert tries == [1]
    assert column(taskq_app, "s", "num_tries") == 1


def test_a_lease_of_its_own(taskq_app: App) -> None:
    go = threading.Event()

    def left(task_id: str) -> float:
        query = "SELECT extract(epoch FROM action_deadline - now()) FROM taskq.tasks WHERE id = %s"
        return float(taskq_app.query(query, [task_id])[0][0])

    taskq_app.task("short", lease="1 second")(lambda: go.wait())
    taskq_app.task("long", lease="1 hour")(lambda: go.wait())
    taskq_app.insert("short", id="s")
    taskq_app.insert("long", id="l")
    with working(taskq_app):
        until(lambda: state(taskq_app, "s") == state(taskq_app, "l") == "in-progress")
        until(lambda: left("l") > 3000)
        assert left("s") < 10
        go.set()


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_cancel_is_heard_at_once(taskq_app: App, kind: str) -> None:
    """Not with the next heartbeat, twenty seconds later; also on a connection that was made anew."""
    began, ended = threading.Event(), threading.Event()

    if kind == "function":

        @taskq_app.task("t")
        def function(body: None, task: taskq.Task) -> None:
            began.set()
            task.lost.wait()
            ended.set()
    else:

        @taskq_app.task("t")
        async def coroutine() -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    listens = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
    with working(taskq_app):
        for anew in (False, True):
            until(lambda: taskq_app.query(listens, ["taskq heartbeats"]))
            if anew:
                [[pid]] = taskq_app.query(listens, ["taskq heartbeats"])
                taskq_app.query("SELECT pg_terminate_backend(%s)", [pid])
                until(lambda: taskq_app.query(listens, ["taskq heartbeats"]) not in ([], [(pid,)]))
            began.clear(), ended.clear()
            taskq_app.insert("t", id="t" if not anew else "u")
            began.wait()
            taskq_app.query("SELECT taskq.cancel_tasks(NULL, actions => '{t}')")
            assert ended.wait(15)
