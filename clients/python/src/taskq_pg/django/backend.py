"""A backend for ``django.tasks`` (Django 6) and ``django-tasks`` (Django 5.2).

::

    INSTALLED_APPS = [..., "taskq_pg.django"]
    TASKS = {"default": {"BACKEND": "taskq_pg.django.backend.TaskqBackend"}}

A task is enqueued on Django's own connection, so in the transaction that is open there: it commits with your rows. A
queue of Django's is an action of taskq, such as ``django.default``. What may stand in ``OPTIONS``:

* ``database``: an alias, ``"default"`` if left out;
* ``lease``: ``"1 minute"`` if left out;
* ``prefix`` of the actions: ``"django."`` if left out;
* ``modules``: where tasks are besides the modules ``tasks`` of INSTALLED_APPS;
* ``insert``: keys that every task is inserted with, such as ``{"max_tries": 3}``.

Keys of one task: ``add.using(max_tries=1, unique_by="total", group_id="nightly").enqueue(1)``.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import psycopg
from django.apps import apps
from django.core import checks
from django.db import connections
from django.utils import timezone

from ..app import App
from ..durations import seconds
from ..errors import Reject, Retry
from ..keys import SharedKeys
from ..task import Task as Held

# Django has these from version 6 on, which not every Python has. The package has the same ones, with the same types.
if TYPE_CHECKING:
    from django_tasks import task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
else:
    try:
        from django.tasks import task_backends
        from django.tasks.backends.base import BaseTaskBackend
        from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
        from django.tasks.exceptions import TaskResultDoesNotExist
        from django.tasks.signals import task_enqueued, task_finished, task_started
    except ImportError:
        from django_tasks import task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started

_STATUS = {
    "pending": TaskResultStatus.READY,
    "in-progress": TaskResultStatus.RUNNING,
    "completed": TaskResultStatus.SUCCESSFUL,
    "aborted": TaskResultStatus.FAILED,
}
_FIND = """SELECT body, priority, not_before, status_code::text, result, inserted_at, settled_at, action
             FROM taskq.tasks WHERE id = %s AND starts_with(action, %s)"""
_ATTEMPTS = """SELECT actor_id, started_at, outcome, status
                  FROM taskq.attempts WHERE task_id = %s ORDER BY started_at"""

# Of a traceback the last part is kept, where the error is.
_LONGEST_TRACEBACK = 3000


# What may stand in OPTIONS.
_OPTIONS = {"database", "lease", "prefix", "modules", "insert"}
_OF_DJANGO = ("priority", "queue_name", "run_after", "backend")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskqTask(Task):  # type: ignore[misc]  # Django has no types
    """A task of Django's, with keys of the queue's."""

    keys: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    def using(self, **values: Any) -> TaskqTask:
        """Return the task with other values: those of Django's ``using``, and keys of ``App.insert``."""
        keys = {name: values.pop(name) for name in [*values] if name not in _OF_DJANGO}
        if unknown := keys.keys() - SharedKeys.__annotations__.keys():
            raise TypeError(f"no key of a task: {', '.join(sorted(unknown))}")
        made: Any = Task.using(self, **values)
        changed: TaskqTask = dataclasses.replace(made, keys={**self.keys, **keys})
        return changed


class TaskqBackend(BaseTaskBackend):  # type: ignore[misc]  # Django has no types
    """Django's tasks in taskq."""

    task_class = TaskqTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Read the options."""
        super().__init__(alias, params)
        self.database: str = self.options.get("database", "default")
        """The alias of the database that has the queue."""
        self._prefix = self.options.get("prefix", "django.")
        self._keys = self.options.get("insert", {})
        self._app = App(self._connect, lease=self.options.get("lease", "1 minute"))

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Insert a task, in the transaction of Django's connection."""
        self.validate_task(task)
        self._find(task.module_path)
        result = _result(task, "", TaskResultStatus.READY, list(args), dict(kwargs), self.alias)
        keys: dict[str, Any] = {"priority": task.priority, **self._keys, **getattr(task, "keys", {})}
        if task.run_after is not None:
            keys["not_before"] = task.run_after
        task_id = self._app.insert(
            self.action(task.queue_name),
            {"task": task.module_path, "args": result.args, "kwargs": result.kwargs},
            connection=connections[self.database],
            **keys,
        )
        _set(result, id=str(task_id), enqueued_at=timezone.now())
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return the task as the queue has it; the role needs the rights of a monitor."""
        with connections[self.database].cursor() as cursor:
            cursor.execute(_FIND, [result_id, self._prefix])
            row = cursor.fetchone()
            if row is None:
                raise TaskResultDoesNotExist(result_id)
            cursor.execute(_ATTEMPTS, [result_id])
            attempts = cursor.fetchall()
        text, priority, run_after, code, value, inserted_at, settled_at, action = row
        body = json.loads(text)
        try:
            task = self._find(body["task"])
        except (Reject, ImportError) as error:
            raise TaskResultDoesNotExist(result_id) from error
        task = task.using(
            priority=priority, queue_name=action.removeprefix(self._prefix), run_after=run_after, backend=self.alias
        )
        result = _result(task, result_id, _STATUS[code], body["args"], body["kwargs"], self.alias)
        started = [attempt[1] for attempt in attempts]
        workers = [attempt[0] for attempt in attempts]
        _set(
            result,
            enqueued_at=inserted_at,
            finished_at=settled_at,
            started_at=min(started, default=None),
            last_attempted_at=max(started, default=None),
            worker_ids=workers,
            errors=[_error(attempt[3] or attempt[2]) for attempt in attempts if attempt[2] not in _NO_ERRORS],
            _return_value=_json(value) if code == "completed" else None,
        )
        return result

    def app(self, queues: Iterable[str] | None = None) -> App:
        """Return the app that performs the tasks of these queues, or of all that the settings name."""
        names = sorted(self.queues if queues is None else queues)
        if not names:
            raise ValueError("name the queues: the settings of this backend do not")
        for action in map(self.action, names):
            if action not in self._app.handlers:
                self._app.task(action)(self._perform)
        return self._app

    def action(self, queue: str) -> str:
        """Return the action that the tasks of a queue have."""
        return str(self._prefix + queue)

    def check(self, **_: Any) -> Iterator[checks.CheckMessage]:
        """Tell what is wrong with the options."""
        where = f'TASKS["{self.alias}"]["OPTIONS"]'
        for name in sorted(self.options.keys() - _OPTIONS):
            hint = f"there are {', '.join(sorted(_OPTIONS))}"
            yield checks.Error(f'{where} has "{name}", which is none', hint, id="taskq.E001")
        for name in sorted(self._keys.keys() - SharedKeys.__annotations__.keys()):
            hint = f"there are {', '.join(sorted(SharedKeys.__annotations__))}"
            yield checks.Error(f'{where}["insert"] has "{name}", which is no key of a task', hint, id="taskq.E002")
        try:
            seconds(self.options.get("lease", "1 minute"))
        except (TypeError, ValueError) as error:
            yield checks.Error(f'{where}["lease"]: {error}', id="taskq.E003")
        if self.database not in connections or connections[self.database].vendor != "postgresql":
            yield checks.Error(f'{where}["database"]: "{self.database}" is no database of PostgreSQL', id="taskq.E004")

    def _find(self, path: Any) -> Task:
        """Return a task of Django's by its path. Nothing is imported that only a body names."""
        modules = [f"{config.name}.tasks" for config in apps.get_app_configs()] + list(self.options.get("modules", []))
        module = max((one for one in modules if f"{path}".startswith(f"{one}.")), key=len, default=None)
        if module is None:
            raise Reject(f"{path!r} is in no module of tasks of INSTALLED_APPS, nor in the option modules")
        importlib.import_module(module)
        within, _, name = path.rpartition(".")
        if within not in sys.modules:
            raise Reject(f"{path!r} is in no module that {module} has imported, nor in the option modules")
        task = getattr(sys.modules[within], name, None)
        if task is None:
            raise ImportError(f"{within} has no {name}")
        if not isinstance(task, Task):
            raise Reject(f"{path!r} is no task")
        return task

    def _perform(self, body: dict[str, Any], held: Held) -> Any:
        _close_old_connections()
        try:
            task = self._find(body["task"])
        except ImportError as error:
            # Another release may know it.
            raise Retry(f"no such task: {error}") from error
        result = _result(task, held.id, TaskResultStatus.RUNNING, body["args"], body["kwargs"], self.alias)
        _set(result, worker_ids=["taskq"] * held.num_tries)
        task_started.send(type(self), task_result=result)
        context = [TaskContext(task_result=result)] if task.takes_context else []
        try:
            value = task.call(*context, *body["args"], **body["kwargs"])
        except (Reject, Retry):
            raise
        except Exception as error:
            status = _status(error)
            _set(result, status=TaskResultStatus.FAILED, errors=[_error(status)])
            task_finished.send(type(self), task_result=result)
            raise Retry(status) from error
        finally:
            _close_old_connections()
        _set(result, status=TaskResultStatus.SUCCESSFUL, _return_value=value)
        task_finished.send(type(self), task_result=result)
        return value

    def _connect(self) -> psycopg.Connection[Any]:
        """Open a connection with Django's settings of the database."""
        parameters = connections[self.database].get_connection_params()
        for name in ("cursor_factory", "context"):
            parameters.pop(name, None)
        return psycopg.connect(**{"application_name": "taskq", **parameters})


def backends() -> Iterator[TaskqBackend]:
    """Yield those of the setting TASKS that are taskq's."""
    yield from (task_backends[alias] for alias in task_backends if isinstance(task_backends[alias], TaskqBackend))


def _close_old_connections() -> None:
    for connection in connections.all(initialized_only=True):
        # A test performs tasks in its transaction.
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


_NO_ERRORS = ("in-progress", "completed", "released")


def _result(
    task: Task, task_id: str, status: TaskResultStatus, args: list[Any], kwargs: dict[str, Any], alias: str
) -> TaskResult:
    return TaskResult(
        task=task,
        id=task_id,
        status=status,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def _set(result: TaskResult, **values: Any) -> None:
    # Results are frozen; Django's own backends fill them like this.
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _status(error: BaseException) -> str:
    kind = type(error)
    trace = "".join(traceback.format_exception(error))[-_LONGEST_TRACEBACK:]
    return f"{kind.__module__}.{kind.__qualname__}\n{trace}"


def _error(status: str) -> TaskError:
    """Return the error of an attempt, whose status was made by ``_status``, or by the queue."""
    first, _, rest = status.partition("\n")
    known = rest and " " not in first
    return TaskError(exception_class_path=first if known else "builtins.Exception", traceback=rest if known else status)


def _json(value: Any) -> Any:
    # Django's cursors leave jsonb as text.
    return json.loads(value) if isinstance(value, str) else value
