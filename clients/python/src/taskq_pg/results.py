"""How a task has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    """How a task has ended: one of the dependencies of a task, or one that was waited for."""

    task_id: str
    action: str | None
    status_code: str
    status: str | None
    result: Any

    @property
    def completed(self) -> bool:
        """Whether it has completed; it has aborted otherwise."""
        return self.status_code == "completed"
