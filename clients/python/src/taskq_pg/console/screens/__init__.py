"""The screens, by their addresses."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from ..view import View
from .failures import failures
from .graph import graph
from .inbox import inbox
from .limits import limits
from .overview import overview, series
from .schedules import schedules
from .task import task
from .tasks import tasks
from .workers import workers
from .workflows import workflows

SCREENS: dict[str, Callable[[View], Response]] = {
    "": overview,
    "tasks": tasks,
    "task": task,
    "inbox": inbox,
    "failures": failures,
    "workflows": workflows,
    "graph": graph,
    "schedules": schedules,
    "limits": limits,
    "workers": workers,
}

__all__ = ["SCREENS", "series"]
