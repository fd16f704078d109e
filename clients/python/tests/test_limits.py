"""Calls of a workflow that fail again and again: the try ends, and says why."""

import contextlib
from collections.abc import Iterator

import psycopg
import pytest

import taskq_pg as taskq
from conftest import column, state, until, working
from taskq_pg import App


@contextlib.contextmanager
def failing(app: App, monkeypatch: pytest.MonkeyPatch, error: psycopg.Error) -> Iterator[list[str]]:
    """Have each attempt to save a step fail; yields the attempts."""
    attempts: list[str] = []
    query, query_async = app.query, app.query_async

    def fail(statement: str) -> None:
        if "save_step" in statement:
            attempts.append(statement)
            assert len(attempts) < 400, "it is repeated for ever"
            raise error

    def limited(statement, arguments=()):
        fail(statement)
        return query(statement, arguments)

    async def limited_async(statement, arguments=()):
        fail(statement)
        return await query_async(statement, arguments)

    with monkeypatch.context() as patch:
        patch.setattr("taskq_pg.steps.delays", lambda: iter(lambda: 0.05, None))
        patch.setattr(app, "query", limited)
        patch.setattr(app, "query_async", limited_async)
        yield attempts


def register(app: App, kind: str) -> None:
    if kind == "function":
        app.workflow("w")(lambda ctx: ctx.step("s", int))
    else:

        @app.workflow("w")
        async def workflow(ctx: taskq.AsyncContext) -> int:
            return await ctx.step("s", int)


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_call_that_always_exceeds_a_limit_fails_the_try(
    taskq_app: App, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    register(taskq_app, kind)
    taskq_app.insert("w", id="w", max_tries=1)
    error = psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
    with failing(taskq_app, monkeypatch, error) as attempts:
        taskq_app.work(until_idle=True)
    assert column(taskq_app, "w", "status") == "QueryCanceled: canceling statement due to statement timeout"
    assert len(attempts) == 5
    assert caplog.text.count("w: a call of the workflow has failed, again in") == 4


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_call_that_fails_while_the_worker_stops_gives_the_task_back(
    taskq_app: App, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the end of the grace, and also a function, whose thread nothing else can end."""
    register(taskq_app, kind)
    taskq_app.insert("w", id="w", max_tries=1)
    with failing(taskq_app, monkeypatch, psycopg.OperationalError("the server is away")) as attempts:
        with working(taskq_app, grace="1 hour") as thread:
            until(lambda: attempts)
            taskq_app.stop()
            until(lambda: not thread.is_alive(), 30)
    assert (state(taskq_app, "w"), column(taskq_app, "w", "num_tries")) == ("ready", 0)


@pytest.mark.parametrize("kind", ["step", "transaction", "map", "async step", "async map"])
def test_what_is_too_large_for_a_message_is_not_sent(
    taskq_app: App, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server would hang up on it, each time that the call is made again."""
    monkeypatch.setattr("taskq_pg.bodies.LONGEST", 1000, raising=False)

    if kind.startswith("async"):

        @taskq_app.workflow("w")
        async def workflow(ctx: taskq.AsyncContext) -> None:
            await (ctx.map("s", "child", ["x" * 1000]) if kind == "async map" else ctx.step("s", lambda: "x" * 1000))

    else:

        @taskq_app.workflow("w")
        def workflow(ctx: taskq.Context) -> None:
            if kind == "map":
                ctx.map("s", "child", ["x" * 1000])
            elif kind == "step":
                ctx.step("s", lambda: "x" * 1000)
            else:
                ctx.transaction("s", lambda _: "x" * 1000)

    taskq_app.insert("w", id="w", max_tries=1)
    taskq_app.work(until_idle=True)
    what = 'what "s" inserts' if "map" in kind else 'the result of step "s"'
    assert column(taskq_app, "w", "status") == f"ValueError: {what} is too large"
