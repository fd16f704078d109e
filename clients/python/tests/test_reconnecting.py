"""The server goes, comes back, and is read-only for a while; handlers go on meanwhile."""

import threading
import time
from collections.abc import Sequence

import psycopg
import pytest
from psycopg import sql

from conftest import Server, TransactionTimeout, column, conninfo, state, until, working
from taskq_pg import App
from taskq_pg.link import Link


def terminate(app: App) -> None:
    with psycopg.connect(conninfo(app), autocommit=True) as connection:
        terminate_others(connection)


def test_connections_are_cut_again_and_again(taskq_app: App) -> None:
    done: dict[int, int] = {}
    lock = threading.Lock()

    @taskq_app.task("work", lease="2 seconds")
    def work(n: int) -> None:
        with lock:
            done[n] = done.get(n, 0) + 1
        time.sleep(0.002)

    taskq_app.insert_many("work", range(1500))
    with working(taskq_app, concurrency=10):
        for _ in range(8):
            before = len(done)
            until(lambda: len(done) >= min(before + 100, 1500))
            terminate(taskq_app)
        query = "SELECT count FROM taskq.count_tasks(states => '{completed}')"
        until(lambda: settled(taskq_app, query) == 1500)
    # A grant whose answer got lost is performed when its lease is over; nothing else is performed twice.
    assert set(done) == set(range(1500))


def settled(app: App, query: str) -> int:
    rows = app.query(query)
    return rows[0][0] if rows else 0


def test_a_transaction_timeout(taskq_app: App, caplog: pytest.LogCaptureFixture) -> None:
    """A claim does not sleep for so long."""
    with psycopg.connect(conninfo(taskq_app), autocommit=True) as connection:
        if connection.info.server_version < 170000:
            pytest.skip("this server has no transaction_timeout")
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET transaction_timeout = '1s'")
    with App(conninfo(taskq_app)) as app:
        app.task("work")(lambda: "done")
        with working(app):
            time.sleep(4)
            app.insert("work", id="w")
            until(lambda: state(app, "w") == "completed")
    assert "transaction timeout" not in caplog.text


def test_a_claim_that_a_transaction_timeout_has_ended(
    taskq_app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    execute, ended = Link._execute, []

    def end(connection: psycopg.Connection, query: str, arguments: Sequence[object]) -> object:
        if "taskq.own_tasks" in query and len(ended) < 2:
            ended.append(query)
            connection.close()
            raise TransactionTimeout("terminating connection due to transaction timeout")
        return execute(connection, query, arguments)

    monkeypatch.setattr(Link, "_execute", staticmethod(end))
    taskq_app.task("work")(lambda: "done")
    taskq_app.insert("work", id="w")
    with working(taskq_app):
        until(lambda: state(taskq_app, "w") == "completed")
    assert caplog.text.count("no claim, again in") == 2


def test_a_restart_of_the_server(own_app: App, server: Server) -> None:
    go, begun = threading.Event(), threading.Event()

    @own_app.task("slow")
    def slow() -> str:
        begun.set()
        go.wait()
        return "went on"

    own_app.task("quick")(lambda: None)
    own_app.insert("slow", id="s", max_tries=1)
    with working(own_app):
        begun.wait()
        server.call("restart")
        go.set()
        until(lambda: state(own_app, "s") == "completed")
        own_app.insert("quick", id="q")
        until(lambda: state(own_app, "q") == "completed")
    assert column(own_app, "s", "num_tries") == 1


def test_a_crash_of_the_server(own_app: App, server: Server) -> None:
    go, begun = threading.Event(), threading.Event()

    @own_app.task("slow")
    async def slow() -> str:
        begun.set()
        return "went on"

    @own_app.task("thread", lease="30 seconds")
    def thread() -> None:
        go.wait()

    own_app.insert("thread", id="t", max_tries=1)
    with working(own_app):
        until(lambda: state(own_app, "t") == "in-progress")
        own_app.close()
        server.call("stop-now")
        time.sleep(1)
        server.call("restart")
        own_app.insert("slow", id="s")
        until(lambda: state(own_app, "s") == "completed")
        go.set()
        until(lambda: state(own_app, "t") == "completed")


def test_a_failover_finds_a_standby_first(taskq_app: App) -> None:
    """For a while every new connection leads to a server that is read-only, as after a failover."""
    go, begun = threading.Event(), threading.Event()

    @taskq_app.task("slow")
    def slow() -> str:
        begun.set()
        go.wait()
        return "went on"

    with psycopg.connect(conninfo(taskq_app), autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        taskq_app.insert("slow", id="s", max_tries=1)
        with working(taskq_app):
            begun.wait()
            connection.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
            terminate_others(connection)
            go.set()
            time.sleep(1)
            assert state(taskq_app, "s") == "in-progress"
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))
            until(lambda: state(taskq_app, "s") == "completed")
    assert column(taskq_app, "s", "num_tries") == 1


def terminate_others(connection: psycopg.Connection) -> None:
    # Waits until they are gone: an idle connection of the app's is known to be dead only then.
    connection.execute("""SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                           WHERE datname = current_database() AND pid <> pg_backend_pid()
                             AND backend_type = 'client backend'""")
