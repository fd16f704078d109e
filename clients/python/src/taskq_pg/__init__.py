"""Client and worker for taskq, the task queue inside PostgreSQL.

An ``App`` has the handlers of a program, and inserts and performs tasks. Every guarantee is one SQL call's; this
package calls it at the right moment.
"""

from .app import App
from .errors import Aborted, BodyError, Leave, Lost, Reject, Retry, Suspend, TaskqError, TimedOut
from .keys import Dependency, SharedKeys, TaskKeys
from .task import Outcome, Result, Task
from .worker import Worker
from .workflow import AsyncContext, AsyncStatements, Context, Statements

__all__ = [
    "Aborted",
    "App",
    "AsyncContext",
    "AsyncStatements",
    "BodyError",
    "Context",
    "Dependency",
    "Leave",
    "Lost",
    "Outcome",
    "Reject",
    "Result",
    "Retry",
    "SharedKeys",
    "Statements",
    "Suspend",
    "Task",
    "TaskKeys",
    "TaskqError",
    "TimedOut",
    "Worker",
]
