"""The plugin's own fixtures and calls."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import psycopg
import pytest

import taskq_pg as taskq
from conftest import conninfo
from taskq_pg import App
from taskq_pg.testing import drain, drain_async, inserted, travel
from taskq_pg.threads import in_thread


def test_travel(taskq_app: App) -> None:
    done = []
    taskq_app.task("later")(lambda n: done.append(n))
    taskq_app.insert("later", 1, delay="2 days")
    taskq_app.insert("later", 2, delay="4 days")
    drain(taskq_app)
    assert done == []
    travel(taskq_app, "3 days")
    drain(taskq_app)
    assert done == [1]
    travel(taskq_app, timedelta(days=3))
    drain(taskq_app)
    assert done == [1, 2]


def test_travel_in_a_loop(taskq_app: App) -> None:
    """What keeps a connection, or has one in hand, is at the new time with its next call."""

    @taskq_app.workflow("nap")
    async def nap(ctx: taskq.AsyncContext) -> None:
        await ctx.sleep("nap", "1 day")

    async def clock() -> datetime:
        return (await taskq_app.query_async("SELECT taskq.clock()"))[0][0]

    async def main() -> None:
        taskq_app.insert("nap", id="n")
        await drain_async(taskq_app)
        async with taskq_app.connections.use_async():
            with taskq_app.connections.use():
                moment = travel(taskq_app, "2 days")
        assert await clock() == moment == taskq_app.query("SELECT taskq.clock()")[0][0]
        await drain_async(taskq_app)
        assert inserted(taskq_app, "nap")[0].state == "completed"
        await taskq_app.close_async()

    asyncio.run(main())


def test_travel_beside_a_loop_of_another_thread(taskq_app: App) -> None:
    keeps, travelled = threading.Event(), threading.Event()

    async def main() -> datetime:
        await taskq_app.query_async("SELECT 1")
        keeps.set()
        await in_thread(travelled.wait)
        [[moment]] = await taskq_app.query_async("SELECT taskq.clock()")
        await taskq_app.close_async()
        return moment

    with ThreadPoolExecutor() as threads:
        future = threads.submit(asyncio.run, main())
        keeps.wait()
        moment = travel(taskq_app, "2 days")
        travelled.set()
        assert future.result() == moment


def test_drain_raises_what_a_handler_raised(taskq_app: App) -> None:
    @taskq_app.task("fail")
    def fail(text: str) -> None:
        raise {"reject": taskq.Reject, "retry": taskq.Retry}.get(text, LookupError)(text)

    taskq_app.insert("fail", "reject")
    taskq_app.insert("fail", "retry")
    drain(taskq_app)
    taskq_app.insert("fail", "one")
    with pytest.raises(LookupError, match="one"):
        drain(taskq_app)
    taskq_app.insert_many("fail", ["two", "three"])
    with pytest.raises(BaseExceptionGroup) as caught:
        drain(taskq_app)
    assert len(caught.value.exceptions) == 2


def test_drain_in_a_loop(taskq_app: App) -> None:
    taskq_app.task("noop")(lambda: None)
    taskq_app.insert("noop")
    asyncio.run(drain_async(taskq_app))
    assert [task.state for task in inserted(taskq_app, "noop")] == ["completed"]


def test_inserted(taskq_app: App) -> None:
    taskq_app.insert("a", {"n": 1}, id="x", priority=2)
    taskq_app.insert("b", "text", id="y")
    assert [task.id for task in inserted(taskq_app)] == ["x", "y"]
    [task] = inserted(taskq_app, "a", priority=2)
    assert (task.body, task.state, task.num_tries) == ({"n": 1}, "ready", 0)
    assert inserted(taskq_app, "a", priority=3) == []


names: list[str] = []


@pytest.mark.parametrize("time", [1, 2])
def test_each_test_has_a_database_of_its_own(taskq_app: App, time: int) -> None:
    assert inserted(taskq_app) == []
    taskq_app.insert("a")
    names.append(conninfo(taskq_app))
    assert len(set(names)) == time


def test_the_fixture_connects_the_app_of_the_program(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        shop="""
        import taskq_pg
        app = taskq_pg.App("host=/nowhere")
        done = []
        @app.task("resize")
        def resize(body):
            done.append(body)
        """,
        test_shop="""
        import pytest, shop
        from taskq_pg.testing import drain

        @pytest.fixture
        def taskq_source():
            return shop.app

        def test_resize(taskq_app):
            assert taskq_app is shop.app
            shop.app.insert("resize", {"file": "a.png"})
            drain(shop.app)
            assert shop.done == [{"file": "a.png"}]
        """,
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)


def test_the_databases_are_dropped(taskq_conninfo: str, taskq_app: App) -> None:
    with psycopg.connect(taskq_conninfo, dbname="postgres") as connection:
        [[number]] = connection.execute(
            "SELECT count(*) FROM pg_database WHERE datname = ANY(%s)",
            [[psycopg.conninfo.conninfo_to_dict(name)["dbname"] for name in names]],
        ).fetchall()
    assert number == 0
