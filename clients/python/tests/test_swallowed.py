"""A wait that the code of a workflow swallows does not go on."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import taskq_pg as taskq
from conftest import column, state
from taskq_pg import App
from taskq_pg.testing import drain


def bare_except(ctx: taskq.Context) -> None:
    try:
        ctx.wait_for("approved", signal="approve")
    except:  # noqa: E722
        pass


def suppressed(ctx: taskq.Context) -> None:
    with contextlib.suppress(BaseException):
        ctx.wait_for("approved", signal="approve")


def returned(ctx: taskq.Context) -> None:
    try:
        ctx.wait_for("approved", signal="approve")
    finally:
        return


def another_raised(ctx: taskq.Context) -> None:
    try:
        ctx.wait_for("approved", signal="approve")
    except BaseException as error:
        raise ValueError("no") from error


def in_a_step(ctx: taskq.Context) -> None:
    ctx.step("ask", lambda: bare_except(ctx))


def in_a_transaction(ctx: taskq.Context) -> None:
    with ctx.transaction("ask") as statements:
        bare_except(ctx)
        statements.execute("INSERT INTO charged VALUES ('in the transaction')")


FUNCTIONS = [bare_except, suppressed, returned, another_raised, in_a_step, in_a_transaction]


@pytest.mark.parametrize("wait", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_function(taskq_app: App, wait: Callable[[Any], None]) -> None:
    with taskq_app.connections.use() as connection:
        connection.execute("CREATE TABLE charged (what text)")

    @taskq_app.workflow("order", max_tries=1)
    def order(ctx: taskq.Context) -> str:
        wait(ctx)
        taskq_app.query("INSERT INTO charged VALUES ('between') RETURNING 1")
        ctx.step("charge", lambda: taskq_app.query("INSERT INTO charged VALUES ('step') RETURNING 1") and None)
        ctx.task.report("charged")
        return "charged"

    taskq_app.insert("order", id="o")
    drain(taskq_app)
    assert state(taskq_app, "o") == "blocked"
    assert ("step",) not in taskq_app.query("SELECT what FROM charged")
    assert ("in the transaction",) not in taskq_app.query("SELECT what FROM charged")
    taskq_app.signal("approve")
    drain(taskq_app)
    assert column(taskq_app, "o", "result") == "charged"


async def gathered(ctx: taskq.AsyncContext) -> None:
    await asyncio.gather(ctx.wait_for("approved", signal="approve"), ctx.sleep("s", "0"), return_exceptions=True)


async def grouped(ctx: taskq.AsyncContext) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.wait_for("approved", signal="approve"))


async def shut(ctx: taskq.AsyncContext) -> None:
    with contextlib.suppress(BaseException):
        await ctx.wait_for("approved", signal="approve")


@pytest.mark.parametrize("wait", [gathered, grouped, shut], ids=lambda function: function.__name__)
def test_a_coroutine(taskq_app: App, wait: Callable[[Any], Any], caplog: pytest.LogCaptureFixture) -> None:
    done = []

    @taskq_app.workflow("order", max_tries=1)
    async def order(ctx: taskq.AsyncContext) -> str:
        await wait(ctx)
        await ctx.step("charge", done.append, 1)
        return "charged"

    taskq_app.insert("order", id="o")
    drain(taskq_app)
    assert (state(taskq_app, "o"), done) == ("blocked", [])
    assert wait is not grouped or 'the wait "approved" was swallowed' in caplog.text
    taskq_app.signal("approve")
    drain(taskq_app)
    assert column(taskq_app, "o", "result") == "charged"


def test_the_end_of_the_function_is_that_of_the_wait(taskq_app: App, caplog: pytest.LogCaptureFixture) -> None:
    @taskq_app.workflow("order", max_tries=1)
    def order(ctx: taskq.Context) -> str:
        returned(ctx)
        return "charged"

    taskq_app.insert("order", id="o")
    drain(taskq_app)
    assert state(taskq_app, "o") == "blocked"
    assert 'the wait "approved" was swallowed' in caplog.text
