"""Statements on a connection of the caller's: psycopg's, SQLAlchemy's or Django's, in the caller's transaction."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import set_json_loads

Rows = Sequence[Sequence[Any]]


@contextmanager
def mended() -> Iterator[None]:
    """Add to an error the line that mends it, where one does."""
    try:
        yield
    except psycopg.errors.InvalidSchemaName as error:
        if '"taskq"' in str(error):
            error.add_note("in this database: CREATE EXTENSION taskq")
        raise
    except psycopg.errors.InsufficientPrivilege as error:
        error.add_note("SELECT taskq.grant_worker(ROLE); or grant_inserter, grant_producer, grant_operator")
        raise


def execute(connection: Any, query: LiteralString, arguments: Sequence[Any]) -> Rows:
    """Run a statement with ``%s`` in it, and return its rows."""
    with mended():
        return _execute(connection, query, arguments)


def _execute(connection: Any, query: LiteralString, arguments: Sequence[Any]) -> Rows:
    if isinstance(connection, psycopg.Connection):
        # A cursor of the plainest kind, whatever rows the caller's connection makes.
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            # Whatever the program has set for its own: what is saved is read in one way.
            set_json_loads(json.loads, cursor)
            return cursor.execute(query, arguments).fetchall()
    if isinstance(connection, psycopg.Cursor):
        return execute(connection.connection, query, arguments)
    if _is_sqlalchemy(connection, "Session", "scoped_session"):
        return execute(connection.connection(), query, arguments)
    if _is_sqlalchemy(connection, "Connection"):
        return _sqlalchemy(connection, query, arguments)
    if _is_django(connection):
        with connection.cursor() as cursor:
            cursor.execute(query, list(arguments))
            return list(cursor.fetchall())
    raise _unknown(connection, "insert_async" if "sync" in type(connection).__name__ else None)


async def execute_async(connection: Any, query: LiteralString, arguments: Sequence[Any]) -> Rows:
    """Do the same as ``execute`` on a connection of asyncio."""
    with mended():
        return await _execute_async(connection, query, arguments)


async def _execute_async(connection: Any, query: LiteralString, arguments: Sequence[Any]) -> Rows:
    if isinstance(connection, psycopg.AsyncConnection):
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            set_json_loads(json.loads, cursor)
            return await (await cursor.execute(query, arguments)).fetchall()
    if isinstance(connection, psycopg.AsyncCursor):
        return await execute_async(connection.connection, query, arguments)
    if _is_sqlalchemy(connection, "AsyncSession", "async_scoped_session"):
        return await execute_async(await connection.connection(), query, arguments)
    if _is_sqlalchemy(connection, "AsyncConnection"):
        return list(await connection.run_sync(execute, query, arguments))
    if _is_django(connection):
        from asgiref.sync import sync_to_async

        return list(await sync_to_async(execute, thread_sensitive=True)(connection, query, arguments))
    is_plain = isinstance(connection, psycopg.Connection) or _is_sqlalchemy(connection, "Session", "Connection")
    raise _unknown(connection, "insert" if is_plain else None)


def _sqlalchemy(connection: Any, query: LiteralString, arguments: Sequence[Any]) -> Rows:
    from sqlalchemy import text

    # Named, since the marks of a place differ from driver to driver; in brackets, since a cast may follow.
    pieces = query.split("%s")
    named = pieces[0] + "".join(f"(:p{n}){piece}" for n, piece in enumerate(pieces[1:]))
    rows: Rows = connection.execute(text(named), {f"p{n}": value for n, value in enumerate(arguments)}).fetchall()
    return rows


# Asked by name, so that neither package is imported for the question: what is not imported has made no connection.
def _is_sqlalchemy(connection: Any, *names: str) -> bool:
    return "sqlalchemy" in sys.modules and any(
        kind.__name__ in names and kind.__module__.startswith("sqlalchemy.") for kind in type(connection).__mro__
    )


def _is_django(connection: Any) -> bool:
    # `django.db.connection` is a proxy of the wrapper of this thread.
    return "django" in sys.modules and hasattr(connection, "cursor") and hasattr(connection, "settings_dict")


def _unknown(connection: Any, form: str | None) -> TypeError:
    if form is not None:
        return TypeError(f"{type(connection).__name__} is for the other form of this call, like {form}()")
    return TypeError(f"connection is a {type(connection).__name__}, not a connection of psycopg, SQLAlchemy or Django")
