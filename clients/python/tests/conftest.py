"""What several tests use."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from taskq_pg import App, Task
from taskq_pg.testing import database

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parent
REPOSITORY = TESTS.parents[2]


class TransactionTimeout(psycopg.InternalError):
    """As the server of PostgreSQL 17 says it; psycopg 3.2.2 has no class for it."""

    sqlstate = "25P04"


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something holds; how long that takes is the machine's business."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it has not come to that"
        time.sleep(0.02)


def state(app: App, task_id: str) -> str:
    return app.query("SELECT state FROM taskq.tasks WHERE id = %s", [task_id])[0][0]


def column(app: App, task_id: str, name: str) -> object:
    return app.query(f"SELECT {name} FROM taskq.tasks WHERE id = %s", [task_id])[0][0]


def conninfo(app: App) -> str:
    with app.connections.use() as connection:
        return connection.info.dsn


def register_raising(app: App, kind: str, errors: Sequence[BaseException]) -> None:
    """Register a handler of "raise", a function or a coroutine, that raises the error of this number."""
    if kind == "function":

        @app.task("raise")
        def fail(n: int) -> None:
            raise errors[n]

    else:

        @app.task("raise")
        async def fail(n: int) -> None:
            raise errors[n]


def register_open(app: App) -> tuple[threading.Event, threading.Event]:
    """Register a handler of "open" that completes its task, and leaves the transaction open; returns began and go."""
    began, go = threading.Event(), threading.Event()

    @app.task("open")
    def leave_open(body: None, task: Task) -> None:
        with app.connections.use() as connection, connection.transaction():
            task.complete(connection=connection)
            began.set()
            go.wait()

    return began, go


@contextlib.contextmanager
def working(app: App, **options: object) -> Iterator[threading.Thread]:
    """Have a worker in another thread."""
    failures = []

    def work() -> None:
        try:
            app.work(**options)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        # More than one worker may have been started: each has to hear of it.
        while thread.is_alive():
            app.stop()
            thread.join(60)
    assert not failures, failures


@contextlib.contextmanager
def process(
    app: App | str, *arguments: str, module: str = "jobs:app", **environment: str
) -> Iterator[subprocess.Popen]:
    """Have a worker in a process of its own, with the handlers of a module in this folder."""
    where = app if isinstance(app, str) else conninfo(app)
    command = [sys.executable, "-m", "taskq_pg", "work", module, "--conninfo", where, *arguments]
    worker = subprocess.Popen(command, cwd=TESTS / "programs", env={**os.environ, **environment})
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait()


class Server:
    """A server of this test's own, that may be stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.call("start", "-c", "fsync=off")
        settings = dict(pair.split("=", 1) for pair in self.call("env").split())
        self.conninfo = f"host={settings['PGHOST']} port={settings['PGPORT']} user={settings['PGUSER']}"

    def call(self, command: str, *arguments: str) -> str:
        script = REPOSITORY / ".ci" / "cluster.sh"
        done = subprocess.run(
            [str(script), command, str(self.folder), *arguments], check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="taskq-python-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        made = Server(Path(folder))
        try:
            yield made
        finally:
            made.call("stop")


@pytest.fixture
def consoles(taskq_app: App) -> Iterator[None]:
    """Consoles that a test makes are closed before its database goes."""
    from console import close_all

    yield
    close_all()


@pytest.fixture
def own_app(server: Server) -> Iterator[App]:
    """An app on the server that may be stopped."""
    with database(server.conninfo) as where:
        app = App(where)
        with app.connections.use() as connection:
            connection.execute("CREATE EXTENSION taskq")
        yield app
        app.close()
