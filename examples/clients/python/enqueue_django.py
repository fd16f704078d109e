"""A business row and its tasks in one transaction, with Django.

    PGHOST=... PGDATABASE=... python enqueue_django.py CUSTOMER TEXT [TEXT ...]

Either the order and its tasks are there, or none of them: an order without texts is refused after its row was
written, and a task that the queue refuses takes the order with it. A project of Django's in one file: settings, a model,
and what a view or a command would call.
"""

import json
import os
import sys

import django
from django.conf import settings

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ.get("PGDATABASE", "postgres"),
            "HOST": os.environ.get("PGHOST", ""),
            "PORT": os.environ.get("PGPORT", ""),
            "USER": os.environ.get("PGUSER", "postgres"),
            "PASSWORD": os.environ.get("PGPASSWORD", ""),
        }
    },
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
django.setup()

from django.db import connection, models, transaction  # noqa: E402  # pylint: disable=wrong-import-position


class Order(models.Model):
    customer = models.TextField()

    class Meta:
        app_label = "shop"
        db_table = "orders"


def insert_tasks(tasks: list[dict]) -> list[str]:
    """taskq.insert_tasks in the transaction that is open on Django's connection; the ids."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT taskq.insert_tasks(%s::jsonb)", [json.dumps(tasks)])
        return [task_id for (task_id,) in cursor.fetchall()]


@transaction.atomic
def place_order(customer: str, texts: list[str]) -> list[str]:
    """The business logic. Called in another atomic block, it is a part of that one."""
    order = Order.objects.create(customer=customer)
    # Ids made of the business key: the same order is not processed twice, however often it is asked for.
    parts = [
        {"id": f"order {order.pk} part {n}", "action": "checksum", "max_tries": 5, "body": {"text": part}}
        for n, part in enumerate(texts)
    ]
    done = {"id": f"order {order.pk}", "action": "order done", "spontaneous": True, "depends_on": [part["id"] for part in parts]}
    ids = insert_tasks([*parts, done])
    if not texts:
        raise ValueError("an order without texts")
    return ids


def main():
    # What a migration does in a project.
    if Order._meta.db_table not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            editor.create_model(Order)
    print("\n".join(place_order(sys.argv[1], sys.argv[2:])))


if __name__ == "__main__":
    main()
