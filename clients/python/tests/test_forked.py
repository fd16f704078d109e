"""A process that a handler forks ends as a program ends; it does not go on as a copy of the worker."""

import asyncio
import os
import sys

import pytest

from taskq_pg import App
from taskq_pg.testing import drain


def leave(kind: str) -> None:
    if kind == "exits":
        sys.exit(3)
    if kind == "raises":
        raise LookupError("in the child")


@pytest.mark.parametrize("form", ["function", "coroutine"])
@pytest.mark.parametrize(("kind", "status"), [("exits", 3), ("raises", 1), ("returns", 0)])
def test_a_child_ends(taskq_app: App, form: str, kind: str, status: int) -> None:
    seen = []

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            leave(kind)
        else:
            seen.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    if form == "function":
        taskq_app.task("f", max_tries=1)(fork)
    else:

        @taskq_app.task("f", max_tries=1)
        async def coroutine() -> None:
            await asyncio.sleep(0)
            fork()

    taskq_app.insert("f")
    drain(taskq_app)
    assert seen == [status]
