"""The tasks of the queue in Django's admin: to look at."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from .backend import backends
from .models import Task


@admin.register(Task)
class TaskAdmin(admin.ModelAdmin):  # type: ignore[misc]  # Django has no types
    """Read only. The role of the database needs the rights of a monitor, which see all bodies and results."""

    list_display = ("id", "action", "state", "num_tries", "status", "inserted_at", "settled_at")
    list_filter = ("state", "action")
    search_fields = ("=id", "=action", "=group_id")
    ordering = ("-inserted_at",)
    show_full_result_count = False

    def get_queryset(self, request: Any) -> Any:
        """Read from the database of the queue."""
        return super().get_queryset(request).using(next((backend.database for backend in backends()), "default"))

    def has_add_permission(self, request: Any) -> bool:
        """Tell that none is made here."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """Tell that none is changed here."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        """Tell that none is removed here."""
        return False
