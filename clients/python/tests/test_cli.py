"""``python -m taskq_pg``."""

import sys

import pytest

from conftest import TESTS, conninfo
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
