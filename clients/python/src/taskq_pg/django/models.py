"""The tasks of the queue, as Django's ORM reads them."""

from __future__ import annotations

from django.db import models


class Task(models.Model):  # type: ignore[misc]  # Django has no types
    """A row of the view ``taskq.tasks``: to be read, never written."""

    id = models.TextField(primary_key=True)
    action = models.TextField()
    state = models.TextField()
    status = models.TextField(null=True)
    cause = models.TextField(null=True)
    body = models.TextField(null=True)
    result = models.JSONField(null=True)
    group_id = models.TextField(null=True)
    priority = models.IntegerField()
    num_tries = models.IntegerField()
    actor_id = models.TextField(null=True)
    inserted_at = models.DateTimeField()
    not_before = models.DateTimeField(null=True)
    settled_at = models.DateTimeField(null=True)

    class Meta:
        """A view in a schema of its own."""

        managed = False
        # Django puts this between quotes.
        db_table = 'taskq"."tasks'
        default_permissions = ("view",)

    def __str__(self) -> str:
        """Return the id."""
        return str(self.id)
