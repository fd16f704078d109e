"""The end of ``max_run_time`` ends the handler, and no process performs a task twice at once."""

import asyncio
import threading
import time

import pytest

import taskq_pg as taskq
from conftest import column, state, until, working
from taskq_pg import App

AT_ONCE = {"kind": "fixed", "initial": "0 seconds"}


@pytest.mark.parametrize("kind", ["function", "coroutine"])
@pytest.mark.parametrize("lease", ["1 minute", "2 seconds"])
def test_it_ends_the_handler_at_that_moment(taskq_app: App, kind: str, lease: str) -> None:
    """Not with the next heartbeat, a third of the lease later; also where it is longer than the lease."""
    ended: list[float] = []
    began: list[float] = []
    run_time = 1 if lease == "1 minute" else 3

    def note(task: taskq.Task) -> None:
        began.append(time.monotonic())

    if kind == "function":

        @taskq_app.task("t", lease=lease, max_run_time=f"{run_time} seconds", max_tries=1)
        def function(body: None, task: taskq.Task) -> None:
            note(task)
            task.lost.wait()
            ended.append(time.monotonic())
    else:

        @taskq_app.task("t", lease=lease, max_run_time=f"{run_time} seconds", max_tries=1)
        async def coroutine(body: None, task: taskq.Task) -> None:
            note(task)
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(time.monotonic())

    taskq_app.setup()
    taskq_app.insert("t", id="t")
    with working(taskq_app):
        until(lambda: ended, 15)
        until(lambda: state(taskq_app, "t") == "aborted")
    assert column(taskq_app, "t", "cause") == "timeout" or column(taskq_app, "t", "cause") == "tries"
    # Before the heartbeat that would have told of it; the machine may be slow, so with much to spare.
    assert run_time - 0.2 < ended[0] - began[0] < 15


def test_one_process_never_performs_a_task_twice_at_once(taskq_app: App) -> None:
    now, most, tries = 0, 0, []
    lock = threading.Lock()
    go = threading.Event()

    @taskq_app.task("t", max_run_time="0.5 seconds", max_tries=3, backoff=AT_ONCE)
    def stubborn(body: None, task: taskq.Task) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
            tries.append(task.num_tries)
        if task.num_tries == 1:
            go.wait()
        with lock:
            now -= 1

    taskq_app.insert("t", id="t")
    with working(taskq_app):
        released = "SELECT num_releases FROM taskq.tasks WHERE id = 't'"
        until(lambda: taskq_app.query(released)[0][0] >= 2)
        assert tries == [1]
        go.set()
        until(lambda: state(taskq_app, "t") == "completed")
    # What went back meanwhile has used up no try.
    assert (most, tries) == (1, [1, 2])


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_handler_that_goes_on_keeps_its_place_for_the_grace(taskq_app: App, kind: str) -> None:
    go, done = threading.Event(), threading.Event()
    if kind == "function":
        taskq_app.task("t", max_run_time="0.5 seconds", max_tries=1)(lambda: go.wait() and None)
    else:

        @taskq_app.task("t", max_run_time="0.5 seconds", max_tries=1)
        async def stubborn() -> None:
            while not go.is_set():
                try:
                    await asyncio.sleep(0.1)
                except asyncio.CancelledError:
                    pass

    taskq_app.task("other")(done.set)
    taskq_app.insert("t", id="t")
    with working(taskq_app, concurrency=1, grace="1 second"):
        until(lambda: state(taskq_app, "t") == "in-progress")
        taskq_app.insert("other", id="o")
        until(done.is_set)
        go.set()
        until(lambda: state(taskq_app, "o") == "completed")


def test_what_waited_for_its_turn_does_not_begin_with_its_time_over(taskq_app: App) -> None:
    """A coroutine that blocks the loop has the next one wait."""
    began: list[str] = []

    @taskq_app.task("block")
    async def block() -> None:
        until(lambda: state(taskq_app, "t") == "in-progress")
        time.sleep(4.5)

    @taskq_app.task("t", max_run_time="6 seconds", max_tries=1)
    async def timed(body: None, task: taskq.Task) -> None:
        began.append(task.id)
        assert task.deadline is not None

    taskq_app.setup()
    taskq_app.insert("block")
    with working(taskq_app, concurrency=2):
        taskq_app.insert("t", id="t", delay="0.2 seconds")
        until(lambda: state(taskq_app, "t") == "completed")
    assert column(taskq_app, "t", "num_releases") == 1
    assert began == ["t"]
