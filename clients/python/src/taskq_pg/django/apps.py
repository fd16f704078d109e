"""The app of Django's: its checks, and what tests leave behind."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import connections
from django.db.models.signals import post_migrate


class TaskqConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """``taskq_pg.django`` in INSTALLED_APPS."""

    name = "taskq_pg.django"
    label = "taskq"
    verbose_name = "taskq"

    def ready(self) -> None:
        """Register the check of the database, and the end of a test."""
        checks.register(check_extension, checks.Tags.database)
        post_migrate.connect(leave_no_tasks, sender=self)


def check_extension(
    app_configs: Sequence[AppConfig] | None = None, databases: Iterable[str] | None = None, **_: Any
) -> list[checks.CheckMessage]:
    """Tell that a database lacks the extension. A warning: ``migrate``, which mends it, checks first."""
    from .backend import backends

    lacking = []
    used = {backend.database for backend in backends()}
    for alias in sorted(used.intersection(databases or ())):
        if connections[alias].vendor == "postgresql" and not _has_extension(alias):
            hint = "manage.py migrate taskq, by a role that may; or as a superuser: CREATE EXTENSION taskq"
            lacking.append(checks.Warning(f'the database "{alias}" lacks the extension taskq', hint, id="taskq.W001"))
    return lacking


def leave_no_tasks(using: str, **_: Any) -> None:
    """Remove the tasks of a test: a TransactionTestCase ends with a flush, which ends with this signal."""
    state = getattr(sys.modules.get("django.test.utils"), "_TestState", None)
    if not hasattr(state, "saved_data"):
        return  # this is no test
    from .backend import backends

    if any(backend.database == using for backend in backends()) and _has_extension(using):
        with connections[using].cursor() as cursor:
            cursor.execute("SELECT taskq.delete_tasks(array_agg(id)) FROM taskq.tasks HAVING count(*) > 0")


def _has_extension(alias: str) -> bool:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_catalog.pg_extension WHERE extname = 'taskq'")
        return bool(cursor.fetchone()[0])
