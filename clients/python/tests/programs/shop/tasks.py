"""Tasks of the project."""

from django.db import connection, transaction

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def add(a, b=0):
    return a + b


@task(queue_name="mail", priority=5)
async def send(to):
    return {"to": to}


@task(takes_context=True)
def attempt(context):
    if context.attempt == 1:
        raise LookupError("not yet")
    return context.attempt


@task
def fail():
    raise ValueError("never")


@task
def breaks():
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO auth_user SELECT 1, 'nobody'")


@task
@transaction.atomic(durable=True)
def outermost():
    return "done"


def helper(text: str) -> None:
    raise SystemExit(f"it was called with {text}")
