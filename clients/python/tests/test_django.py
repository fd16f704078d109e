"""The backend for Django's tasks; see programs/shop/check.py."""

import os
import subprocess
import sys
from importlib.metadata import requires

from conftest import TESTS, conninfo
from taskq_pg import App
from taskq_pg.testing import inserted


def test_the_extra_brings_what_django_lacks() -> None:
    """Django 5.2 has no tasks of its own, with whatever Python."""
    extra = [one for one in requires("taskq-pg") or () if one.startswith("django-tasks") and "'django'" in one]
    assert extra
    assert not [one for one in extra if "python_version" in one]


def test_django(taskq_app: App) -> None:
    environment = {**os.environ, "TEST_CONNINFO": conninfo(taskq_app), "DJANGO_SETTINGS_MODULE": "shop.settings"}
    done = subprocess.run(
        [sys.executable, "-m", "shop.check"],
        check=False,
        cwd=TESTS / "programs",
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.stdout.endswith("all is well\n")
    assert {task.action for task in inserted(taskq_app)} == {"django.default", "django.mail"}


def test_the_connection_of_django_is_one(taskq_app: App) -> None:
    """Outside of its tasks framework, `connection=` takes Django's connection."""
    program = """
import django; django.setup()
from django.db import connection, transaction
import taskq_pg
app = taskq_pg.App("host=/nowhere")
with transaction.atomic():
    app.insert("a", {"n": 1}, id="rolled back", connection=connection)
    transaction.set_rollback(True)
with transaction.atomic():
    app.insert("a", {"n": 1}, id="committed", connection=connection)
"""
    environment = {**os.environ, "TEST_CONNINFO": conninfo(taskq_app), "DJANGO_SETTINGS_MODULE": "shop.settings"}
    subprocess.run([sys.executable, "-c", program], check=True, cwd=TESTS / "programs", env=environment)
    assert [task.id for task in inserted(taskq_app)] == ["committed"]


def test_a_project_with_tests(taskq_app: App) -> None:
    """Migrations, checks, `perform`, the admin; see programs/shop/tests.py."""
    environment = {**os.environ, "TEST_CONNINFO": conninfo(taskq_app), "DJANGO_SETTINGS_MODULE": "shop.settings"}
    done = subprocess.run(
        [sys.executable, "-m", "django", "test", "--noinput"],
        check=False,
        cwd=TESTS / "programs",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
