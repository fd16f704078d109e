"""What a wait of a workflow may say besides its signal: until when, and until when the signal is kept."""

from typing import Any

import pytest

import taskq_pg as taskq
from conftest import column, state
from taskq_pg import App
from taskq_pg.testing import drain, inserted, travel


@pytest.mark.parametrize("flavour", ["function", "coroutine"])
def test_a_signal_of_a_wait_that_timed_out_need_not_stay(taskq_app: App, flavour: str) -> None:
    keys: dict[str, Any] = {"signal": "never", "timeout": "1 hour", "expires_in": "2 hours"}
    if flavour == "function":

        @taskq_app.workflow("w")
        def function(ctx: taskq.Context) -> str:
            try:
                return str(ctx.wait_for("a", **keys))
            except taskq.TimedOut:
                return "timed out"
    else:

        @taskq_app.workflow("w")
        async def coroutine(ctx: taskq.AsyncContext) -> str:
            try:
                return str(await ctx.wait_for("a", **keys))
            except taskq.TimedOut:
                return "timed out"

    taskq_app.insert("w", id="w")
    drain(taskq_app)
    travel(taskq_app, "90 minutes")
    drain(taskq_app)
    assert column(taskq_app, "w", "result") == "timed out"
    assert state(taskq_app, "never") == "blocked"
    travel(taskq_app, "1 hour")
    drain(taskq_app)
    assert (state(taskq_app, "never"), column(taskq_app, "never", "cause")) == ("aborted", "expired")
    with pytest.raises(TypeError, match="may expire"):
        taskq.Context(held(taskq_app), 60).wait_for("a", tasks=["w"], expires_in="1 hour")


def held(app: App) -> taskq.Task:
    return taskq.Task(app, "t", "t", "a", None, 1, 0, None, None, 0, None, None, [], {})


def test_a_map_times_out(taskq_app: App) -> None:
    @taskq_app.workflow("w")
    def workflow(ctx: taskq.Context) -> Any:
        try:
            return ctx.map("m", "nobody", [1, 2], timeout="1 hour")
        except taskq.TimedOut as error:
            return str(error)

    taskq_app.insert("w", id="w")
    drain(taskq_app)
    travel(taskq_app, "2 hours")
    drain(taskq_app)
    assert column(taskq_app, "w", "result") == '"m" has not ended within 1 hour'
    assert [task.state for task in inserted(taskq_app, "nobody")] == ["ready", "ready"]
