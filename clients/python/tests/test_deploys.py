"""Rolling deploys: two versions of a program take turns under load. Nothing is lost, nothing is done twice."""

import collections
import itertools
import logging
import threading
import time
from pathlib import Path

import pytest

import taskq_pg as taskq
from conftest import Server
from taskq_pg import App
from taskq_pg.testing import inserted


class Version:
    """A version of the program, with a worker in a thread."""

    def __init__(self, conninfo: str, number: int, done: "collections.Counter[str]") -> None:
        # Each has a setting, a schedule and a declared limit that the other lacks, or has with another value.
        self.app = app = App(conninfo, name="shop", version=number)
        one = number % 2
        settings = {"max_concurrency": 8, "max_tries": 5} if one else {"max_concurrency": 6, "rate_limit": 5000}
        if not one:
            settings["rate_period"] = "1 second"

        @app.task("in a transaction", lease="5 minutes", **settings)
        def transactional(_: int, task: taskq.Task) -> None:
            with app.connections.use() as connection, connection.transaction():
                connection.execute("INSERT INTO done VALUES (%s)", [task.id])
                task.complete(connection=connection)

        @app.task("outside", lease="5 minutes", max_tries=5 + number % 2)
        async def outside(_: int, task: taskq.Task) -> int:
            done[task.id] += 1
            return number

        app.schedule("pulse" if one else "heartbeat", "* * * * * *", "tick")
        app.task("tick")(lambda: None)
        self.failures: list[BaseException] = []
        self.thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        try:
            self.app.work(concurrency=5, grace="2 minutes")
        except BaseException as error:
            self.failures.append(error)

    def end(self) -> None:
        while not self.app.stop() and self.thread.is_alive():
            time.sleep(0.01)
        self.thread.join(120)
        assert not self.thread.is_alive()
        assert not self.failures
        self.app.close()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", [25, pytest.param(1000, marks=pytest.mark.long)])
def test_rolling_deploys(server: Server, own_app: App, number: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)  # of a thousand the differences are told a thousand times
    log = Path(server.folder) / "log"
    before = len(log.read_text())
    conninfo, done, over = str(own_app.connections.source), collections.Counter[str](), threading.Event()
    own_app.query("SELECT taskq.clock()")
    with own_app.connections.use() as connection:
        connection.execute("CREATE TABLE done (id text)")
    ids: list[str] = []

    def produce() -> None:
        for n in itertools.count():
            for action in ("in a transaction", "outside"):
                ids.extend(own_app.insert_many(action, range(5), ids=[f"{action} {n} {m}" for m in range(5)]))
            if over.wait(0.02):
                return

    producer = threading.Thread(target=produce)
    producer.start()
    # In the order of a deploy: the new one begins beside the old one. Forwards, and back, and forwards again.
    running = Version(conninfo, 1, done)
    running.thread.start()
    try:
        for n in range(number):
            after = Version(conninfo, 2 + n % 2 + n // 100, done)
            after.thread.start()
            end = time.monotonic() + 60
            while not after.app.healthy() and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(0.02)
            running.end()
            running = after
    finally:
        over.set()
        producer.join()
        running.end()
    last = Version(conninfo, 1, done)
    last.app.work(until_idle=True, concurrency=20)
    last.app.close()

    assert len(ids) == len(set(ids)) > 0
    rows = {action: inserted(own_app, action) for action in ("in a transaction", "outside")}
    assert {task.state for tasks in rows.values() for task in tasks} == {"completed"}
    assert sum(map(len, rows.values())) == len(ids)
    assert {task.num_tries for tasks in rows.values() for task in tasks} == {1}
    # Nothing is done twice: neither what commits with the end of its task, nor what does not.
    written = collections.Counter(row[0] for row in own_app.query("SELECT id FROM done"))
    assert written == collections.Counter({task.id: 1 for task in rows["in a transaction"]})
    assert done == collections.Counter({task.id: 1 for task in rows["outside"]})
    told = [line for line in log.read_text()[before:].splitlines() if " ERROR: " in line or " FATAL: " in line]
    assert told == []
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
