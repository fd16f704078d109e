"""What the test of Django runs, in a process of its own: settings can be made once in a process."""

import datetime

import django

django.setup()

from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.db import connection, transaction
from django.utils import timezone

from shop import tasks

try:
    from django.tasks import TaskResultStatus, default_task_backend
    from django.tasks.exceptions import TaskResultDoesNotExist
except ImportError:
    from django_tasks import TaskResultStatus, default_task_backend
    from django_tasks.exceptions import TaskResultDoesNotExist

assert default_task_backend.supports_defer
assert default_task_backend.supports_async_task
assert default_task_backend.supports_get_result
assert default_task_backend.supports_priority

# In the transaction of the ORM.
with transaction.atomic():
    gone = tasks.add.enqueue(1)
    transaction.set_rollback(True)
with transaction.atomic():
    result = tasks.add.enqueue(1, b=2)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM taskq.tasks")
        assert cursor.fetchone() == (1,)
sent = async_to_sync(tasks.send.aenqueue)("ann")
retried, failed = tasks.attempt.enqueue(), tasks.fail.enqueue()
later = tasks.add.using(run_after=timezone.now() + datetime.timedelta(days=1), priority=-7).enqueue(5)

assert result.status == TaskResultStatus.READY
assert result.id
call_command("taskq_work", "--until-idle", "--concurrency", "1")

result.refresh()
assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 3, 1)
assert (result.args, result.kwargs) == ([1], {"b": 2})
assert result.enqueued_at <= result.started_at <= result.finished_at
assert tasks.send.get_result(sent.id).return_value == {"to": "ann"}

retried.refresh()
assert (retried.status, retried.return_value, retried.attempts) == (TaskResultStatus.SUCCESSFUL, 2, 2)
assert retried.errors[0].exception_class is LookupError
assert "not yet" in retried.errors[0].traceback

failed = default_task_backend.get_result(failed.id)
assert failed.status == TaskResultStatus.FAILED
assert [error.exception_class for error in failed.errors] == [ValueError, ValueError]

later = tasks.add.get_result(later.id)
assert (later.status, later.task.priority) == (TaskResultStatus.READY, -7)
assert later.task.run_after > timezone.now()
# What a body names is not imported unless it is a module of tasks, and not called unless it is a task.
for path in (
    "shop.dangerous.thing",
    "os.system",
    "unittest.mock.call",
    "shop.tasks.helper",
    "shop.tasks.other.thing",
    5,
):
    bad = default_task_backend._app.insert("django.default", {"task": path, "args": ["x"], "kwargs": {}})
    call_command("taskq_work", "--until-idle")
    [[state, status]] = default_task_backend._app.query("SELECT state, status FROM taskq.tasks WHERE id = %s", [bad])
    assert state == "aborted", (path, state, status)
    assert "is in no module" in status or "is no task" in status, status
    try:
        default_task_backend.get_result(bad)
    except TaskResultDoesNotExist:
        continue
    raise AssertionError(path)
assert "shop.dangerous" not in __import__("sys").modules

try:
    default_task_backend.get_result(gone.id)
except TaskResultDoesNotExist:
    print("all is well")
