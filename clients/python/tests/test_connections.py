"""The connections of an app are bounded, and one of them waits for all results."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import taskq_pg as taskq
from conftest import conninfo, until, working
from taskq_pg import App
from taskq_pg.slots import Slots


@pytest.fixture
def peak(taskq_app: App):
    """How many connections there were at most."""
    most = []
    over = threading.Event()
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
    )

    def watch() -> None:
        with psycopg.connect(conninfo(taskq_app), autocommit=True) as connection:
            while not over.wait(0.01):
                most.append(connection.execute(query).fetchone()[0] - 1)

    watching = threading.Thread(target=watch)
    watching.start()
    yield lambda: max(most)
    over.set()
    watching.join()


def test_calls_queue(taskq_app: App, peak) -> None:
    """Of threads and of loops, which share the number."""

    async def burst() -> list[str]:
        try:
            return await asyncio.gather(*(taskq_app.insert_async("a", n) for n in range(300)))
        finally:
            await taskq_app.connections.close_async()

    with ThreadPoolExecutor(30) as threads:
        by_threads = [threads.submit(taskq_app.insert, "b", n) for n in range(100)]
        in_loops = [threads.submit(asyncio.run, burst()) for _ in range(2)]
        assert len({one.result() for one in by_threads}) == 100
        assert len({one for loop in in_loops for one in loop.result()}) == 600
    assert peak() <= 12, "one that is closed may be there for a moment"


def test_handlers_queue(taskq_app: App, peak) -> None:
    @taskq_app.task("spread")
    async def spread(n: int) -> None:
        await taskq_app.insert_async("leaf", n)

    taskq_app.insert_many("spread", range(200))
    taskq_app.work(until_idle=True, concurrency=100, actions=["spread"])
    assert taskq_app.query("SELECT count(*) FROM taskq.tasks WHERE action = 'leaf'") == [(200,)]
    assert peak() <= 16


def test_one_connection_waits_for_all(taskq_app: App, peak) -> None:
    taskq_app.task("a")(lambda n: n)

    async def wait(task_ids: list[str]) -> list[taskq.Result]:
        return await asyncio.gather(*(taskq_app.wait_async(task_id, "1 minute") for task_id in task_ids))

    ids = taskq_app.insert_many("a", range(150))
    with ThreadPoolExecutor(40) as threads:
        in_threads = [threads.submit(taskq_app.wait, task_id, "1 minute") for task_id in ids[:30]]
        in_loop = threads.submit(asyncio.run, wait(ids[30:]))
        time.sleep(0.3)
        with working(taskq_app):
            results = [one.result().result for one in in_threads] + [one.result for one in in_loop.result()]
    assert results == list(range(150))
    assert peak() <= 16


def test_a_wait_that_times_out(taskq_app: App) -> None:
    task_id = taskq_app.insert("a")
    other = taskq_app.insert("a")
    with ThreadPoolExecutor(4) as threads:
        short = threads.submit(taskq_app.wait, task_id, "0.2 seconds")
        unknown = threads.submit(taskq_app.wait, "unknown", "1 minute")
        long = threads.submit(taskq_app.wait, other, "1 minute")
        with pytest.raises(taskq.TimedOut, match=f"{task_id} has not settled within 0.2 seconds"):
            short.result()
        with pytest.raises(psycopg.Error) as refused:
            unknown.result()
        assert refused.value.sqlstate == "TQ003"
        taskq_app.query("SELECT taskq.cancel_tasks(%s)", [[other]])
        assert long.result().status_code == "aborted"
    with pytest.raises(taskq.TimedOut):
        taskq_app.wait(task_id, "0 seconds")


def test_a_wait_goes_on_beyond_a_statement_timeout(taskq_app: App) -> None:
    with taskq_app.connections.use() as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET statement_timeout = '30ms'")
    taskq_app.close()
    task_id = taskq_app.insert("a")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(taskq_app.wait, task_id, "1 minute")
        time.sleep(0.5)
        taskq_app.query("SELECT taskq.complete_task(%s, result => '5')", [task_id])
        assert waiting.result().result == 5


def test_a_step_that_holds_one_leaves_some_for_calls(taskq_app: App) -> None:
    """All steps hold a connection, and each makes a call that needs another."""
    app = App(conninfo(taskq_app), max_connections=3)
    app.task("leaf")(lambda: None)
    together = threading.Barrier(2, timeout=0.2)

    @app.workflow("w")
    def workflow(ctx: taskq.Context) -> str:
        def step(connection: psycopg.Connection) -> str:
            try:
                together.wait()
            except threading.BrokenBarrierError:
                pass
            return app.insert("leaf")

        return ctx.transaction("t", step)

    app.insert_many("w", [None] * 6)
    with app, working(app, concurrency=6):
        until(lambda: app.query("SELECT count FROM taskq.count_tasks('{w}', states => '{completed}')") == [(6,)], 20)


def test_slots() -> None:
    slots = Slots(2)
    slots.take(1)
    slots.take(1)
    with pytest.raises(TimeoutError):
        slots.take(0.01)

    async def cancelled() -> None:
        waiting = asyncio.create_task(slots.take_async(10))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # Given in the moment in which it is cancelled: it is not lost, and not taken twice.
        waiting = asyncio.create_task(slots.take_async(10))
        await asyncio.sleep(0)
        slots.give()
        waiting.cancel()
        [end] = await asyncio.gather(waiting, return_exceptions=True)
        assert slots.taken == (1 if isinstance(end, asyncio.CancelledError) else 2)

    asyncio.run(cancelled())


def test_the_patience_of_a_call_ends(taskq_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskq_pg.connections._PATIENCE", 0.1)
    app = App(conninfo(taskq_app), max_connections=1)
    with app, app.connections.use(), pytest.raises(TimeoutError, match="none of 1 connections"):
        app.insert("a")
