"""Schedules: a worker of the package inserts the runs that are due, whether or not there is a background worker."""

import pytest

import taskq_pg as taskq
from conftest import Server, until, working
from taskq_pg import App
from taskq_pg.calls import Calls
from taskq_pg.testing import drain, inserted, travel


def test_a_run_after_a_journey(taskq_app: App) -> None:
    taskq_app.task("report")(lambda: 1)
    taskq_app.schedule("nightly", "0 2 * * *", "report")
    taskq_app.setup()
    travel(taskq_app, "1 day")
    drain(taskq_app)
    assert [task.state for task in inserted(taskq_app, "report")] == ["completed"]
    travel(taskq_app, "1 day")
    drain(taskq_app, concurrency=5)
    assert [task.state for task in inserted(taskq_app, "report")] == ["completed"] * 2


@pytest.mark.parametrize("form", ["waiting", "busy", "until idle"])
def test_without_a_background_worker(server: Server, own_app: App, form: str) -> None:
    with own_app.connections.use() as connection:
        connection.execute("SELECT taskq.clock()")
        connection.execute("ALTER SYSTEM SET taskq.background_worker = off")
        connection.execute("SELECT pg_reload_conf()")
    try:
        runs = []

        @own_app.task("tick")
        def tick(body: None, task: taskq.Task) -> None:
            runs.append(task.id)

        own_app.schedule("tick", "* * * * * *", "tick", overlap="queue")
        own_app.setup()
        if form == "until idle":
            until(lambda: own_app.query("SELECT next_at < clock_timestamp() FROM taskq.schedules")[0][0])
            own_app.work(until_idle=True)
            assert runs
            return
        if form == "busy":

            @own_app.task("noop")
            async def noop(body: None, task: taskq.Task) -> taskq.Complete:
                return taskq.Complete(children=[{"action": "noop", "delay": "0.05 seconds"}])

            own_app.insert_many("noop", [None] * 5)
        with working(own_app, concurrency=2):
            until(lambda: runs)
    finally:
        with own_app.connections.use() as connection:
            connection.execute("ALTER SYSTEM RESET taskq.background_worker")
            connection.execute("SELECT pg_reload_conf()")


def test_a_busy_worker_sees_to_what_is_due(taskq_app: App) -> None:
    """The call that returns and claims inserts the runs that are due, and grants them."""
    taskq_app.task("report")(lambda: 1)
    taskq_app.schedule("nightly", "0 2 * * *", "report")
    taskq_app.setup()
    travel(taskq_app, "1 day")
    calls = Calls(taskq_app, "busy", taskq_app.handlers.values())
    granted = [calls.tasks(taskq_app.query(*calls.give("[]", 1, 1.0))) for _ in range(2)]
    assert [task.action for tasks in granted for task in tasks] == ["report"]
