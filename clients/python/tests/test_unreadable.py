"""What a task or a database brings that Python cannot read, or would read in another way, ends no worker."""

import asyncio
import os
import signal

import psycopg
import pytest

from conftest import column, conninfo, state, until, working
from taskq_pg import App
from taskq_pg.durations import seconds
from taskq_pg.testing import inserted

UNREADABLE = ['{"n": 1e5000}', '{"n": ' + "[" * 2000 + "]" * 2000 + "}"]


def set_for_database(app: App, setting: str) -> None:
    with psycopg.connect(conninfo(app), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET {setting}")


@pytest.mark.parametrize("metadata", UNREADABLE)
def test_json_that_python_cannot_load_aborts_its_task_alone(taskq_app: App, metadata: str) -> None:
    taskq_app.task("work")(lambda body: body)
    taskq_app.insert("work", 1, id="before")
    taskq_app.query("SELECT taskq.insert_task('poison', 'work', metadata => %s::jsonb)", [metadata])
    taskq_app.insert("work", 2, id="after")
    taskq_app.work(until_idle=True)
    assert [state(taskq_app, name) for name in ("before", "poison", "after")] == ["completed", "aborted", "completed"]
    assert "cannot be read" in str(column(taskq_app, "poison", "status"))


def test_another_encoding_of_the_database(taskq_app: App) -> None:
    taskq_app.insert("work", "costs 3 €", id="t")
    set_for_database(taskq_app, "client_encoding = LATIN1")
    app = App(conninfo(taskq_app))
    app.task("work")(lambda body: body)
    app.work(until_idle=True)
    assert column(app, "t", "result") == "costs 3 €"
    app.close()


def test_a_forked_process_has_connections_of_its_own(taskq_app: App) -> None:
    taskq_app.insert("x", id="first")
    children = []
    for number in range(3):
        child = os.fork()
        if child == 0:
            right = all(taskq_app.insert("x", id=f"{number}-{n}") == f"{number}-{n}" for n in range(30))
            os._exit(0 if right else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert taskq_app.insert("x", id="last") == "last"


def test_a_process_that_is_forked_while_another_thread_takes_a_connection(taskq_app: App) -> None:
    """The lock that it takes then is held for ever in the new process."""
    with taskq_app.connections._lock:
        child = os.fork()
        if child == 0:
            right = False
            try:
                right = taskq_app.insert("x", id="forked") == "forked"
            finally:
                os._exit(0 if right else 1)
    try:
        until(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT), 30)
    finally:
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    assert status == 0
    assert taskq_app.insert("x", id="last") == "last"


def held_up(app: App, setting: str, statement: str, **settings: int) -> None:
    """Have a worker that ends when it is idle; it does not, and meets the setting, while a statement holds locks."""
    set_for_database(app, setting)
    held = App(conninfo(app))
    held.task("work", **settings)(lambda body: body)
    with psycopg.connect(conninfo(app)) as other:
        other.execute(statement)
        with working(held, until_idle=True) as thread:
            thread.join(1)
            assert thread.is_alive()
            other.rollback()
            until(lambda: not thread.is_alive())
    held.close()


def test_a_claim_that_is_cancelled_does_not_mean_that_there_is_nothing(taskq_app: App) -> None:
    taskq_app.insert("work", 1, id="t")
    held_up(taskq_app, "statement_timeout = 300", "LOCK TABLE taskq.task IN ACCESS EXCLUSIVE MODE")
    assert state(taskq_app, "t") == "completed"


def test_settings_that_another_transaction_makes_are_made_later(taskq_app: App) -> None:
    # What the database lacks a worker writes itself.
    held_up(taskq_app, "lock_timeout = 200", "SELECT taskq.set_action('work', max_concurrency => 5)", max_concurrency=4)
    made = taskq_app.query("SELECT max_concurrency FROM taskq.actions WHERE action = 'work'")
    assert made == [(4,)]


def test_a_worker_that_goes_on_keeps_no_errors(taskq_app: App) -> None:
    @taskq_app.task("work", max_tries=1)
    def fail() -> None:
        raise ValueError("no")

    kept = []

    async def both() -> None:
        worker = taskq_app._worker(1, None, False, "1 second", None)
        running = asyncio.ensure_future(worker.run())
        await asyncio.to_thread(until, lambda: state(taskq_app, "t") == "aborted")
        kept.extend(worker.errors)
        worker.stop()
        await running

    taskq_app.insert("work", id="t")
    asyncio.run(both())
    assert kept == []


def test_texts_that_are_no_json_stay_texts(taskq_app: App) -> None:
    taskq_app.task("work")(lambda body: repr(body))
    for text in ("NaN", "Infinity", "-Infinity"):
        taskq_app.insert("work", text, id=text)
    taskq_app.work(until_idle=True)
    assert column(taskq_app, "NaN", "result") == "'NaN'"
    assert column(taskq_app, "-Infinity", "result") == "'-Infinity'"


def test_milliseconds() -> None:
    assert (seconds("500 ms"), seconds("1 millisecond"), seconds("2 h"), seconds("3 secs")) == (0.5, 0.001, 7200, 3)
    with pytest.raises(ValueError, match="no duration"):
        seconds("5 ss")


def test_tasks_without_a_value_are_found(taskq_app: App) -> None:
    taskq_app.insert("x", id="t")
    assert [task.id for task in inserted(taskq_app, group_id=None)] == ["t"]
