"""Client and worker for taskq, the task queue inside PostgreSQL.

An ``App`` has the handlers of a program, and inserts and performs tasks. Every guarantee is one SQL call's; this
package calls it at the right moment.
"""

from .app import App
from .errors import (
    Aborted,
    AlreadyExists,
    BodyError,
    Cycle,
    Leave,
    Lost,
    Malformed,
    NotFound,
    Reject,
    Retry,
    Suspend,
    TaskqError,
    TimedOut,
    WrongState,
)
from .handles import Handle
from .keys import Dependency, SharedKeys, TaskKeys
from .operate import Stored
from .registered import Registered
from .results import Result
from .task import Complete, Task
from .worker import Worker
from .workflow import AsyncContext, AsyncStatements, Context, Statements

__all__ = [
    "Aborted",
    "AlreadyExists",
    "App",
    "AsyncContext",
    "AsyncStatements",
    "BodyError",
    "Complete",
    "Context",
    "Cycle",
    "Dependency",
    "Handle",
    "Leave",
    "Lost",
    "Malformed",
    "NotFound",
    "Registered",
    "Reject",
    "Result",
    "Retry",
    "SharedKeys",
    "Statements",
    "Stored",
    "Suspend",
    "Task",
    "TaskKeys",
    "TaskqError",
    "TimedOut",
    "Worker",
    "WrongState",
]
