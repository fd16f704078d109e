"""Settings and schedules of the code: who writes them, and what becomes of those that the code no longer has."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from conftest import conninfo
from taskq_pg import App
from taskq_pg.cli import main

made: list[App] = []


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    while made:
        made.pop().close()


def app_of(
    taskq_app: App, version: Any, *, name: str | None = "shop", schedules: tuple[str, ...] = (), **settings: Any
) -> App:
    app = App(conninfo(taskq_app), name=name, version=version)
    made.append(app)
    app.task("mail", **settings)(lambda: None)
    for schedule in schedules:
        app.schedule(schedule, "0 0 1 1 *", "mail")
    return app


def has(app: App) -> tuple[Any, list[str]]:
    [row] = app.query("SELECT max_concurrency, max_tries FROM taskq.actions WHERE action = 'mail'")
    return row, [name for (name,) in app.query("SELECT name FROM taskq.schedules ORDER BY name")]


def test_a_worker_writes_what_the_database_lacks(taskq_app: App, caplog: pytest.LogCaptureFixture) -> None:
    """And the rest if its version is higher: in a rolling deploy an old worker does not write over a new one."""
    app_of(taskq_app, "1.9", max_concurrency=5, schedules=("a",)).work(until_idle=True)
    assert has(taskq_app) == ((5, None), ["a"])
    app_of(taskq_app, "1.10", max_concurrency=50, schedules=("a",)).work(until_idle=True)
    assert has(taskq_app) == ((50, None), ["a"])
    assert not caplog.text
    app_of(taskq_app, "1.9", max_concurrency=5, max_tries=3, schedules=("a", "b")).work(until_idle=True)
    assert has(taskq_app) == ((50, 3), ["a", "b"])
    assert "max_concurrency of mail is 50, here 5" in caplog.text
    caplog.clear()
    # An app without a version, and one without a name, write what is lacking.
    for name in ("shop", None):
        app_of(taskq_app, None, name=name, max_concurrency=7).work(until_idle=True)
    assert has(taskq_app) == ((50, 3), ["a", "b"])
    assert caplog.text.count("max_concurrency of mail is 50, here 7") == 2


def test_what_the_code_no_longer_has(taskq_app: App, caplog: pytest.LogCaptureFixture) -> None:
    first = app_of(taskq_app, 1, max_concurrency=5, max_tries=3, schedules=("old", "stays"))
    first.setup()
    taskq_app.schedule("of another", "0 0 1 1 *", "mail")
    taskq_app.setup()
    second = app_of(taskq_app, 2, max_tries=3, schedules=("new", "stays"))
    for _ in range(2):
        caplog.clear()
        second.work(until_idle=True)
        assert 'removes: max_concurrency of mail; schedule "old"' in caplog.text
    assert has(taskq_app) == ((5, 3), ["new", "of another", "old", "stays"])
    second.setup(prune=True)
    assert has(taskq_app) == ((None, 3), ["new", "of another", "stays"])
    caplog.clear()
    second.work(until_idle=True)
    assert not caplog.text


def test_mistakes(taskq_app: App, capsys: pytest.CaptureFixture[str]) -> None:
    for version in ("one", "1.x", ""):
        with pytest.raises(ValueError, match="is no integer, and no dotted numbers"):
            App(name="shop", version=version)
    with pytest.raises(ValueError, match="has a name"):
        App(version=1)
    with pytest.raises(ValueError, match="name the app to prune"):
        taskq_app.setup(prune=True)


def test_the_command(taskq_app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "named_app.py").write_text("from taskq_pg import App\napp = App(name='shop')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    app_of(taskq_app, None, schedules=("old",)).setup()
    assert main(["setup", "named_app:app", "--prune", "--conninfo", conninfo(taskq_app)]) == 0
    assert taskq_app.query("SELECT FROM taskq.schedules") == []


def test_many_workers_begin_at_once(taskq_app: App) -> None:
    """Of several versions; each setting and schedule is there once, and the highest version is kept."""
    apps = [app_of(taskq_app, n % 3 + 1, max_concurrency=n % 3 + 1, schedules=("a", "b")) for n in range(9)]
    with ThreadPoolExecutor(9) as threads:
        for begun in [threads.submit(app.declared().begin, app.query) for app in apps]:
            try:
                begun.result()
            except psycopg.errors.DeadlockDetected:
                pass  # which a worker tries again
    apps[2].declared().begin(taskq_app.query)
    assert has(taskq_app) == ((3, None), ["a", "b"])
    kept = taskq_app.query("SELECT result->>'version' FROM taskq.tasks WHERE id = 'taskq.app shop'")
    assert kept == [("3",)]


def test_an_app_that_declares_nothing_writes_nothing(taskq_app: App) -> None:
    app_of(taskq_app, 1).work(until_idle=True)
    assert taskq_app.query("SELECT FROM taskq.tasks") == []
