"""``python -m taskq_pg``."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import psycopg.conninfo
import pytest

from conftest import TESTS, column, conninfo, process, until, working
from taskq_pg import App
from taskq_pg.cli import main
from taskq_pg.testing import inserted


@pytest.fixture
def where(taskq_app: App) -> str:
    return conninfo(taskq_app)


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TESTS / "programs")
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.delitem(sys.modules, "jobs", raising=False)


def test_insert_and_work(taskq_app: App, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["insert", "noop", "--conninfo", where, "--key", "id=n", "--key", "priority=5"]) == 0
    assert capsys.readouterr().out == "n\n"
    assert main(["insert", "asleep", "0.01", "--conninfo", where]) == 0
    assert main(["work", "jobs:app", "--conninfo", where, "--until-idle", "--action", "noop"]) == 0
    assert [task.state for task in inserted(taskq_app)] == ["completed", "ready"]
    assert inserted(taskq_app)[0].row["priority"] == 5
    assert main(["work", "jobs", "--conninfo", where, "--until-idle"]) == 0
    assert [task.state for task in inserted(taskq_app)] == ["completed", "completed"]


def test_an_id_that_looks_like_a_number(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["insert", "noop", "--conninfo", where, "--key", "id=7", "--key", "depends_on=[]"]) == 0
    assert capsys.readouterr().out == "7\n"


def test_why_top_and_retry(taskq_app: App, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    taskq_app.insert("noop", id="a")
    taskq_app.insert("noop", id="b", depends_on=["a"])
    assert main(["why", "b", "--conninfo", where]) == 0
    assert "a" in capsys.readouterr().out
    assert main(["top", "--conninfo", where]) == 0
    header, line, *_ = capsys.readouterr().out.splitlines()
    assert header.startswith("action")
    assert line.startswith("noop")
    taskq_app.query("SELECT taskq.cancel_tasks('{a}')")
    assert main(["retry", "a", "--conninfo", where]) == 0
    assert inserted(taskq_app, id="a")[0].state == "ready"


def test_names_do_nothing_to_the_terminal(taskq_app: App, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Why: names come from producers, and an operator reads them on a terminal, which obeys control characters.

    How it failed: ``top``, ``why`` and refusals wrote escape sequences, line ends and changes of direction.
    """
    name = "a\x1b[2J\r\n\x9b\u202eb"
    escaped = r"a\x1b[2J\r\n\x9b\u202eb"
    taskq_app.insert(name, id=name)
    taskq_app.insert("noop", id="after", depends_on=[name])
    assert main(["why", "after", "--conninfo", where]) == 0
    why = capsys.readouterr().out
    assert main(["top", "--conninfo", where]) == 0
    top = capsys.readouterr().out
    assert main(["signal", name, "--conninfo", where]) == 1
    refused = capsys.readouterr().err
    assert escaped in why
    assert escaped in top
    assert len(top.splitlines()) == 4  # a header, two actions, an empty line
    # A refusal has lines of its own: message, DETAIL, HINT.
    assert r"a\x1b[2J\r" in refused
    assert "\nDETAIL" in refused
    assert all(line.isprintable() for line in (why + top + refused).split("\n"))


def test_setup(taskq_app: App, where: str) -> None:
    assert main(["setup", "jobs:app", "--conninfo", where]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["work", "jobs:nothing"], "jobs:nothing is no App"),
        (["work", "jobs:app", "--action", "typo"], "no handler for typo"),
        (["work", "nosuch:app"], "nosuch:app: No module named 'nosuch'"),
        (["insert", "noop", "--key", "prioritty=5"], "prioritty"),
        (["insert", "noop", "--key", "connection=x"], "no key of a task: connection"),
    ],
)
def test_mistakes(
    taskq_app: App, where: str, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main([*arguments, "--conninfo", where]) == 1
    assert message in capsys.readouterr().err


def test_operators_commands(taskq_app: App, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str, code: int = 0) -> str:
        assert main([*arguments, "--conninfo", where]) == code
        return "".join(capsys.readouterr())

    taskq_app.insert("a", id="t")
    taskq_app.insert("b", id="u", group_id="g", depends_on=["t"])
    run("pause", "--action", "a")
    assert taskq_app.query("SELECT paused FROM taskq.actions WHERE action = 'a'") == [(True,)]
    run("resume", "--action", "a")
    assert "state: ready" in run("get", "t")
    assert "there is no task" in run("get", "nothing", code=1)
    assert "digraph" in run("graph", "t", "--format", "dot")
    assert run("cancel", "t", "u") == "2\n"
    assert run("retry", "t") == "1\n"
    run("cancel", "t")
    assert run("rerun", "t") == "2\n"
    run("set-action", "a", "--max-concurrency", "3", "--rate-limit", "5", "--rate-period", "1 minute")
    assert taskq_app.query("SELECT max_concurrency, rate_limit FROM taskq.actions WHERE action = 'a'") == [(3, 5)]
    run("set-group", "g", "--max-concurrency", "2")
    run("pause", "--group", "g")
    run("schedule", "nightly", "0 2 * * *", "a", '{"n": 1}', "--timezone", "Europe/Berlin")
    assert taskq_app.query("SELECT timezone FROM taskq.schedules") == [("Europe/Berlin",)]
    task_id = run("run-schedule", "nightly").strip()
    assert taskq_app.get(task_id).body == {"n": 1}
    run("pause", "--schedule", "nightly")
    run("unschedule", "nightly")
    assert run("delete", task_id) == "1\n"
    assert "name an action, a group or a schedule" in run("pause", code=1)


def test_the_line_that_mends_it(taskq_app: App, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    with taskq_app.connections.use() as connection:
        connection.execute("DROP EXTENSION taskq")
    assert main(["insert", "a", "--conninfo", where]) == 1
    assert "CREATE EXTENSION taskq" in capsys.readouterr().err


def test_bodies_are_json_or_texts(taskq_app: App, where: str) -> None:
    for body in ('{"a": 1}', "7", "plain"):
        assert main(["insert", "a", body, "--conninfo", where]) == 0
    assert [task.row["body"] for task in inserted(taskq_app)] == ['{"a": 1}', "7", "plain"]


IMPORTS = """
import os, sys
from pathlib import Path
from taskq_pg import App
app = App()
@app.task("upload")
def upload(folder: str) -> str:
    os.chdir(folder)
    import colorsys
    return colorsys.__file__
"""


@pytest.mark.parametrize("safe", [False, True])
def test_nothing_is_imported_from_where_a_handler_changes_to(
    taskq_app: App, where: str, tmp_path: Path, safe: bool
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "app_that_moves.py").write_text(IMPORTS)
    (tmp_path / "upload").mkdir()
    (tmp_path / "upload" / "colorsys.py").write_text("raise SystemExit('code of the upload')")
    taskq_app.insert("upload", str(tmp_path / "upload"), id="u", max_tries=1)
    command = [sys.executable, *(["-P"] if safe else []), "-m", "taskq_pg", "work", "app_that_moves:app"]
    done = subprocess.run(
        [*command, "--conninfo", where, "--until-idle"], cwd=tmp_path / "code", capture_output=True, text=True
    )
    if safe:
        assert "No module named 'app_that_moves'" in done.stderr
        return
    assert str(column(taskq_app, "u", "result")).endswith("colorsys.py"), done.stderr
    assert str(tmp_path) not in str(column(taskq_app, "u", "result"))


def test_processes_and_health(taskq_app: App, where: str) -> None:
    """One that dies is begun anew; each tells whether it is well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--processes", "2", "--health-port", str(port), "--grace", "1 second"]
    with process(taskq_app, *options) as parent:

        def children() -> list[str]:
            return subprocess.run(["pgrep", "-P", str(parent.pid)], capture_output=True, text=True).stdout.split()

        until(lambda: len(taskq_app.query("SELECT pid FROM taskq.workers")) == 2)
        for n in range(2):
            with urllib.request.urlopen(f"http://127.0.0.1:{port + n}/") as answer:
                assert answer.status == 200
        before = children()
        os.kill(int(before[0]), signal.SIGKILL)
        until(lambda: len(now := children()) == 2 and before[0] not in now)
        parent.terminate()
        assert parent.wait(60) == 0


def test_reload(taskq_app: App, where: str, tmp_path: Path) -> None:
    """The code has changed: the worker begins anew with it."""
    program = tmp_path / "reloaded.py"
    program.write_text("from taskq_pg import App\napp = App()\napp.task('a')(lambda: 'old')\n")
    command = [sys.executable, "-m", "taskq_pg", "work", "reloaded:app", "--conninfo", where, "--reload"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as worker:
        try:
            assert taskq_app.insert("a").wait("60 seconds").result == "old"
            program.write_text(program.read_text().replace("old", "new"))
            # The old one may still be granted some.
            until(lambda: taskq_app.insert("a").wait("60 seconds").result == "new")
        finally:
            worker.terminate()
        assert worker.wait(60) == 0


def test_a_worker_that_is_not_well(taskq_app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not taskq_app.healthy()
    taskq_app.task("a")(lambda: None)
    with working(taskq_app):
        until(taskq_app.healthy)
        monkeypatch.setattr("taskq_pg.worker._LONGEST_SILENCE", -1.0)
        assert not taskq_app.healthy()


EXITS = """
import atexit, threading, time
from taskq_pg import App
app = App()
@app.task("stuck")
def stuck() -> None:
    threading.Thread(target=time.sleep, args=[600]).start()
    time.sleep(600)
app.insert("stuck")
threading.Timer(1, app.stop).start()
app.work(grace="0.1 seconds", exit_after="2 seconds")
time.sleep(1)
print("cleaned up", flush=True)
"""


def test_the_clean_up_of_the_program_is_not_cut_off(taskq_app: App, where: str) -> None:
    """And a handler that goes on does not keep the process."""
    environment = {**os.environ, "PGDATABASE": psycopg.conninfo.conninfo_to_dict(where)["dbname"]}
    command = [sys.executable, "-c", EXITS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "cleaned up\n"), done.stderr
