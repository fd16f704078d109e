"""Insertion, on whatever connection, in its transaction."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from conftest import conninfo
from taskq_pg import App
from taskq_pg.testing import inserted


@dataclass
class Resize:
    file: str


def engine_url(app: App) -> sqlalchemy.URL:
    with app.connections.use() as connection:
        info = connection.info
    return sqlalchemy.URL.create(
        "postgresql+psycopg",
        username=info.user,
        password=info.password or None,
        database=info.dbname,
        query={"host": info.host, "port": str(info.port)},
    )


def ids(app: App) -> list[str]:
    return [task.id for task in inserted(app)]


def test_keys(taskq_app: App) -> None:
    app = taskq_app
    app.insert("load", id="load")
    at = datetime(2040, 1, 1, tzinfo=UTC)
    task_id = app.insert(
        "resize",
        Resize("a.png"),
        id="img 7",
        depends_on=["load", {"id": "load", "condition": "completed"}],
        priority=3,
        max_tries=2,
        not_before=at,
        retention=timedelta(hours=2),
        backoff={"kind": "fixed", "initial": timedelta(seconds=5)},
        group_id="g",
        metadata={"who": "ann"},
    )
    assert task_id == "img 7"
    [task] = inserted(app, "resize", id="img 7")
    assert task.body == {"file": "a.png"}
    assert task.state == "blocked"
    row = task.row
    assert (row["priority"], row["max_tries"], row["not_before"], row["group_id"]) == (3, 2, at, "g")
    assert (row["retention"], row["metadata"]) == (timedelta(hours=2), {"who": "ann"})
    assert row["backoff"]["kind"] == "fixed"


def test_an_unknown_key_is_the_servers_error(taskq_app: App) -> None:
    with pytest.raises(psycopg.Error, match="prioritty") as caught:
        taskq_app.insert("a", prioritty=3)  # type: ignore[call-arg]
    assert caught.value.sqlstate == "TQ006"


def test_many(taskq_app: App) -> None:
    made = taskq_app.insert_many("resize", [Resize("a"), None, "text"], ids=["a", None, "c"], priority=4)
    assert made[0] == "a"
    assert made[2] == "c"
    bodies = {task.id: (task.body, task.row["priority"]) for task in inserted(taskq_app)}
    assert bodies == {"a": ({"file": "a"}, 4), made[1]: (None, 4), "c": ("text", 4)}
    assert taskq_app.insert_many("resize", []) == []


def test_a_graph(taskq_app: App) -> None:
    made = taskq_app.insert_tasks(
        [
            {"id": "b", "action": "bind", "depends_on": ["a"], "delay": timedelta(minutes=1)},
            {"id": "a", "action": "resize", "body": Resize("a.png")},
        ]
    )
    assert made == ["b", "a"]
    assert {task.id: task.state for task in inserted(taskq_app)} == {"a": "ready", "b": "blocked"}


def test_the_id_is_that_of_the_task_that_does_the_work(taskq_app: App) -> None:
    first = taskq_app.insert("a", unique_by="key")
    assert taskq_app.insert("a", unique_by="key") == first
    taskq_app.insert("a", id="x")
    assert taskq_app.insert("a", id="x", on_conflict="skip") == "x"
    with pytest.raises(psycopg.Error) as caught:
        taskq_app.insert("a", id="x")
    assert caught.value.sqlstate == "TQ002"


def test_whatever_rows_the_connection_makes(taskq_app: App) -> None:
    for rows in (psycopg.rows.dict_row, psycopg.rows.namedtuple_row, psycopg.rows.scalar_row):
        with psycopg.connect(conninfo(taskq_app), row_factory=rows) as connection:
            name = rows.__name__
            assert taskq_app.insert("a", id=name, connection=connection) == name
            assert taskq_app.insert_many("a", [1], ids=[f"{name} 1"], connection=connection) == [f"{name} 1"]
            assert taskq_app.signal(f"{name} 2", connection=connection) is True
            assert connection.row_factory is rows


def test_in_the_transaction_of_a_connection_or_cursor(taskq_app: App) -> None:
    with psycopg.connect(conninfo(taskq_app), row_factory=psycopg.rows.dict_row) as connection:
        taskq_app.insert("a", id="rolled back", connection=connection)
        connection.rollback()
        taskq_app.insert("a", id="connection", connection=connection)
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 AS one")
            taskq_app.insert("a", id="cursor", connection=cursor)
            assert cursor.fetchone() == {"one": 1}, "the cursor's own rows are left alone"
        assert ids(taskq_app) == []
        connection.commit()
    assert ids(taskq_app) == ["connection", "cursor"]


def test_in_the_transaction_of_asyncio(taskq_app: App) -> None:
    async def insert() -> None:
        async with await psycopg.AsyncConnection.connect(conninfo(taskq_app)) as connection:
            await taskq_app.insert_async("a", id="rolled back", connection=connection)
            await connection.rollback()
            await taskq_app.insert_async("a", id="1", connection=connection)
            await taskq_app.insert_many_async("a", [None], ids=["2"], connection=connection)
            await taskq_app.insert_tasks_async([{"id": "3", "action": "a"}], connection=connection.cursor())
            assert ids(taskq_app) == []
        await taskq_app.insert_async("a", id="4")
        with pytest.raises(TypeError, match=r"like insert_async\(\)"):
            async with await psycopg.AsyncConnection.connect(conninfo(taskq_app)) as connection:
                taskq_app.insert("a", connection=connection)
        await taskq_app.close_async()

    asyncio.run(insert())
    assert ids(taskq_app) == ["1", "2", "3", "4"]


def test_in_the_transaction_of_sqlalchemy(taskq_app: App) -> None:
    engine = sqlalchemy.create_engine(engine_url(taskq_app))
    with Session(engine) as session:
        taskq_app.insert("a", {"colon": "a:b ::c"}, id="rolled back", connection=session)
        session.rollback()
        taskq_app.insert("a", {"colon": "a:b ::c"}, id="session", connection=session)
        assert ids(taskq_app) == []
        session.commit()
    with engine.begin() as connection:
        taskq_app.insert("a", id="connection", connection=connection)
    engine.dispose()
    assert ids(taskq_app) == ["session", "connection"]
    assert inserted(taskq_app, id="session")[0].body == {"colon": "a:b ::c"}


def test_in_the_transaction_of_sqlalchemys_asyncio(taskq_app: App) -> None:
    async def insert() -> None:
        engine = create_async_engine(engine_url(taskq_app))
        async with AsyncSession(engine) as session:
            await taskq_app.insert_async("a", id="session", connection=session)
            assert ids(taskq_app) == []
            await session.commit()
        async with engine.begin() as connection:
            await taskq_app.insert_async("a", id="connection", connection=connection)
        await engine.dispose()

    asyncio.run(insert())
    assert ids(taskq_app) == ["session", "connection"]


def test_another_thing_is_no_connection(taskq_app: App) -> None:
    with pytest.raises(TypeError, match="connection is a int"):
        taskq_app.insert("a", connection=5)


def test_a_function_may_connect(taskq_app: App) -> None:
    where = conninfo(taskq_app)
    opened = []

    def connect() -> psycopg.Connection:
        opened.append(psycopg.connect(where, row_factory=psycopg.rows.dict_row))
        return opened[-1]

    app = App(connect)
    assert not opened, "it connects when first used"
    assert app.insert("a", id="x") == "x"
    assert asyncio.run(app.insert_async("a", id="y")) == "y"
    assert len(opened) == 1, "the idle connection is used again"
    app.close()


def test_a_connection_that_the_server_has_ended_is_not_used_again(taskq_app: App) -> None:
    taskq_app.insert("a", id="1")
    with psycopg.connect(conninfo(taskq_app), autocommit=True) as other:
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        while other.execute(
            "SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'taskq' AND backend_type = 'client backend'"
        ).fetchone():
            pass
    assert taskq_app.insert("a", id="2") == "2"


def test_settings_and_schedules(taskq_app: App) -> None:
    @taskq_app.task(
        "resize",
        max_concurrency=4,
        rate_limit=10,
        rate_period=timedelta(minutes=1),
        backoff={"kind": "fixed", "initial": "1 s"},
    )
    def resize() -> None: ...

    taskq_app.schedule("nightly", "0 3 * * *", "resize", {"all": True}, timezone="Europe/Berlin", max_tries=2)
    taskq_app.setup()
    taskq_app.setup()
    limit, rate, backoff = taskq_app.query(
        "SELECT max_concurrency, rate_limit, backoff->>'kind' FROM taskq.actions WHERE action = 'resize'"
    )[0]
    assert (limit, rate, backoff) == (4, 10, "fixed")
    assert taskq_app.query("SELECT name, cron, timezone FROM taskq.schedules") == [
        ("nightly", "0 3 * * *", "Europe/Berlin")
    ]
    with pytest.raises(TypeError, match="no setting of an action: concurency"):
        taskq_app.task("other", concurency=3)


def test_waiting_for_a_result(taskq_app: App) -> None:
    from taskq_pg import TimedOut

    @taskq_app.task("double")
    def double(n: int) -> int:
        return 2 * n

    task_id = taskq_app.insert("double", 21)
    with pytest.raises(TimedOut):
        taskq_app.wait(task_id, timedelta(0))
    taskq_app.work(until_idle=True)
    result = taskq_app.wait(task_id)
    assert (result.completed, result.result) == (True, 42)
