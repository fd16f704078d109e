"""What the code of a transactional step sets on its connection is not found by others."""

import json
from collections.abc import Callable

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads

import taskq_pg as taskq
from conftest import column, conninfo
from taskq_pg import App

LOOK = "SELECT current_setting('search_path'), '[1]'::jsonb, to_regclass('pg_temp.kept') IS NULL, pg_backend_pid()"
CHANGES = ["SET search_path TO nowhere", "SET ROLE pg_monitor", "CREATE TEMP TABLE kept ()", "LISTEN something"]
NOTICE = "DO $$BEGIN RAISE NOTICE 'told'; END$$"
UNCHANGED = ["tuple", '"$user", public', [1], True]


def otherwise(text: bytes) -> object:
    value = json.loads(text)
    return value if isinstance(value, int) else "loaded otherwise"


def change(connection: psycopg.Connection) -> int:
    # The statement is prepared, and found so by the next step.
    connection.execute("SELECT 1", prepare=True)
    for statement in CHANGES:
        connection.execute(statement)
    connection.execute("RESET ROLE")
    connection.row_factory = dict_row
    set_json_loads(otherwise, connection)
    return connection.info.backend_pid


def look(connection: psycopg.Connection) -> list:
    connection.execute("SELECT 1", prepare=True)
    row = connection.execute(LOOK).fetchone()
    return [type(row).__name__, *row]


async def change_async(connection: psycopg.AsyncConnection) -> int:
    await connection.execute("SELECT 1", prepare=True)
    for statement in CHANGES:
        await connection.execute(statement)
    await connection.execute("RESET ROLE")
    connection.row_factory = dict_row
    set_json_loads(otherwise, connection)
    return connection.info.backend_pid


async def look_async(connection: psycopg.AsyncConnection) -> list:
    await connection.execute("SELECT 1", prepare=True)
    row = await (await connection.execute(LOOK)).fetchone()
    return [type(row).__name__, *row]


def register(app: App, kind: str) -> None:
    if kind == "function":

        @app.workflow("w")
        def workflow(ctx: taskq.Context) -> list:
            pid = ctx.transaction("change", change)
            return [pid, *ctx.transaction("look", look)]

    else:

        @app.workflow("w")
        async def workflow_async(ctx: taskq.AsyncContext) -> list:
            pid = await ctx.transaction("change", change_async)
            return [pid, *await ctx.transaction("look", look_async)]


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_settings_end_with_the_step(taskq_app: App, kind: str) -> None:
    register(taskq_app, kind)
    taskq_app.insert("w", id="w", max_tries=1)
    taskq_app.work(until_idle=True)
    first, *found, second = column(taskq_app, "w", "result")
    assert found == UNCHANGED
    assert first == second, "the connection is kept"


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_handlers_and_statements_of_a_step_end_with_it(taskq_app: App, kind: str) -> None:
    """Else what one step is told of would be told to another, and its name be taken."""
    heard = []

    def notices(connection: psycopg.Connection) -> None:
        connection.add_notice_handler(lambda notice: heard.append(notice.message_primary))
        connection.add_notify_handler(heard.append)

    def notify(connection: psycopg.Connection) -> None:
        connection.execute("LISTEN something").connection.execute("NOTIFY something").connection.execute(NOTICE)

    def prepare(connection: psycopg.Connection) -> None:
        connection.execute("PREPARE mine AS SELECT 1")

    async def notices_async(connection: psycopg.AsyncConnection) -> None:
        notices(connection)

    async def notify_async(connection: psycopg.AsyncConnection) -> None:
        for statement in ("LISTEN something", "NOTIFY something", NOTICE):
            await connection.execute(statement)

    async def prepare_async(connection: psycopg.AsyncConnection) -> None:
        await connection.execute("PREPARE mine AS SELECT 1")

    if kind == "function":

        @taskq_app.workflow("w")
        def workflow(ctx: taskq.Context) -> None:
            for name, function in (("a", notices), ("b", notify), ("c", prepare), ("d", prepare)):
                ctx.transaction(name, function)

    else:

        @taskq_app.workflow("w")
        async def workflow_async(ctx: taskq.AsyncContext) -> None:
            for name, function in (
                ("a", notices_async),
                ("b", notify_async),
                ("c", prepare_async),
                ("d", prepare_async),
            ):
                await ctx.transaction(name, function)

    taskq_app.insert("w", id="w", max_tries=1)
    taskq_app.work(until_idle=True)
    assert column(taskq_app, "w", "status") is None
    assert heard == []


def connecting(app: App) -> Callable[[], psycopg.Connection]:
    def connect() -> psycopg.Connection:
        connection = psycopg.connect(where, autocommit=True)
        connection.execute("SET work_mem = '5MB'")
        return connection

    where = conninfo(app)
    return connect


def test_a_connection_that_the_program_has_opened_is_closed(taskq_app: App) -> None:
    """What its own function has set would end with a reset."""
    with App(connecting(taskq_app)) as app:
        register(app, "function")

        @app.workflow("memory")
        def memory(ctx: taskq.Context) -> list:
            return ctx.transaction("memory", lambda connection: connection.execute("SHOW work_mem").fetchone())

        app.insert("w", id="w", max_tries=1)
        app.insert("memory", id="m", depends_on=["w"], max_tries=1)
        app.work(until_idle=True)
    first, *found, second = column(taskq_app, "w", "result")
    assert found == UNCHANGED
    assert first != second
    assert column(taskq_app, "m", "result") == ["5MB"]
