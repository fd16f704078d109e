"""Handlers of every kind, and what they return and raise, end their tasks and not the worker."""

import asyncio
import functools
import threading
import time
from collections.abc import Callable

import pytest

import taskq_pg as taskq
from conftest import column, register_raising, state, until, working
from taskq_pg import App


class Odd:
    """No JSON."""


class Interrupting(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class OddText(str):
    __slots__ = ()

    def __getitem__(self, _: object) -> str:
        raise ZeroDivisionError


class WithOddText(Exception):
    def __str__(self) -> str:
        return OddText("x")


RAISED = [
    taskq.Retry("x", count_try=Odd()),
    taskq.errors.Suspend("odd", depends_on=[Odd()]),
    Interrupting(),
    WithOddText(),
]


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_what_cannot_be_told_is_a_failure(taskq_app: App, kind: str) -> None:
    register_raising(taskq_app, kind, RAISED)
    taskq_app.task("fine")(lambda: None)
    ids = [str(n) for n in range(len(RAISED))]
    taskq_app.insert_many("raise", range(len(RAISED)), ids=ids, max_tries=1)
    taskq_app.insert("fine", id="fine")
    with working(taskq_app, concurrency=1):
        until(lambda: state(taskq_app, "fine") == "completed", 20)
    assert [state(taskq_app, i) for i in ids] == ["aborted"] * len(ids)
    assert str(column(taskq_app, "0", "status")).startswith("Retry: ")


def call_async(function: Callable) -> Callable:
    @functools.wraps(function)
    async def wrapper(*args):
        return await asyncio.to_thread(function, *args)

    return wrapper


def call_sync(function: Callable) -> Callable:
    @functools.wraps(function)
    def wrapper(*args):
        return asyncio.run(function(*args))

    return wrapper


def passed_on(function: Callable) -> Callable:
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


def test_decorated_handlers(taskq_app: App) -> None:
    @taskq_app.task("coroutine around a function")
    @call_async
    def one(body: int) -> int:
        return body + 1

    @taskq_app.task("function around a coroutine")
    @call_sync
    async def two(body: int) -> int:
        return body + 2

    @taskq_app.task("function that returns a coroutine")
    @passed_on
    async def three(body: int) -> int:
        await asyncio.sleep(0)
        return body + 3

    @taskq_app.workflow("workflow")
    @passed_on
    async def four(ctx: taskq.AsyncContext, body: int) -> int:
        return await ctx.step("s", lambda: body + 4)

    for action in taskq_app.handlers:
        taskq_app.insert(action, 10, id=action)
    taskq_app.work(until_idle=True)
    assert [column(taskq_app, action, "result") for action in taskq_app.handlers] == [11, 12, 13, 14]


def test_a_coroutine_behind_a_function_is_cancelled_when_its_task_is_lost(taskq_app: App) -> None:
    cancelled = threading.Event()

    @taskq_app.task("slow", lease="0.5 seconds")
    @passed_on
    async def slow() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    taskq_app.insert("slow", id="s")
    with working(taskq_app):
        until(lambda: state(taskq_app, "s") == "in-progress")
        taskq_app.query("SELECT taskq.cancel_tasks('{s}')")
        assert cancelled.wait(30)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_task_of_a_coroutine_that_exits(taskq_app: App, error: BaseException) -> None:
    @taskq_app.task("bad", max_tries=1)
    async def bad() -> None:
        async def child() -> None:
            raise error

        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    @taskq_app.task("slow")
    async def slow() -> None:
        await asyncio.sleep(0.5)

    taskq_app.insert("slow", id="slow")
    taskq_app.insert("bad", id="bad")
    taskq_app.work(until_idle=True)
    assert state(taskq_app, "bad") == "aborted"
    assert (state(taskq_app, "slow"), column(taskq_app, "slow", "num_tries")) == ("completed", 1)


def test_a_handler_that_stops_the_loop(taskq_app: App) -> None:
    @taskq_app.task("stop", max_tries=1)
    async def stop() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.1)
        return "went on"

    taskq_app.insert_many("stop", [None] * 2, ids=["a", "b"])
    taskq_app.work(until_idle=True, concurrency=1)
    assert [column(taskq_app, i, "result") for i in "ab"] == ["went on"] * 2


def test_a_worker_that_is_cancelled_twice_leaves_nothing_behind(taskq_app: App) -> None:
    begun = threading.Event()

    @taskq_app.task("slow")
    async def slow() -> None:
        begun.set()
        await asyncio.sleep(600)

    async def main() -> None:
        work = asyncio.create_task(taskq_app.work_async(grace="1 minute"))
        await asyncio.to_thread(begun.wait)
        began = time.monotonic()
        work.cancel()
        await asyncio.sleep(0.2)
        assert not work.done()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert time.monotonic() - began < 20

    taskq_app.insert("slow", id="s", max_tries=1)
    asyncio.run(main())
    assert (state(taskq_app, "s"), column(taskq_app, "s", "num_tries")) == ("ready", 0)
    until(lambda: not any(thread.name == "taskq worker" for thread in threading.enumerate()))
