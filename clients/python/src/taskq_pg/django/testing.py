"""Tests of a project of Django's: what a ``TestCase`` has enqueued is performed on its own connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import psycopg
from django.db import connections, transaction

from .. import borrowed
from ..calls import Calls
from ..performance import Performance
from .backend import backends

if TYPE_CHECKING:
    from django_tasks.base import TaskResult

_ACTOR = "a test"


def perform(*, backend: str = "default", queues: Iterable[str] | None = None, raises: bool = True) -> list[TaskResult]:
    """Perform what is ready, in the order of the queue, until there is nothing; returns the results of Django's.

    All is done on Django's connection, so in the transaction of a ``TestCase``, and in this thread. What a task raises
    is raised in the end; with ``raises=False`` the results alone tell. What is tried again waits for its back-off.
    """
    made = next((one for one in backends() if one.alias == backend), None)
    if made is None:
        raise ValueError(f'the backend "{backend}" is not taskq\'s')
    queues = sorted(made.queues if queues is None else queues)
    app, connection = made.app(queues), connections[made.database]
    wanted = [made.action(queue) for queue in queues]
    calls = Calls(app, _ACTOR, [app.handlers[action] for action in wanted])
    loop = asyncio.new_event_loop()  # which no handler of Django's uses
    performed: list[str] = []
    errors: list[BaseException] = []
    try:
        while tasks := calls.tasks(borrowed.execute(connection, *calls.own(1, calls.actions, sleeps=False))):
            performance = Performance(tasks[0], app.handlers[tasks[0].action], lambda _: None, loop)
            # With a worker the connection would be in autocommit mode, where a statement that fails breaks no other.
            # No atomic block: a task may have one that is to be the outermost.
            point = transaction.savepoint(using=made.database) if connection.in_atomic_block else None
            performance.run()
            if point is not None:
                broken = connection.connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
                if broken or connection.needs_rollback:
                    connection.needs_rollback = False  # with which no statement is sent
                    transaction.savepoint_rollback(point, using=made.database)
                else:
                    transaction.savepoint_commit(point, using=made.database)
            if performance.returns is not None:
                borrowed.execute(connection, *calls.give(f"[{performance.returns}]", 0, 1.0))
            performed.append(tasks[0].id)
            if (error := performance.error) is not None:
                errors.append(error.__cause__ or error)
    finally:
        loop.close()
    if raises and errors:
        raise errors[0] if len(errors) == 1 else BaseExceptionGroup("tasks have raised", errors)
    return [made.get_result(task_id) for task_id in dict.fromkeys(performed)]
