"""``manage.py taskq_work``: perform Django's tasks."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ...backend import TaskqBackend

# Django has these from version 6 on, which not every Python has.
# pyright: reportMissingImports=false
try:
    from django.tasks import task_backends
except ImportError:
    from django_tasks import task_backends


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Perform tasks until SIGTERM."""

    help = "Performs the tasks of a taskq backend, until SIGTERM or SIGINT."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take the same options as ``python -m taskq_pg work``."""
        parser.add_argument("--backend", default="default", help="a key of the setting TASKS")
        parser.add_argument("--queue", action="append", dest="queues", help="only these; may be repeated")
        parser.add_argument("--concurrency", type=int, default=10)
        parser.add_argument("--grace", default="30 seconds")
        parser.add_argument("--until-idle", action="store_true")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Work."""
        backend = task_backends[options["backend"]]
        if not isinstance(backend, TaskqBackend):
            raise CommandError(f"the backend {options['backend']!r} is not taskq's")
        backend.app(options["queues"]).work(
            concurrency=options["concurrency"], grace=options["grace"], until_idle=options["until_idle"]
        )
