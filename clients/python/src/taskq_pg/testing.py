"""Testing code that uses the queue: a plugin of pytest, and what its tests call.

The fixture ``taskq_app`` is the app of ``taskq_source``, connected to a database of its own. Override ``taskq_source``
to have the app of your program::

    @pytest.fixture
    def taskq_source():
        from shop import app
        return app
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from .app import App
from .connections import Connections
from .durations import Duration, interval
from .errors import BodyError, Reject, Retry
from .operate import Stored
from .worker import Worker


def drain(app: App, *, concurrency: int = 1, actions: list[str] | None = None) -> None:
    """Perform tasks until there is nothing left to own, and raise what a handler has raised.

    ``Retry`` and ``Reject`` are answers, not raised here; but a body that does not fit its handler is.
    """
    _raise(app.work(concurrency=concurrency, actions=actions, until_idle=True))


async def drain_async(app: App, *, concurrency: int = 1, actions: list[str] | None = None) -> None:
    """Do what ``drain`` does, inside a running loop."""
    _raise(await app.work_async(concurrency=concurrency, actions=actions, until_idle=True))


def inserted(app: App, action: str | None = None, **columns: Any) -> list[Stored]:
    """Return the tasks of this action with these values in columns of ``taskq.tasks``, in the order of insertion."""
    wanted = {**({} if action is None else {"action": action}), **columns}
    with app.connections.use() as connection, connection.cursor(row_factory=dict_row) as cursor:
        conditions = sql.SQL(" AND ").join(
            sql.SQL("{} IS NOT DISTINCT FROM %s").format(sql.Identifier(name)) for name in wanted
        )
        query = sql.SQL("SELECT * FROM taskq.tasks WHERE true {} ORDER BY inserted_at, id").format(
            sql.SQL("AND ") + conditions if wanted else sql.SQL("")
        )
        rows = cursor.execute(query, list(wanted.values())).fetchall()
    return [Stored.read(row) for row in rows]


def travel(app: App, duration: Duration) -> datetime:
    """Move the queue's clock of this database on, and let it stand there; returns the time.

    It counts from the next call of the app on, in all threads and loops; but a worker that runs keeps its time. The
    role needs the right to set ``taskq.now``, as a superuser has it.
    """
    [[name, moment]] = app.query("SELECT current_database(), taskq.clock() + %s::text::interval", [interval(duration)])
    with app.connections.use() as connection:
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET taskq.now = {}").format(sql.Identifier(name), moment.isoformat())
        )
    # A session has the setting from its beginning.
    app.close()
    return moment  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def taskq_conninfo() -> str:
    """Where the tests' databases are made: PGHOST and the like, or TASKQ_TEST_CONNINFO."""
    return os.environ.get("TASKQ_TEST_CONNINFO", "")


@pytest.fixture(scope="session")
def taskq_template(taskq_conninfo: str) -> Iterator[str]:
    """Make a database with the extension, once, from which those of the tests are copied."""
    with database(taskq_conninfo) as template:
        with psycopg.connect(template, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS taskq CASCADE")
        yield template


@pytest.fixture
def taskq_source() -> App:
    """Return the app under test. Override it with the app of your program."""
    return App()


@pytest.fixture
def taskq_app(taskq_conninfo: str, taskq_template: str, taskq_source: App) -> Iterator[App]:
    """Return the app of ``taskq_source``, connected to a database that is this test's own."""
    with database(taskq_conninfo, taskq_template) as conninfo:
        before, taskq_source.connections = taskq_source.connections, Connections(conninfo)
        try:
            yield taskq_source
        finally:
            taskq_source.close()
            taskq_source.connections = before


@contextmanager
def database(conninfo: str, template: str | None = None) -> Iterator[str]:
    """Make a database, and drop it in the end; yields its conninfo."""
    name = f"taskq_test_{uuid.uuid4().hex[:12]}"
    create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    if template is not None:
        of = conninfo_to_dict(template)["dbname"]
        create += sql.SQL(" TEMPLATE {}").format(sql.Identifier(str(of)))
    maintenance = make_conninfo(conninfo, dbname=os.environ.get("TASKQ_TEST_MAINTENANCE_DB", "postgres"))
    with psycopg.connect(maintenance, autocommit=True) as connection:
        connection.execute(create)
    try:
        yield make_conninfo(conninfo, dbname=name)
    finally:
        with psycopg.connect(maintenance, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _raise(worker: Worker) -> None:
    raised = [error for error in worker.errors if not _is_answer(error)]
    if len(raised) > 1:
        raise BaseExceptionGroup("handlers have raised", raised)
    if raised:
        raise raised[0]


def _is_answer(error: BaseException) -> bool:
    return isinstance(error, (Retry, Reject)) and not isinstance(error.__cause__, BodyError)
