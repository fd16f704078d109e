"""The programs of docs/python.md and README.md are complete, do what the page says, and print what it shows."""

import ast
import inspect
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from conftest import REPOSITORY, conninfo
from taskq_pg import App, Context, Handle, Task

PAGE = REPOSITORY / "docs" / "python.md"
SAVED = re.compile(r"^<!-- saved as (\S+) -->\n```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PRINTED = re.compile(r"^python insert\.py\n```\n\n```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    programs = SAVED.findall(PAGE.read_text())
    assert [name for name, _ in programs] == ["shop.py", "insert.py", "test_shop.py", "settings.py"]
    for name, text in programs:
        (tmp_path / name).write_text(text)
    return tmp_path


def environment(app: App) -> dict[str, str]:
    # With the shipped back-off, as a reader runs it.
    name = psycopg.conninfo.conninfo_to_dict(conninfo(app))["dbname"]
    return {**os.environ, "PGDATABASE": name, "PGOPTIONS": ""}


def test_every_program_has_a_name() -> None:
    text = PAGE.read_text()
    assert len(SAVED.findall(text)) == text.count("```python")


def test_the_first_program_is_short() -> None:
    [shop] = [text for name, text in SAVED.findall(PAGE.read_text()) if name == "shop.py"]
    assert len(shop.splitlines()) < 60


def test_the_programs_are_typed(folder: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--cache-dir",
            str(folder / "cache"),
            "shop.py",
            "insert.py",
            "test_shop.py",
        ],
        cwd=folder,
        check=True,
    )


def test_worker_and_producer(taskq_app: App, folder: Path) -> None:
    if not taskq_app.query("SELECT FROM pg_proc WHERE proname = 'save_step'"):
        pytest.skip("this server's taskq has no steps")
    variables = environment(taskq_app)
    worker = subprocess.Popen(
        [sys.executable, "-m", "taskq_pg", "work", "shop:app", "--concurrency", "20"],
        cwd=folder,
        env={**variables, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        producer = subprocess.run(
            [sys.executable, "insert.py"], cwd=folder, env=variables, check=True, stdout=subprocess.PIPE, text=True
        )
        assert [producer.stdout] == PRINTED.findall(PAGE.read_text())
        # The second mail comes with a second try.
        deadline = time.monotonic() + 60
        while taskq_app.query("SELECT FROM taskq.tasks WHERE action = 'mail' AND status_code <> 'completed'"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        worker.terminate()
        printed, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert sorted(printed.splitlines()) == ["mail to ann", "mail to bob"]
    assert taskq_app.query("SELECT n FROM stock") == [(7,)]
    assert taskq_app.query("SELECT name, cron FROM taskq.schedules") == [("good morning", "0 8 * * *")]


def test_the_program_of_the_readme(taskq_app: App, tmp_path: Path) -> None:
    """Why: it is the first program that a newcomer types.

    How it failed: it called a function that it did not have, and answered an order that it had not inserted.
    """
    readme = (REPOSITORY / "README.md").read_text()
    [program] = re.findall(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    calls = re.findall(r"`(app\.\w+\(.*?\))`", readme)
    assert [call.split("(")[0] for call in calls] == ["app.insert", "app.signal"]
    assert program.count('"postgresql:///shop"') == 1
    (tmp_path / "shop.py").write_text(program.replace('"postgresql:///shop"', ""))
    (tmp_path / "calls.py").write_text("\n".join(["from shop import app", *calls, ""]))
    variables = environment(taskq_app)
    subprocess.run([sys.executable, "calls.py"], cwd=tmp_path, env=variables, check=True)
    worked = subprocess.run(
        [sys.executable, "-m", "taskq_pg", "work", "shop:app", "--until-idle"],
        cwd=tmp_path,
        env=variables,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worked.stdout == "mail to bob\n"
    assert taskq_app.query("SELECT result FROM taskq.tasks WHERE id = '7'") == [("receipt 7/pay, by ann",)]


def test_the_signatures_that_it_lists() -> None:
    """Each is of a function that there is, and names parameters of it, with their defaults."""
    [listed] = re.findall(r"^## Signatures$.*?^```text\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    of: dict[str, type] = {"app": App, "handle": Handle, "task": Task, "ctx": Context}
    functions = re.findall(r"^(\w+)\.(\w+)\((.*?)\)(?:  .*)?$", listed, re.MULTILINE)
    assert len(functions) > 30
    [app] = re.findall(r"^App\((.*)\)$", listed, re.MULTILINE)
    for name, function, arguments in [*functions, ("app", "__init__", app)]:
        there = inspect.signature(getattr(of[name], function)).parameters
        for argument in filter(None, re.split(r", (?![^(]*\))", arguments)):
            parameter, _, default = argument.lstrip("*").partition("=")
            if parameter:
                assert parameter in there, f"{name}.{function} has no {parameter}"
                if default:
                    assert there[parameter].default == ast.literal_eval(default), f"{name}.{function}: {argument}"


def test_the_tests_of_the_page(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "pytest", "-q", "test_shop.py"], cwd=folder, check=True)


def test_the_settings_of_django(taskq_app: App, folder: Path) -> None:
    (folder / "manage.py").write_text(
        "import sys\nfrom django.core.management import execute_from_command_line\n"
        "execute_from_command_line(sys.argv)\n"
    )
    with (folder / "settings.py").open("a") as settings:
        settings.write(
            "import os\nSECRET_KEY = 'for tests'\nDATABASES = {'default': {'ENGINE': 'django.db.backends.postgresql',"
            " 'NAME': os.environ['PGDATABASE']}}\n"
        )
    variables = {**environment(taskq_app), "DJANGO_SETTINGS_MODULE": "settings"}
    subprocess.run([sys.executable, "manage.py", "taskq_work", "--until-idle"], cwd=folder, env=variables, check=True)


def test_the_columns_that_it_names_exist(taskq_app: App) -> None:
    [query] = re.findall(r"`(SELECT count\s+FROM taskq\.count_tasks.*?)`", PAGE.read_text(), re.DOTALL)
    assert taskq_app.query(query) == []
