"""The primary is lost and a standby promoted: a worker with both in its connection string goes on."""

import asyncio
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from conftest import Server, column, state, until, working
from taskq_pg import App

INSERTS = 400


class Pair:
    """A primary and a streaming standby, each with a socket of its own."""

    def __init__(self, folder: Path) -> None:
        self.primary = Server(folder / "primary")
        self._back_up(folder / "standby")
        self.standby = Server(folder / "standby")
        hosts = [psycopg.conninfo.conninfo_to_dict(one.conninfo)["host"] for one in (self.primary, self.standby)]
        self.conninfo = (
            f"host={hosts[0]},{hosts[1]} port=5432 user=postgres dbname=postgres target_session_attrs=read-write"
        )

    def _back_up(self, folder: Path) -> None:
        folder.mkdir(mode=0o755)
        bindir = subprocess.check_output([os.environ.get("PG_CONFIG", "pg_config"), "--bindir"], text=True).strip()
        command = [f"{bindir}/pg_basebackup", "--checkpoint=fast", "--no-sync", "--write-recovery-conf"]
        subprocess.run([*command, "-D", str(folder / "data"), "-d", self.primary.conninfo], check=True)
        # The server refuses to run as root: the copy belongs to the user that runs the primary.
        owner = (self.primary.folder / "data").stat()
        subprocess.run(["chown", "-R", f"{owner.st_uid}:{owner.st_gid}", str(folder / "data")], check=True)

    def on(self, server: Server, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(server.conninfo, dbname="postgres", autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def wait_for_standby(self) -> None:
        caught_up = "SELECT replay_lsn >= pg_current_wal_lsn() FROM pg_stat_replication"
        until(lambda: self.on(self.primary, caught_up) == [(True,)])

    def replicate_each_commit(self) -> None:
        """Have each commit wait for the standby: what has been answered is there after the failover."""
        self.on(self.primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.on(self.primary, "ALTER SYSTEM SET synchronous_commit = 'remote_apply'")
        self.on(self.primary, "SELECT pg_reload_conf()")
        until(lambda: self.on(self.primary, "SELECT sync_state = 'sync' FROM pg_stat_replication") == [(True,)])

    def replicate_no_more(self) -> None:
        """Cut the stream: what the primary commits from now on is lost with it."""
        self.on(self.primary, "ALTER SYSTEM RESET synchronous_standby_names")
        self.on(self.primary, "SELECT pg_reload_conf()")
        self.on(self.standby, "ALTER SYSTEM SET primary_conninfo = ''")
        self.on(self.standby, "SELECT pg_reload_conf()")
        until(lambda: self.on(self.primary, "SELECT FROM pg_stat_replication") == [])


@pytest.fixture
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="taskq-python-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        made = Pair(Path(folder))
        try:
            yield made
        finally:
            made.primary.call("stop")
            made.standby.call("stop")


@pytest.fixture
def app(pair: Pair) -> Iterator[App]:
    pair.on(pair.primary, "CREATE EXTENSION taskq")
    app = App(pair.conninfo)
    yield app
    app.close()


def insert_all(app: App, done: set[str]) -> None:
    """Insert by a producer that is not told of a failover: it repeats what was not answered, under the same id."""
    for number in range(INSERTS):
        task_id = f"n {number}"
        while task_id not in done:
            try:
                app.insert("quick", number, id=task_id, on_conflict="skip")
                done.add(task_id)
            except psycopg.OperationalError:
                time.sleep(0.1)


def test_what_was_inserted_is_performed_and_what_is_in_hand_arrives(pair: Pair, app: App) -> None:
    go, begun = threading.Event(), threading.Event()
    inserted: set[str] = set()
    performed: set[int] = set()

    @app.task("slow")
    def slow() -> str:
        begun.set()
        go.wait()
        return "went on"

    @app.task("quick", lease="2 seconds")
    def quick(number: int) -> None:
        performed.add(number)

    pair.replicate_each_commit()
    app.insert("slow", id="s", max_tries=1)
    producer = threading.Thread(target=insert_all, args=(app, inserted), daemon=True)
    with working(app):
        assert begun.wait(30)
        producer.start()
        until(lambda: len(inserted) > INSERTS / 4)
        pair.primary.call("stop-now")
        time.sleep(0.5)  # neither of them takes writes meanwhile
        assert pair.on(pair.standby, "SELECT pg_promote()") == [(True,)]
        producer.join(60)
        assert len(inserted) == INSERTS
        go.set()
        until(lambda: pair.on(pair.standby, "SELECT count(*) FROM taskq.tasks WHERE state <> 'completed'") == [(0,)])
    assert performed == set(range(INSERTS))
    assert (column(app, "s", "result"), column(app, "s", "num_tries")) == ("went on", 1)
    assert pair.on(pair.standby, "SELECT * FROM taskq.check()") == []


def test_a_claim_that_the_standby_never_saw_is_refused_and_performed_again(pair: Pair, app: App) -> None:
    go, begun = threading.Event(), threading.Event()
    runs: list[int] = []

    @app.task("slow")
    async def slow() -> int:
        runs.append(len(runs) + 1)
        run = runs[-1]
        begun.set()
        while not go.is_set():
            await asyncio.sleep(0.02)
        return run

    app.insert("slow", id="s")
    pair.wait_for_standby()
    pair.replicate_no_more()
    with working(app):
        assert begun.wait(30)
        pair.primary.call("stop-now")
        assert pair.on(pair.standby, "SELECT pg_promote()") == [(True,)]
        until(lambda: len(runs) == 2)
        go.set()
        until(lambda: state(app, "s") == "completed")
    # The first run was a try on the lost primary only, and its return is refused.
    assert (runs, column(app, "s", "num_tries"), column(app, "s", "result")) == ([1, 2], 1, 2)
