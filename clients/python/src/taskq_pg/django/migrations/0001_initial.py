"""Make the extension in the databases of the backends, where it is not there and the role may."""

# pyright: reportGeneralTypeIssues=false
from __future__ import annotations

from typing import Any

from django.db import DatabaseError, connections, migrations, models, transaction


def make_extension(_: Any, editor: Any) -> None:
    """Make it; where the role may not, the check ``taskq.W001`` goes on to say what to do."""
    from ..backend import backends

    alias = editor.connection.alias
    if editor.connection.vendor != "postgresql" or alias not in {backend.database for backend in backends()}:
        return
    try:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS taskq CASCADE")
    except DatabaseError as error:
        if getattr(error.__cause__, "sqlstate", None) != "42501":
            raise


class Migration(migrations.Migration):  # type: ignore[misc]  # Django has no types
    """The extension, and the view of tasks as Django knows it."""

    initial = True
    operations = [  # noqa: RUF012  # as Django has them
        migrations.RunPython(make_extension, migrations.RunPython.noop),
        migrations.CreateModel(
            name="Task",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("action", models.TextField()),
                ("state", models.TextField()),
                ("status", models.TextField(null=True)),
                ("cause", models.TextField(null=True)),
                ("body", models.TextField(null=True)),
                ("result", models.JSONField(null=True)),
                ("group_id", models.TextField(null=True)),
                ("priority", models.IntegerField()),
                ("num_tries", models.IntegerField()),
                ("actor_id", models.TextField(null=True)),
                ("inserted_at", models.DateTimeField()),
                ("not_before", models.DateTimeField(null=True)),
                ("settled_at", models.DateTimeField(null=True)),
            ],
            options={"managed": False, "db_table": 'taskq"."tasks', "default_permissions": ("view",)},
        ),
    ]
